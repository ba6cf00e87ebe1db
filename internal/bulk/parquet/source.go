package parquet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"synctl/internal/bulk"
	"synctl/internal/fault"
)

// Options say what of the files is read.
type Options struct {
	Filter string // comparisons joined by AND; empty: all rows
}

// part is one row group.
type part struct {
	path  string
	group int
	first int64 // the number of its first row in the file, from 1
	rows  int64
	bytes int64 // uncompressed
}

// Source is a set of Parquet files.
type Source struct {
	name    string
	files   []string
	schema  *arrow.Schema
	fields  []bulk.Field
	parts   []part
	size    bulk.Size
	filter  *filter
	skipped int

	mu   sync.Mutex
	next int
}

// Open reads the footers of the files that glob matches.
func Open(glob string, o Options) (*Source, error) {
	files, err := bulk.Glob("parquet", glob)
	if err != nil {
		return nil, err
	}
	s := &Source{name: "parquet:" + glob, files: files}
	s.size = bulk.Size{Exact: true, PartsName: "row groups"}
	if s.filter, err = parseFilter(o.Filter); err != nil {
		return nil, err
	}
	var nulls []nullCount
	for i, path := range files {
		err := guard(path, func() error {
			r, err := openFile(path, 0)
			if err != nil {
				return err
			}
			defer r.close()
			if i == 0 {
				s.schema = r.schema
				nulls = make([]nullCount, r.schema.NumFields())
				if err := s.filter.bind(r.schema); err != nil {
					return err
				}
			} else if err := s.sameSchema(path, r.schema); err != nil {
				return err
			}
			return s.addGroups(path, r, nulls)
		})
		if err != nil {
			return nil, err
		}
	}
	s.fields = fieldsOf(s.schema, nulls, s.filter != nil)
	s.size.Parts = len(s.parts)
	if s.skipped > 0 {
		s.size.Note = fmt.Sprintf("%d row groups are skipped: by their statistics the filter matches nothing in them", s.skipped)
	}
	return s, nil
}

// guard turns a failure or a panic of the reader, as damaged files cause them, into an error that names the file.
func guard(path string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.New(fault.Failed, damagedHint, "read %s: the file is damaged, or of a form that the reader does not know: %v", path, p)
			if os.Getenv("SYNCTL_DEBUG_PANIC") != "" {
				err = fmt.Errorf("%w\n%s", err, debug.Stack())
			}
		}
	}()
	if err = f(); err == nil || fault.HintOf(err) != "" {
		return err
	}
	return fault.Wrap(fault.Failed, damagedHint, fmt.Errorf("read %s: %w", path, err))
}

const damagedHint = "Check the file with another reader, or have it written anew; nothing was loaded."

// sameSchema holds a file's schema against the first file's.
func (s *Source) sameSchema(path string, schema *arrow.Schema) error {
	var diffs []string
	for _, f := range s.schema.Fields() {
		got, ok := schema.FieldsByName(f.Name)
		switch {
		case !ok:
			diffs = append(diffs, fmt.Sprintf("column %q is missing", f.Name))
		case !arrow.TypeEqual(got[0].Type, f.Type):
			diffs = append(diffs, fmt.Sprintf("column %q is %s, not %s", f.Name, got[0].Type, f.Type))
		}
	}
	for _, f := range schema.Fields() {
		if !s.schema.HasField(f.Name) {
			diffs = append(diffs, fmt.Sprintf("column %q is not in the others", f.Name))
		}
	}
	if len(diffs) == 0 {
		return nil
	}
	return fault.New(fault.Check, "Load files of different schemas in loads of their own.", "file %s differs from %s:\n  - %s",
		path, s.files[0], strings.Join(diffs, "\n  - "))
}

// nullCount is what statistics tell of a column over all row groups so far.
type nullCount struct {
	unknown bool
	nulls   int64
}

func (s *Source) addGroups(path string, r *fileReader, nulls []nullCount) error {
	meta := r.file.MetaData()
	first := int64(1)
	for g := range meta.NumRowGroups() {
		group := meta.RowGroup(g)
		for i := range r.arrow.Manifest.Fields {
			name := r.arrow.Manifest.Fields[i].Field.Name
			at := s.schema.FieldIndices(name)
			if len(at) == 1 {
				nulls[at[0]].add(&r.arrow.Manifest.Fields[i], group)
			}
		}
		p := part{path: path, group: g, first: first, rows: group.NumRows(), bytes: group.TotalByteSize()}
		first += p.rows
		s.size.Bytes += groupBytes(group)
		if s.filter.excludes(r.arrow.Manifest, group) {
			s.skipped++
			continue
		}
		s.size.Rows += p.rows
		s.parts = append(s.parts, p)
	}
	if n := meta.GetNumRows(); n != first-1 {
		return fmt.Errorf("its row groups hold %d rows, its footer says %d", first-1, n)
	}
	return nil
}

