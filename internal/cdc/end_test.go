package cdc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"synctl/internal/fault"
	"synctl/internal/ndjson"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/testkit"
)

// ended waits for a run that ends by itself, and closes it.
func (r *running) ended() []change {
	r.t.Helper()
	select {
	case err := <-r.err:
		if err != nil {
			r.t.Fatalf("run: %v", err)
		}
	case <-time.After(20 * time.Second):
		r.t.Fatalf("the run does not end: %+v, %d lines", r.src.Status(), len(r.out.all()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.src.Close(ctx); err != nil {
		r.t.Fatalf("close: %v", err)
	}
	return parse(r.t, r.out.all())
}

func keys(changes []change) string {
	var out []string
	for _, c := range changes {
		switch c.Op {
		case "begin", "commit":
			out = append(out, c.Op)
		case "message":
			out = append(out, "message:"+c.Content)
		default:
			out = append(out, strings.TrimSuffix(strings.TrimPrefix(string(c.Key), `{"id":`), "}"))
		}
	}
	return strings.Join(out, " ")
}

// TestLimit: with a durable slot a run ends at the end of the transaction that reaches the limit, and the next goes on
// behind it; without one it ends at the very record.
func TestLimit(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1), (2), (3)`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (4)`)
	testkit.Exec(t, conn, `SELECT pg_logical_emit_message(false, 'p', 'x')`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (5)`)
	for i, want := range []string{"1 2 3", "4", "message:x", "5"} {
		opt.Limit = []int64{2, 1, 1, 1}[i]
		if got := keys(start(t, opt).ended()); got != want {
			t.Errorf("run %d: %s, want %s", i, got, want)
		}
	}
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Limit: 2})
	testkit.Exec(t, conn, `INSERT INTO a VALUES (6), (7), (8)`)
	if got := keys(r.ended()); got != "6 7" {
		t.Errorf("with a temporary slot: %s", got)
	}
}

// TestUntilLSN: the end is compared with where commits end; what comes later is left to the next run, also when nothing
// more is ever committed.
func TestUntilLSN(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	var at string
	if err := conn.QueryRow(t.Context(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&at); err != nil {
		t.Fatal(err)
	}
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2)`)
	upto := opt
	upto.UntilLSN = parseLSN(t, at)
	if got := keys(start(t, upto).ended()); got != "1" {
		t.Errorf("until %s: %s, want 1", at, got)
	}
	if got := keys(start(t, upto).ended()); got != "" {
		t.Errorf("until %s again: %s, want nothing", at, got)
	}
	now := opt
	now.UntilNow = true
	if got := keys(start(t, now).ended()); got != "2" {
		t.Errorf("until now: %s, want 2", got)
	}
	if got := keys(start(t, now).ended()); got != "" {
		t.Errorf("until now again: %s", got)
	}
	// What was committed without waiting for the disk is committed all the same.
	for i := range 5 {
		testkit.Exec(t, conn, fmt.Sprintf(`SET synchronous_commit = off; INSERT INTO a VALUES (%d)`, 10+i))
		if got := keys(start(t, now).ended()); got != fmt.Sprint(10+i) {
			t.Errorf("until now, committed asynchronously: %q, want %d", got, 10+i)
		}
	}
}

// TestTransactionRecords: begin and commit surround what a transaction changed, with ids of their own.
func TestTransactionRecords(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Transactions: true})
	testkit.Exec(t, conn, `BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); INSERT INTO a VALUES (2); COMMIT`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (3)`)
	r.wait(7)
	got := r.stop()
	if k := keys(got); k != "begin 1 2 commit begin 3 commit" {
		t.Fatalf("got %s", k)
	}
	ids := map[string]bool{}
	for _, c := range got {
		ids[c.ID] = true
	}
	if len(ids) != 7 || got[0].LSN != got[3].LSN || got[3].Row_LSN != got[3].LSN || !strings.Contains(got[0].line, `"xid":`) {
		t.Errorf("begin %s commit %s", got[0].line, got[3].line)
	}
}

// TestMessagesAndTruncate: transactional messages come with their transaction or not at all, others whatever becomes of
// it; a truncate is one record with all its tables and options.
func TestMessagesAndTruncate(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id serial PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY REFERENCES a); CREATE TABLE c (id int PRIMARY KEY)`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a", "public.b"}})
	testkit.Exec(t, conn, `BEGIN; SELECT pg_logical_emit_message(true, 'p', 'gone'); SELECT pg_logical_emit_message(false, 'p', 'stays'); ROLLBACK`)
	testkit.Exec(t, conn, `BEGIN; INSERT INTO a VALUES (1); SELECT pg_logical_emit_message(true, 'p', '\xff00'::bytea); SAVEPOINT s; SELECT pg_logical_emit_message(true, 'p', 'gone'); ROLLBACK TO s; COMMIT`)
	testkit.Exec(t, conn, `TRUNCATE a, c RESTART IDENTITY CASCADE`)
	testkit.Exec(t, conn, `TRUNCATE c`)
	testkit.Exec(t, conn, `SELECT pg_logical_emit_message(true, '', repeat('x', 600000))`)
	r.wait(5)
	got := r.stop()
	if k := keys(got[:3]); k != "message:stays 1 message:/wA=" || !strings.Contains(got[2].line, `"encoding":"base64"`) || got[0].Transactional || !got[2].Transactional {
		t.Errorf("got %s: %s", k, got[2].line)
	}
	tr := got[3]
	if tr.Op != "truncate" || fmt.Sprint(tr.Tables) != "[{public a} {public b}]" || !tr.Cascade || !strings.Contains(tr.line, `"restart_identity":true`) {
		t.Errorf("truncate %s", tr.line)
	}
	if len(got) != 5 || len(got[4].Content) != 600000 {
		t.Errorf("%d records; the large message has %d bytes", len(got), len(got[4].Content))
	}
}

