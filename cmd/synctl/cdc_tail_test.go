package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
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

// tailed is a synctl that runs in a process of its own.
type tailed struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *bufio.Reader // stdout, when it is a pipe
	pipe   io.Closer
	stderr bytes.Buffer
}

func runTailed(t *testing.T, stdout *os.File, args ...string) *tailed {
	t.Helper()
	p := &tailed{t: t, cmd: exec.Command("synctl", args...)}
	p.cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	p.cmd.Stderr = &p.stderr
	if stdout != nil {
		p.cmd.Stdout = stdout
	} else {
		pipe, err := p.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.out, p.pipe = bufio.NewReader(pipe), pipe
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

// line reads one line of a pipe.
func (p *tailed) line() string {
	p.t.Helper()
	got := make(chan string, 1)
	go func() {
		s, err := p.out.ReadString('\n')
		if err != nil {
			s += err.Error()
		}
		got <- s
	}()
	select {
	case s := <-got:
		return s
	case <-time.After(20 * time.Second):
		p.cmd.Process.Kill()
		p.t.Fatal("no line comes")
		return ""
	}
}

// exit waits for the end and gives the exit code.
func (p *tailed) exit() int {
	p.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			return e.ExitCode()
		}
		return 0
	case <-time.After(30 * time.Second):
		p.cmd.Process.Kill()
		p.t.Fatal("the process does not end")
		return -1
	}
}

func tailDatabase(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
	return dsn, conn
}

// waitForReader waits until a slot of the database is read.
func waitForReader(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var n int
		if err := conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.database = current_database() AND r.state = 'streaming'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody reads")
		}
	}
}

// TestTailStops: SIGTERM ends a tail with 0, and the next one delivers nothing that came before.
func TestTailStops(t *testing.T) {
	dsn, conn := tailDatabase(t)
	slot := "stops_" + conn.Config().Database
	args := []string{"cdc", "tail", "--from", dsn, "--table", "public.a", "--slot", slot, "--create", "--state", filepath.Join(t.TempDir(), "state")}
	var seen string
	for i := range 3 {
		p := runTailed(t, nil, args...)
		waitForReader(t, conn)
		testkit.Exec(t, conn, `INSERT INTO a SELECT coalesce(max(id), 0) + 1 FROM a`)
		seen += p.line()
		p.cmd.Process.Signal(syscall.SIGTERM)
		if rest, _ := io.ReadAll(p.out); len(rest) > 0 {
			t.Errorf("run %d delivers more: %s", i, rest)
		}
		if code := p.exit(); code != 0 {
			t.Fatalf("exit code %d: %s", code, p.stderr.String())
		}
	}
	for _, key := range []string{`{"id":1}`, `{"id":2}`, `{"id":3}`} {
		if strings.Count(seen, `"key":`+key) != 1 {
			t.Errorf("%s is there %d times", key, strings.Count(seen, `"key":`+key))
		}
	}
}

// TestTailReaderGone: whoever reads the pipe goes, and the tail ends in peace.
func TestTailReaderGone(t *testing.T) {
	dsn, conn := tailDatabase(t)
	p := runTailed(t, nil, "cdc", "tail", "--from", dsn, "--table", "public.a")
	waitForReader(t, conn)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	p.line()
	p.pipe.Close()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2)`)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_publication`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d publications left, %v", left, err)
	}
}

// TestTailKilled: kill -9 leaves no slot, and nothing that hurts the application's updates; the next start cleans up.
func TestTailKilled(t *testing.T) {
	dsn, conn := tailDatabase(t)
	p := runTailed(t, nil, "cdc", "tail", "--from", dsn, "--table", "public.a")
	waitForReader(t, conn)
	p.cmd.Process.Kill()
	p.exit()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1); UPDATE a SET v = 'x'; DELETE FROM a`)
	var publications, slots int
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		testkit.Exec(t, conn, `INSERT INTO a VALUES (2); DELETE FROM a WHERE id = 2`) // the server notices a dead reader when it writes
		q := runTailed(t, nil, "cdc", "tail", "--from", dsn, "--table", "public.a", "--until-lsn", "now")
		if code := q.exit(); code != 0 {
			t.Fatalf("exit code %d: %s", code, q.stderr.String())
		}
		err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())`).Scan(&publications, &slots)
		if err != nil {
			t.Fatal(err)
		}
		if publications+slots == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d publications and %d slots are still there", publications, slots)
		}
	}
}

// TestTailLargeRow: a row of 50 MiB passes a queue of 1 MiB, and memory is the row's own.
func TestTailLargeRow(t *testing.T) {
	dsn, conn := tailDatabase(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "out.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := runTailed(t, out, "cdc", "tail", "--from", dsn, "--table", "public.a", "--queue-bytes", "1MiB", "--limit", "2")
	waitForReader(t, conn)
	testkit.Exec(t, conn, `ALTER TABLE a ALTER v SET STORAGE EXTERNAL; INSERT INTO a VALUES (1, repeat('x', 50 << 20)), (2, 'y')`)
	if code := p.exit(); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.stderr.String())
	}
	got, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(got, []byte("x")); n < 50<<20 || bytes.Count(got, []byte("\n")) != 2 || !bytes.Contains(got, []byte(`{"id":2,"v":"y"}`)) {
		t.Errorf("%d bytes, %d of the value, %d lines", len(got), n, bytes.Count(got, []byte("\n")))
	}
	if ru, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && ru.Maxrss > 400<<10 {
		t.Errorf("peak memory %d MiB", ru.Maxrss>>10)
	}
}

// TestTailStall: a reader that takes nothing is told after --stall-timeout, by exit code 1 and figures.
func TestTailStall(t *testing.T) {
	dsn, conn := tailDatabase(t)
	p := runTailed(t, nil, "cdc", "tail", "--from", dsn, "--table", "public.a", "--stall-timeout", "2s", "--drain-timeout", "1s")
	waitForReader(t, conn)
	testkit.Exec(t, conn, `INSERT INTO a SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i`)
	time.Sleep(5 * time.Second) // Wait would close the pipe and be a reader that goes
	if code := p.exit(); code != 1 || !strings.Contains(p.stderr.String(), "no progress for") {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
}
