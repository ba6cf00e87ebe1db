package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

const (
	group    = 100_000
	dataDay  = "2026-11-30"
	statuses = 4
)

// writeData writes the orders of a day.
func writeData(path string, rows int) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create data set: %w", err)
	}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "day", Type: arrow.FixedWidthTypes.Date32},
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "customer", Type: arrow.PrimitiveTypes.Int32},
		{Name: "total", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}},
		{Name: "status", Type: arrow.BinaryTypes.String},
		{Name: "placed_at", Type: arrow.FixedWidthTypes.Timestamp_us},
	}, nil)
	w, err := pqarrow.NewFileWriter(schema, f, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy)), pqarrow.DefaultWriterProps())
	if err != nil {
		return fmt.Errorf("open data set: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	day, err := time.Parse(time.DateOnly, dataDay)
	if err != nil {
		return err
	}
	for from := 0; from < rows; from += group {
		if err := writeGroup(w, schema, day, from, min(from+group, rows)); err != nil {
			return fmt.Errorf("write data set: %w", err)
		}
	}
	return nil
}

func writeGroup(w *pqarrow.FileWriter, schema *arrow.Schema, day time.Time, from, to int) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Date32Builder).Append(arrow.Date32FromTime(day))
		b.Field(1).(*array.Int64Builder).Append(int64(i + 1))
		b.Field(2).(*array.Int32Builder).Append(int32(i * 7919 % 10_007))
		b.Field(3).(*array.Decimal128Builder).Append(decimal128.FromI64(int64(i * 31 % 100_000)))
		b.Field(4).(*array.StringBuilder).Append([statuses]string{"new", "paid", "sent", "returned"}[i%statuses])
		b.Field(5).(*array.TimestampBuilder).Append(arrow.Timestamp(day.UnixMicro() + int64(i)*86_000))
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	return w.Write(batch)
}