// TestManySmallTransactions: ten thousand transactions back to back, from several sessions, are all there, once, each
// session's in its order.
func TestManySmallTransactions(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY); SET synchronous_commit = off`)
	testkit.Exec(t, conn, `CREATE PROCEDURE fill(first int, n int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN first .. first + n - 1 LOOP INSERT INTO a VALUES (i); COMMIT; END LOOP; END $$`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true})
	const sessions, each = 4, 2500
	done := make(chan error, sessions)
	for i := range sessions {
		c := testkit.Connect(t, dsn)
		go func() {
			_, err := c.Exec(context.Background(), fmt.Sprintf(`CALL fill(%d, %d)`, i*each, each))
			done <- err
		}()
	}
	for range sessions {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	r.wait(sessions * each)
	got := r.stop()
	next := [sessions]int{}
	ids := map[string]bool{}
	for _, c := range got {
		var id int
		if _, err := fmt.Sscanf(string(c.Key), `{"id":%d}`, &id); err != nil {
			t.Fatal(err)
		}
		if id%each != next[id/each] {
			t.Fatalf("row %d comes when %d is due", id, next[id/each])
		}
		next[id/each]++
		ids[c.ID] = true
	}
	if len(got) != sessions*each || len(ids) != len(got) {
		t.Errorf("%d records with %d ids of %d", len(got), len(ids), sessions*each)
	}
}

// TestDroppedType: a value of a type that is gone is an error that names the column, or its text.
func TestDroppedType(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE a (id int PRIMARY KEY, m mood)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	testkit.Exec(t, conn, `ALTER TYPE mood ADD VALUE 'new'`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1, 'new')`)
	testkit.Exec(t, conn, `ALTER TABLE a DROP m; DROP TYPE mood`)
	r := start(t, opt)
	err := <-r.err
	if fault.ClassOf(err) != fault.Failed || !strings.Contains(fmt.Sprint(err), `column "m" of public.a`) || !strings.Contains(fault.HintOf(err), "--unresolved-type text") {
		t.Errorf("error %v, hint %q", err, fault.HintOf(err))
	}
	if err := r.src.Close(t.Context()); err != nil {
		t.Error(err)
	}
	opt.UnresolvedType = UnresolvedText
	r = start(t, opt)
	if got := r.wait(1); string(got[0].After) != `{"id":1,"m":"new"}` {
		t.Errorf("after %s", got[0].After)
	}
	r.stop()
}

// TestGeneratedColumn: stored generated columns are not in the stream unless a publication says so, and are no part of
// the record then.
func TestGeneratedColumn(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED, v int)`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	testkit.Exec(t, conn, `INSERT INTO a (id, v) VALUES (1, 5)`)
	r.wait(1)
	if got := r.stop(); string(got[0].After) != `{"id":1,"v":5}` {
		t.Errorf("after %s", got[0].After)
	}
}

// TestLargeRow: a row far larger than --queue-bytes travels alone and comes whole.
func TestLargeRow(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text); ALTER TABLE a ALTER v SET STORAGE EXTERNAL; ALTER TABLE a REPLICA IDENTITY FULL`)
	src, err := Open(t.Context(), Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, src: src, out: &lines{}, drain: make(chan struct{}), err: make(chan error, 1)}
	go func() {
		r.err <- pipeline.Run(context.Background(), src, ndjson.NewSink(r.out, "out"), pipeline.Options{Drain: r.drain, QueueBytes: 1 << 20})
	}()
	const size = 50 << 20
	testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO a VALUES (1, 'small'), (2, repeat('x', %d)), (3, 'small')`, size))
	testkit.Exec(t, conn, `UPDATE a SET id = 4 WHERE id = 2`)
	r.wait(5)
	got := r.stop()
	if k := keys(got); k != "1 2 3 2 4" || len(got[1].After) < size || len(got[3].Before) < size || len(got[4].After) < size {
		t.Errorf("got %s: %d, %d, %d bytes", k, len(got[1].After), len(got[3].Before), len(got[4].After))
	}
}
