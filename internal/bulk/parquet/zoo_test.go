package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pq "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/jackc/pgx/v5"

	"synctl/internal/bulk"
	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// exhibit is one column of the zoo: what goes in as Arrow's JSON, and what PostgreSQL's to_json has to say of it.
type exhibit struct {
	arrow  arrow.DataType
	target string
	in     string // a JSON array
	want   string // a JSON array
}

var zoo = []exhibit{
	{arrow.FixedWidthTypes.Boolean, "boolean", `[true,false,null]`, `[true, false, null]`},
	{arrow.PrimitiveTypes.Int8, "smallint", `[-128,127,null]`, `[-128, 127, null]`},
	{arrow.PrimitiveTypes.Int16, "integer", `[-32768,32767,0]`, `[-32768, 32767, 0]`},
	{arrow.PrimitiveTypes.Int32, "bigint", `[-2147483648,2147483647,0]`, `[-2147483648, 2147483647, 0]`},
	{arrow.PrimitiveTypes.Int64, "bigint", `[-9223372036854775808,9223372036854775807,null]`, `[-9223372036854775808, 9223372036854775807, null]`},
	{arrow.PrimitiveTypes.Int64, "numeric", `[-9223372036854775808,10000,null]`, `[-9223372036854775808, 10000, null]`},
	{arrow.PrimitiveTypes.Uint8, "smallint", `[255,0,null]`, `[255, 0, null]`},
	{arrow.PrimitiveTypes.Uint32, "bigint", `[4294967295,0,1]`, `[4294967295, 0, 1]`},
	{arrow.PrimitiveTypes.Uint64, "numeric(20,0)", `[18446744073709551615,9223372036854775808,null]`, `[18446744073709551615, 9223372036854775808, null]`},
	{arrow.PrimitiveTypes.Int32, "double precision", `[-2147483648,2147483647,null]`, `[-2147483648, 2147483647, null]`},
	{arrow.PrimitiveTypes.Float32, "real", `[1.5,-0.1,null]`, `[1.5, -0.1, null]`},
	{arrow.PrimitiveTypes.Float64, "double precision", `[0.1,-1e300,5e-324]`, `[0.1, -1e+300, 5e-324]`},
	{&arrow.Decimal128Type{Precision: 9, Scale: 2}, "numeric(9,2)", `["1234567.89","-0.01",null]`, `[1234567.89, -0.01, null]`},
	{&arrow.Decimal128Type{Precision: 18, Scale: 4}, "numeric", `["-12345678901234.5678","0.0001","10000.0000"]`, `[-12345678901234.5678, 0.0001, 10000.0000]`},
	{&arrow.Decimal128Type{Precision: 38, Scale: 9}, "numeric(38,9)", `["99999999999999999999999999999.999999999","-99999999999999999999999999999.999999999","0"]`,
		`[99999999999999999999999999999.999999999, -99999999999999999999999999999.999999999, 0.000000000]`},
	{&arrow.Decimal128Type{Precision: 38, Scale: 0}, "numeric", `["100000000000000000000","-1","0"]`, `[100000000000000000000, -1, 0]`},
	{&arrow.Decimal256Type{Precision: 76, Scale: 38}, "numeric", `["12345678901234567890123456789012345678.12345678901234567890123456789012345678","-0.00000000000000000000000000000000000001",null]`,
		`[12345678901234567890123456789012345678.12345678901234567890123456789012345678, -0.00000000000000000000000000000000000001, null]`},
	{arrow.BinaryTypes.String, "text", `["","grüße \"x\"\n","\t\\N"]`, `["", "grüße \"x\"\n", "\t\\N"]`},
	{arrow.BinaryTypes.String, "varchar(3)", `["abc","äöü",null]`, `["abc", "äöü", null]`},
	{arrow.BinaryTypes.LargeString, "text", `["large",null,""]`, `["large", null, ""]`},
	{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, "text", `["a","b","a"]`, `["a", "b", "a"]`},
	{arrow.BinaryTypes.String, "mood", `["sad","happy",null]`, `["sad", "happy", null]`},
	{arrow.BinaryTypes.String, "jsonb", `["{\"n\": 12345678901234567890.123}","[]","null"]`, `[{"n": 12345678901234567890.123}, [], null]`},
	{arrow.BinaryTypes.String, "json", `["{\"a\":1,  \"a\":2}",null,"\"x\""]`, `[{"a":1,  "a":2}, null, "x"]`},
	{arrow.BinaryTypes.String, "uuid", `["00112233-4455-6677-8899-aabbccddeeff",null,null]`, `["00112233-4455-6677-8899-aabbccddeeff", null, null]`},
	{arrow.BinaryTypes.Binary, "bytea", `["AAH/","",null]`, `["\\x0001ff", "\\x", null]`},
	{&arrow.FixedSizeBinaryType{ByteWidth: 4}, "bytea", `["3q2+7w==","AAAAAA==",null]`, `["\\xdeadbeef", "\\x00000000", null]`},
	{extensions.NewUUIDType(), "uuid", `["00112233-4455-6677-8899-aabbccddeeff",null,"ffffffff-ffff-ffff-ffff-ffffffffffff"]`,
		`["00112233-4455-6677-8899-aabbccddeeff", null, "ffffffff-ffff-ffff-ffff-ffffffffffff"]`},
	{arrow.FixedWidthTypes.Date32, "date", `["1969-12-31","2026-11-30",null]`, `["1969-12-31", "2026-11-30", null]`},
	{arrow.FixedWidthTypes.Time32ms, "time", `["23:59:59.999","00:00:00",null]`, `["23:59:59.999", "00:00:00", null]`},
	{arrow.FixedWidthTypes.Time64us, "time", `["23:59:59.999999","00:00:00.000001",null]`, `["23:59:59.999999", "00:00:00.000001", null]`},
	{arrow.FixedWidthTypes.Time64ns, "time", `["23:59:59.999999000","00:00:00",null]`, `["23:59:59.999999", "00:00:00", null]`},
	{&arrow.TimestampType{Unit: arrow.Millisecond}, "timestamp", `["1969-12-31T23:59:59.999","2026-11-30T00:00:00",null]`, `["1969-12-31T23:59:59.999", "2026-11-30T00:00:00", null]`},
	{&arrow.TimestampType{Unit: arrow.Microsecond}, "timestamp", `["0001-01-01T00:00:00","9999-12-31T23:59:59.999999",null]`, `["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", null]`},
	{&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, "timestamptz", `["2026-11-30T19:58:00.123456Z",null,"1900-01-01T00:00:00Z"]`,
		`["2026-11-30T19:58:00.123456+00:00", null, "1900-01-01T00:00:00+00:00"]`},
	{&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}, "timestamptz", `["2026-11-30T19:58:00.123456000Z",null,"1700-01-01T00:00:00Z"]`,
		`["2026-11-30T19:58:00.123456+00:00", null, "1700-01-01T00:00:00+00:00"]`},
	{arrow.ListOf(arrow.PrimitiveTypes.Int64), "bigint[]", `[[1,null,3],[],null]`, `[[1,null,3], [], null]`},
	{arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int32)), "int[]", `[[[1,2],[3,4]],[],null]`, `[[[1,2],[3,4]], [], null]`},
	{arrow.ListOf(arrow.BinaryTypes.String), "text[]", `[["a,\"b\"",""],null,[null]]`, `[["a,\"b\"",""], null, [null]]`},
	{arrow.ListOf(&arrow.Decimal128Type{Precision: 10, Scale: 2}), "numeric(10,2)[]", `[["1.50","-2.25"],null,[]]`, `[[1.50,-2.25], null, []]`},
	{arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, arrow.Field{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}), "jsonb",
		`[{"a":1,"b":"x"},{"a":null,"b":null},null]`, `[{"a": 1, "b": "x"}, {"a": null, "b": null}, null]`},
	{arrow.StructOf(arrow.Field{Name: "y", Type: arrow.BinaryTypes.String, Nullable: true}, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true}), "pair",
		`[{"x":1,"y":"one"},{"x":null,"y":""},null]`, `[{"x":1,"y":"one"}, {"x":null,"y":""}, null]`},
	{arrow.ListOf(arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, arrow.Field{Name: "y", Type: arrow.BinaryTypes.String, Nullable: true})), "pair[]",
		`[[{"x":1,"y":"one"},null],[],null]`, `[[{"x":1,"y":"one"},null], [], null]`},
	{arrow.ListOf(arrow.StructOf(arrow.Field{Name: "n", Type: &arrow.Decimal128Type{Precision: 10, Scale: 3}, Nullable: true})), "jsonb",
		`[[{"n":"1.500"}],[],null]`, `[[{"n": 1.500}], [], null]`},
	{arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), "jsonb", `[[{"key":"k","value":7}],[],null]`, `[{"k": 7}, {}, null]`},
	{arrow.StructOf(arrow.Field{Name: "start", Type: arrow.FixedWidthTypes.Date32, Nullable: true}, arrow.Field{Name: "end", Type: arrow.FixedWidthTypes.Date32, Nullable: true}), "daterange",
		`[{"start":"2026-01-01","end":"2026-02-01"},{"start":null,"end":"2026-01-01"},null]`, `["[2026-01-01,2026-02-01)", "(,2026-01-01)", null]`},
}

