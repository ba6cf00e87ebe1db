package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pq "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/jackc/pgx/v5"

	"synctl/internal/testkit"
	"synctl/internal/testkit/bigqueryfake"
)

// bulkBench is a server with a live table, and the same rows as files for everybody.
type bulkBench struct {
	*testing.B
	rows                 int
	synctl, dsn          string
	conn                 *pgx.Conn
	parquet, binary, csv string
}

const benchOrders = "(id bigint NOT NULL PRIMARY KEY, customer int, amount numeric(12,2), at timestamptz, ok boolean, note text)"

func newBulkBench(b *testing.B) *bulkBench {
	b.Helper()
	bin, err := benchBinary()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	k := &bulkBench{B: b, rows: benchRows(b), synctl: bin, dsn: testkit.Shared(b).Database(b),
		parquet: filepath.Join(dir, "orders.parquet"), binary: filepath.Join(dir, "orders.bin"), csv: filepath.Join(dir, "orders.csv")}
	k.conn = testkit.Connect(b, k.dsn)
	testkit.Exec(b, k.conn, "CREATE TABLE orders "+benchOrders)
	writeOrders(b, k.parquet, k.rows)
	k.load("parquet:"+k.parquet, 1)
	k.psql(`\copy orders_staging to '` + k.binary + `' (format binary)`)
	k.psql(`\copy orders_staging to '` + k.csv + `' (format csv, header)`)
	return k
}

// load runs synctl; 0 writers are its default.
func (k *bulkBench) load(from string, writers int) usage {
	k.fresh()
	return timed(k.B, nil, k.synctl, "bulk", "load", "--from", from, "--to", k.dsn, "--table", "orders", "--writers", fmt.Sprint(writers), "--progress", "none", "--log-level", "warn")
}

