package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/testkit"
)

// TestSwapKilled kills the command at random moments, also within its steps, and runs it again until it ends: the
// partition is the new one, whole, and nothing is left behind. Readers see one of the two all the time.
func TestSwapKilled(t *testing.T) {
	const rows = 60_000
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE ev (day int, id bigint, v text, PRIMARY KEY (day, id)) PARTITION BY LIST (day); CREATE INDEX ON ev (v); CREATE INDEX ON ev (id, v);
		CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN (1); CREATE TABLE ev_default PARTITION OF ev DEFAULT; INSERT INTO ev SELECT 1, i, 'gen 0' FROM generate_series(1, 100) i`)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- readWhole(dsn, stop) }()
	kills := 0
	for gen := 1; gen <= 4; gen++ {
		testkit.Exec(t, conn, fmt.Sprintf(`CREATE UNLOGGED TABLE s (LIKE ev); INSERT INTO s SELECT 1, i, 'gen %d' FROM generate_series(1, %d) i`, gen, rows))
		for ended := false; !ended; {
			cmd := exec.Command("synctl", "swap", "--to", dsn, "--table", "ev", "--staging", "s", "--partition", "ev_1", "--progress", "none")
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Later and later, so that a slow machine gets through too.
			timer := time.AfterFunc(rand.N(200*time.Millisecond+time.Duration(kills)*15*time.Millisecond), func() { cmd.Process.Kill() })
			err := cmd.Wait()
			timer.Stop()
			switch {
			case err == nil:
				ended = true
			case cmd.ProcessState.ExitCode() == -1:
				if kills++; kills > 200 {
					t.Fatal("the swap never ends")
				}
			default:
				t.Fatalf("generation %d after %d kills: %v\n%s", gen, kills, err, stderr.String())
			}
		}
		var got string
		if err := conn.QueryRow(t.Context(), `SELECT min(v) || '/' || max(v) || '/' || count(*) FROM ev`).Scan(&got); err != nil || got != fmt.Sprintf("gen %d/gen %d/%d", gen, gen, rows) {
			t.Errorf("generation %d: %s: %v", gen, got, err)
		}
		if left := answer(t, conn, leftBehind); left != "0" {
			t.Errorf("generation %d: %s things left behind", gen, left)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if kills < 3 {
		t.Errorf("only %d kills: the moments are too late", kills)
	}
	t.Logf("%d kills", kills)
}

// The server is stopped at once in the middle of swaps, at random moments and late in their steps: a clear error, exit 3,
// the live table as it was or complete; then the same command ends with the new partition, and nothing is left behind.
func TestSwapServerRestart(t *testing.T) {
	const rows = 30_000
	cluster := testkit.Own(t, testkit.Options{})
	dsn := cluster.Database(t)
	testkit.Exec(t, testkit.Connect(t, dsn), `CREATE TABLE ev (day int, id bigint, v text, PRIMARY KEY (day, id)) PARTITION BY LIST (day); CREATE INDEX ON ev (v);
		CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN (1); CREATE TABLE ev_default PARTITION OF ev DEFAULT; INSERT INTO ev SELECT 1, i, 'gen 0' FROM generate_series(1, 100) i;
		CREATE TABLE ready (yes boolean)`)
	stopped := 0
	for gen := 1; gen <= 4; gen++ {
		conn := testkit.Connect(t, dsn)
		testkit.Exec(t, conn, fmt.Sprintf(`TRUNCATE ready; CREATE TABLE s (LIKE ev); INSERT INTO s SELECT 1, i, 'gen %d' FROM generate_series(1, %d) i`, gen, rows))
		command := []string{"swap", "--to", dsn, "--table", "ev", "--staging", "s", "--partition", "ev_1", "--wait-for", "SELECT EXISTS (SELECT FROM ready)", "--log-level", "warn"}
		cmd := exec.Command("synctl", command...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pause := rand.N(300 * time.Millisecond)
		if gen == 1 {
			until(t, "the swap to wait", func() bool {
				return answer(t, conn, `SELECT count(*) FROM pg_class WHERE relname = 'ev_1_pkey_new_' || 's'::regclass::oid`) == "1"
			})
			pause = 200 * time.Millisecond
		}
		time.Sleep(pause)
		cluster.Stop(syscall.SIGQUIT)
		// Nobody says ready, so it cannot have ended by itself.
		if err := cmd.Wait(); exitCode(err) != 3 || !strings.Contains(stderr.String(), "next: ") {
			t.Errorf("generation %d, stopped after %s: %v\n%s\nwant exit 3, and what to do", gen, pause, err, stderr.String())
		} else {
			stopped++
		}
		if err := cluster.Start(); err != nil {
			t.Fatal(err)
		}
		conn = testkit.Connect(t, dsn)
		if got, want := answer(t, conn, `SELECT min(v) || '/' || max(v) FROM ev`), fmt.Sprintf("gen %d/gen %[1]d", gen-1); got != want {
			t.Errorf("generation %d: after the restart %s is live, want %s", gen, got, want)
		}
		testkit.Exec(t, conn, `INSERT INTO ready VALUES (true)`)
		if out, err := exec.Command("synctl", command...).CombinedOutput(); err != nil {
			t.Fatalf("generation %d, again: %v\n%s", gen, err, out)
		}
		if got, want := answer(t, conn, `SELECT min(v) || '/' || max(v) || '/' || count(*) FROM ev`), fmt.Sprintf("gen %d/gen %[1]d/%d", gen, rows); got != want {
			t.Errorf("generation %d: %s, want %s", gen, got, want)
		}
		if left := answer(t, conn, leftBehind); left != "0" {
			t.Errorf("generation %d: %s things left behind", gen, left)
		}
	}
	if stopped == 0 {
		t.Error("no swap was stopped by the server")
	}
}

// leftBehind counts what a swap of staging table s must not leave.
const leftBehind = `SELECT (SELECT count(*) FROM pg_constraint WHERE conname ~ 'synctl_') + (SELECT count(*) FROM pg_class WHERE relname ~ '_new_' OR relname = 's')
	+ (SELECT count(*) FROM synctl.swap WHERE state <> 'done')`

// readWhole reads until it is stopped; every read must succeed and see one generation.
func readWhole(dsn string, stop <-chan struct{}) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
		var low, high string
		if err := conn.QueryRow(ctx, `SELECT min(v), max(v) FROM ev`).Scan(&low, &high); err != nil {
			return fmt.Errorf("reader: %w", err)
		}
		if low != high {
			return fmt.Errorf("reader saw %s and %s at once", low, high)
		}
	}
}
