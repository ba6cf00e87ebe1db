package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"synctl/internal/bulk"
)

const (
	batchBytes = 512 << 10 // of decoded values that a batch aims at
	mostRows   = 8192
)

// reader reads row groups, a file open at a time.
type reader struct {
	source  *Source
	columns []int

	part    part
	file    *fileReader
	path    string
	batch   int64
	records pqarrow.RecordReader
	at      []int          // per wanted column, where it is in what is read
	placed  map[string]int // per column that the filter compares, where it is
	row     int64          // number of the next row in the file
	left    int64          // rows of the group not read yet
}

// Next implements bulk.Reader.
func (r *reader) Next(ctx context.Context) (b *bulk.Batch, err error) {
	for {
		if r.records == nil {
			p, ok := r.source.take()
			if !ok {
				return nil, io.EOF
			}
			if err := guard(p.path, func() error { return r.open(ctx, p) }); err != nil {
				return nil, err
			}
		}
		err := guard(r.part.path, func() error {
			b, err = r.read()
			return err
		})
		if err != nil || b != nil {
			return b, err
		}
	}
}

// open begins a row group, in the file that is open when it is the same.
func (r *reader) open(ctx context.Context, p part) error {
	batch := int64(mostRows)
	if p.rows > 0 {
		batch = min(max(batchBytes/max(p.bytes/p.rows, 1), 1), mostRows)
	}
	if r.file == nil || r.path != p.path || r.batch != batch {
		if r.file != nil {
			r.file.close()
			r.file = nil
		}
		f, err := openFile(p.path, batch)
		if err != nil {
			return err
		}
		r.file, r.path, r.batch = f, p.path, batch
	}
	names, filterAt := r.names()
	leaves, at, err := r.file.leaves(names)
	if err != nil {
		return err
	}
	if err := verifyChecksums(p.path, r.file.file.MetaData().RowGroup(p.group), leaves); err != nil {
		return err
	}
	if r.records, err = r.file.arrow.GetRecordReader(ctx, leaves, []int{p.group}); err != nil {
		r.records = nil
		return err
	}
	r.at = at[:filterAt]
	r.placed = map[string]int{}
	for i, name := range names {
		r.placed[name] = at[i]
	}
	r.part, r.row, r.left = p, p.first, p.rows
	return nil
}

// names are the columns to read: those wanted, then those that only the filter needs.
func (r *reader) names() (names []string, wanted int) {
	have := map[string]bool{}
	for _, c := range r.columns {
		name := r.source.schema.Field(c).Name
		names, have[name] = append(names, name), true
	}
	wanted = len(names)
	for _, name := range r.source.filter.columns() {
		if !have[name] {
			names, have[name] = append(names, name), true
		}
	}
	return names, wanted
}

// read gives the next batch of the row group, nil at its end.
func (r *reader) read() (*bulk.Batch, error) {
	if !r.records.Next() {
		err := r.records.Err()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		r.records.Release()
		r.records = nil
		if err == nil && r.left != 0 {
			err = fmt.Errorf("row group %d ends %d rows before its end", r.part.group, r.left)
		}
		return nil, err
	}
	rb := r.records.RecordBatch()
	n := rb.NumRows()
	if n > r.left {
		return nil, fmt.Errorf("row group %d has more rows than its footer says", r.part.group)
	}
	keep, err := r.source.filter.keep(rb, r.placed)
	if err != nil {
		return nil, err
	}
	cols := make([]arrow.Array, len(r.at))
	fields := make([]arrow.Field, len(r.at))
	for i, at := range r.at {
		cols[i], fields[i] = rb.Column(at), rb.Schema().Field(at)
		if int64(cols[i].Len()) != n {
			return nil, fmt.Errorf("row group %d: column %q has %d values for %d rows", r.part.group, fields[i].Name, cols[i].Len(), n)
		}
	}
	out := array.NewRecordBatch(arrow.NewSchema(fields, nil), cols, n)
	b := &bulk.Batch{Part: base(r.part.path), First: r.row, Arrow: out, Rows: int(n), Keep: keep, Whole: bulk.WholeArrow(out),
		Detach: func() func() { out.Retain(); return out.Release }}
	r.row += n
	r.left -= n
	return b, nil
}

// Close implements bulk.Reader.
func (r *reader) Close() error {
	if r.records != nil {
		r.records.Release()
	}
	if r.file != nil {
		r.file.close()
	}
	return nil
}
