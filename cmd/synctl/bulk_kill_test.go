package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/testkit"
)

// buildSynctl builds the real command.
func buildSynctl(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "synctl")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func writeNumbers(t *testing.T, rows int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("id,note\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d,note number %d\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "numbers.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Killed at any moment, the same command again gives the right table, and nothing else is left behind (promise 7).
func TestBulkLoadSurvivesKill(t *testing.T) {
	bin, rows := buildSynctl(t), 300_000
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE numbers (id int PRIMARY KEY, note text)")
	args := []string{"bulk", "load", "--from", "csv:" + writeNumbers(t, rows), "--to", dsn, "--table", "numbers", "--run-id", "night", "--progress", "none", "--output", "json"}
	killed := 0
	for range 8 {
		cmd := exec.Command(bin, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil {
			continue // it was done before
		}
		killed++
	}
	out, err := exec.Command(bin, args...).Output()
	if err != nil {
		t.Fatalf("after %d kills: %v\n%s", killed, err, stderrOf(err))
	}
	var sum struct {
		Rows int `json:"rows"`
	}
	if err := json.Unmarshal(out, &sum); err != nil || sum.Rows != rows {
		t.Fatalf("summary %s, %v, want %d rows", out, err, rows)
	}
	if got := answer(t, conn, "SELECT concat_ws(' ', count(*), count(DISTINCT id), sum(id)) FROM numbers_staging"); got != fmt.Sprintf("%d %d %d", rows, rows, rows*(rows-1)/2) {
		t.Errorf("staging holds %s", got)
	}
	if got := answer(t, conn, "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"); got != "numbers numbers_staging" {
		t.Errorf("tables left: %s", got)
	}
	if got := answer(t, conn, "SELECT obj_description('numbers_staging'::regclass)"); !strings.Contains(got, `"state":"complete"`) {
		t.Errorf("comment %s", got)
	}
	out, err = exec.Command(bin, args...).Output()
	if err != nil || !strings.Contains(string(out), `"already_done":true`) {
		t.Errorf("the run is complete, but once more: %s %v", out, err)
	}
	if out, err := exec.Command(bin, "bulk", "status", "--to", dsn, "--run-id", "night").Output(); err != nil || !strings.Contains(string(out), "done") {
		t.Errorf("status: %s %v", out, err)
	}
}

// A signal ends a load with 130, without the staging table, and the ledger knows. A second load of the table is refused meanwhile.
func TestBulkLoadInterruptedAndExclusive(t *testing.T) {
	bin := buildSynctl(t)
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE numbers (id int PRIMARY KEY, note text)")
	load := func(id string) *exec.Cmd {
		return exec.Command(bin, "bulk", "load", "--from", "-", "--to", dsn, "--table", "numbers", "--run-id", id, "--progress", "none")
	}
	first := load("first")
	in, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	first.Stderr = &said
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer first.Process.Kill()
	if _, err := in.Write([]byte(strings.Repeat(`{"id":1,"note":"x"}`+"\n", 30_000))); err != nil { // more than a block: it begins, and waits for more
		t.Fatal(err)
	}
	until(t, "the first load to run", func() bool {
		return answer(t, conn, "SELECT count(*) FROM pg_stat_progress_copy") != "0"
	})
	if code, out := status(t, bin, dsn, "first"); code != 4 || !strings.Contains(out, "running") {
		t.Errorf("status %d %s, want running", code, out)
	}
	second := load("second")
	second.Stdin = strings.NewReader(`{"id":1}`)
	out, err := second.CombinedOutput()
	if exitCode(err) != 4 || !strings.Contains(string(out), "another load of public.numbers is running") {
		t.Errorf("second load: %v %s, want exit 4", err, out)
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); exitCode(err) != 143 {
		t.Errorf("interrupted load: %v\n%s, want exit 143", err, said.String())
	}
	if code, out := status(t, bin, dsn, "first"); code != 1 || !strings.Contains(out, "failed") {
		t.Errorf("status %d %s, want failed", code, out)
	}
	if code, out := status(t, bin, dsn, "nobody"); code != 4 || !strings.Contains(out, "unknown") {
		t.Errorf("status %d %s, want unknown", code, out)
	}
	if got := answer(t, conn, "SELECT to_regclass('numbers_staging') IS NULL"); got != "true" {
		t.Errorf("the staging table is still there")
	}
	testkit.Exec(t, conn, "CREATE TABLE numbers_staging (mine int)")
	third := load("third")
	third.Stdin = strings.NewReader(`{"id":1}`)
	if out, err := third.CombinedOutput(); exitCode(err) != 4 || !strings.Contains(string(out), "no staging table of public.numbers that synctl made") {
		t.Errorf("load over somebody's table: %v %s, want exit 4", err, out)
	}
	if code, out := status(t, bin, dsn, "third"); code != 1 || !strings.Contains(out, "failed") || !strings.Contains(out, "synctl made") {
		t.Errorf("status %d %s, want failed, with the reason", code, out)
	}
	if got := answer(t, conn, "SELECT to_regclass('numbers_staging') IS NOT NULL"); got != "true" {
		t.Errorf("somebody's table is gone")
	}
}

// The server restarted in the middle: a clear error, exit 3, then the same command works.
func TestBulkLoadServerRestart(t *testing.T) {
	bin := buildSynctl(t)
	cluster := testkit.Own(t, testkit.Options{})
	dsn := cluster.Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE numbers (id int PRIMARY KEY, note text)")
	load := exec.Command(bin, "bulk", "load", "--from", "-", "--to", dsn, "--table", "numbers", "--progress", "none")
	in, err := load.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	load.Stderr = &said
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	defer load.Process.Kill()
	row := strings.Repeat(`{"id":1,"note":"x"}`+"\n", 30_000)
	if _, err := in.Write([]byte(row)); err != nil {
		t.Fatal(err)
	}
	until(t, "the load to run", func() bool { return answer(t, conn, "SELECT count(*) FROM pg_stat_progress_copy") != "0" })
	cluster.Stop(syscall.SIGQUIT)
	_, _ = in.Write([]byte(row + row))
	in.Close()
	if err := load.Wait(); exitCode(err) != 3 || !strings.Contains(said.String(), "Run the same command again") {
		t.Errorf("load without a server: %v\n%s\nwant exit 3 and what to do", err, said.String())
	}
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	again := exec.Command(bin, "bulk", "load", "--from", "-", "--to", dsn, "--table", "numbers", "--progress", "none")
	again.Stdin = strings.NewReader(row)
	if out, err := again.CombinedOutput(); err != nil {
		t.Fatalf("again: %v\n%s", err, out)
	}
	if got := answer(t, testkit.Connect(t, dsn), "SELECT count(*) FROM numbers_staging"); got != "30000" {
		t.Errorf("%s rows, want 30000", got)
	}
}

func status(t *testing.T, bin, dsn, id string) (int, string) {
	t.Helper()
	out, err := exec.Command(bin, "bulk", "status", "--to", dsn, "--run-id", id).CombinedOutput()
	return exitCode(err), string(out)
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func stderrOf(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}

func answer(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var got any
	if err := conn.QueryRow(context.Background(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return fmt.Sprint(got)
}

func until(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
