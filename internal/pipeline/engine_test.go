package pipeline

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"synctl/internal/record"
)

func TestRunToTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, sink, stats := &fakeSource{items: batches(50)}, &fakeSink{}, new(Stats)
		if err := Run(t.Context(), src, sink, Options{Stats: stats}); err != nil {
			t.Fatal(err)
		}
		if last(src.acked()) != 50 || !slices.IsSorted(src.acked()) {
			t.Errorf("acknowledged %v", src.acked())
		}
		if stats.Records.Load() != 50 || stats.DoneRecords.Load() != 50 || stats.QueuedBytes.Load() != 0 || stats.InFlight.Load() != 0 {
			t.Errorf("stats %+v", stats)
		}
		if stats.Bytes.Load() != stats.DoneBytes.Load() || stats.Acks.Load() != int64(len(src.acked())) {
			t.Errorf("stats %+v", stats)
		}
	})
}

// TestAckOrder finishes batches in the reverse of read order and looks at what may be acknowledged at each moment.
func TestAckOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{items: batches(8)}
		sink := &fakeSink{}
		sink.delay = func(n int) time.Duration { return time.Duration(10-n) * time.Second }
		src.ackOf = func(token int) error {
			sink.mu.Lock()
			defer sink.mu.Unlock()
			for n := 1; n <= token; n++ {
				if !slices.Contains(sink.wrote, n) {
					t.Errorf("token %d acknowledged, batch %d is not done", token, n)
				}
			}
			return nil
		}
		if err := Run(t.Context(), src, sink, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := src.acked(); !slices.Equal(got, []int{8}) {
			t.Errorf("acknowledged %v, want [8]: one token for all", got)
		}
	})
}

func TestNoAckPastFailure(t *testing.T) {
	boom := errors.New("boom")
	at := func(k int) func(int) error {
		return func(n int) error {
			if n == k {
				return boom
			}
			return nil
		}
	}
	for name, sink := range map[string]*fakeSink{
		"done":                {errOf: at(5)},
		"done, before others": {errOf: at(5), delay: func(n int) time.Duration { return time.Duration(10-n) * time.Second }},
		"write":               {writeOf: at(5), delay: func(n int) time.Duration { return time.Second }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &fakeSource{items: batches(20)}
				err := Run(t.Context(), src, sink, Options{QueueBytes: 8 * 4096, BatchBytes: 4096})
				if !errors.Is(err, boom) {
					t.Fatalf("error %v", err)
				}
				if got := last(src.acked()); got != 4 {
					t.Errorf("acknowledged up to %d, want 4", got)
				}
				sink.wg.Wait()
			})
		})
	}
}

func TestReadErrorFinishesWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		src := &fakeSource{items: append(batches(3), item{err: boom})}
		sink := &fakeSink{delay: func(int) time.Duration { return time.Second }}
		if err := Run(t.Context(), src, sink, Options{}); !errors.Is(err, boom) {
			t.Fatalf("error %v", err)
		}
		if got := last(src.acked()); got != 3 {
			t.Errorf("acknowledged up to %d, want 3", got)
		}
	})
}

func TestCheckpointBeforeAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stored []int
		src := &fakeSource{items: batches(5)}
		src.ackOf = func(n int) error {
			if last(stored) != n {
				t.Errorf("acknowledged %d, stored %v", n, stored)
			}
			return nil
		}
		err := Run(t.Context(), src, &fakeSink{}, Options{Checkpoint: func(_ context.Context, tok record.Token) error {
			stored = append(stored, tok.(int))
			return nil
		}})
		if err != nil || last(stored) != 5 {
			t.Fatalf("%v, stored %v", err, stored)
		}
	})
}

