package parquet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"synctl/internal/bulk"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// A filter keeps the rows that PostgreSQL's WHERE keeps, and skips the row groups that it can.
func TestFilterAgreesWithWhere(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
		{Name: "at", Type: arrow.FixedWidthTypes.Timestamp_ms, Nullable: true}, {Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, {Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range 1000 {
		if i%7 == 0 {
			for _, f := range b.Fields() {
				f.AppendNull()
			}
			continue
		}
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.Date32Builder).Append(arrow.Date32(20000 + i/100))
		b.Field(2).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000 + int64(i)*3_600_000))
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprintf("n%03d's", i))
		b.Field(4).(*array.Float64Builder).Append(float64(i) / 8)
		b.Field(5).(*array.BooleanBuilder).Append(i%2 == 0)
	}
	path := filepath.Join(t.TempDir(), "f.parquet")
	writeFile(t, path, b.NewRecordBatch(), 100)
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE f (id bigint, day date, at timestamptz, note text, f float8, ok boolean); CREATE TABLE half (id bigint)`)
	if _, err := load(t, path, bulk.Options{To: pg.DSN(dsn), Table: "f", Staging: "whole"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		filter string
		groups int // that are read
	}{
		{"id = 150", 1}, {"id <> 150", 10}, {"id >= 250 AND id < 350", 2}, {"id IN (5, 995)", 2}, {"id > 5000", 0}, {"id IS NULL", 10}, {"id is not null and id <= 99", 1},
		{"day = '2024-10-05'", 1}, {"day > DATE '2024-10-11'", 2}, {"at < '2023-11-15T00:00:00Z'", 1}, {"note = 'n150''s'", 1}, {"note >= 'n9'", 1}, {`"note" < 'n0011'`, 1},
		{"f >= 12.5 AND ok = true", 10}, {"ok <> true", 10},
	} {
		src, err := Open(path, Options{Filter: c.filter})
		if err != nil {
			t.Errorf("%s: %v", c.filter, err)
			continue
		}
		if src.Size().Parts != c.groups {
			t.Errorf("%s: %d row groups are read, want %d", c.filter, src.Size().Parts, c.groups)
		}
		var want, got string
		const digest = "SELECT concat_ws(' ', count(*), sum(id)) FROM "
		if err := conn.QueryRow(context.Background(), digest+"whole WHERE "+c.filter).Scan(&want); err != nil {
			t.Fatal(err)
		}
		if _, err := bulk.New(src, bulk.Options{To: pg.DSN(dsn), Table: "half", Columns: []string{"id"}}).Run(context.Background()); err != nil {
			t.Errorf("%s: %v", c.filter, err)
			continue
		}
		if err := conn.QueryRow(context.Background(), digest+"half_staging").Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: rows and sum %s, PostgreSQL's WHERE has %s", c.filter, got, want)
		}
	}
	for _, bad := range []string{"id", "id =", "id = 'x'", "id = 1 OR id = 2", "id LIKE 'x'", "nothing = 1", "note = 5", "id IN (1", "day = 'x'", "at = '2023-11-15T00:00:00.0001Z'", "id = 1 AND", "'id' = 1", "note = 'open"} {
		if _, err := Open(path, Options{Filter: bad}); fault.ClassOf(err) != fault.Usage {
			t.Errorf("%s: %v, want a fault of usage", bad, err)
		}
	}
}

// What the decoder would take for data the checksum shows to be damaged.
func TestChecksumsAreHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sum.parquet")
	writeChecksummed(t, path, 5000)
	if err := drainFile(path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 1000; at < 30_000; at += 4000 { // all in the data of the one column
		b := append([]byte(nil), whole...)
		b[at] ^= 4
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := drainFile(path); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("byte %d flipped: %v, want a checksum that differs", at, err)
		}
	}
}
