package swap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"synctl/internal/pg"
)

// A test that kills itself with SIGKILL needs a process to lose: the test binary runs a swap instead of tests when
// killEnv tells it to, and dies where step number n begins.
const killEnv = "SYNCTL_TEST_SWAP_KILL"

// killedRun is that process. It never returns to the tests.
func killedRun(spec string) {
	f := strings.Split(spec, "|") // DSN, step number, rollback, table, staging, partition, values
	o := Defaults()
	o.To, o.Table, o.Staging, o.Partition, o.Values = pg.DSN(f[0]), f[3], f[4], f[5], f[6]
	o.KeepOld = 1
	at, _ := strconv.Atoi(f[1])
	n := 0
	o.OnStep = func(step string) {
		if n++; n == at {
			fmt.Println(step)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	do := Run
	if f[2] == "rollback" {
		do = Rollback
	}
	if _, err := do(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// killAt runs a swap in a process that dies at step n, and tells the step; "" when the swap ended before.
func (b *bench) killAt(o Options, action string, n int) string {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), killEnv+"="+strings.Join([]string{o.To.Reveal(), strconv.Itoa(n), action, o.Table, o.Staging, o.Partition, o.Values}, "|"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		return ""
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		b.Fatalf("step %d: %v: %s", n, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// TestKilledAtEveryStep kills swaps and rollbacks where each of their steps begins. Until the exchange the live table is as it was,
// after it complete; the same command then ends with the same result, and nothing is left behind.
func TestKilledAtEveryStep(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE kind (id int PRIMARY KEY); INSERT INTO kind VALUES (1);
		CREATE TABLE ev (day int, id int, kind int REFERENCES kind, PRIMARY KEY (day, id)) PARTITION BY LIST (day); CREATE INDEX ON ev (kind);
		CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN (1); CREATE TABLE ev_default PARTITION OF ev DEFAULT; COMMENT ON TABLE ev_1 IS 'one';
		INSERT INTO ev SELECT 1, i, 1 FROM generate_series(1, 5) i; INSERT INTO ev VALUES (9, 9, 1);
		CREATE TABLE p (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text); CREATE VIEW pv AS SELECT * FROM p; INSERT INTO p (v) VALUES ('a'), ('b')`)
	tables := []string{"ev", "ev_1", "ev_default", "p", "pv"}
	for _, c := range []struct {
		name, table, staging, part, values, rows, action, count string
	}{
		{"replacement", "ev", "s", "ev_1", "", `SELECT 1, i, 1 FROM generate_series(1, 10) i`, "swap", "ev WHERE day = 1"},
		{"first load", "ev", "s", "ev_2", "IN (2)", `SELECT 2, i, 1 FROM generate_series(1, 10) i`, "swap", "ev WHERE day = 2"},
		{"plain", "p", "s", "", "", `SELECT i, 'x' FROM generate_series(1, 10) i`, "swap", "pv"},
		{"rollback", "p", "s", "", "", `SELECT i, 'x' FROM generate_series(1, 10) i`, "rollback", "pv"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &bench{T: t, dsn: b.dsn, conn: b.conn, log: &logs{}}
			o := b.options()
			o.Table, o.Staging, o.Partition, o.Values = c.table, c.staging, c.part, c.values
			before := b.description(tables...)
			first := b.one(`SELECT count(*)::text FROM ` + c.count)
			var killed []string
			for n := 1; ; n++ {
				want := "10"
				if c.action == "rollback" {
					b.stage("s", c.table, c.rows)
					b.swap(b.again(o))
					want = first
				} else {
					b.stage("s", c.table, c.rows)
				}
				step := b.killAt(o, c.action, n)
				if step == "" {
					killed = append(killed, "(none)")
				} else {
					killed = append(killed, step)
				}
				at := b.one(`SELECT count(*)::text FROM ` + c.count)
				after := step == "" || step == "analyze parent" || step == "retention" || step == "finish"
				if after && at != want || !after && c.action == "swap" && at != first {
					t.Errorf("killed at %s: %s rows are live", step, at)
				}
				o := b.again(o)
				var err error
				if c.action == "rollback" {
					_, err = Rollback(b.Context(), o)
				} else {
					_, err = Run(b.Context(), o)
				}
				if err != nil {
					t.Fatalf("killed at %s, the same command: %v\n%s", step, err, b.log)
				}
				b.want(`SELECT count(*)::text FROM `+c.count, want)
				if c.name != "first load" {
					b.same("killed at "+step, before, b.description(tables...))
				}
				b.clean(step)
				b.reset(c.action, c.name, o)
				if got := b.one(`SELECT count(*)::text FROM ` + c.count); got != first {
					t.Fatalf("after the reset %s rows", got)
				}
				if step == "" {
					break
				}
			}
			t.Logf("killed at %s", strings.Join(killed, ", "))
		})
	}
}

// clean makes sure that nothing but kept tables is left.
func (b *bench) clean(step string) {
	b.Helper()
	b.want(`SELECT coalesce(string_agg(conname, ' '), '') FROM pg_constraint WHERE conname ~ 'synctl_'`, "")
	b.want(`SELECT coalesce(string_agg(relname, ' '), '') FROM pg_class WHERE relname ~ '_new_' OR relname = 's'`, "")
	b.want(`SELECT count(*)::text FROM synctl.swap WHERE state <> 'done'`, "0")
	if b.Failed() {
		b.Fatalf("killed at %s\n%s", step, b.log)
	}
}

// reset brings the first state back for the next round.
func (b *bench) reset(action, name string, o Options) {
	b.Helper()
	if action == "swap" {
		if res := b.rollback(b.again(o)); res.Outcome != "rolled back" {
			b.Fatalf("%s: reset: %+v", name, res)
		}
	}
	if _, err := Cleanup(b.Context(), CleanupOptions{To: o.To, LockTimeout: o.LockTimeout, LockRetries: 5, Log: o.Log}); err != nil {
		b.Fatal(err)
	}
	b.exec(`DELETE FROM synctl.swap`)
}

// TestCleanup takes the exclusion of a killed swap off the default partition without taking the swap up.
func TestCleanup(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE ev (day int, id int) PARTITION BY LIST (day); CREATE TABLE ev_default PARTITION OF ev DEFAULT`)
	before := b.description("ev", "ev_default")
	b.stage("s", "ev", `SELECT 2, i FROM generate_series(1, 10) i`)
	o := b.options()
	o.Table, o.Staging, o.Partition, o.Values = "ev", "s", "ev_2", "IN (2)"
	for n := 1; ; n++ {
		if step := b.killAt(o, "swap", n); step == "exchange" {
			break
		} else if step == "" {
			t.Fatal("there is no step exchange")
		}
	}
	if _, err := b.conn.Exec(b.Context(), `INSERT INTO ev VALUES (2, 1)`); err == nil {
		t.Fatal("there is no exclusion to clean up")
	}
	time.Sleep(time.Second) // until the server has noticed that its client is gone
	c := CleanupOptions{To: o.To, LockTimeout: o.LockTimeout, LockRetries: 5, Log: o.Log, DryRun: true}
	out, err := Cleanup(b.Context(), c)
	if err != nil || len(out.Withdrawn) != 1 {
		t.Fatalf("dry run %+v: %v", out, err)
	}
	c.DryRun = false
	if out, err = Cleanup(b.Context(), c); err != nil || fmt.Sprint(out.Withdrawn) != "[public.ev_2]" {
		t.Fatalf("%+v: %v", out, err)
	}
	b.same("cleanup", before, b.description("ev", "ev_default"))
	b.exec(`INSERT INTO ev VALUES (3, 1)`)
	b.swap(o) // and the swap still goes on
	b.want(`SELECT count(*)::text FROM ev`, "11")
}