func TestFailedAckOrCheckpointIsFatal(t *testing.T) {
	boom := errors.New("boom")
	for _, where := range []string{"ack", "checkpoint"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				items := batches(9)
				for i := range items {
					items[i].delay = time.Second // so that every batch is acknowledged by itself
				}
				at3 := func(n int) error {
					if n == 3 {
						return boom
					}
					return nil
				}
				src, o := &fakeSource{items: items}, Options{}
				if where == "ack" {
					src.ackOf = at3
				} else {
					o.Checkpoint = func(_ context.Context, t record.Token) error { return at3(t.(int)) }
				}
				if err := Run(t.Context(), src, &fakeSink{}, o); !errors.Is(err, boom) {
					t.Fatalf("error %v", err)
				}
				if got := src.acked(); !slices.Equal(got, []int{1, 2}) {
					t.Errorf("acknowledged %v, want [1 2]", got)
				}
			})
		})
	}
}

type keeper struct{ fakeSink }

func (*keeper) KeepsTokens() {}

func TestTokenKeeperStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{items: batches(3)}
		o := Options{Checkpoint: func(context.Context, record.Token) error { return errors.New("stored") }}
		if err := Run(t.Context(), src, &keeper{}, o); err != nil || last(src.acked()) != 3 {
			t.Fatalf("%v, acknowledged %v", err, src.acked())
		}
	})
}

// TestKeepalives: tokens without records are acknowledged in their place and the sink does not see them.
func TestKeepalives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := []item{{}, {sizes: []int{1}}, {}, {}, {sizes: []int{1}}, {}}
		src := &fakeSource{items: items, hold: true}
		sink := &fakeSink{delay: func(int) time.Duration { return time.Minute }}
		drain := make(chan struct{})
		errc := make(chan error)
		go func() { errc <- Run(t.Context(), src, sink, Options{Drain: drain, DrainTimeout: time.Hour}) }()
		synctest.Wait()
		if got := src.acked(); !slices.Equal(got, []int{1}) {
			t.Errorf("acknowledged %v while a batch is in flight, want [1]", got)
		}
		time.Sleep(2 * time.Minute)
		if got := last(src.acked()); got != 6 {
			t.Errorf("acknowledged up to %d, want 6", got)
		}
		close(drain)
		if err := <-errc; err != nil {
			t.Error(err)
		}
		if sink.n != 2 {
			t.Errorf("the sink saw %d batches, want 2", sink.n)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{items: batches(5), hold: true}
		sink := &fakeSink{delay: func(int) time.Duration { return 10 * time.Second }}
		drain := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(drain) })
		start := time.Now()
		if err := Run(t.Context(), src, sink, Options{Drain: drain}); err != nil {
			t.Fatal(err)
		}
		if got := last(src.acked()); got != 5 {
			t.Errorf("acknowledged up to %d, want 5", got)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("took %v, want 10s", d)
		}
	})
}

func TestDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{items: batches(5), hold: true}
		sink := &fakeSink{delay: func(n int) time.Duration {
			if n == 4 {
				return -1
			}
			return 2 * time.Second
		}}
		drain := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(drain) })
		start := time.Now()
		err := Run(t.Context(), src, sink, Options{Drain: drain, DrainTimeout: 7 * time.Second})
		if !errors.Is(err, ErrDrainTimeout) {
			t.Fatalf("error %v, want ErrDrainTimeout", err)
		}
		if got := last(src.acked()); got != 3 {
			t.Errorf("acknowledged up to %d, want 3", got)
		}
		if d := time.Since(start); d != 8*time.Second {
			t.Errorf("took %v, want 8s", d)
		}
	})
}

// TestEndHasNoTimeout: the end of the input waits for the sink, however long it takes.
func TestEndHasNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{items: batches(2)}
		sink := &fakeSink{delay: func(int) time.Duration { return 24 * time.Hour }}
		if err := Run(t.Context(), src, sink, Options{}); err != nil || last(src.acked()) != 2 {
			t.Fatalf("%v, acknowledged %v", err, src.acked())
		}
	})
}

func TestForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{items: batches(5), hold: true}
		sink := &fakeSink{delay: func(n int) time.Duration { return time.Minute }}
		ctx, cancel := context.WithCancelCause(t.Context())
		forced := errors.New("forced")
		time.AfterFunc(time.Second, func() { cancel(forced) })
		start := time.Now()
		if err := Run(ctx, src, sink, Options{}); !errors.Is(err, forced) {
			t.Fatalf("error %v, want the cause", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("took %v, want 1s", d)
		}
		sink.wg.Wait() // the sink calls done after Run has returned
		if got := src.acked(); len(got) != 0 {
			t.Errorf("acknowledged %v after force", got)
		}
	})
}

// TestByteBound reads far more than the queue holds into a slow sink.
func TestByteBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue, batch = 64 << 10, 4 << 10
		items := make([]item, 400)
		for i := range items {
			items[i] = item{sizes: []int{i * 37 % 3000}}
		}
		src, stats := &fakeSource{items: items}, new(Stats)
		sink := &fakeSink{delay: func(n int) time.Duration { return time.Duration(n*7919%13) * time.Second }}
		if err := Run(t.Context(), src, sink, Options{QueueBytes: queue, BatchBytes: batch, Stats: stats}); err != nil {
			t.Fatal(err)
		}
		if sink.peak > queue-batch {
			t.Errorf("the sink held %d bytes beside the batch that is filled, the queue is %d", sink.peak, queue)
		}
		if sink.peakBatches != queue/batch-1 {
			t.Errorf("at most %d batches were in flight, want %d", sink.peakBatches, queue/batch-1)
		}
		if last(src.acked()) != len(items) {
			t.Errorf("acknowledged up to %d", last(src.acked()))
		}
	})
}

func TestSlowSinkStopsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &fakeSource{items: batches(1000)}
		sink := &fakeSink{delay: func(n int) time.Duration {
			if n == 1 {
				return time.Hour
			}
			return -1
		}}
		ctx, cancel := context.WithCancel(t.Context())
		errc := make(chan error)
		go func() { errc <- Run(ctx, src, sink, Options{QueueBytes: 16 << 10, BatchBytes: 4 << 10}) }()
		synctest.Wait()
		if got := src.read(); got != 4 {
			t.Errorf("read %d batches ahead of a sink that stands still, want 4", got)
		}
		time.Sleep(2 * time.Hour)
		if got := src.read(); got != 5 {
			t.Errorf("read %d batches after one was done, want 5", got)
		}
		cancel()
		<-errc
	})
}

// TestOversizeTravelsAlone sends records larger than a batch and than the queue between small ones.
func TestOversizeTravelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue, batch, large = 64 << 10, 4 << 10, 200 << 10
		var items []item
		for i := range 60 {
			switch {
			case i%10 == 4:
				items = append(items, item{sizes: []int{20 << 10}})
			case i%10 == 7:
				items = append(items, item{sizes: []int{large}})
			default:
				items = append(items, item{sizes: []int{1000}})
			}
		}
		src := &fakeSource{items: items}
		sink := &fakeSink{large: large, alone: true, delay: func(n int) time.Duration { return time.Duration(1+n*31%7) * time.Second }}
		if err := Run(t.Context(), src, sink, Options{QueueBytes: queue, BatchBytes: batch}); err != nil {
			t.Fatal(err)
		}
		if !sink.alone {
			t.Error("a record larger than the queue was in flight beside others")
		}
		if got := last(src.acked()); got != len(items) {
			t.Errorf("acknowledged up to %d of %d", got, len(items))
		}
	})
}

// TestSharedBudget: two runs with records larger than the budget never wait for each other, and an idle run keeps
// nothing from the others.
func TestSharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue, batch = 64 << 10, 4 << 10
		budget := NewBudget(queue)
		idle := &fakeSource{hold: true}
		ctx, cancel := context.WithCancel(t.Context())
		idleErr := make(chan error, 1)
		go func() { idleErr <- Run(ctx, idle, &fakeSink{}, Options{Budget: budget, BatchBytes: batch}) }()
		var wg sync.WaitGroup
		for k := range 2 {
			wg.Go(func() {
				var items []item
				for i := range 40 {
					items = append(items, item{sizes: []int{(i*13 + k*7) % 20 * (8 << 10)}})
				}
				src := &fakeSource{items: items}
				sink := &fakeSink{delay: func(n int) time.Duration { return time.Duration(n%5) * time.Second }}
				if err := Run(ctx, src, sink, Options{Budget: budget, BatchBytes: batch}); err != nil {
					t.Error(err)
				}
				if got := last(src.acked()); got != len(items) {
					t.Errorf("acknowledged up to %d of %d", got, len(items))
				}
			})
		}
		wg.Wait()
		cancel()
		if err := <-idleErr; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if budget.inFlight != 0 || budget.filling != 0 {
			t.Errorf("%d bytes in flight and %d being filled are left over", budget.inFlight, budget.filling)
		}
	})
}

