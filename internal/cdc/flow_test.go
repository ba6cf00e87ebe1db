package cdc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/ndjson"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/testkit"
)

func slotFor(conn *pgx.Conn) string { return "slot_" + conn.Config().Database }

// kill ends a run as kill -9 does as far as the server sees it: the connection breaks, nothing more is confirmed.
func (r *running) kill() {
	r.src.confirm.mu.Lock()
	conn := r.src.confirm.conn
	r.src.confirm.mu.Unlock()
	close(r.drain)
	<-r.err
	close(r.src.confirm.stop)
	<-r.src.confirm.done
	conn.drop()
	r.src.meta.close(context.Background())
}

// TestOverlap: T1 begins, T2 commits and is confirmed, the run is killed, T1 commits: T1 arrives.
func TestOverlap(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir()}
	r := start(t, opt)
	t1, t2 := conn, testkit.Connect(t, dsn)
	testkit.Exec(t, t1, `BEGIN`)
	testkit.Exec(t, t1, `INSERT INTO a VALUES (1)`)
	testkit.Exec(t, t2, `INSERT INTO a VALUES (2)`)
	r.wait(1)
	for r.src.Confirmed() < r.src.Status().Read || r.src.Status().Read == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	r.kill()
	testkit.Exec(t, t1, `INSERT INTO a VALUES (3); COMMIT`)
	r = start(t, opt)
	got := r.wait(2)
	r.stop()
	if len(got) != 2 || string(got[0].Key) != `{"id":1}` || string(got[1].Key) != `{"id":3}` {
		t.Errorf("got %v", got)
	}
}

// TestAdjacentCommits: commits one behind the other in the log are all there, and a floor never covers the next of them.
func TestAdjacentCommits(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	const n = 200
	// Transactions that are prepared leave their commit records alone in the log, so that they can touch.
	for i := range 8 {
		testkit.Exec(t, conn, fmt.Sprintf(`BEGIN; INSERT INTO a VALUES (%d); PREPARE TRANSACTION '%s_%d'`, n+i, conn.Config().Database, i))
	}
	for i := range 8 {
		testkit.Exec(t, conn, fmt.Sprintf(`COMMIT PREPARED '%s_%d'`, conn.Config().Database, i))
	}
	for i := range n {
		testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO a VALUES (%d)`, i))
	}
	got := r.wait(n + 8)
	r.stop()
	seen := map[string]bool{}
	var last record.LSN
	for _, c := range got {
		seen[string(c.Key)] = true
		lsn, err := record.ParseLSN(c.LSN)
		if err != nil || lsn <= last {
			t.Fatalf("commit LSN %s after %s, %v", c.LSN, last, err)
		}
		last = lsn
	}
	if len(seen) != n+8 {
		t.Errorf("%d rows of %d", len(seen), n+8)
	}
}

// TestSlotMadeAnew: a slot that was dropped and made again hides a gap; the state file tells.
func TestSlotMadeAnew(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	slot := slotFor(conn)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slot, Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	testkit.Exec(t, conn, `SELECT pg_drop_replication_slot('`+slot+`')`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	testkit.Exec(t, conn, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
	_, err := Open(t.Context(), opt)
	if fault.ClassOf(err) != fault.Check || !strings.Contains(fmt.Sprint(err), "ahead of") || fault.HintOf(err) == "" {
		t.Fatalf("a gap was not noticed: %v", err)
	}
	opt.AcceptGap = true
	r := start(t, opt)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2)`)
	r.wait(1)
	r.stop()
}

