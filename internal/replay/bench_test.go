package replay

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"synctl/internal/ndjson"
	"synctl/internal/record"
	"synctl/internal/sink/postgres"
	"synctl/internal/stream"
	"synctl/internal/stream/file"
	"synctl/internal/testkit"
)

const benchTable = `CREATE TABLE orders (id bigint PRIMARY KEY, customer int, status text, total numeric(12,2), note text,
	created_at timestamptz, updated_at timestamptz, flags int[], doc jsonb)`

// benchStream holds changes of 9 columns, in transactions of 100; mixed: a third each of inserts, updates and deletes but for
// the first third, which is inserts; read: rows of a snapshot.
func benchStream(b *testing.B, records int, kind string) stream.Stream {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "bench")
	if err := file.Create(dir, file.Options{}); err != nil {
		b.Fatal(err)
	}
	lsn, floor := record.LSN(0x10000), record.LSN(0x100)
	sk, err := file.OpenSink(context.Background(), dir, file.SinkOptions{Floor: func() record.LSN { return floor }})
	if err != nil {
		b.Fatal(err)
	}
	defer sk.Close()
	written := make(chan error, records/1000+1)
	batches := 0
	var line []byte
	for at := 0; at < records; {
		batch := record.NewBatch(4<<20, nil, nil)
		for range 5000 {
			if at == records {
				break
			}
			commit := lsn&^0xfff + 0x10000
			if at%100 == 0 {
				floor = max(floor, max(commit, 0x100100)-0x100000)
			}
			lsn += 64
			line = benchLine(line[:0], at, records, kind, commit, lsn)
			if err := record.Parse(batch.Copy(line), batch.Add()); err != nil {
				b.Fatalf("%v: %s", err, line)
			}
			at++
		}
		batches++
		if err := sk.Write(context.Background(), batch, func(err error) { written <- err }); err != nil {
			b.Fatal(err)
		}
	}
	for range batches {
		if err := <-written; err != nil {
			b.Fatal(err)
		}
	}
	st, err := file.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	return st
}

func benchLine(dst []byte, at, records int, kind string, commit, lsn record.LSN) []byte {
	op, id := "insert", at
	if kind == "read" {
		op = "read"
	}
	if third := records / 3; kind == "mixed" && at >= third {
		switch at % 3 {
		case 1:
			op, id = "update", (at*7919)%(third/2)
		case 2:
			op, id = "delete", third/2+(at-third)/6
			if id >= third || (at-third)%6 >= 3 {
				op, id = "update", (at*7907)%(third/2)
			}
		}
	}
	head := fmt.Appendf(dst, `{"v":1,"id":"77.1.%016X.0","op":"%s","schema":"public","table":"orders","key":{"id":%d},`, uint64(lsn), op, id)
	if op == "delete" {
		head = fmt.Appendf(head, `"before":{"id":%d},`, id)
	} else {
		head = fmt.Appendf(head, `"after":{"id":%d,"customer":%d,"status":"paid","total":%d.50,"note":"some words about order %d","created_at":"2026-11-30T19:58:00.123456+00:00","updated_at":"2026-11-30T19:58:00.123456+00:00","flags":[1,2,3],"doc":{"a": %d}},`,
			id, at%1000, at%9999, at, at)
	}
	if op == "read" {
		return fmt.Appendf(head, `"lsn":"%s","row_lsn":"%s","snapshot":"0/100"}`, commit, lsn)
	}
	return fmt.Appendf(head, `"lsn":"%s","row_lsn":"%s","xid":7,"committed_at":"2026-11-30T19:58:00.123456Z"}`, commit, lsn)
}

func BenchmarkReplay(b *testing.B) {
	const records = 300_000
	run := func(b *testing.B, st stream.Stream, target Target) {
		r, err := New(Options{Stream: st, Target: target})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if err := r.Run(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(records/time.Since(began).Seconds(), "records/s")
		if n := r.Status().Records; n != records {
			b.Fatalf("%d records", n)
		}
	}
	b.Run("stdout", func(b *testing.B) {
		st := benchStream(b, records, "insert")
		for b.Loop() {
			run(b, st, &Plain{Sink: ndjson.NewSink(io.Discard, "nowhere")})
		}
	})
	for name, kind := range map[string]string{"mixed=false": "insert", "mixed=true": "mixed", "reads": "read"} {
		b.Run("postgres/"+name, func(b *testing.B) {
			st := benchStream(b, records, kind)
			cluster := testkit.Shared(b)
			for b.Loop() {
				b.StopTimer()
				dsn := cluster.Database(b)
				conn := testkit.Connect(b, dsn)
				testkit.Exec(b, conn, benchTable)
				target := openTarget(b, dsn+"&options=-c%20synchronous_commit%3Doff", postgres.Options{})
				b.StartTimer()
				run(b, st, Postgres{target})
				b.StopTimer()
				if n := target.Stats().Applied; n != records {
					b.Fatalf("%d changes applied", n)
				}
				var rows int
				if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM orders").Scan(&rows); err != nil || kind != "mixed" && rows != records {
					b.Fatalf("%d rows (%v)", rows, err)
				}
				target.Close(context.Background())
				b.StartTimer()
			}
		})
	}
}