func TestRefusedOptions(t *testing.T) {
	full := NewBudget(8192)
	for name, o := range map[string]Options{
		"batch of more than half": {QueueBytes: 1000, BatchBytes: 501},
		"negative batch":          {BatchBytes: -1},
		"tiny queue":              {QueueBytes: 1},
		"full budget":             {Budget: full, BatchBytes: 4096},
	} {
		if name == "full budget" {
			if err := full.join(4096); err != nil {
				t.Fatal(err)
			}
		}
		if err := Run(t.Context(), &fakeSource{}, &fakeSink{}, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

type brokenSource struct{ fakeSource }

func (*brokenSource) ReadBatch(context.Context, *record.Batch) error { return nil }

func TestEmptyBatchIsAnError(t *testing.T) {
	if err := Run(t.Context(), &brokenSource{}, &fakeSink{}, Options{}); err == nil {
		t.Error("a source that returns nothing would be asked for ever")
	}
}

// pipeSource cannot read again what it has read: when it is drained it returns what it has.
type pipeSource struct{ fakeSource }

func (s *pipeSource) ReadBatch(ctx context.Context, b *record.Batch) error {
	<-ctx.Done()
	b.Add()
	b.Token = 1
	return nil
}

func TestDrainKeepsWhatReadBatchHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, sink := &pipeSource{}, &fakeSink{}
		drain := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(drain) })
		if err := Run(t.Context(), src, sink, Options{Drain: drain}); err != nil {
			t.Fatal(err)
		}
		if sink.n != 1 || !slices.Equal(src.acked(), []int{1}) {
			t.Errorf("the sink saw %d batches, acknowledged %v", sink.n, src.acked())
		}
	})
}

// BenchmarkRun moves batches of 100 records through an idle source and sink.
func BenchmarkRun(b *testing.B) {
	b.ReportAllocs()
	src := &loopSource{left: b.N}
	if err := Run(b.Context(), src, &nullSink{}, Options{}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/batch")
}

type loopSource struct{ left int }

func (s *loopSource) ReadBatch(_ context.Context, b *record.Batch) error {
	if s.left == 0 {
		return io.EOF
	}
	s.left--
	for range 100 {
		b.Add().Line.Bytes = b.Alloc(100)
	}
	b.Token = s.left
	return nil
}

func (*loopSource) Ack(context.Context, record.Token) error { return nil }

type nullSink struct{}

func (nullSink) Write(_ context.Context, _ *record.Batch, done func(error)) error {
	done(nil)
	return nil
}

// doneThenError is a sink that breaks its contract: the batch is done, and the write failed.
type doneThenError struct{}

var errBroken = errors.New("broken sink")

func (doneThenError) Write(_ context.Context, _ *record.Batch, done func(error)) error {
	done(nil)
	done(nil)
	return errBroken
}

func TestErrorAfterDoneIsNotLost(t *testing.T) {
	stats := new(Stats)
	if err := Run(t.Context(), &fakeSource{items: batches(3)}, doneThenError{}, Options{Stats: stats}); !errors.Is(err, errBroken) {
		t.Errorf("error %v", err)
	}
	if stats.InFlight.Load() != 0 || stats.QueuedBytes.Load() != 0 {
		t.Errorf("%d batches, %d bytes are left over", stats.InFlight.Load(), stats.QueuedBytes.Load())
	}
}
