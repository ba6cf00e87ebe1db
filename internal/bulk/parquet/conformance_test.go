package parquet

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/jackc/pgx/v5"
	pqgo "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"synctl/internal/bulk"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// TestConformance loads every Parquet file below SYNCTL_CONFORMANCE_DIR, files that others made, and holds what
// PostgreSQL then has against what another reader makes of the file. One that cannot be loaded has to say so by name, as
// a failure and not as a panic.
func TestConformance(t *testing.T) {
	dir := os.Getenv("SYNCTL_CONFORMANCE_DIR")
	if dir == "" {
		t.Skip("SYNCTL_CONFORMANCE_DIR names no folder: see 'make conformance'")
	}
	var files []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".parquet") {
			files = append(files, path)
		}
		return err
	})
	if len(files) == 0 {
		t.Fatalf("no Parquet file below %s", dir)
	}
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	compared, refused := 0, 0
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			src, err := Open(path, Options{})
			if err != nil {
				refusal(t, path, err)
				refused++
				return
			}
			var ddl []string
			for _, f := range src.schema.Fields() {
				ddl = append(ddl, pg.Ident(f.Name)+" "+pgType(f.Type))
			}
			testkit.Exec(t, conn, "DROP TABLE IF EXISTS c, c_staging; CREATE TABLE c ("+strings.Join(ddl, ", ")+")")
			sum, err := bulk.New(src, bulk.Options{To: pg.DSN(dsn), Table: "c", Readers: 1, Writers: 1}).Run(context.Background())
			if err != nil {
				refusal(t, path, err)
				refused++
				return
			}
			if got := secondReader(t, path, src.schema, stored(t, conn)); got < 0 {
				t.Logf("%d rows loaded; the other reader cannot read the file", sum.Rows)
			} else {
				compared++
			}
		})
	}
	t.Logf("%d files: %d agree with the other reader, %d are refused with a reason", len(files), compared, refused)
}

func refusal(t *testing.T, path string, err error) {
	t.Helper()
	if fault.ClassOf(err) != fault.Failed || !strings.Contains(err.Error(), path) {
		t.Errorf("class %d, want 1, and the file's name in: %v", fault.ClassOf(err), err)
	}
	t.Logf("refused: %v", err)
}

// pgType is the type that a column of a team's table would have.
func pgType(dt arrow.DataType) string {
	switch dt := dt.(type) {
	case *arrow.DictionaryType:
		return pgType(dt.ValueType)
	case *arrow.BooleanType:
		return "boolean"
	case *arrow.Int8Type, *arrow.Int16Type, *arrow.Uint8Type:
		return "smallint"
	case *arrow.Int32Type, *arrow.Uint16Type:
		return "integer"
	case *arrow.Int64Type, *arrow.Uint32Type:
		return "bigint"
	case *arrow.Uint64Type, arrow.DecimalType:
		return "numeric"
	case *arrow.Float16Type, *arrow.Float32Type:
		return "real"
	case *arrow.Float64Type:
		return "double precision"
	case *arrow.StringType, *arrow.LargeStringType, *arrow.NullType:
		return "text"
	case *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.FixedSizeBinaryType:
		return "bytea"
	case *arrow.Date32Type:
		return "date"
	case *arrow.Time32Type, *arrow.Time64Type:
		return "time"
	case *arrow.TimestampType:
		if dt.TimeZone != "" {
			return "timestamptz"
		}
		return "timestamp"
	case *extensions.UUIDType:
		return "uuid"
	case *arrow.ListType:
		if elem := pgType(dt.Elem()); elem != "jsonb" && !strings.HasSuffix(elem, "[]") { // lists of lists need not be rectangular
			return elem + "[]"
		}
	}
	return "jsonb"
}

