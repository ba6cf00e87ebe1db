package cdc

import (
	"context"
	"strings"
	"testing"
	"time"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/testkit"
)

// watched runs a source into a sink until Watch or the test ends it, and gives what Watch said.
func watched(t *testing.T, opt Options, sink pipeline.Sink, work func()) (after time.Duration, verdict error) {
	t.Helper()
	src, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	run, watch := make(chan error, 1), make(chan error, 1)
	go func() { run <- pipeline.Run(ctx, src, sink, pipeline.Options{QueueBytes: 256 << 10}) }()
	go func() { watch <- src.Watch(ctx) }()
	work()
	begin := time.Now()
	select {
	case verdict = <-watch:
	case <-time.After(8 * time.Second):
	}
	after = time.Since(begin)
	st := src.Status()
	if stalled := opt.StallTimeout > 0 && verdict != nil; (st.Stalled > 0) != stalled || !st.Connected {
		t.Errorf("status at the end: %+v", st)
	}
	cancel()
	<-run
	if verdict == nil {
		verdict = <-watch
	}
	if err := src.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("close: %v", err)
	}
	return after, verdict
}

type freeSink struct{}

func (freeSink) Write(_ context.Context, _ *record.Batch, done func(error)) error {
	done(nil)
	return nil
}

// TestStall: a sink that takes no more is told of after --stall-timeout, with figures, also in the middle of a large
// transaction; a quiet database is none.
func TestStall(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int{"one row": 1, "within a large transaction": 100000} {
		t.Run(name, func(t *testing.T) {
			dsn, conn := database(t)
			testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
			opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir(), StallTimeout: time.Second}
			after, err := watched(t, opt, stuckSink{make(chan struct{})}, func() {
				if _, err := conn.Exec(t.Context(), `INSERT INTO a SELECT i, 'some text' FROM generate_series(1, $1::int) i`, rows); err != nil {
					t.Fatal(err)
				}
			})
			if fault.ClassOf(err) != fault.Failed || !strings.Contains(err.Error(), "no progress for") || !strings.Contains(err.Error(), "bytes of WAL held back") || fault.HintOf(err) == "" {
				t.Errorf("after %s: %v", after, err)
			}
		})
	}
	t.Run("quiet", func(t *testing.T) {
		dsn, conn := database(t)
		testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
		src, err := Open(t.Context(), Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, StallTimeout: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		run := make(chan error, 1)
		go func() { run <- pipeline.Run(ctx, src, freeSink{}, pipeline.Options{}) }()
		if err := src.Watch(ctx); err != nil {
			t.Errorf("a quiet database: %v", err)
		}
		<-run
		if err := src.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestMaxWALHeld: more WAL held back than --max-wal-held ends the run with the figures.
func TestMaxWALHeld(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir(), MaxWALHeld: 1 << 20}
	_, err := watched(t, opt, stuckSink{make(chan struct{})}, func() {
		testkit.Exec(t, conn, `INSERT INTO a SELECT i, repeat('x', 500) FROM generate_series(1, 10000) i`)
	})
	if fault.ClassOf(err) != fault.Failed || !strings.Contains(err.Error(), "slot "+slotFor(conn)+" holds back") || !strings.Contains(err.Error(), "--max-wal-held 1048576") || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
}