// TestSameIDs: two slots with publications of different tables, and with --transactions, give a change the same id.
func TestSameIDs(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY);
CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (1000);
CREATE PUBLICATION only_a FOR TABLE a; CREATE PUBLICATION every FOR TABLE a, b, p WITH (publish_via_partition_root = true);
CREATE PUBLICATION leaves FOR TABLE p`)
	one := start(t, Options{DSN: pg.DSN(dsn), Publication: "only_a"})
	two := start(t, Options{DSN: pg.DSN(dsn), Publication: "every", Transactions: true})
	three := start(t, Options{DSN: pg.DSN(dsn), Publication: "leaves", Tables: []string{"public.p"}})
	testkit.Exec(t, conn, `BEGIN; INSERT INTO b VALUES (1); INSERT INTO a SELECT i, 'x' FROM generate_series(1, 3) i;
INSERT INTO b VALUES (2); UPDATE a SET id = 10 WHERE id = 1; SELECT pg_logical_emit_message(true, 'm', 'x'); DELETE FROM a WHERE id = 2; COMMIT`)
	if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"a"}, []string{"id", "v"}, pgx.CopyFromSlice(300, func(i int) ([]any, error) {
		return []any{1000 + i, "copied"}, nil
	})); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.CopyFrom(t.Context(), pgx.Identifier{"p"}, []string{"id", "v"}, pgx.CopyFromSlice(200, func(i int) ([]any, error) {
		return []any{i, i}, nil
	})); err != nil {
		t.Fatal(err)
	}
	testkit.Exec(t, conn, `UPDATE p SET id = id + 500 WHERE id < 20 AND id > 10`)
	testkit.Exec(t, conn, `TRUNCATE a, b`)
	testkit.Exec(t, conn, `SELECT pg_logical_emit_message(true, 'end', 'x')`)
	ids := map[string]string{}
	for i, r := range []*running{one, two, three} {
		for !strings.Contains(strings.Join(r.out.all(), ""), `"prefix":"end"`) {
			time.Sleep(10 * time.Millisecond)
		}
		within := map[string]bool{}
		for _, c := range r.stop() {
			if c.Op == "begin" || c.Op == "commit" {
				if within[c.ID] {
					t.Errorf("id %s twice", c.ID)
				}
				within[c.ID] = true
				continue
			}
			if within[c.ID] {
				t.Errorf("id %s twice from source %d", c.ID, i)
			}
			within[c.ID] = true
			what := c.Op + c.Schema + string(c.Key) + string(c.After)
			if was, ok := ids[c.ID]; ok && was != what {
				t.Errorf("id %s is %s and %s", c.ID, was, what)
			}
			ids[c.ID] = what
		}
	}
	// Had an id differed between two sources, its change would be here twice.
	count := map[string]int{}
	for _, what := range ids {
		count[what]++
	}
	for what, n := range count {
		if n != 1 && !strings.HasPrefix(what, "message") && !strings.HasPrefix(what, "truncate") {
			t.Errorf("%d ids for %s", n, what)
		}
	}
	if len(ids) != 3+2+2+1+1+300+200+9*2+1+1 {
		t.Errorf("%d ids", len(ids))
	}
}

// TestQuietTable: what is published rests, what is not is busy: the position moves on all the same.
func TestQuietTable(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE quiet (id int PRIMARY KEY); CREATE TABLE busy (id int PRIMARY KEY, v text)`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.quiet"}, Slot: slotFor(conn), Create: true})
	testkit.Exec(t, conn, `INSERT INTO busy SELECT i, repeat('x', 500) FROM generate_series(1, 5000) i`)
	var end string
	if err := conn.QueryRow(t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&end); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var reached bool
		if err := conn.QueryRow(t.Context(), `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, end, slotFor(conn)).Scan(&reached); err != nil {
			t.Fatal(err)
		}
		if reached {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the confirmed position stays below %s: %+v", end, r.src.Status())
		}
	}
	if got := r.stop(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

// stuckSink holds every batch until it is let go.
type stuckSink struct{ free chan struct{} }

func (s stuckSink) Write(ctx context.Context, _ *record.Batch, done func(error)) error {
	select {
	case <-s.free:
		done(nil)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestSlowReader: a sink that stops for longer than wal_sender_timeout does not cost the connection.
func TestSlowReader(t *testing.T) {
	c := testkit.Own(t, testkit.Options{Settings: map[string]string{"wal_sender_timeout": "2s"}})
	dsn := c.Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
	src, err := Open(t.Context(), Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	if err != nil {
		t.Fatal(err)
	}
	sink := stuckSink{make(chan struct{})}
	drain, run := make(chan struct{}), make(chan error, 1)
	stats := new(pipeline.Stats)
	go func() {
		run <- pipeline.Run(context.Background(), src, sink, pipeline.Options{QueueBytes: 1 << 20, Drain: drain, Stats: stats})
	}()
	testkit.Exec(t, conn, `INSERT INTO a SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i`)
	select {
	case err := <-run:
		t.Fatalf("the run ended while its sink rested: %v", err)
	case <-time.After(6 * time.Second):
	}
	close(sink.free)
	for deadline := time.Now().Add(20 * time.Second); stats.DoneRecords.Load() < 50000; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d records of 50000", stats.DoneRecords.Load())
		}
	}
	close(drain)
	if err := <-run; err != nil {
		t.Error(err)
	}
	if err := src.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestReconnect: a durable slot goes on after the server ended the connection in the middle of a transaction, and after
// a restart; nothing is missing and nothing comes twice.
func TestReconnect(t *testing.T) {
	c := testkit.Own(t, testkit.Options{})
	dsn := c.Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
	src, err := Open(t.Context(), Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: "again", Create: true, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	out, drain, run := &lines{}, make(chan struct{}), make(chan error, 1)
	slow := &pacedSink{next: ndjson.NewSink(out, "out")}
	go func() {
		run <- pipeline.Run(context.Background(), src, slow, pipeline.Options{QueueBytes: 256 << 10, Drain: drain})
	}()
	const n = 40000
	testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO a SELECT i, repeat('x', 500) FROM generate_series(1, %d) i`, n))
	for range 3 {
		time.Sleep(100 * time.Millisecond)
		testkit.Exec(t, conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'again' AND active`)
	}
	c.Stop(syscall.SIGINT)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	conn = testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (0, 'end')`)
	for deadline := time.Now().Add(40 * time.Second); len(out.all()) <= n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d lines of %d", len(out.all()), n+1)
		}
		select {
		case err := <-run:
			t.Fatalf("run ended: %v", err)
		default:
		}
	}
	close(drain)
	if err := <-run; err != nil {
		t.Error(err)
	}
	if err := src.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if src.Status().Reconnects == 0 {
		t.Error("the connection was never lost, so nothing was tested")
	}
	got := parse(t, out.all())
	if len(got) != n+1 {
		t.Errorf("%d records, want %d", len(got), n+1)
	}
	for i, c := range got[:n] {
		if string(c.Key) != fmt.Sprintf(`{"id":%d}`, i+1) {
			t.Fatalf("record %d is %s", i, c.Key)
		}
	}
}

