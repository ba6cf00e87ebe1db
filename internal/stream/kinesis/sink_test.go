package kinesis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"synctl/internal/record"
	"synctl/internal/stream"
	"synctl/internal/testkit/kinesisfake"
)

func TestSinkPublishes(t *testing.T) {
	srv, o := fake(t, kinesisfake.Options{CheckOrder: true}, 3)
	s := openSink(t, o, SinkOptions{Floor: func() record.LSN { return 0x10 }})
	var changes []change
	for i := range 2000 {
		changes = append(changes, change{op: record.Insert, id: i % 700, value: fmt.Sprint(i), row: i})
	}
	publish(t, s, batchOf(changes...))
	closeSink(t, s)
	sum := s.Summary()
	if sum.Records != 2000 || sum.InFlight != 0 || len(sum.Shards) != 3 {
		t.Errorf("summary %+v", sum)
	}
	checkOrder(t, srv, changes)
	line := firstLine(srv)
	if !strings.Contains(line, `"floor":"0/10"`) {
		t.Errorf("line without floor: %s", line)
	}
}

func firstLine(srv *kinesisfake.Server) string {
	for _, id := range srv.Shards(testStream) {
		for _, r := range srv.Records(testStream, id) {
			line, _, _ := bytes.Cut(r.Data, []byte("\n"))
			return string(line)
		}
	}
	return ""
}

// checkOrder holds what is stored against what was written: for each key the first occurrences of its records are all
// there and in order.
func checkOrder(t *testing.T, srv *kinesisfake.Server, changes []change) {
	t.Helper()
	want := map[string][]string{}
	for _, c := range changes {
		if c.op != record.Truncate {
			id := string(record.Pos{System: 7, Timeline: 1, Row: record.LSN(c.row + 1), Suffix: c.suffix}.AppendID(nil))
			want[keyOf(c.id)] = append(want[keyOf(c.id)], id)
		}
	}
	got := map[string][]string{}
	seen := map[string]bool{}
	for _, shard := range srv.Shards(testStream) {
		for _, rec := range srv.Records(testStream, shard) {
			for line := range bytes.Lines(rec.Data) {
				var r record.Record
				if err := record.Parse(bytes.TrimSuffix(line, []byte("\n")), &r); err != nil {
					t.Fatalf("stored line %q: %v", line, err)
				}
				id := string(r.AppendID(nil))
				if r.Op == record.Truncate || seen[id] {
					continue
				}
				seen[id] = true
				got[rec.PartitionKey] = append(got[rec.PartitionKey], id)
			}
		}
	}
	for k, ids := range want {
		if fmt.Sprint(got[k]) != fmt.Sprint(ids) {
			t.Errorf("key %s: stored %v, written %v", k, got[k], ids)
		}
	}
	if len(got) != len(want) {
		t.Errorf("stored %d keys, wrote %d", len(got), len(want))
	}
	for _, v := range srv.Violations() {
		t.Error(v)
	}
}

// A hot key's lines leave together, once for each round trip.
func TestSinkHotKeyKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{CheckOrder: true, Script: kinesisfake.Random(kinesisfake.Faults{Latency: 20 * time.Millisecond, OnlyData: true}, 1)}, 1)
		s := openSink(t, o, SinkOptions{})
		var changes []change
		var late atomic.Int64
		for i := range 3000 { // a change every millisecond
			c := change{op: record.Update, id: 1, value: "v", row: i}
			changes = append(changes, c)
			at := time.Now()
			err := s.Write(t.Context(), batchOf(c), func(err error) {
				if err != nil || time.Since(at) > 100*time.Millisecond {
					late.Add(1)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		closeSink(t, s)
		if n := late.Load(); n > 0 {
			t.Errorf("%d of 3000 changes of one key took more than 100 ms", n)
		}
		if sum := s.Summary(); sum.Entries > 200 || sum.Entries < 50 {
			t.Errorf("3000 changes in 3 s left as %d stream records, want about one for each 20 ms", sum.Entries)
		}
		checkOrder(t, srv, changes)
		srv.Close()
	})
}

// A record whose key nobody waits for leaves after the linger and not later.
func TestSinkLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{}, 1)
		s := openSink(t, o, SinkOptions{Linger: 20 * time.Millisecond})
		start := time.Now()
		publish(t, s, batchOf(change{op: record.Insert, id: 1}), batchOf(change{op: record.Insert, id: 2, row: 1}))
		if d := time.Since(start); d != 20*time.Millisecond {
			t.Errorf("took %v, want the linger of 20ms", d)
		}
		if n := srv.Calls("PutRecords"); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		closeSink(t, s)
		srv.Close()
	})
}

func TestSinkUnderFaults(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { underFaults(t, seed) })
		})
	}
}

