package swap

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/testkit"
)

// client runs a query again and again on a connection of its own and keeps the longest time.
type client struct {
	max   time.Duration
	calls int
}

// traffic is the application: everything it runs must succeed.
type traffic struct {
	b       *bench
	stop    chan struct{}
	wg      sync.WaitGroup
	clients map[string]*client
	locked  float64 // the longest that a session was seen waiting for a lock, in milliseconds
}

func (b *bench) traffic() *traffic {
	tr := &traffic{b: b, stop: make(chan struct{}), clients: map[string]*client{}}
	tr.run("watcher", func(ctx context.Context, c *pgx.Conn, _ int) error {
		var ms float64
		err := c.QueryRow(ctx, `SELECT coalesce(1000 * max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0)::float8 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE NOT l.granted AND l.locktype = 'relation' AND a.application_name <> 'synctl swap'`).Scan(&ms)
		tr.locked = max(tr.locked, ms)
		return err
	})
	return tr
}

// run starts a client. body gets the number of the call; pgx prepares what it executes and keeps it.
func (tr *traffic) run(name string, body func(ctx context.Context, c *pgx.Conn, i int) error) {
	conn := testkit.Connect(tr.b, tr.b.dsn)
	cl := &client{}
	tr.clients[name] = cl
	tr.wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-tr.stop:
				return
			default:
			}
			begin := time.Now()
			if err := body(context.Background(), conn, i); err != nil {
				tr.b.Errorf("%s, call %d: %v", name, i, err)
				return
			}
			cl.max, cl.calls = max(cl.max, time.Since(begin)), i+1
			time.Sleep(2 * time.Millisecond)
		}
	})
}

// end stops the clients and holds their longest times against the lock timeout. What the server itself says of waits
// for locks is held to it strictly. Of what the clients saw, the machine's share is taken off: the control client does
// a reader's work on a table that nobody exchanges.
func (tr *traffic) end(timeout time.Duration) {
	close(tr.stop)
	tr.wg.Wait()
	control := tr.clients["control"].max
	for name, c := range tr.clients {
		tr.b.Logf("%-10s %6d calls, longest %s", name, c.calls, c.max.Round(100*time.Microsecond))
		if name != "control" && name != "long" && c.max > timeout+3*control+50*time.Millisecond {
			tr.b.Errorf("%s waited %s, the lock timeout is %s and the control waited %s", name, c.max, timeout, control)
		}
		if c.calls == 0 {
			tr.b.Errorf("%s did not run", name)
		}
	}
	tr.b.Logf("longest wait of a session for a lock: %.1f ms", tr.locked)
	if tr.locked > float64(timeout.Milliseconds())+20 {
		tr.b.Errorf("a session waited %.1f ms for a lock, the lock timeout is %s", tr.locked, timeout)
	}
}

// whole is a read that must see one generation of rows and all of it.
func whole(sql string, n int) func(context.Context, *pgx.Conn, int) error {
	return func(ctx context.Context, c *pgx.Conn, _ int) error {
		var low, high string
		var count int
		if err := c.QueryRow(ctx, sql).Scan(&low, &high, &count); err != nil {
			return err
		}
		if low != high || count != n {
			return fmt.Errorf("a mixture: from %s to %s, %d rows of %d", low, high, count, n)
		}
		return nil
	}
}

