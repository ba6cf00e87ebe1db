package csv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"synctl/internal/bulk"
	"synctl/internal/bulk/convert"
	"synctl/internal/bulk/lines"
	"synctl/internal/fault"
	"synctl/internal/record"
)

// Options say how the files are written. Zero values are the usual ones.
type Options struct {
	Delimiter byte     // 0: ,
	Null      string   // what stands, without quotes, for null; default the empty value
	NoHeader  bool     // the first record is data, and Names are the columns' names
	Names     []string // with NoHeader
}

// Source is a set of CSV files with the same columns.
type Source struct {
	name  string
	o     Options
	files []string
	names []string
	set   *lines.Set
	size  bulk.Size
}

// Open reads the header of every file that glob matches.
func Open(ctx context.Context, glob string, o Options) (*Source, error) {
	if o.Delimiter == 0 {
		o.Delimiter = ','
	}
	if o.Delimiter == '"' || o.Delimiter == '\n' || o.Delimiter == '\r' {
		return nil, fault.New(fault.Usage, "Use a comma, a semicolon, a tab or the like.", "delimiter %q", o.Delimiter)
	}
	if o.NoHeader && len(o.Names) == 0 {
		return nil, fault.New(fault.Usage, "Name the columns in their order with --columns a,b,c.", "CSV files without a header have no names for their columns")
	}
	files, err := bulk.Glob("csv", glob)
	if err != nil {
		return nil, err
	}
	s := &Source{name: "csv:" + glob, o: o, files: files, size: bulk.Size{Rows: -1, Parts: len(files), PartsName: "files"}}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			s.size.Bytes += info.Size()
		}
	}
	return s, s.readHeaders(ctx)
}

// readHeaders holds every file's header against the first one's.
func (s *Source) readHeaders(ctx context.Context) error {
	if s.o.NoHeader {
		s.names = s.o.Names
		s.set = lines.NewSet(s.files, nil, s.format())
		return nil
	}
	for _, f := range s.files {
		names, err := s.header(ctx, f)
		if err != nil {
			return err
		}
		if s.names == nil {
			s.names = names
		} else if strings.Join(names, "\x00") != strings.Join(s.names, "\x00") {
			return fault.New(fault.Check, "Load files of different columns in loads of their own.", "file %s has the columns %s, %s has %s",
				f, strings.Join(names, ", "), s.files[0], strings.Join(s.names, ", "))
		}
	}
	s.set = lines.NewSet(s.files, nil, s.format())
	return nil
}

func (s *Source) format() lines.Format { return lines.Format{Quote: '"', Delimiter: s.o.Delimiter} }

func (s *Source) header(ctx context.Context, path string) ([]string, error) {
	set := lines.NewSet([]string{path}, nil, s.format())
	defer set.Close()
	b, err := set.Peek(ctx)
	if errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Failed, "A file needs at least its header; see also --csv-no-header.", "file %s is empty", path)
	}
	if err != nil {
		return nil, err
	}
	p := parser{delimiter: s.o.Delimiter}
	fields, _, err := p.record(append([]byte(nil), b.Data...))
	if err != nil {
		return nil, fault.New(fault.Failed, "Check the first line.", "read header of %s: %w", path, err)
	}
	var names []string
	for _, f := range fields {
		names = append(names, string(f.data))
	}
	return names, nil
}

// Name, Fields, Size and Close make Source a bulk.Source.
func (s *Source) Name() string    { return s.name }
func (s *Source) Size() bulk.Size { return s.size }
func (s *Source) Close() error    { return s.set.Close() }
func (s *Source) Fields() []bulk.Field {
	var fields []bulk.Field
	for _, n := range s.names {
		fields = append(fields, bulk.Field{Name: n})
	}
	return fields
}

