package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pq "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/jackc/pgx/v5"

	"synctl/internal/testkit"
)

// BenchmarkBulkLoad times loads of the same rows: psql's \copy of a binary and of a CSV file into an unlogged table, and
// synctl's of Parquet and CSV with 1, 2 and 4 writers.
func BenchmarkBulkLoad(b *testing.B) {
	bin, err := benchBinary()
	if err != nil {
		b.Fatal(err)
	}
	rows := benchRows(b)
	dsn := testkit.Shared(b).Database(b)
	conn := testkit.Connect(b, dsn)
	testkit.Exec(b, conn, "CREATE TABLE orders (id bigint NOT NULL PRIMARY KEY, customer int, amount numeric(12,2), at timestamptz, ok boolean, note text)")
	dir := b.TempDir()
	parquet, binary, csv := filepath.Join(dir, "orders.parquet"), filepath.Join(dir, "orders.bin"), filepath.Join(dir, "orders.csv")
	writeOrders(b, parquet, rows)
	psql := func(sql string) {
		cmd := exec.Command("psql", "-X", "-q", "-d", dsn, "-c", sql)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("psql %s: %v\n%s", sql, err, out)
		}
	}
	load := func(from string, writers int) {
		cmd := exec.Command(bin, "bulk", "load", "--from", from, "--to", dsn, "--table", "orders", "--writers", fmt.Sprint(writers), "--progress", "none", "--log-level", "warn")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("load %s: %v\n%s", from, err, out)
		}
	}
	load("parquet:"+parquet, 1)
	psql(`\copy orders_staging to '` + binary + `' (format binary)`)
	psql(`\copy orders_staging to '` + csv + `' (format csv, header)`)
	ways := []struct {
		name string
		run  func()
	}{
		{"psql-copy-binary", func() { psql(`\copy peer from '` + binary + `' (format binary)`) }},
		{"parquet-1-writer", func() { load("parquet:"+parquet, 1) }},
		{"parquet-2-writers", func() { load("parquet:"+parquet, 2) }},
		{"parquet-4-writers", func() { load("parquet:"+parquet, 4) }},
		{"psql-copy-csv", func() { psql(`\copy peer from '` + csv + `' (format csv, header)`) }},
		{"csv-1-writer", func() { load("csv:"+csv, 1) }},
		{"csv-2-writers", func() { load("csv:"+csv, 2) }},
	}
	for b.Loop() {
		times := make([][]time.Duration, len(ways))
		for range benchRuns {
			for i, w := range ways {
				fresh(b, conn)
				began := time.Now()
				w.run()
				times[i] = append(times[i], time.Since(began))
			}
		}
		for i, w := range ways {
			slices.Sort(times[i])
			b.ReportMetric(float64(rows)/times[i][len(times[i])/2].Seconds(), w.name+"-rows/s")
		}
	}
}

// fresh gives psql an empty unlogged table and takes the last staging table away, outside of what is timed.
func fresh(b *testing.B, conn *pgx.Conn) {
	b.Helper()
	for _, sql := range []string{"DROP TABLE IF EXISTS peer, orders_staging", "CREATE UNLOGGED TABLE peer (LIKE orders EXCLUDING ALL)", "CHECKPOINT"} {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			b.Fatal(err)
		}
	}
}

// writeOrders writes rows of six ordinary columns, in row groups of the usual size.
func writeOrders(b *testing.B, path string, rows int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "customer", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "amount", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true}, {Name: "at", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
		{Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}, {Name: "note", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	const group = 122_880
	w, err := pqarrow.NewFileWriter(schema, f, pq.NewWriterProperties(pq.WithCompression(compress.Codecs.Snappy), pq.WithMaxRowGroupLength(group)), pqarrow.DefaultWriterProps())
	if err != nil {
		b.Fatal(err)
	}
	for from := 0; from < rows; from += group {
		rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := from; i < min(from+group, rows); i++ {
			rb.Field(0).(*array.Int64Builder).Append(int64(i))
			rb.Field(1).(*array.Int32Builder).Append(int32(i * 7919 % 100_003))
			rb.Field(2).(*array.Decimal128Builder).Append(decimal128.FromI64(int64(i * 31 % 10_000_000)))
			rb.Field(3).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000_000 + int64(i)*1_000_003))
			rb.Field(4).(*array.BooleanBuilder).Append(i%3 == 0)
			rb.Field(5).(*array.StringBuilder).Append(fmt.Sprintf("note number %d of many", i))
		}
		if err := w.Write(rb.NewRecordBatch()); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