// stored is what to_json says of the rows, in the order in which they came.
func stored(t *testing.T, conn *pgx.Conn) []map[string]any {
	t.Helper()
	rows, err := conn.Query(context.Background(), `SELECT to_json("the row")::text FROM c_staging "the row" ORDER BY ctid`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []map[string]any
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		row := map[string]any{}
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

// secondReader compares every row's values, column by column, as sorted lists of their scalars; -1: it cannot read the file.
func secondReader(t *testing.T, path string, schema *arrow.Schema, got []map[string]any) (n int) {
	t.Helper()
	if filepath.Base(path) == "lz4_raw_compressed_larger.parquet" {
		t.Log("the other reader miscounts this file's values, says so in a warning, and gives empty strings")
		return -1
	}
	defer func() {
		if p := recover(); p != nil {
			t.Logf("the other reader: %v", p)
			n = -1
		}
	}()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := pqgo.OpenFile(f, info.Size())
	if err != nil {
		t.Logf("the other reader: %v", err)
		return -1
	}
	leaves := leafColumns(file.Root())
	for _, group := range file.RowGroups() {
		rows := group.Rows()
		buf := make([]pqgo.Row, 64)
		for {
			k, err := rows.ReadRows(buf)
			for _, row := range buf[:k] {
				if n == len(got) {
					t.Errorf("the other reader has more than %d rows", n)
					return n
				}
				compareRow(t, n, schema, leaves, row, got[n])
				n++
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Logf("the other reader: %v", err)
				return -1
			}
		}
		rows.Close()
	}
	if n != len(got) {
		t.Errorf("%d rows were loaded, the other reader has %d", len(got), n)
	}
	return n
}

// leaf is a physical column and the name of the top-level column that it belongs to.
type leaf struct {
	top  string
	node pqgo.Node
}

func leafColumns(root *pqgo.Column) (leaves []leaf) {
	var walk func(c *pqgo.Column, top string)
	walk = func(c *pqgo.Column, top string) {
		if c.Leaf() {
			leaves = append(leaves, leaf{top, c})
		}
		for _, child := range c.Columns() {
			walk(child, top)
		}
	}
	for _, c := range root.Columns() {
		walk(c, c.Name())
	}
	return leaves
}

func compareRow(t *testing.T, n int, schema *arrow.Schema, leaves []leaf, row pqgo.Row, got map[string]any) {
	t.Helper()
	want, halves := map[string][]string{}, map[string]bool{}
	for _, f := range schema.Fields() {
		halves[f.Name] = f.Type.ID() == arrow.FLOAT16 // the other reader keeps no logical type for these
	}
	for _, v := range row {
		if l := leaves[v.Column()]; !v.IsNull() {
			want[l.top] = append(want[l.top], scalarText(v, l.node, halves[l.top]))
		}
	}
	for _, f := range schema.Fields() {
		have := flatten(nil, got[f.Name], f.Type)
		sort.Strings(have)
		sort.Strings(want[f.Name])
		if strings.Join(have, "\x00") != strings.Join(want[f.Name], "\x00") && t.Failed() == false {
			t.Errorf("row %d, column %q (%s): stored %q, the other reader has %q", n+1, f.Name, f.Type, have, want[f.Name])
		}
	}
}

// scalarText is a value's text as to_json would have it, made from the file's own description of the column.
func scalarText(v pqgo.Value, node pqgo.Node, float16 bool) string {
	lt := logical(node)
	if is[*format.DecimalType](lt) || convertedIs(node, deprecated.Decimal) {
		return decimalText(v, node)
	}
	switch v.Kind() {
	case pqgo.Boolean:
		return strconv.FormatBool(v.Boolean())
	case pqgo.Int32, pqgo.Int64:
		return intText(v, node, lt)
	case pqgo.Int96:
		i := v.Int96()
		nanos := int64(uint64(i[0]) | uint64(i[1])<<32)
		return "t" + time.Unix((int64(i[2])-2440588)*86400, nanos).UTC().Format("2006-01-02T15:04:05.999999999")
	case pqgo.Float:
		return floatText(float64(v.Float()), 32)
	case pqgo.Double:
		return floatText(v.Double(), 64)
	}
	b := v.ByteArray()
	switch {
	case is[*format.UUIDType](lt):
		return fmt.Sprintf("s%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	case float16:
		return floatText(half(uint16(b[0])|uint16(b[1])<<8), 32)
	case is[*format.StringType](lt) || is[*format.EnumType](lt) || is[*format.JsonType](lt) || convertedIs(node, deprecated.UTF8) || convertedIs(node, deprecated.Enum):
		return "s" + string(b)
	}
	return `s\x` + hex.EncodeToString(b)
}

// logical is a column's logical type, nil where it has none.
func logical(node pqgo.Node) format.LogicalTypeValue {
	if lt := node.Type().LogicalType(); lt != nil {
		return lt.Value
	}
	return nil
}

func is[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

func convertedIs(node pqgo.Node, c deprecated.ConvertedType) bool {
	ct := node.Type().ConvertedType()
	return ct != nil && *ct == c
}

func intText(v pqgo.Value, node pqgo.Node, lt format.LogicalTypeValue) string {
	n := v.Int64()
	if v.Kind() == pqgo.Int32 {
		n = int64(v.Int32())
	}
	unit := func(u format.TimeUnit) time.Duration {
		switch u.Value.(type) {
		case *format.MilliSeconds:
			return time.Millisecond
		case *format.MicroSeconds:
			return time.Microsecond
		}
		return time.Nanosecond
	}
	stamp := func(d time.Duration) string {
		per := int64(time.Second / d)
		return "t" + time.Unix(floor(n, per), (n-floor(n, per)*per)*int64(d)).UTC().Format("2006-01-02T15:04:05.999999999")
	}
	switch {
	case is[*format.DateType](lt) || convertedIs(node, deprecated.Date):
		return "s" + time.Unix(n*86400, 0).UTC().Format("2006-01-02")
	case convertedIs(node, deprecated.TimestampMillis):
		return stamp(time.Millisecond)
	case convertedIs(node, deprecated.TimestampMicros):
		return stamp(time.Microsecond)
	}
	switch lt := lt.(type) {
	case *format.TimestampType:
		return stamp(unit(lt.Unit))
	case *format.TimeType:
		return "s" + time.Unix(0, n*int64(unit(lt.Unit))).UTC().Format("15:04:05.999999")
	case *format.IntType:
		if !lt.IsSigned && v.Kind() == pqgo.Int32 {
			return strconv.FormatUint(uint64(uint32(n)), 10)
		}
		if !lt.IsSigned {
			return strconv.FormatUint(uint64(n), 10)
		}
	}
	return strconv.FormatInt(n, 10)
}

func floor(n, per int64) int64 {
	if n < 0 && n%per != 0 {
		return n/per - 1
	}
	return n / per
}

func decimalText(v pqgo.Value, node pqgo.Node) string {
	scale := int32(0)
	if d, ok := logical(node).(*format.DecimalType); ok {
		scale = d.Scale
	}
	n := new(big.Int)
	switch v.Kind() {
	case pqgo.Int32:
		n.SetInt64(int64(v.Int32()))
	case pqgo.Int64:
		n.SetInt64(v.Int64())
	default:
		b := v.ByteArray()
		n.SetBytes(b)
		if len(b) > 0 && b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
	}
	return new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)).FloatString(int(scale))
}

// floatText is a float's text to so many digits that it is that float and no other.
func floatText(f float64, size int) string {
	switch {
	case math.IsNaN(f):
		return "sNaN"
	case math.IsInf(f, 0):
		return map[bool]string{true: "sInfinity", false: "s-Infinity"}[f > 0]
	}
	return "f" + strconv.FormatFloat(f, 'g', -1, size)
}

func half(h uint16) float64 {
	sign, exp, frac := 1-2*float64(h>>15), int(h>>10&0x1f), float64(h&0x3ff)
	switch exp {
	case 0:
		return math.Copysign(math.Ldexp(frac, -24), sign)
	case 31:
		if frac == 0 {
			return math.Inf(int(sign))
		}
		return math.NaN()
	}
	return sign * math.Ldexp(1+frac/1024, exp-15)
}

// flatten lists the scalars in a value of to_json, in the same words as scalarText.
func flatten(list []string, v any, dt arrow.DataType) []string {
	switch d := dt.(type) {
	case *arrow.DictionaryType:
		return flatten(list, v, d.ValueType)
	case *arrow.MapType:
		for k, item := range asMap(v) {
			key := "s" + k
			if arrow.IsInteger(d.KeyType().ID()) {
				key = k
			}
			list = flatten(append(list, key), item, d.ItemType())
		}
		return list
	case arrow.ListLikeType:
		items, _ := v.([]any)
		for _, item := range items {
			list = flatten(list, item, d.Elem())
		}
		return list
	case *arrow.StructType:
		for k, item := range asMap(v) {
			if f, ok := d.FieldByName(k); ok {
				list = flatten(list, item, f.Type)
			}
		}
		return list
	}
	switch x := v.(type) {
	case nil:
		return list
	case bool:
		return append(list, strconv.FormatBool(x))
	case json.Number:
		return append(list, numberText(x, dt))
	case string:
		if _, ok := dt.(*arrow.TimestampType); ok {
			return append(list, "t"+strings.TrimSuffix(x, "+00:00"))
		}
		return append(list, "s"+x)
	}
	return append(list, fmt.Sprint(v))
}

func numberText(x json.Number, dt arrow.DataType) string {
	switch dt.ID() {
	case arrow.FLOAT16, arrow.FLOAT32:
		f, _ := strconv.ParseFloat(x.String(), 32)
		return floatText(f, 32)
	case arrow.FLOAT64:
		f, _ := strconv.ParseFloat(x.String(), 64)
		return floatText(f, 64)
	}
	return x.String()
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