// TestUnderLoad swaps and rolls back under readers, writers and prepared statements.
func TestUnderLoad(t *testing.T) {
	const n = 3000
	for _, plain := range []bool{false, true} {
		t.Run(map[bool]string{true: "plain", false: "partition"}[plain], func(t *testing.T) {
			b := newBench(t)
			b.exec(fmt.Sprintf(`CREATE TABLE aside (day int, id bigint, gen text, PRIMARY KEY (day, id)); INSERT INTO aside SELECT 1, i, 'aside' FROM generate_series(1, %d) i`, n))
			if plain {
				b.exec(`CREATE TABLE ev (day int, id bigint, gen text, PRIMARY KEY (day, id)); CREATE INDEX ON ev (gen); CREATE VIEW v AS SELECT * FROM ev`)
			} else {
				b.exec(`CREATE TABLE ev (day int, id bigint, gen text, PRIMARY KEY (day, id)) PARTITION BY LIST (day); CREATE INDEX ON ev (gen); CREATE VIEW v AS SELECT * FROM ev;
					CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN (1); CREATE TABLE ev_2 PARTITION OF ev FOR VALUES IN (2); CREATE TABLE ev_default PARTITION OF ev DEFAULT`)
			}
			b.exec(fmt.Sprintf(`INSERT INTO ev SELECT 1, i, 'start' FROM generate_series(1, %d) i`, n))
			o := b.options()
			o.Table, o.Staging, o.LockTimeout = "ev", "s", 200*time.Millisecond
			if !plain {
				o.Partition = "ev_1"
			}
			tr := b.traffic()
			tr.run("control", whole(`SELECT min(gen), max(gen), count(*) FROM aside WHERE day = 1 AND id > 0`, n))
			tr.run("reader", whole(`SELECT min(gen), max(gen), count(*) FROM ev WHERE day = 1 AND id > 0`, n))
			tr.run("view", whole(`SELECT min(gen), max(gen), count(*) FROM v WHERE day = 1 AND id > 0`, n))
			tr.run("point", func(ctx context.Context, c *pgx.Conn, i int) error {
				var gen string
				return c.QueryRow(ctx, `SELECT gen FROM ev WHERE day = $1 AND id = $2`, 1, 1+i%n).Scan(&gen)
			})
			tr.run("cursor", func(ctx context.Context, c *pgx.Conn, _ int) error {
				// A transaction of some length that reads twice: one generation in both, for it holds the table.
				return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
					var a, z string
					if err := tx.QueryRow(ctx, `SELECT max(gen) FROM ev WHERE day = 1`).Scan(&a); err != nil {
						return err
					}
					time.Sleep(20 * time.Millisecond)
					if err := tx.QueryRow(ctx, `SELECT max(gen) FROM ev WHERE day = 1`).Scan(&z); err != nil || a != z {
						return fmt.Errorf("read %s, then %s: %v", a, z, err)
					}
					return nil
				})
			})
			// One that holds the table for longer than the timeout, time and again, so that attempts fail.
			tr.run("long", func(ctx context.Context, c *pgx.Conn, _ int) error {
				time.Sleep(100 * time.Millisecond)
				return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
					var a, z string
					if err := tx.QueryRow(ctx, `SELECT max(gen) FROM ev WHERE day = 1`).Scan(&a); err != nil {
						return err
					}
					time.Sleep(o.LockTimeout * 3 / 2)
					if err := tx.QueryRow(ctx, `SELECT max(gen) FROM ev WHERE day = 1`).Scan(&z); err != nil || a != z {
						return fmt.Errorf("read %s, then %s: %v", a, z, err)
					}
					return nil
				})
			})
			if !plain {
				for day, name := range map[int]string{2: "writer", 7: "default"} {
					tr.run(name, func(ctx context.Context, c *pgx.Conn, i int) error {
						_, err := c.Exec(ctx, `INSERT INTO ev VALUES ($1, $2, 'written')`, day, i)
						return err
					})
				}
			} else {
				tr.run("writer", func(ctx context.Context, c *pgx.Conn, i int) error {
					_, err := c.Exec(ctx, `INSERT INTO ev VALUES ($1, $2, 'written') ON CONFLICT DO NOTHING`, 2, i)
					return err
				})
			}
			var held, waited float64
			retries := 0
			for gen := range 4 {
				b.stage("s", "ev", fmt.Sprintf(`SELECT 1, i, 'g%d' FROM generate_series(1, %d) i`, gen, n))
				res := b.swap(b.again(o))
				held, waited, retries = max(held, res.LockHeld), max(waited, res.LockWaited), retries+res.Retries
			}
			res := b.rollback(b.again(o))
			tr.end(o.LockTimeout)
			b.Logf("longest lock held %.1f ms, longest wait for locks %.1f ms, %d retries", 1000*max(held, res.LockHeld), 1000*waited, retries+res.Retries)
			if !plain {
				b.want(`SELECT count(*)::text FROM ev WHERE day = 7`, fmt.Sprint(tr.clients["default"].calls))
				b.want(`SELECT count(*)::text FROM ev WHERE day = 2`, fmt.Sprint(tr.clients["writer"].calls))
			}
			b.want(`SELECT max(gen) FROM ev WHERE day = 1`, "g2")
		})
	}
}

func simple(t *testing.T) (*bench, Options) {
	b := newBench(t)
	b.exec(`CREATE TABLE ev (day int, id int, PRIMARY KEY (day, id)) PARTITION BY LIST (day); CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN (1); CREATE TABLE ev_default PARTITION OF ev DEFAULT;
		INSERT INTO ev VALUES (1, 1), (9, 9)`)
	b.stage("s", "ev", `SELECT 1, i FROM generate_series(1, 10) i`)
	o := b.options()
	o.Table, o.Staging, o.Partition = "ev", "s", "ev_1"
	return b, o
}

