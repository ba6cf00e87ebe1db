package parquet

import (
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"synctl/internal/fault"
)

// bind reads the literals by the types of their columns.
func (f *filter) bind(schema *arrow.Schema) error {
	if f == nil {
		return nil
	}
	for _, t := range f.terms {
		at := schema.FieldIndices(t.column)
		if len(at) != 1 {
			return fault.New(fault.Usage, "Columns are named as in the files, case included.", "filter: no column %q", t.column)
		}
		if t.op == "is null" || t.op == "is not null" {
			continue
		}
		for i := range t.texts {
			if err := t.bindLiteral(schema.Field(at[0]).Type, i); err != nil {
				return fault.New(fault.Usage, filterHint, "filter: %s %s %s: %w", t.column, t.op, t.texts[i], err)
			}
		}
	}
	return nil
}

func (t *term) bindLiteral(dt arrow.DataType, i int) (err error) {
	if d, ok := dt.(*arrow.DictionaryType); ok {
		dt = d.ValueType
	}
	s := t.texts[i]
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		t.kind = boolValue
		v, err := strconv.ParseBool(s)
		t.ints = append(t.ints, map[bool]int64{true: 1}[v])
		return err
	case *arrow.StringType, *arrow.LargeStringType, *arrow.BinaryType:
		t.kind, t.bytes = bytesValue, append(t.bytes, []byte(s))
		if !t.quoted[i] {
			return fmt.Errorf("the column holds text: put the literal in quotes")
		}
		return nil
	case *arrow.Float32Type, *arrow.Float64Type:
		t.kind = floatValue
		v, err := strconv.ParseFloat(s, 64)
		t.floats = append(t.floats, v)
		return err
	case *arrow.Date32Type:
		d, err := time.Parse("2006-01-02", s)
		t.ints = append(t.ints, d.Unix()/86_400)
		return err
	case *arrow.TimestampType:
		v, err := timestampLiteral(s, dt)
		t.ints = append(t.ints, v)
		return err
	}
	if arrow.IsInteger(dt.ID()) && dt.ID() != arrow.UINT64 {
		v, err := strconv.ParseInt(s, 10, 64)
		t.ints = append(t.ints, v)
		return err
	}
	return fmt.Errorf("columns of %s cannot be filtered by", dt)
}

// timestampLiteral reads a moment in the column's unit, exactly or not at all.
func timestampLiteral(s string, dt *arrow.TimestampType) (int64, error) {
	var at time.Time
	var err error
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07", "2006-01-02"} {
		if at, err = time.Parse(layout, s); err == nil {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no moment such as 2026-11-30T19:58:00Z", s)
	}
	unit := int64(dt.Unit.Multiplier())
	if int64(at.Nanosecond())%unit != 0 {
		return 0, fmt.Errorf("the moment is finer than the column's %s", dt.Unit)
	}
	return at.Unix()*(int64(time.Second)/unit) + int64(at.Nanosecond())/unit, nil
}

// comparer gives the order of row i's value against literal k.
func (t *term) comparer(a arrow.Array) (func(i, k int) (int, bool), error) {
	if t.op == "is null" || t.op == "is not null" {
		return nil, nil
	}
	switch a := a.(type) {
	case *array.Dictionary:
		inner, err := t.comparer(a.Dictionary())
		return func(i, k int) (int, bool) { return inner(a.GetValueIndex(i), k) }, err
	case *array.Boolean:
		return func(i, k int) (int, bool) {
			v := int64(0)
			if a.Value(i) {
				v = 1
			}
			return order(v, t.ints[k]), true
		}, nil
	case *array.String:
		return func(i, k int) (int, bool) { return orderBytes(stringBytes(a.Value(i)), t.bytes[k]), true }, nil
	case *array.LargeString:
		return func(i, k int) (int, bool) { return orderBytes(stringBytes(a.Value(i)), t.bytes[k]), true }, nil
	case *array.Binary:
		return func(i, k int) (int, bool) { return orderBytes(a.Value(i), t.bytes[k]), true }, nil
	case *array.Float32:
		return func(i, k int) (int, bool) {
			v := float64(a.Value(i))
			return order(v, t.floats[k]), v == v
		}, nil
	case *array.Float64:
		return func(i, k int) (int, bool) {
			v := a.Value(i)
			return order(v, t.floats[k]), v == v
		}, nil
	}
	value := intsOf(a)
	if value == nil {
		return nil, fmt.Errorf("filter: columns of %s cannot be filtered by", a.DataType())
	}
	return func(i, k int) (int, bool) { return order(value(i), t.ints[k]), true }, nil
}

func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func intsOf(a arrow.Array) func(i int) int64 {
	switch a := a.(type) {
	case *array.Int8:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int16:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int64:
		return a.Value
	case *array.Uint8:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Uint16:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Uint32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Date32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Timestamp:
		return func(i int) int64 { return int64(a.Value(i)) }
	}
	return nil
}

// excludes tells that by its statistics no row of a group can pass. Floats are not asked: what writers count as their
// least and greatest differs where there are NaNs; nor unsigned integers, whose order older writers had wrong.
func (f *filter) excludes(m *pqarrow.SchemaManifest, group *metadata.RowGroupMetaData) bool {
	if f == nil {
		return false
	}
	for _, t := range f.terms {
		if field := leafNamed(m, t.column); field != nil && t.excludes(field.ColIndex, group) {
			return true
		}
	}
	return false
}

func leafNamed(m *pqarrow.SchemaManifest, name string) *pqarrow.SchemaField {
	for i := range m.Fields {
		if f := &m.Fields[i]; f.Field.Name == name && f.IsLeaf() && f.LevelInfo.RepLevel == 0 && !arrow.IsUnsignedInteger(f.Field.Type.ID()) {
			return f
		}
	}
	return nil
}

func (t *term) excludes(column int, group *metadata.RowGroupMetaData) bool {
	chunk, err := group.ColumnChunk(column)
	if err != nil {
		return false
	}
	if set, err := chunk.StatsSet(); err != nil || !set {
		return false
	}
	stats, err := chunk.Statistics()
	if err != nil || stats == nil {
		return false
	}
	switch {
	case t.op == "is null":
		return stats.HasNullCount() && stats.NullCount() == 0
	case t.op == "is not null":
		return stats.HasNullCount() && stats.NullCount() == group.NumRows()
	case !stats.HasMinMax():
		return false
	}
	switch s := stats.(type) {
	case *metadata.Int32Statistics:
		return t.kind == intValue && !t.mayHold(func(k int) int { return order(int64(s.Min()), t.ints[k]) }, func(k int) int { return order(int64(s.Max()), t.ints[k]) })
	case *metadata.Int64Statistics:
		return t.kind == intValue && !t.mayHold(func(k int) int { return order(s.Min(), t.ints[k]) }, func(k int) int { return order(s.Max(), t.ints[k]) })
	case *metadata.ByteArrayStatistics:
		return t.kind == bytesValue && !t.mayHold(func(k int) int { return orderBytes(s.Min(), t.bytes[k]) }, func(k int) int { return orderBytes(s.Max(), t.bytes[k]) })
	}
	return false
}