func underFaults(t *testing.T, seed uint64) {
	srv, o := inProcess(kinesisfake.Options{CheckOrder: true, Script: kinesisfake.Random(kinesisfake.Faults{
		Throttle: 0.1, EntryFailure: 0.05, Error500: 0.05, Error503: 0.05, Drop: 0.05, LoseAck: 0.1, Late: 0.1,
		LateBy: 30 * time.Second, Hang: 0.02, Shuffle: true, Latency: 20 * time.Millisecond, OnlyData: true}, seed)}, 4)
	s := openSink(t, o, SinkOptions{RequestRecords: 40, CloseTimeout: time.Hour})
	rng := newRand(seed)
	var changes []change
	var outstanding atomic.Int64
	var stored storedIDs
	for row := 0; row < 4000; {
		b := record.NewBatch(64<<10, nil, nil)
		for range 1 + rng.IntN(200) {
			c := change{op: record.Update, id: int(rng.ExpFloat64() * 30), value: strings.Repeat("x", rng.IntN(100)), row: row}
			if rng.IntN(50) == 0 {
				// A key update: both halves have the same position.
				out, in := c, c
				out.op, out.suffix = record.Delete, record.MovedOut
				in.op, in.suffix, in.id = record.Insert, record.MovedIn, c.id+1+rng.IntN(5)
				changes = append(changes, out, in)
				addChange(b, out)
				addChange(b, in)
			} else {
				changes = append(changes, c)
				addChange(b, c)
			}
			row++
		}
		outstanding.Add(1)
		ids := idsOf(b)
		err := s.Write(t.Context(), b, func(err error) {
			if err != nil {
				t.Errorf("done: %v", err)
			}
			stored.check(t, srv, ids)
			outstanding.Add(-1)
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
		if row > 2000 && len(srv.Shards(testStream)) == 4 {
			srv.Split(testStream, "shardId-000000000001")
		}
	}
	closeSink(t, s)
	if n := outstanding.Load(); n != 0 {
		t.Errorf("%d batches were not done", n)
	}
	checkOrder(t, srv, changes)
	checkMoves(t, srv)
	sum := s.Summary()
	if sum.Retries == 0 || sum.Throttled == 0 {
		t.Errorf("no faults were met: %+v", sum)
	}
	time.Sleep(time.Minute) // what lands late has landed
	checkOrder(t, srv, changes)
	checkMoves(t, srv)
	srv.Close()
}

func idsOf(b *record.Batch) []string {
	var ids []string
	for i := range b.Records {
		ids = append(ids, string(b.Records[i].AppendID(nil)))
	}
	return ids
}

// storedIDs knows the ids of what a server holds, reading each stored record once.
type storedIDs struct {
	mu   sync.Mutex
	read map[string]int
	ids  map[string]bool
}

func (d *storedIDs) check(t *testing.T, srv *kinesisfake.Server, ids []string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ids == nil {
		d.read, d.ids = map[string]int{}, map[string]bool{}
	}
	for _, shard := range srv.Shards(testStream) {
		records := srv.RecordsFrom(testStream, shard, d.read[shard])
		d.read[shard] += len(records)
		for _, rec := range records {
			for line := range bytes.Lines(rec.Data) {
				var r record.Record
				if err := record.Parse(bytes.TrimSuffix(line, []byte("\n")), &r); err != nil {
					t.Errorf("stored line %q: %v", line, err)
				}
				d.ids[string(r.AppendID(nil))] = true
			}
		}
	}
	for _, id := range ids {
		if !d.ids[id] {
			t.Errorf("done was called before record %s was stored", id)
			return
		}
	}
}

// checkMoves finds each insert of a key update stored after its delete: by sequence number, which the fake counts over
// the whole stream.
func checkMoves(t *testing.T, srv *kinesisfake.Server) {
	t.Helper()
	type place struct {
		seq  string
		line int
	}
	first := map[string]place{}
	for _, shard := range srv.Shards(testStream) {
		for _, rec := range srv.Records(testStream, shard) {
			n := 0
			for line := range bytes.Lines(rec.Data) {
				var r record.Record
				if record.Parse(bytes.TrimSuffix(line, []byte("\n")), &r) == nil && r.Moved() {
					id := string(r.AppendID(nil))
					if at, ok := first[id]; !ok || CompareSequences(rec.Sequence, at.seq) < 0 {
						first[id] = place{rec.Sequence, n}
					}
				}
				n++
			}
		}
	}
	moves := 0
	for id, in := range first {
		if !strings.HasSuffix(id, "i") {
			continue
		}
		moves++
		out, ok := first[strings.TrimSuffix(id, "i")+"d"]
		if c := CompareSequences(out.seq, in.seq); !ok || c > 0 || c == 0 && out.line > in.line {
			t.Errorf("insert %s was stored at %v, its delete at %v", id, in, out)
		}
	}
	if moves == 0 {
		t.Error("no key update was stored")
	}
}

// A record that is cancelled while the service hangs is not left without its done, and nothing is left running.
func TestSinkForced(t *testing.T) {
	srv, o := fake(t, kinesisfake.Options{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := OpenSink(ctx, o, SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	srv.SetScript(func(kinesisfake.Call) kinesisfake.Verdict { return kinesisfake.Verdict{Hang: true} })
	done := make(chan error, 1)
	if err := s.Write(t.Context(), batchOf(change{op: record.Insert}), func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("done: %v", err)
	}
	if err := s.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	if err := s.Write(t.Context(), batchOf(change{op: record.Insert}), func(error) {}); err == nil {
		t.Error("write after the end succeeded")
	}
}

// Close does not wait for ever for a service that does not answer, and says what it left.
func TestSinkCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{}, 1)
		s := openSink(t, o, SinkOptions{})
		srv.SetScript(func(kinesisfake.Call) kinesisfake.Verdict {
			return kinesisfake.Verdict{Status: 500, Code: "InternalFailure"}
		})
		var done error
		if err := s.Write(t.Context(), batchOf(change{op: record.Insert}), func(err error) { done = err }); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.Close(); !errors.Is(err, errGivenUp) || !errors.Is(done, errGivenUp) {
			t.Errorf("close: %v, done: %v", err, done)
		}
		if d := time.Since(start); d != 25*time.Second {
			t.Errorf("gave up after %v", d)
		}
		srv.Close()
	})
}

// Write blocks while QueueBytes wait, and lets a batch larger than that in alone.
func TestSinkBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{Script: kinesisfake.Random(kinesisfake.Faults{Latency: time.Second, OnlyData: true}, 1)}, 1)
		s := openSink(t, o, SinkOptions{QueueBytes: 1})
		start := time.Now()
		for i := range 3 {
			if err := s.Write(t.Context(), batchOf(change{op: record.Insert, id: i, row: i}), func(error) {}); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d < 2*time.Second {
			t.Errorf("three batches were taken in %v, though one fills the sink for a second", d)
		}
		closeSink(t, s)
		srv.Close()
	})
}