const zooTypes = `CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TYPE pair AS (x int, y text); CREATE DOMAIN positive AS int CHECK (VALUE > 0);`

func (e exhibit) name(i int) string { return fmt.Sprintf("c%02d", i) }

// writeZoo writes one file with a column per exhibit, in row groups of two rows.
func writeZoo(t *testing.T, exhibits []exhibit) string {
	t.Helper()
	var fields []arrow.Field
	var cols []arrow.Array
	for i, e := range exhibits {
		a, _, err := array.FromJSON(memory.DefaultAllocator, e.arrow, strings.NewReader(e.in))
		if err != nil {
			t.Fatalf("exhibit %d (%s): %v", i, e.arrow, err)
		}
		fields, cols = append(fields, arrow.Field{Name: e.name(i), Type: e.arrow, Nullable: true}), append(cols, a)
	}
	schema := arrow.NewSchema(fields, nil)
	path := filepath.Join(t.TempDir(), "zoo.parquet")
	writeFile(t, path, array.NewRecordBatch(schema, cols, int64(cols[0].Len())), 2)
	return path
}

func writeFile(t testing.TB, path string, rb arrow.RecordBatch, group int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	props := pq.NewWriterProperties(pq.WithMaxRowGroupLength(group), pq.WithDictionaryDefault(true))
	w, err := pqarrow.NewFileWriter(rb.Schema(), f, props, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		t.Fatal(err)
	}
	for from := int64(0); from < rb.NumRows(); from += group {
		if err := w.Write(rb.NewSlice(from, min(from+group, rb.NumRows()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, from string, o bulk.Options) (*bulk.Summary, error) {
	t.Helper()
	src, err := Open(from, Options{})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return bulk.New(src, o).Run(context.Background())
}

func TestZooArrivesExact(t *testing.T) {
	for _, format := range []convert.Format{convert.BinaryFormat, convert.TextFormat} {
		t.Run(format.String(), func(t *testing.T) {
			dsn := testkit.Shared(t).Database(t)
			conn := testkit.Connect(t, dsn)
			ddl := []string{"nr bigint GENERATED ALWAYS AS IDENTITY"}
			for i, e := range zoo {
				ddl = append(ddl, e.name(i)+" "+e.target)
			}
			testkit.Exec(t, conn, zooTypes+"CREATE TABLE zoo ("+strings.Join(ddl, ", ")+")")
			sum, err := load(t, writeZoo(t, zoo), bulk.Options{To: pg.DSN(dsn), Table: "zoo", CopyFormat: format, Readers: 1, Writers: 1})
			if err != nil {
				t.Fatal(err)
			}
			if sum.Rows != 3 || sum.Format != format.String() {
				t.Fatalf("summary %+v, want 3 rows as %s", sum, format)
			}
			for i, e := range zoo {
				if got := column(t, conn, e.name(i)); got != e.want {
					t.Errorf("%s into %s:\n got %s\nwant %s", e.arrow, e.target, got, e.want)
				}
			}
		})
	}
}

// column is what PostgreSQL's to_json says of a column's values, in the order of arrival.
func column(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var got string
	if err := conn.QueryRow(context.Background(), fmt.Sprintf(`SELECT replace(json_agg(%s ORDER BY nr)::text, E', \n ', ', ') FROM zoo_staging`, name)).Scan(&got); err != nil {
		t.Fatalf("column %s: %v", name, err)
	}
	return got
}

// Each of these values does not fit, and the message says where and why.
func TestMisfitsAreNamed(t *testing.T) {
	misfits := []struct {
		exhibit
		want string
	}{
		{exhibit{arrow.PrimitiveTypes.Int64, "int", `[1,2147483648]`, ""}, "2147483648 does not fit integer"},
		{exhibit{&arrow.Decimal128Type{Precision: 38, Scale: 9}, "numeric(10,2)", `["1","1.005"]`, ""}, "1.005000000 has more than 2 digits after the point"},
		{exhibit{&arrow.Decimal128Type{Precision: 38, Scale: 9}, "numeric(10,2)", `["1","123456789"]`, ""}, "more than 8 digits before the point"},
		{exhibit{&arrow.TimestampType{Unit: arrow.Nanosecond}, "timestamp", `["2026-11-30","2026-11-30T00:00:00.000000001"]`, ""}, "below the microsecond"},
		{exhibit{&arrow.TimestampType{Unit: arrow.Microsecond}, "timestamp(3)", `["2026-11-30","2026-11-30T00:00:00.0001"]`, ""}, "more than 3 digits"},
		{exhibit{arrow.BinaryTypes.String, "varchar(2)", `["ab","abc"]`, ""}, "has 3 characters"},
		{exhibit{arrow.BinaryTypes.String, "text", `["ab","a\u0000c"]`, ""}, "NUL character"},
		{exhibit{arrow.BinaryTypes.String, "mood", `["sad","angry"]`, ""}, `"angry" is no label of enum mood`},
		{exhibit{arrow.BinaryTypes.String, "uuid", `[null,"xyz"]`, ""}, `"xyz" is not a valid uuid`},
		{exhibit{arrow.BinaryTypes.String, "jsonb", `["1","{"]`, ""}, "invalid input syntax for type json"},
		{exhibit{arrow.PrimitiveTypes.Int32, "positive", `[1,-1]`, ""}, "violates check constraint"},
		{exhibit{arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int32)), "int[]", `[null,[[1],[2,3]]]`, ""}, "rectangular"},
		{exhibit{arrow.PrimitiveTypes.Float64, "real", `[1.5,0.1]`, ""}, "does not fit real exactly"},
	}
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, zooTypes)
	for i, m := range misfits {
		testkit.Exec(t, conn, fmt.Sprintf("CREATE TABLE m%d (nr bigint GENERATED ALWAYS AS IDENTITY, c00 %s)", i, m.target))
		path := writeZoo(t, []exhibit{m.exhibit})
		_, err := load(t, path, bulk.Options{To: pg.DSN(dsn), Table: fmt.Sprintf("m%d", i), AllowNarrowing: true, Writers: 1})
		if err == nil {
			t.Errorf("%s into %s: loaded, want an error with %q", m.arrow, m.target, m.want)
			continue
		}
		for _, part := range []string{m.want, path, "row 2", `column "c00"`} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s into %s: %v\nwant %q in it", m.arrow, m.target, err, part)
			}
		}
		if fault.ClassOf(err) != fault.Failed {
			t.Errorf("%s into %s: class %d, want 1", m.arrow, m.target, fault.ClassOf(err))
		}
		var left int
		if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM pg_class WHERE relname LIKE '%staging'").Scan(&left); err != nil || left != 0 {
			t.Errorf("%s into %s: %d staging tables left, %v", m.arrow, m.target, left, err)
		}
		// With a dead-letter file the same row goes there, whole, and the other one arrives.
		dead := filepath.Join(t.TempDir(), "dead.ndjson")
		sum, err := load(t, path, bulk.Options{To: pg.DSN(dsn), Table: fmt.Sprintf("m%d", i), AllowNarrowing: true, DeadLetter: dead})
		if fault.ClassOf(err) != fault.DeadLetters || sum == nil || sum.Rows != 1 || sum.Rejected != 1 {
			t.Errorf("%s into %s: %v, %+v, want one row loaded and one rejected", m.arrow, m.target, err, sum)
			continue
		}
		line, _ := os.ReadFile(dead)
		if !strings.Contains(string(line), `"after":{"c00":`) || !strings.Contains(string(line), `"column":"c00"`) || !strings.Contains(string(line), `"row":2`) {
			t.Errorf("%s into %s: dead letter %s", m.arrow, m.target, line)
		}
		testkit.Exec(t, conn, fmt.Sprintf("DROP TABLE m%d_staging", i))
	}
}

