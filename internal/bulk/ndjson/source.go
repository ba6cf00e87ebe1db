package ndjson

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"synctl/internal/bulk"
	"synctl/internal/bulk/convert"
	"synctl/internal/bulk/lines"
	"synctl/internal/fault"
	"synctl/internal/record"
)

// Source is a set of NDJSON files, or stdin.
type Source struct {
	name    string
	names   []string
	records bool // synctl's own: the row is in "after"
	set     *lines.Set
	size    bulk.Size
}

// Open samples the first of the files that glob matches; glob "-" is in. columns names the members that are wanted, if that
// is known.
func Open(ctx context.Context, glob string, in io.Reader, columns []string) (*Source, error) {
	s := &Source{name: "ndjson:" + glob, size: bulk.Size{Rows: -1, Bytes: -1, Parts: 1, PartsName: "files"}}
	files := []string{"-"}
	if glob != "-" {
		var err error
		if files, err = bulk.Glob("ndjson", glob); err != nil {
			return nil, err
		}
		in = nil
		s.size.Bytes, s.size.Parts = 0, len(files)
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				s.size.Bytes += info.Size()
			}
		}
	} else {
		s.name = "-"
	}
	s.set = lines.NewSet(files, in, lines.Format{})
	b, err := s.set.Peek(ctx)
	if errors.Is(err, io.EOF) {
		return nil, fault.New(fault.Failed, "The columns are known from the first lines; an empty input has none.", "%s is empty", s.name)
	}
	if err == nil {
		err = s.sample(b)
	}
	if err != nil {
		s.set.Close()
		return nil, err
	}
	for _, c := range columns {
		if !contains(s.names, c) {
			s.names = append(s.names, c)
		}
	}
	return s, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// sample finds the columns in the first block.
func (s *Source) sample(b *lines.Block) error {
	seen := map[string]bool{}
	for i, line := range bytes.Split(b.Data, []byte{'\n'}) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		row := line
		if i == 0 {
			s.records = isRecord(line)
		}
		if s.records {
			var err error
			if row, _, err = unwrap(line); err != nil {
				continue // the reader will say so, with the row's number
			}
		}
		_, err := convert.EachMember(row, func(key, _ []byte) error {
			name, err := convert.Unquote(nil, key)
			if err == nil && !seen[string(name)] {
				seen[string(name)] = true
				s.names = append(s.names, string(name))
			}
			return err
		})
		if err != nil && i == 0 {
			return fault.New(fault.Failed, "Each line has to be one JSON object.", "read %s: line 1: %w", b.Name, err)
		}
	}
	return nil
}

// isRecord tells synctl's records from other objects.
func isRecord(line []byte) bool {
	v, err1 := convert.Member(line, "v")
	op, err2 := convert.Member(line, "op")
	after, err3 := convert.Member(line, "after")
	return err1 == nil && err2 == nil && err3 == nil && string(v) == "1" && op != nil && op[0] == '"' && after != nil && after[0] == '{'
}