func (k *bulkBench) psql(sql string) usage {
	return timed(k.B, nil, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", k.dsn, "-c", sql)
}

// copyIn is psql's \copy into an unlogged table without a key, as the staging table is.
func (k *bulkBench) copyIn(how string) usage {
	k.fresh()
	return k.psql(`\copy peer from ` + how)
}

// fresh gives psql an empty unlogged table and takes the last staging table away, outside of what is timed.
func (k *bulkBench) fresh() {
	k.Helper()
	testkit.Exec(k.B, k.conn, "DROP TABLE IF EXISTS peer, orders_staging")
	testkit.Exec(k.B, k.conn, "CREATE UNLOGGED TABLE peer (LIKE orders EXCLUDING ALL)")
	testkit.Exec(k.B, k.conn, "CHECKPOINT")
}

func (k *bulkBench) loads(name, from string, writers int) contestant {
	return contestant{name, func(int) usage { return k.load(from, writers) }}
}

// BenchmarkBulkParquet compares loads of a Parquet file with psql's \copy of the same rows from a binary file.
func BenchmarkBulkParquet(b *testing.B) {
	k := newBulkBench(b)
	compare(b, k.rows, []contestant{
		k.loads("parquet-1-writer", "parquet:"+k.parquet, 1),
		{"psql-binary", func(int) usage { return k.copyIn("'" + k.binary + "' (format binary)") }},
		k.loads("parquet-2-writers", "parquet:"+k.parquet, 2),
		k.loads("parquet-4-writers", "parquet:"+k.parquet, 4),
	})
}

// BenchmarkBulkCSV compares loads of a CSV file with psql's \copy of the same file, and pgloader's where it is installed.
func BenchmarkBulkCSV(b *testing.B) {
	k := newBulkBench(b)
	list := []contestant{
		k.loads("csv-1-writer", "csv:"+k.csv, 1),
		{"psql-csv", func(int) usage { return k.copyIn("'" + k.csv + "' (format csv, header)") }},
		k.loads("csv-2-writers", "csv:"+k.csv, 2),
		k.loads("csv-4-writers", "csv:"+k.csv, 4),
	}
	if loader := installed(b, "pgloader"); loader != "" {
		script := filepath.Join(b.TempDir(), "orders.load")
		text := fmt.Sprintf("LOAD CSV FROM '%s' INTO %s TARGET TABLE public.peer WITH skip header = 1, fields terminated by ',', fields optionally enclosed by '\"';\n",
			k.csv, pgloaderURL(b, k.conn))
		if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		list = append(list, contestant{"pgloader", func(int) usage {
			k.fresh()
			u := timed(b, nil, loader, "--quiet", script)
			k.counted("peer")
			return u
		}})
	}
	compare(b, k.rows, list)
}

// BenchmarkBulkBigQuery compares loads from a BigQuery endpoint in this process, on the same cores, with loads of the same rows
// from Parquet. The endpoint compresses its responses before the clock runs.
func BenchmarkBulkBigQuery(b *testing.B) {
	k := newBulkBench(b)
	s := bigqueryfake.Start(b, map[string]bigqueryfake.Table{
		"projects/p/datasets/d/tables/orders": {Rows: orderRows(0, k.rows), BatchRows: 8192, EncodeOnce: true}})
	from := "bigquery://p/d/orders?endpoint=" + s.Addr()
	k.load(from, 1)
	compare(b, k.rows, []contestant{
		k.loads("bigquery-1-writer", from, 1),
		k.loads("parquet-1-writer", "parquet:"+k.parquet, 1),
		k.loads("bigquery-2-writers", from, 2),
	})
}

// BenchmarkBulkPgcopydb compares a load of Parquet with pgcopydb's copy of a table of the same rows between databases of one
// server, into a table without a key.
func BenchmarkBulkPgcopydb(b *testing.B) {
	copydb := installed(b, "pgcopydb")
	if copydb == "" {
		b.SkipNow()
	}
	k := newBulkBench(b)
	source := testkit.Shared(b).Database(b)
	conn := testkit.Connect(b, source)
	testkit.Exec(b, conn, "CREATE TABLE peer "+benchOrders)
	testkit.Exec(b, conn, "ALTER TABLE peer DROP CONSTRAINT peer_pkey")
	timed(b, nil, "psql", "-X", "-q", "-d", source, "-c", `\copy peer from '`+k.binary+`' (format binary)`)
	testkit.Exec(b, conn, "ANALYZE peer")
	compare(b, k.rows, []contestant{
		k.loads("parquet", "parquet:"+k.parquet, 0),
		{"pgcopydb", func(int) usage {
			k.fresh()
			u := timed(b, nil, copydb, "copy", "table-data", "--source", source, "--target", k.dsn, "--dir", filepath.Join(b.TempDir(), "work"), "--not-consistent")
			k.counted("peer")
			return u
		}},
	})
}

// counted makes sure that a peer has done what it is timed for.
func (k *bulkBench) counted(table string) {
	k.Helper()
	var n int
	if err := k.conn.QueryRow(context.Background(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != k.rows {
		k.Fatalf("%s holds %d rows, not %d (%v)", table, n, k.rows, err)
	}
}

// installed finds a program to compare with; where it is missing the benchmark says so and goes without it.
func installed(b *testing.B, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		b.Logf("%s is not installed, so nothing is compared with it: run 'scripts/setup bench'", name)
		return ""
	}
	return path
}

// pgloaderURL is a connection as pgloader's scripts have it, which know no sockets' directories in queries.
func pgloaderURL(b *testing.B, conn *pgx.Conn) string {
	b.Helper()
	c := conn.Config()
	host := c.Host
	if strings.HasPrefix(host, "/") {
		host = "unix:" + host
	}
	return fmt.Sprintf("postgresql://%s@%s:%d/%s", c.User, host, c.Port, c.Database)
}

var ordersSchema = arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "customer", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "amount", Type: &arrow.Decimal128Type{Precision: 12, Scale: 2}, Nullable: true}, {Name: "at", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	{Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}, {Name: "note", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)

// orderRows makes rows of six ordinary columns.
func orderRows(from, to int) arrow.RecordBatch {
	rb := array.NewRecordBuilder(memory.DefaultAllocator, ordersSchema)
	for i := from; i < to; i++ {
		rb.Field(0).(*array.Int64Builder).Append(int64(i))
		rb.Field(1).(*array.Int32Builder).Append(int32(i * 7919 % 100_003))
		rb.Field(2).(*array.Decimal128Builder).Append(decimal128.FromI64(int64(i * 31 % 10_000_000)))
		rb.Field(3).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000_000 + int64(i)*1_000_003))
		rb.Field(4).(*array.BooleanBuilder).Append(i%3 == 0)
		rb.Field(5).(*array.StringBuilder).Append(fmt.Sprintf("note number %d of many", i))
	}
	return rb.NewRecordBatch()
}

// writeOrders writes them, in row groups of the usual size.
func writeOrders(b *testing.B, path string, rows int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	const group = 122_880
	w, err := pqarrow.NewFileWriter(ordersSchema, f, pq.NewWriterProperties(pq.WithCompression(compress.Codecs.Snappy), pq.WithMaxRowGroupLength(group)), pqarrow.DefaultWriterProps())
	if err != nil {
		b.Fatal(err)
	}
	for from := 0; from < rows; from += group {
		if err := w.Write(orderRows(from, min(from+group, rows))); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