// TestBlocker: somebody who never leaves makes the swap give up, with his name and without a trace.
func TestBlocker(t *testing.T) {
	b, o := simple(t)
	o.LockTimeout, o.LockRetries = 60*time.Millisecond, 2
	before := b.description("ev", "ev_1", "ev_default")
	blocker, err := pgx.Connect(b.Context(), b.dsn+"&application_name=nightly-report")
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Close(context.Background())
	testkit.Exec(b, blocker, `BEGIN; SELECT * FROM ev_1`)
	begin := time.Now()
	b.refused(o, fault.Failed, "nightly-report", fmt.Sprint(blocker.PgConn().PID()), "idle in transaction", "gave up after 3 attempts", "as it was")
	t.Logf("gave up after %s", time.Since(begin).Round(time.Millisecond))
	b.same("giving up", before, b.description("ev", "ev_1", "ev_default"))
	b.want(`SELECT count(*)::text FROM ev`, "2")
	// On the default partition too: the exclusion is added and taken away under the same rules.
	testkit.Exec(b, blocker, `COMMIT; BEGIN; SELECT * FROM ev_default`)
	b.refused(o, fault.Failed, "exclude from default", "nightly-report")
	b.same("giving up", before, b.description("ev", "ev_1", "ev_default"))
	testkit.Exec(b, blocker, `COMMIT`)
	b.swap(o)
	b.want(`SELECT count(*)::text FROM ev`, "11")

	b.stage("s", "ev", `SELECT 1, 5`)
	testkit.Exec(b, blocker, `BEGIN; INSERT INTO ev VALUES (1, 99); PREPARE TRANSACTION 'forgotten'`)
	defer blocker.Exec(context.Background(), `ROLLBACK PREPARED 'forgotten'`)
	o.SnapshotWait = 50 * time.Millisecond
	b.refused(o, fault.Check, "prepared transaction forgotten of postgres")
	o.IgnoreSnapshots = true
	b.refused(o, fault.Failed, "prepared transaction forgotten of postgres")
}

