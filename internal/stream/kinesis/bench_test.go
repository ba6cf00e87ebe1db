package kinesis

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"synctl/internal/record"
	"synctl/internal/testkit/kinesisfake"
)

// feeder writes batches of updates and uses them again, as the engine does.
type feeder struct {
	free chan *record.Batch
	wg   sync.WaitGroup
}

const benchBatch = 1000

func newFeeder() *feeder {
	f := &feeder{free: make(chan *record.Batch, 32)}
	for range cap(f.free) {
		f.free <- record.NewBatch(1<<20, nil, nil)
	}
	return f
}

func (f *feeder) write(b *testing.B, s *Sink, n, row int, key func() int) {
	batch := <-f.free
	batch.Reset()
	for i := range n {
		r := batch.Add()
		r.Op, r.Table, r.CommittedAt = record.Update, orders, 1
		r.Pos = record.Pos{System: 7, Timeline: 1, Commit: record.LSN(row + i), Row: record.LSN(row + i)}
		r.After = batch.Values(2)
		r.After[0] = record.Value{Kind: record.Text, Data: fmt.Appendf(batch.Alloc(12)[:0], "%d", key())}
		r.After[1] = record.Value{Kind: record.Text, Data: payload}
	}
	f.wg.Add(1)
	err := s.Write(b.Context(), batch, func(err error) {
		if err != nil {
			b.Error(err)
		}
		f.free <- batch
		f.wg.Done()
	})
	if err != nil {
		b.Fatal(err)
	}
}

var payload = []byte("a value of some length, so that the whole line has about three hundred bytes, as rows do")

// benchSink publishes b.N records. hot is a key besides that gets a change every millisecond; its worst delay from being
// written to being acknowledged is reported.
func benchSink(b *testing.B, o kinesisfake.Options, hot bool, key func(rng *rand.Rand) int) {
	o.Discard = true
	_, so := fake(b, o, 16)
	s := openSink(b, so, SinkOptions{})
	f := newFeeder()
	rng := newRand(1)
	b.ReportAllocs()
	start := time.Now()
	var delays delays
	for n, sent := 0, 0; n < b.N; n += benchBatch {
		f.write(b, s, min(benchBatch, b.N-n), n, func() int { return key(rng) })
		for hot && sent < int(time.Since(start)/time.Millisecond) {
			delays.write(b, s, sent)
			sent++
		}
	}
	f.wg.Wait()
	delays.wg.Wait()
	if hot {
		b.ReportMetric(float64(delays.sum.Milliseconds())/float64(max(1, delays.n)), "hot-ms/mean")
		b.ReportMetric(float64(delays.worst.Milliseconds()), "hot-ms/worst")
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "records/s")
	closeSink(b, s)
	sum := s.Summary()
	b.ReportMetric(float64(sum.Records)/float64(sum.Entries), "lines/entry")
}

// delays are those of the hot key's changes.
type delays struct {
	mu         sync.Mutex
	wg         sync.WaitGroup
	sum, worst time.Duration
	n          int64
}

func (d *delays) write(b *testing.B, s *Sink, row int) {
	at := time.Now()
	d.wg.Add(1)
	err := s.Write(b.Context(), batchOf(change{op: record.Update, id: -1, value: "hot", row: row}), func(err error) {
		defer d.wg.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		took := time.Since(at)
		d.sum, d.worst, d.n = d.sum+took, max(d.worst, took), d.n+1
		if err != nil {
			b.Error(err)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSinkAtOnce publishes distinct keys to a server in this process that answers at once.
func BenchmarkSinkAtOnce(b *testing.B) {
	n := 0
	benchSink(b, kinesisfake.Options{}, false, func(*rand.Rand) int { n++; return n })
}

// BenchmarkSinkZipf publishes keys drawn by Zipf's law to a server that answers after 20 ms, beside one key with 1000
// changes a second.
func BenchmarkSinkZipf(b *testing.B) {
	var z *rand.Zipf
	benchSink(b, kinesisfake.Options{Script: kinesisfake.Random(kinesisfake.Faults{Latency: 20 * time.Millisecond, OnlyData: true}, 1)}, true,
		func(rng *rand.Rand) int {
			if z == nil {
				z = rand.NewZipf(rng, 1.1, 1, 100_000)
			}
			return int(z.Uint64())
		})
}