func groupBytes(group *metadata.RowGroupMetaData) (n int64) {
	for c := range group.NumColumns() {
		if chunk, err := group.ColumnChunk(c); err == nil {
			n += chunk.TotalCompressedSize()
		}
	}
	return n
}

func (n *nullCount) add(f *pqarrow.SchemaField, group *metadata.RowGroupMetaData) {
	if !f.IsLeaf() || f.LevelInfo.RepLevel > 0 {
		n.unknown = true
		return
	}
	if chunk, err := group.ColumnChunk(f.ColIndex); err == nil {
		if set, err := chunk.StatsSet(); err == nil && set {
			if stats, err := chunk.Statistics(); err == nil && stats != nil && stats.HasNullCount() {
				n.nulls += stats.NullCount()
				return
			}
		}
	}
	n.unknown = true
}

func fieldsOf(schema *arrow.Schema, nulls []nullCount, filtered bool) []bulk.Field {
	var fields []bulk.Field
	for i, f := range schema.Fields() {
		b := bulk.Field{Name: f.Name, Arrow: f.Type}
		switch {
		case !f.Nullable:
			b.Nulls = bulk.NoNulls
		case nulls[i].nulls > 0 && !filtered:
			b.Nulls = bulk.SomeNulls
		case !nulls[i].unknown && nulls[i].nulls == 0:
			b.Nulls = bulk.NoNulls
		}
		fields = append(fields, b)
	}
	return fields
}

// Name, Fields, Size and Close make Source a bulk.Source.
func (s *Source) Name() string         { return s.name }
func (s *Source) Fields() []bulk.Field { return s.fields }
func (s *Source) Size() bulk.Size      { return s.size }
func (s *Source) Close() error         { return nil }

// Readers gives readers that take row group after row group, in the order of files and rows.
func (s *Source) Readers(_ context.Context, columns []int, n int) ([]bulk.Reader, error) {
	var readers []bulk.Reader
	for range max(min(n, len(s.parts)), 1) {
		readers = append(readers, &reader{source: s, columns: columns})
	}
	return readers, nil
}

func (s *Source) take() (part, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == len(s.parts) {
		return part{}, false
	}
	s.next++
	return s.parts[s.next-1], true
}

// fileReader is an open file.
type fileReader struct {
	file   *file.Reader
	arrow  *pqarrow.FileReader
	schema *arrow.Schema
}

// openFile opens a file for reading batches of so many rows.
func openFile(path string, batch int64) (*fileReader, error) {
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true // or every column chunk is read whole
	props.BufferSize = 64 << 10
	f, err := file.OpenParquetFile(path, false, file.WithReadProps(props))
	if err != nil {
		return nil, err
	}
	r := &fileReader{file: f}
	if r.arrow, err = pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{BatchSize: batch}, memory.DefaultAllocator); err == nil {
		r.schema, err = r.arrow.Schema()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

func (r *fileReader) close() { r.file.Close() }

// leaves are the physical columns of the fields of that name, and where the fields are in what is then read.
func (r *fileReader) leaves(names []string) (leaves []int, at []int, err error) {
	type found struct{ field, want int }
	var order []found
	for want, name := range names {
		i := -1
		for k := range r.arrow.Manifest.Fields {
			if r.arrow.Manifest.Fields[k].Field.Name == name {
				i = k
			}
		}
		if i < 0 {
			return nil, nil, fmt.Errorf("column %q is not in the file any more", name)
		}
		leaves = appendLeaves(leaves, &r.arrow.Manifest.Fields[i])
		order = append(order, found{i, want})
	}
	sort.Slice(order, func(a, b int) bool { return order[a].field < order[b].field })
	sort.Ints(leaves)
	at = make([]int, len(names))
	for pos, f := range order {
		at[f.want] = pos
	}
	return leaves, at, nil
}

func appendLeaves(leaves []int, f *pqarrow.SchemaField) []int {
	if f.IsLeaf() {
		leaves = append(leaves, f.ColIndex)
	}
	for i := range f.Children {
		leaves = appendLeaves(leaves, &f.Children[i])
	}
	return leaves
}

// base is a file's name for messages.
func base(path string) string { return filepath.Clean(path) }
