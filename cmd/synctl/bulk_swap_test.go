package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/testkit"
)

// Load and exchange in one command, killed at random moments and run again until it ends: the partition is the new one,
// whole, the run is remembered, and nothing is left behind (promises 7 and 8). Readers see one of the two data sets.
func TestBulkLoadSwapKilled(t *testing.T) {
	const rows = 60_000
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE numbers (id int, note text, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE INDEX ON numbers (note);
		COMMENT ON TABLE numbers IS 'all of them'; CREATE TABLE numbers_default PARTITION OF numbers DEFAULT;
		CREATE TABLE numbers_1 PARTITION OF numbers FOR VALUES FROM (0) TO (1000000); COMMENT ON TABLE numbers_1 IS 'the first'; INSERT INTO numbers VALUES (7, 'before')`)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- countWhole(dsn, 1, rows, stop) }()
	kills, resumed := 0, 0
	csv := writeNumbers(t, rows)
	for gen := range 4 {
		args := []string{"bulk", "load", "--from", "csv:" + csv, "--to", dsn, "--table", "numbers", "--progress", "none", "--output", "json",
			"--swap", "--partition", "numbers_1", "--index-jobs", "2"}
		byName := gen%2 == 0
		if byName {
			args = append(args, "--run-id", fmt.Sprint("gen ", gen))
		}
		sum := runUntilDone(t, args, &kills)
		if sum.Loaded || sum.Done {
			resumed++
		}
		if sum.Rows != rows || sum.Swap == nil || sum.Swap.Outcome == "" {
			t.Errorf("generation %d: summary %+v", gen, sum)
		}
		if got := answer(t, conn, `SELECT concat_ws(' ', count(*), count(DISTINCT id), sum(id)) FROM numbers`); got != fmt.Sprintf("%d %d %d", rows, rows, rows*(rows-1)/2) {
			t.Errorf("generation %d: the live table holds %s", gen, got)
		}
		if got := answer(t, conn, `SELECT concat_ws('/', obj_description('numbers_1'::regclass), (SELECT count(*) FROM pg_constraint WHERE conname ~ 'synctl_'),
			(SELECT count(*) FROM pg_class WHERE relname ~ '_new_' OR relname ~ 'staging'), (SELECT count(*) FROM synctl.swap WHERE state <> 'done'),
			(SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '_old_'))`); got != "the first/0/0/0/1" {
			t.Errorf("generation %d: comment, exclusions, leftovers, unfinished, kept: %s", gen, got)
		}
		if byName {
			if code, out := status(t, "synctl", dsn, fmt.Sprint("gen ", gen)); code != 0 || !strings.Contains(out, "done") {
				t.Errorf("generation %d: status %d %s", gen, code, out)
			}
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if kills < 4 {
		t.Errorf("only %d kills: the moments are too late", kills)
	}
	t.Logf("%d kills, %d runs taken up", kills, resumed)
}

type swapSum struct {
	Rows   int  `json:"rows"`
	Loaded bool `json:"already_loaded"`
	Done   bool `json:"already_done"`
	Swap   *struct {
		Outcome string `json:"outcome"`
	} `json:"swap"`
}

// runUntilDone starts the command again and again, and kills it later and later, until it ends by itself.
func runUntilDone(t *testing.T, args []string, kills *int) swapSum {
	t.Helper()
	// The first kill comes before the fastest machine can be done; each next one may come later by half.
	for span := 150 * time.Millisecond; ; span += span / 2 {
		cmd := exec.Command("synctl", args...)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(20*time.Millisecond+rand.N(span), func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			var sum swapSum
			if err := json.Unmarshal([]byte(stdout.String()), &sum); err != nil {
				t.Fatalf("summary %s: %v", stdout.String(), err)
			}
			return sum
		}
		if cmd.ProcessState.ExitCode() != -1 {
			t.Fatalf("after %d kills: %v\n%s", *kills, err, stderr.String())
		}
		if *kills++; *kills > 100 {
			t.Fatal("the run never ends")
		}
	}
}

// countWhole reads until it is stopped; every read must succeed and see all rows of one data set.
func countWhole(dsn string, before, after int, stop <-chan struct{}) error {
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
		case <-time.After(10 * time.Millisecond):
		}
		var n int
		if err := conn.QueryRow(ctx, `SELECT count(*) FROM numbers`).Scan(&n); err != nil {
			return fmt.Errorf("reader: %w", err)
		}
		if n != before && n != after {
			return fmt.Errorf("reader saw %d rows, neither %d nor %d", n, before, after)
		}
	}
}

// A staging table that a crash of the server emptied after the load is loaded again, under the same ID.
func TestBulkLoadSwapAfterCrash(t *testing.T) {
	cluster := testkit.Own(t, testkit.Options{})
	dsn := cluster.Database(t)
	testkit.Exec(t, testkit.Connect(t, dsn), `CREATE TABLE numbers (id int PRIMARY KEY, note text)`)
	args := []string{"bulk", "load", "--from", "csv:" + writeNumbers(t, 1000), "--to", dsn, "--table", "numbers", "--progress", "none", "--run-id", "night"}
	if out, err := exec.Command("synctl", args...).CombinedOutput(); err != nil {
		t.Fatalf("load: %v\n%s", err, out)
	}
	cluster.Stop(9)
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	conn := testkit.Connect(t, dsn)
	if got := answer(t, conn, `SELECT count(*) FROM numbers_staging`); got != "0" {
		t.Fatalf("%s rows: the crash did not empty the unlogged table", got)
	}
	out, err := exec.Command("synctl", append(args, "--swap")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "loading again") {
		t.Fatalf("load and swap: %v\n%s", err, out)
	}
	if got := answer(t, conn, `SELECT count(*) FROM numbers`); got != "1000" {
		t.Errorf("%s rows are live, want 1000", got)
	}
}