// Readers gives readers that take block after block.
func (s *Source) Readers(_ context.Context, columns []int, n int) ([]bulk.Reader, error) {
	var readers []bulk.Reader
	for range n {
		r := &reader{source: s, cursor: s.set.Cursor(), width: len(columns), at: make([]int, len(s.names))}
		r.parser.delimiter = s.o.Delimiter
		for i := range r.at {
			r.at[i] = -1
		}
		for i, c := range columns {
			r.at[c] = i
		}
		for _, c := range columns {
			r.loaded = append(r.loaded, s.names[c])
		}
		readers = append(readers, r)
	}
	return readers, nil
}

type reader struct {
	source *Source
	cursor *lines.Cursor
	parser parser
	block  lines.Block
	cells  []convert.Cell
	starts []int64 // line of each row
	at     []int   // per column of the file its place among those loaded, or -1
	loaded []string
	width  int
	kept   bool
}

// Next implements bulk.Reader.
func (r *reader) Next(ctx context.Context) (*bulk.Batch, error) {
	if r.kept { // what the last batch points into is somebody else's now
		r.block.Data, r.cells, r.starts, r.kept = nil, nil, nil, false
	}
	for {
		if err := r.cursor.Next(ctx, &r.block); err != nil {
			return nil, err
		}
		b, err := r.parse()
		if err != nil || b.Rows > 0 {
			return b, err
		}
	}
}

// parse takes a block apart.
func (r *reader) parse() (*bulk.Batch, error) {
	b := &bulk.Batch{Part: r.block.Name, First: r.block.First, Width: r.width}
	r.cells, r.starts = r.cells[:0], r.starts[:0]
	data, line, records := r.block.Data, r.block.Line, 0
	for len(data) > 0 {
		fields, n, err := r.parser.record(data)
		records++
		began := line
		line += int64(r.parser.newlines)
		if data[n-1] == '\n' {
			line++
		}
		data = data[n:]
		if records == 1 && r.block.Line == 1 && !r.source.o.NoHeader {
			continue // the header, which Open has read
		}
		r.starts = append(r.starts, began)
		if err == nil && len(fields) != len(r.at) {
			err = fmt.Errorf("the record has %d values, the header %d", len(fields), len(r.at))
		}
		if err != nil {
			if b.Bad == nil {
				b.Bad = map[int]error{}
			}
			b.Bad[b.Rows] = err
		}
		r.add(fields)
		b.Rows++
	}
	if records != r.block.Count {
		return nil, fault.New(fault.Failed, "Check the quotes in that part of the file.", "read %s: lines %d to %d hold %d records by their quotes, but %d were taken apart",
			r.block.Name, r.block.Line, line, r.block.Count, records)
	}
	if r.block.Line != 1 && !r.source.o.NoHeader {
		b.First-- // the header is not counted
	}
	b.Cells = r.cells
	starts, cells, loaded, width := r.starts, r.cells, r.loaded, r.width
	b.Lines = func(i int) int64 { return starts[i] }
	b.Whole = func(dst []byte, i int) []byte { return whole(dst, loaded, cells[i*width:(i+1)*width]) }
	b.Detach = func() func() { r.kept = true; return func() {} }
	return b, nil
}

// add puts a record's values into the cells of the columns that are loaded.
func (r *reader) add(fields []field) {
	base := len(r.cells)
	for range r.width {
		r.cells = append(r.cells, convert.Cell{})
	}
	for i, f := range fields {
		if i >= len(r.at) {
			return
		}
		at := r.at[i]
		if at < 0 || (!f.quoted && string(f.data) == r.source.o.Null) {
			continue
		}
		r.cells[base+at] = convert.Cell{Kind: convert.TextCell, Data: f.data}
	}
}

func whole(dst []byte, names []string, cells []convert.Cell) []byte {
	dst = append(dst, '{')
	for i, c := range cells {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(record.AppendString(dst, names[i]), ':')
		if c.Kind == convert.NullCell {
			dst = append(dst, "null"...)
		} else {
			dst = record.AppendString(dst, bytes.ToValidUTF8(c.Data, []byte("\uFFFD")))
		}
	}
	return append(dst, '}')
}

// Close implements bulk.Reader.
func (r *reader) Close() error { return nil }