// unwrap gives a record's row, and the texts of values that their JSON form does not determine.
func unwrap(line []byte) (after, literal []byte, err error) {
	var op []byte
	_, err = convert.EachMember(line, func(key, v []byte) error {
		switch string(key) {
		case `"op"`:
			op = v
		case `"after"`:
			after = v
		case `"literal"`:
			literal = v
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, nil, err
	case string(op) != `"insert"` && string(op) != `"read"`:
		return nil, nil, fmt.Errorf("the record's operation is %s: a load takes rows (insert, read), changes are for 'synctl replay'", op)
	case after == nil:
		return nil, nil, errors.New("the record has no row in it")
	}
	return after, literal, nil
}

// Name, Fields, Size and Close make Source a bulk.Source.
func (s *Source) Name() string    { return s.name }
func (s *Source) Size() bulk.Size { return s.size }
func (s *Source) Close() error    { return s.set.Close() }
func (s *Source) Fields() []bulk.Field {
	var fields []bulk.Field
	for _, n := range s.names {
		fields = append(fields, bulk.Field{Name: n, JSON: true})
	}
	return fields
}

// Readers gives readers that take block after block.
func (s *Source) Readers(_ context.Context, columns []int, n int) ([]bulk.Reader, error) {
	var readers []bulk.Reader
	for range n {
		r := &reader{source: s, cursor: s.set.Cursor(), width: len(columns), index: map[string]int{}}
		for _, name := range s.names {
			r.index[name] = -1
		}
		for i, c := range columns {
			r.index[s.names[c]] = i
		}
		readers = append(readers, r)
	}
	return readers, nil
}

type reader struct {
	source *Source
	cursor *lines.Cursor
	block  lines.Block
	cells  []convert.Cell
	rows   [][]byte
	lines  []int64
	index  map[string]int // column → its place among those loaded, or -1
	width  int
	key    []byte
	kept   bool
}

// Next implements bulk.Reader.
func (r *reader) Next(ctx context.Context) (*bulk.Batch, error) {
	if r.kept {
		r.block.Data, r.cells, r.rows, r.lines, r.kept = nil, nil, nil, nil, false
	}
	for {
		if err := r.cursor.Next(ctx, &r.block); err != nil {
			return nil, err
		}
		if b := r.parse(); b.Rows > 0 {
			return b, nil
		}
	}
}

// parse takes a block apart. Empty lines are no rows, and rows are numbered by their lines.
func (r *reader) parse() *bulk.Batch {
	r.cells, r.rows, r.lines = r.cells[:0], r.rows[:0], r.lines[:0]
	b := &bulk.Batch{Part: r.block.Name, First: r.block.First, Width: r.width}
	data, line := r.block.Data, r.block.Line-1
	for len(data) > 0 {
		raw := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			raw, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		line++
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 {
			continue
		}
		base := len(r.cells)
		for range r.width {
			r.cells = append(r.cells, convert.Cell{})
		}
		if err := r.row(raw, r.cells[base:]); err != nil {
			if b.Bad == nil {
				b.Bad = map[int]error{}
			}
			b.Bad[b.Rows] = err
		}
		r.rows, r.lines = append(r.rows, raw), append(r.lines, line)
		b.Rows++
	}
	b.Cells = r.cells
	rows, nrs := r.rows, r.lines
	b.Lines = func(i int) int64 { return nrs[i] }
	b.Whole = func(dst []byte, i int) []byte { return r.source.whole(dst, rows[i]) }
	b.Detach = func() func() { r.kept = true; return func() {} }
	return b
}

// row puts a line's members into cells.
func (r *reader) row(raw []byte, cells []convert.Cell) error {
	row, literal := raw, []byte(nil)
	if r.source.records {
		var err error
		if row, literal, err = unwrap(raw); err != nil {
			return err
		}
	}
	end, err := convert.EachMember(row, func(key, v []byte) error {
		at, err := r.place(key)
		if err != nil || at < 0 {
			return err
		}
		if string(v) == "null" {
			cells[at] = convert.Cell{}
		} else {
			cells[at] = convert.Cell{Kind: convert.JSONCell, Data: v}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if end != len(row) {
		return errors.New("there is more on the line than one JSON object")
	}
	if literal == nil {
		return nil
	}
	_, err = convert.EachMember(literal, func(key, v []byte) error {
		at, err := r.place(key)
		if err != nil || at < 0 || v[0] != '"' {
			return err
		}
		text, err := convert.Unquote(nil, v)
		cells[at] = convert.Cell{Kind: convert.TextCell, Data: text}
		return err
	})
	return err
}

// place finds the column of a member's key.
func (r *reader) place(key []byte) (int, error) {
	name := key[1 : len(key)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var err error
		if r.key, err = convert.Unquote(r.key[:0], key); err != nil {
			return 0, err
		}
		name = r.key
	}
	at, ok := r.index[string(name)]
	if !ok {
		return 0, fmt.Errorf("member %q is in none of the first lines, from which the columns are known: name the columns with --columns", name)
	}
	return at, nil
}

// whole gives a row for the dead-letter file: as it stands where it is JSON.
func (s *Source) whole(dst, raw []byte) []byte {
	row := raw
	if s.records {
		if after, _, err := unwrap(raw); err == nil {
			row = after
		}
	}
	if end, err := convert.EachMember(row, func(_, _ []byte) error { return nil }); err == nil && end == len(row) {
		return append(dst, bytes.ToValidUTF8(row, []byte("\uFFFD"))...)
	}
	return append(record.AppendString(append(dst, `{"line":`...), bytes.ToValidUTF8(raw, []byte("\uFFFD"))), '}')
}

// Close implements bulk.Reader.
func (r *reader) Close() error { return nil }