// One shard gets more than its rate while the other is quiet: the first is used to its limit, the second is not held
// up, and the warning has the figures.
func TestSinkThrottledShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{RateLimits: true, CheckOrder: true}, 2)
		var log bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := openSink(t, o, SinkOptions{})
		hot, quiet := idsByShard(6000, 1000)
		start := time.Now()
		var quietDone time.Duration
		var changes, all []change
		for i, id := range hot {
			changes = append(changes, change{op: record.Insert, id: id, row: i})
		}
		all = append(all, changes...)
		if err := s.Write(t.Context(), batchOf(changes...), func(error) {}); err != nil {
			t.Fatal(err)
		}
		for i, id := range quiet {
			changes[i] = change{op: record.Insert, id: id, row: len(hot) + i}
		}
		all = append(all, changes[:len(quiet)]...)
		if err := s.Write(t.Context(), batchOf(changes[:len(quiet)]...), func(error) { quietDone = time.Since(start) }); err != nil {
			t.Fatal(err)
		}
		closeSink(t, s)
		// 1000 at once, then 1000 a second: 5 s at best; and each is refused about once.
		if d := time.Since(start); d > 6*time.Second || quietDone > time.Second {
			t.Errorf("6000 records to one shard took %v, 1000 to the other %v", d, quietDone)
		}
		sum := s.Summary()
		if sum.Throttled == 0 || sum.Throttled > 7000 || sum.Shards[0].Throttled != sum.Throttled || sum.Shards[1].Throttled != 0 {
			t.Errorf("throttled %d, by shard %+v", sum.Throttled, sum.Shards)
		}
		if !strings.Contains(log.String(), "shardId-000000000000: ") || !strings.Contains(log.String(), "refused/s at") {
			t.Errorf("log: %s", log.String())
		}
		t.Logf("6000 records to one shard: %v, %d refused; the other shard's 1000: %v", time.Since(start), sum.Throttled, quietDone)
		checkOrder(t, srv, all)
		srv.Close()
	})
}

// idsByShard finds ids whose keys go to the first and to the second of two shards.
func idsByShard(first, second int) (a, b []int) {
	ranges := stream.EqualRanges(2)
	for id := 0; len(a) < first || len(b) < second; id++ {
		if ranges.Find(stream.HashKey([]byte(keyOf(id)))) == 0 {
			if len(a) < first {
				a = append(a, id)
			}
		} else if len(b) < second {
			b = append(b, id)
		}
	}
	return a, b
}
