package cdc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/ndjson"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// lines collects what a run writes.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
	n   int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += bytes.Count(p, []byte("\n"))
	return l.buf.Write(p)
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.TrimSuffix(l.buf.String(), "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// change is a line taken apart as far as the tests look at it.
type change struct {
	ID, Op, Schema, Table, LSN, Row_LSN, Prefix, Content string
	N                                                    int
	Key, Before, After                                   json.RawMessage
	Unchanged, Looked_Up                                 []string
	Moved, Transactional, Cascade                        bool
	Tables                                               []struct{ Schema, Table string }
	line                                                 string
}

func (c change) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Op, c.Table, c.Before, c.After))
}

func parse(t testing.TB, ls []string) (out []change) {
	t.Helper()
	for _, l := range ls {
		var c change
		if err := json.Unmarshal([]byte(l), &c); err != nil {
			t.Fatalf("line %q: %v", l, err)
		}
		c.line = l
		out = append(out, c)
	}
	return out
}

// running is a source and its pipeline.
type running struct {
	t     testing.TB
	src   *Source
	out   *lines
	drain chan struct{}
	err   chan error
}

func start(t testing.TB, opt Options) *running {
	t.Helper()
	r := &running{t: t, out: &lines{}, drain: make(chan struct{}), err: make(chan error, 1)}
	if opt.StateDir == "" {
		opt.StateDir = t.TempDir()
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	src, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	r.src = src
	go func() {
		r.err <- pipeline.Run(context.Background(), src, ndjson.NewSink(r.out, "out"), pipeline.Options{Drain: r.drain})
	}()
	return r
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// wait waits for n lines.
func (r *running) wait(n int) []change {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if r.out.count() >= n {
			return parse(r.t, r.out.all())
		}
		select {
		case err := <-r.err:
			r.t.Fatalf("run ended with %v after %d lines of %d", err, len(r.out.all()), n)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d lines of %d:\n%s", len(r.out.all()), n, strings.Join(r.out.all(), "\n"))
		}
	}
}

// stop drains and closes, as SIGTERM does.
func (r *running) stop() []change {
	r.t.Helper()
	close(r.drain)
	if err := <-r.err; err != nil {
		r.t.Fatalf("run: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.src.Close(ctx); err != nil {
		r.t.Fatalf("close: %v", err)
	}
	return parse(r.t, r.out.all())
}

func database(t testing.TB) (string, *pgx.Conn) {
	t.Helper()
	dsn := testkit.Shared(t).Database(t)
	return dsn, testkit.Connect(t, dsn)
}

func TestOperations(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE orders (id int PRIMARY KEY, status text, note text);
CREATE TABLE parts (id int PRIMARY KEY);
ALTER TABLE orders ALTER note SET STORAGE EXTERNAL`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.*"}})
	testkit.Exec(t, conn, `INSERT INTO orders VALUES (1, 'new', repeat('x', 3000))`)
	testkit.Exec(t, conn, `UPDATE orders SET status = 'paid' WHERE id = 1`)
	testkit.Exec(t, conn, `UPDATE orders SET id = 2 WHERE id = 1`)
	testkit.Exec(t, conn, `DELETE FROM orders WHERE id = 2`)
	testkit.Exec(t, conn, `TRUNCATE orders, parts`)
	testkit.Exec(t, conn, `SELECT pg_logical_emit_message(true, 'p', 'hello')`)
	r.wait(7)
	got := r.stop()
	toast := strings.Repeat("x", 3000)
	want := []string{
		`insert orders  {"id":1,"status":"new","note":"` + toast + `"}`,
		`update orders  {"id":1,"status":"paid"}`,
		`delete orders {"id":1}`,
		`insert orders  {"id":2,"status":"paid","note":"` + toast + `"}`,
		`delete orders {"id":2}`, `truncate`, `message`,
	}
	// The look-up can come after the row is gone; then the column is unchanged rather than looked up.
	if len(got) == 7 && len(got[3].Looked_Up) == 0 {
		want[3] = `insert orders  {"id":2,"status":"paid"}`
	}
	for i, w := range want {
		if i >= len(got) || got[i].String() != w {
			t.Fatalf("record %d is %v\nwant %s", i, got[min(i, len(got)-1)].line, w)
		}
	}
	if fmt.Sprint(got[1].Unchanged) != "[note]" || !got[2].Moved || !got[3].Moved || len(got[5].Tables) != 2 || got[6].Content != "hello" {
		t.Errorf("got %v %v %v", got[1].line, got[3].line, got[5].line)
	}
	if !strings.HasSuffix(got[2].ID, "d") || !strings.HasSuffix(got[3].ID, "i") || got[2].ID[:len(got[2].ID)-1] != got[3].ID[:len(got[3].ID)-1] {
		t.Errorf("ids of a key update: %s, %s", got[2].ID, got[3].ID)
	}
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots WHERE database = current_database())`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d slots and publications left behind, %v", left, err)
	}
}

// TestRestart: a drained run is followed by one that delivers what came in between, and nothing twice.
func TestRestart(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: "restart_" + conn.Config().Database, Create: true, StateDir: t.TempDir()}
	var all []change
	for i := range 4 {
		r := start(t, opt)
		testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO a VALUES (%d); INSERT INTO a VALUES (%d)`, 10*i, 10*i+1))
		testkit.Exec(t, conn, `SELECT pg_logical_emit_message(false, 'p', 'hello')`)
		testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO a VALUES (%d)`, 10*i+2))
		r.wait(4)
		all = append(all, r.stop()...)
		testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO a VALUES (%d)`, 10*i+3))
	}
	r := start(t, opt)
	r.wait(1)
	all = append(all, r.stop()...)
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.ID] {
			t.Errorf("delivered twice: %s", c.line)
		}
		seen[c.ID] = true
	}
	if len(all) != 4*5 {
		t.Errorf("%d records, want 20", len(all))
	}
}

func parseLSN(t testing.TB, s string) record.LSN {
	t.Helper()
	lsn, err := record.ParseLSN(s)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}