// pacedSink takes its time, so that a transaction is still on its way when the connection breaks.
type pacedSink struct{ next pipeline.Sink }

func (s *pacedSink) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	time.Sleep(5 * time.Millisecond)
	return s.next.Write(ctx, b, done)
}

// TestTemporaryConnectionLost: a run without a slot ends with the position.
func TestTemporaryConnectionLost(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	r.wait(1)
	testkit.Exec(t, conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()`)
	err := <-r.err
	if fault.ClassOf(err) != fault.Unreachable || !strings.Contains(err.Error(), "last position read is") {
		t.Errorf("error %v", err)
	}
	r.src.Close(t.Context())
}

// TestLeftovers: what a killed run leaves hurts nobody, and the next start removes it, but not what a live run uses.
func TestLeftovers(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v int)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}}
	killed, live := start(t, opt), start(t, opt)
	killed.kill()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1, 1)`)
	testkit.Exec(t, conn, `UPDATE a SET v = 2`)
	testkit.Exec(t, conn, `DELETE FROM a`)
	publications := func() (names []string) {
		rows, err := conn.Query(t.Context(), `SELECT pubname::text FROM pg_publication`)
		if err != nil {
			t.Fatal(err)
		}
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if n := publications(); len(n) != 2 {
		t.Fatalf("publications %v, want that of the killed run and that of the live one", n)
	}
	for deadline := time.Now().Add(5 * time.Second); slices.Contains(publications(), killed.src.tmpPub); time.Sleep(50 * time.Millisecond) {
		start(t, opt).stop()
		if time.Now().After(deadline) {
			t.Fatal("the publication of the killed run is still there")
		}
	}
	live.wait(3)
	live.stop()
}

// TestStateBeforeConfirm: the state file never stands behind the server.
func TestStateBeforeConfirm(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	path := filepath.Join(t.TempDir(), "deep", "state.json")
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, State: path})
	f := stateFile{path: path}
	for i := range 60 {
		testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO a VALUES (%d)`, i))
		slot, err := findSlot(t.Context(), conn, slotFor(conn))
		if err != nil {
			t.Fatal(err)
		}
		_, lsn, ok, err := f.read()
		if err != nil || !ok || slot.Confirmed > lsn {
			t.Fatalf("the server has %s, the state file %s (%v, %v)", slot.Confirmed, lsn, ok, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.stop()
	_, lsn, _, err := f.read()
	if slot, serr := findSlot(t.Context(), conn, slotFor(conn)); err != nil || serr != nil || slot.Confirmed != lsn {
		t.Errorf("after the end the server has %v, the state file %s, %v %v", slot, lsn, err, serr)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := f.read(); fault.HintOf(err) == "" {
		t.Errorf("a damaged state file: %v", err)
	}
}

// TestPublicationDropped: a publication that goes away in the middle is an error, and what it would have brought is not
// passed over.
func TestPublicationDropped(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	slot := slotFor(conn)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slot, Create: true})
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	r.wait(1)
	testkit.Exec(t, conn, `DROP PUBLICATION `+slot)
	var before string
	if err := conn.QueryRow(t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2)`)
	if err := <-r.err; fault.ClassOf(err) != fault.Check || !strings.Contains(err.Error(), slot) || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	if err := r.src.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if at, err := record.ParseLSN(before); err != nil || r.src.Confirmed() > at {
		t.Errorf("confirmed %s, beyond the change at %s that was not delivered, %v", r.src.Confirmed(), before, err)
	}
}

