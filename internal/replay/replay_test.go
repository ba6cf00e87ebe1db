package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"synctl/internal/pg"
	"synctl/internal/record"
	"synctl/internal/sink/postgres"
	"synctl/internal/stream"
	"synctl/internal/stream/file"
	"synctl/internal/testkit"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(replayProcess); args != "" {
		os.Exit(childReplay(args))
	}
	testkit.Main(m)
}

// publisher writes changes to a file stream as a publisher would: with ids, floors, and duplicates when it is "killed".
type publisher struct {
	t    testing.TB
	dir  string
	lsn  record.LSN
	rows map[int]string // the table as it should become
	log  []change       // everything published, in commit order
	rng  *rand.Rand
}

type change struct {
	commit record.LSN
	line   string
}

func newPublisher(t testing.TB, shards int) *publisher {
	dir := filepath.Join(t.TempDir(), "changes")
	if err := file.Create(dir, file.Options{Shards: shards}); err != nil {
		t.Fatal(err)
	}
	return &publisher{t: t, dir: dir, lsn: 0x1000, rows: map[int]string{}, rng: rand.New(rand.NewPCG(1, 2))}
}

// line makes a change's line. suffix is d or i for the halves of a key update.
func (p *publisher) line(op string, commit record.LSN, suffix, fields string) change {
	p.lsn += 8
	moved := ""
	if suffix != "" {
		moved = `,"moved":true`
	}
	return change{commit, fmt.Sprintf(`{"v":1,"id":"77.1.%016X.0%s","op":"%s","schema":"public","table":"t",%s%s,"lsn":"%s","row_lsn":"%s","xid":7,"committed_at":"2026-11-30T19:58:00.123456Z"}`,
		uint64(p.lsn), suffix, op, fields, moved, commit, p.lsn)}
}

// random makes one transaction of up to n changes of the table t(id, note).
func (p *publisher) random(n int) (out []change) {
	commit := p.lsn + record.LSN(16*(n+2))
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	for range 1 + p.rng.IntN(n) {
		id := p.rng.IntN(60)
		note := fmt.Sprintf("n%d", p.rng.IntN(1e6))
		_, exists := p.rows[id]
		switch {
		case !exists:
			out = append(out, p.line("insert", commit, "", fmt.Sprintf(`"key":{"id":%d},"after":{"id":%d,"note":%s}`, id, id, quote(note))))
			p.rows[id] = note
		case p.rng.IntN(5) == 0:
			out = append(out, p.line("delete", commit, "", fmt.Sprintf(`"key":{"id":%d},"before":{"id":%d}`, id, id)))
			delete(p.rows, id)
		default:
			out = append(out, p.line("update", commit, "", fmt.Sprintf(`"key":{"id":%d},"after":{"id":%d,"note":%s}`, id, id, quote(note))))
			p.rows[id] = note
		}
	}
	p.lsn = commit + 8
	p.log = append(p.log, out...)
	return out
}

// publish writes changes; the floor lags behind as a publisher's does, and what is behind it may be sent again.
func (p *publisher) publish(changes []change, floor record.LSN) {
	p.t.Helper()
	sk, err := file.OpenSink(context.Background(), p.dir, file.SinkOptions{Floor: func() record.LSN { return floor }})
	if err != nil {
		p.t.Fatal(err)
	}
	defer sk.Close()
	b := record.NewBatch(8<<20, nil, nil)
	for _, c := range changes {
		r := b.Add()
		if err := record.Parse(b.Copy([]byte(c.line)), r); err != nil {
			p.t.Fatalf("%v: %s", err, c.line)
		}
	}
	done := make(chan error, 1)
	if err := sk.Write(context.Background(), b, func(err error) { done <- err }); err != nil {
		p.t.Fatal(err)
	}
	if err := <-done; err != nil {
		p.t.Fatal(err)
	}
}

// chunk publishes n transactions and, at times, a stretch of earlier changes once more.
func (p *publisher) chunk(n int) {
	floor := record.LSN(0x800)
	if len(p.log) > 40 {
		floor = p.log[len(p.log)-40].commit - 1
	}
	for range n {
		p.publish(p.random(12), floor)
		if p.rng.IntN(3) == 0 {
			// A publisher that was killed begins after its last confirmed commit.
			var again []change
			for _, c := range p.log {
				if c.commit > floor {
					again = append(again, c)
				}
			}
			p.publish(again, floor)
		}
	}
}

func (p *publisher) open() stream.Stream {
	st, err := file.Open(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

func openTarget(t testing.TB, dsn string, o postgres.Options) *postgres.Target {
	t.Helper()
	o.DSN, o.Stream = pg.DSN(dsn), "changes"
	o.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	target, err := postgres.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// replayInto replays to the tip.
func replayInto(t testing.TB, st stream.Stream, dsn string, o postgres.Options) (postgres.Stats, error) {
	t.Helper()
	target := openTarget(t, dsn, o)
	defer target.Close(context.Background())
	r, err := New(Options{Stream: st, Target: Postgres{target}})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Run(context.Background())
	return target.Stats(), err
}

func (p *publisher) compare(conn *pgx.Conn) {
	p.t.Helper()
	rows, err := conn.Query(context.Background(), "SELECT id, note FROM t")
	if err != nil {
		p.t.Fatal(err)
	}
	got := map[int]string{}
	var id int
	var note string
	if _, err := pgx.ForEachRow(rows, []any{&id, &note}, func() error { got[id] = note; return nil }); err != nil {
		p.t.Fatal(err)
	}
	for id, note := range p.rows {
		if got[id] != note {
			p.t.Errorf("row %d is %q, want %q", id, got[id], note)
		}
	}
	if len(got) != len(p.rows) {
		p.t.Errorf("%d rows, want %d", len(got), len(p.rows))
	}
}

func TestExactTableFromStreamWithDuplicates(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			dsn := testkit.Shared(t).Database(t)
			conn := testkit.Connect(t, dsn)
			testkit.Exec(t, conn, "CREATE TABLE t (id int PRIMARY KEY, note text)")
			p := newPublisher(t, shards)
			for range 4 {
				p.chunk(40)
				stats, err := replayInto(t, p.open(), dsn, postgres.Options{})
				if err != nil {
					t.Fatal(err)
				}
				p.compare(conn)
				if stats.Duplicates == 0 {
					t.Error("no duplicate was dropped, though there were some")
				}
			}
			// Nothing is left to do.
			stats, err := replayInto(t, p.open(), dsn, postgres.Options{})
			if err != nil || stats.Applied != 0 {
				t.Errorf("a second replay applied %d changes: %v", stats.Applied, err)
			}
		})
	}
}