// TestSnapshots: whoever could find the new table empty is waited for; whoever began after the data were written is
// not, and counts right.
func TestSnapshots(t *testing.T) {
	b, o := simple(t)
	before := b.description("ev", "ev_1", "ev_default")
	old := testkit.Connect(b, b.dsn)
	testkit.Exec(b, old, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`)
	o.SnapshotWait = 200 * time.Millisecond
	b.refused(o, fault.Check, "snapshots from before the data was written", fmt.Sprint(old.PgConn().PID()))
	b.same("refusal", before, b.description("ev", "ev_1", "ev_default"))
	committed := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() {
		_, err := old.Exec(context.Background(), `COMMIT`)
		committed <- err
	})
	o.SnapshotWait = 20 * time.Second
	// A writer that began before and is still open keeps the xmin of every newer snapshot low. They are no danger.
	testkit.Exec(b, b.conn, `CREATE TABLE aside (id int)`)
	writer, young := testkit.Connect(b, b.dsn), testkit.Connect(b, b.dsn)
	testkit.Exec(b, writer, `BEGIN; INSERT INTO aside VALUES (1)`)
	var once sync.Once
	o.OnStep = func(step string) {
		if step == "wait for snapshots" {
			once.Do(func() { testkit.Exec(b, young, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`) })
		}
	}
	res := b.swap(o)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if res.SnapshotSeconds < 0.1 || res.SnapshotSeconds > 10 {
		t.Errorf("waited %v s for snapshots", res.SnapshotSeconds)
	}
	var n int
	if err := young.QueryRow(b.Context(), `SELECT count(*) FROM ev`).Scan(&n); err != nil || n != 11 {
		t.Errorf("a session from before the exchange counts %d, want 11: %v", n, err)
	}
	// The danger itself, which --ignore-snapshots accepts: the old snapshot finds the partition empty.
	testkit.Exec(b, young, `COMMIT`)
	b.stage("s", "ev", `SELECT 1, i FROM generate_series(1, 10) i`)
	testkit.Exec(b, old, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`)
	o = b.again(o)
	o.OnStep, o.IgnoreSnapshots = nil, true
	res = b.swap(o)
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "will find the new table empty") {
		t.Errorf("warnings %q", res.Warnings)
	}
	if err := old.QueryRow(b.Context(), `SELECT count(*) FROM ev WHERE day = 1`).Scan(&n); err != nil || n != 0 {
		t.Errorf("the old snapshot counts %d: is there no danger after all? %v", n, err)
	}
}

// TestTwoAtOnce: the second swap of a table is refused while the first waits, and another table's is not.
func TestTwoAtOnce(t *testing.T) {
	b, o := simple(t)
	b.exec(`CREATE TABLE gate (open bool); INSERT INTO gate VALUES (false); CREATE TABLE p (id int); CREATE TABLE ps (id int); INSERT INTO ps VALUES (1)`)
	o.WaitFor = "SELECT open FROM gate"
	var reached atomic.Bool
	o.OnStep = func(step string) { reached.Store(reached.Load() || step == "wait for") }
	done := make(chan error)
	go func() { _, err := Run(context.Background(), o); done <- err }()
	for !reached.Load() {
		time.Sleep(5 * time.Millisecond)
	}
	second := b.options()
	second.Table, second.Staging, second.Partition = o.Table, o.Staging, o.Partition
	b.refused(second, fault.Check, "another swap of public.ev is running: session")
	if _, err := Rollback(b.Context(), second); err == nil || !strings.Contains(err.Error(), "another swap") {
		t.Errorf("rollback beside a swap: %v", err)
	}
	l, err := List(b.Context(), o.To, o.Log)
	if err != nil || len(l.Unfinished) != 1 || !l.Unfinished[0].Running || l.Unfinished[0].State != "preparing" {
		t.Errorf("listing %+v: %v", l, err)
	}
	second.Table, second.Staging, second.Partition = "p", "ps", ""
	b.swap(second)
	b.exec(`UPDATE gate SET open = true`)
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.want(`SELECT count(*)::text FROM ev`, "11")
}

// TestMeanwhile: somebody changes the table while the swap prepares; what he did is taken over.
func TestMeanwhile(t *testing.T) {
	b, o := simple(t)
	n := 0
	o.OnStep = func(step string) {
		switch {
		case step == "wait for snapshots" && n == 0:
			b.exec(`CREATE INDEX ev_new ON ev (id)`)
			n++
		case step == "exchange" && n == 1: // after the last look
			b.exec(`ALTER TABLE ev_1 ADD CHECK (id < 1000)`)
			n++
		}
	}
	b.swap(o)
	if n != 2 {
		t.Errorf("only %d changes were made", n)
	}
	b.want(`SELECT count(*)::text FROM pg_index x JOIN pg_inherits h ON h.inhrelid = x.indexrelid WHERE indrelid = 'ev_1'::regclass`, "2")
	b.want(`SELECT count(*)::text FROM pg_constraint WHERE conrelid = 'ev_1'::regclass AND contype = 'c'`, "1")
}

// TestInterrupted: a signal takes the exclusion off the default partition again.
func TestInterrupted(t *testing.T) {
	b, o := simple(t)
	before := b.description("ev", "ev_1", "ev_default")
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	o.OnStep = func(step string) {
		if step == "note definition" {
			b.want(`SELECT count(*)::text FROM pg_constraint WHERE conname ~ 'synctl_exclude'`, "1")
			cancel()
		}
	}
	if _, err := Run(ctx, o); err == nil {
		t.Fatal("no error")
	}
	b.same("interruption", before, b.description("ev", "ev_1", "ev_default"))
	o.OnStep = nil
	b.swap(o)
}

// TestDryRun prints what a run then sends, and changes nothing.
func TestDryRun(t *testing.T) {
	b, o := simple(t)
	before, catalog := b.description("ev", "ev_1", "ev_default", "s"), b.one(`SELECT count(*) || ' ' || max(oid) FROM pg_class`)
	o.DryRun, o.Checks = true, []string{"SELECT count(*) = 10 FROM s"}
	res := b.swap(o)
	b.same("dry run", before, b.description("ev", "ev_1", "ev_default", "s"))
	b.want(`SELECT count(*) || ' ' || max(oid) FROM pg_class`, catalog)
	b.want(`SELECT (to_regnamespace('synctl') IS NULL)::text`, "true")

	b.exec(`ALTER DATABASE ` + b.one(`SELECT current_database()`) + ` SET log_statement = 'all'`)
	o.DryRun = false
	real := b.swap(o)
	log := serverLog(b)
	for _, st := range res.Plan {
		for _, sql := range st.SQL {
			if !strings.HasPrefix(sql, "--") && !strings.Contains(log, sql) {
				t.Errorf("step %s: this was printed and not sent: %s", st.Name, sql)
			}
		}
	}
	var planned, done []string
	for _, st := range res.Plan {
		planned = append(planned, st.Name)
	}
	for _, st := range real.Steps {
		done = append(done, st.Name)
	}
	if fmt.Sprint(planned) != fmt.Sprint(done) {
		t.Errorf("planned %v\ndone    %v", planned, done)
	}
	var script strings.Builder
	if err := WriteScript(&script, res.Plan); err != nil || !strings.Contains(script.String(), "LOCK TABLE ONLY \"public\".\"ev\"") {
		t.Errorf("script: %v\n%s", err, script.String())
	}
}

// serverLog is the server's log with its continuation lines joined as they were sent.
func serverLog(b *bench) string {
	b.Helper()
	text, err := os.ReadFile(testkit.Shared(b).LogFile())
	if err != nil {
		b.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\n\t", "\n")
}