// TestStopsWithinATransaction: an orderly stop does not wait for the end of a large transaction, and confirms what came
// before it.
func TestStopsWithinATransaction(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int, v text); ALTER TABLE a REPLICA IDENTITY FULL`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (0, 'before')`)
	testkit.Exec(t, conn, `INSERT INTO a SELECT i, repeat('x', 50) FROM generate_series(1, 1000000) i`)
	src, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBatch(64<<10, nil, nil)
	for got := 0; got < 5000; got += len(b.Records) {
		b.Reset()
		if err := src.ReadBatch(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if b.Token != nil {
			if err := src.Ack(t.Context(), b.Token); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	if err := src.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 2500*time.Millisecond {
		t.Errorf("the stop took %s", d)
	}
	slot, err := findSlot(t.Context(), conn, opt.Slot)
	if err != nil || slot.Confirmed != src.Confirmed() || src.Confirmed() == 0 {
		t.Errorf("the server has %v, the state %s, %v", slot, src.Confirmed(), err)
	}
}

// TestTimeLimitsOfTheRole: time limits that a role has do not end what is meant to last.
func TestTimeLimitsOfTheRole(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	testkit.Exec(t, conn, `ALTER DATABASE `+conn.Config().Database+` SET idle_session_timeout = '300ms'`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	time.Sleep(time.Second)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	r.wait(1)
	r.stop()
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_publication`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d publications left, %v", left, err)
	}
}