func TestContractNamesAllDifferences(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE c (c00 int, c01 numeric(5,2), c02 int NOT NULL, "C03" text, lacking int NOT NULL, made int GENERATED ALWAYS AS (1) STORED, spare int, filled int NOT NULL DEFAULT 7)`)
	path := writeZoo(t, []exhibit{
		{arrow.PrimitiveTypes.Int64, "", `[1,2]`, ""},
		{&arrow.Decimal128Type{Precision: 10, Scale: 3}, "", `["1","2"]`, ""},
		{arrow.PrimitiveTypes.Int32, "", `[1,null]`, ""},
		{arrow.BinaryTypes.String, "", `["a","b"]`, ""},
	})
	_, err := load(t, path, bulk.Options{To: pg.DSN(dsn), Table: "public.c"})
	if fault.ClassOf(err) != fault.Check {
		t.Fatalf("got %v, want a failed check", err)
	}
	for _, want := range []string{`"c00": source int64, table integer: int64 is wider`, `"c01": source decimal(10, 3), table numeric(5,2)`, `"c02": the source has nulls`,
		`"c03" is in the source and not in the table (the table has "C03": --rename c03=C03)`, `"lacking" is in the table, NOT NULL`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %q in it", err, want)
		}
	}
	for _, not := range []string{"made", "spare", "filled"} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("%v\nwant nothing of %q in it", err, not)
		}
	}
}

func TestFilesOfOtherSchemaAreNamed(t *testing.T) {
	dir := t.TempDir()
	for i, e := range []exhibit{{arrow.PrimitiveTypes.Int64, "", `[1]`, ""}, {arrow.BinaryTypes.String, "", `["1"]`, ""}} {
		b, err := os.ReadFile(writeZoo(t, []exhibit{e}))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.parquet", i)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(filepath.Join(dir, "*.parquet"), Options{})
	if fault.ClassOf(err) != fault.Check || !strings.Contains(err.Error(), "f1.parquet") || !strings.Contains(err.Error(), `"c00" is utf8, not int64`) {
		t.Fatalf("got %v, want a failed check that names f1.parquet and the column", err)
	}
	if _, err := Open(filepath.Join(dir, "*.nothing"), Options{}); fault.ClassOf(err) != fault.Usage {
		t.Fatalf("got %v, want a fault of usage", err)
	}
}

func TestDamagedFilesAreErrors(t *testing.T) {
	whole, err := os.ReadFile(writeZoo(t, zoo))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "damaged.parquet")
	for cut := 0; cut < len(whole); cut += 97 {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := drainFile(path); err == nil || !strings.Contains(err.Error(), "damaged.parquet") {
			t.Fatalf("cut at %d: %v, want an error that names the file", cut, err)
		}
	}
	for at := 4; at < len(whole); at += 61 { // bits that flip may change a value, but must not panic
		b := append([]byte(nil), whole...)
		b[at] ^= 0xff
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := drainFile(path); err != nil && !strings.Contains(err.Error(), "damaged.parquet") {
			t.Fatalf("byte %d flipped: %v, want an error that names the file", at, err)
		}
	}
}

// drainFile reads every column of a file; nil when it came to its end.
func drainFile(path string) error {
	src, err := Open(path, Options{})
	if err != nil {
		return err
	}
	cols := make([]int, len(src.Fields()))
	for i := range cols {
		cols[i] = i
	}
	rs, err := src.Readers(context.Background(), cols, 1)
	if err != nil {
		return err
	}
	defer rs[0].Close()
	for {
		if _, err := rs[0].Next(context.Background()); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
