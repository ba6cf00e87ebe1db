package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"synctl/internal/record"
	"synctl/internal/sink"
	"synctl/internal/testkit"
)

// TestSnapshotHistories applies random histories of a snapshot beside writers and kills, the consumer stopped and started
// in between, and compares the table with the source's. SYNCTL_TEST_HISTORIES says how many; SYNCTL_TEST_HISTORY names one.
func TestSnapshotHistories(t *testing.T) {
	n := uint64(30)
	if v, err := strconv.ParseUint(os.Getenv("SYNCTL_TEST_HISTORIES"), 10, 32); err == nil {
		n = v
	}
	seeds := []uint64{138} // which a consumer fails that takes a dead run's reads
	for seed := range n {
		seeds = append(seeds, seed+1)
	}
	if v, err := strconv.ParseUint(os.Getenv("SYNCTL_TEST_HISTORY"), 10, 32); err == nil {
		seeds = []uint64{v}
	}
	b := newBench(t, "CREATE TABLE t (id int PRIMARY KEY, a int, u int, big text)", Options{})
	for _, seed := range seeds {
		if t.Failed() {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 9))
		shards := 1 + int(seed%4)
		h := newHistory(rng, shards)
		h.play(20+rng.IntN(60), rng.IntN(10))
		b.close()
		testkit.Exec(t, b.conn, "DROP SCHEMA synctl CASCADE; TRUNCATE t; ALTER TABLE t DROP CONSTRAINT IF EXISTS u")
		if shards == 1 && rng.IntN(2) == 0 { // of several, one can be ahead with a value for good, which no waiting helps
			testkit.Exec(t, b.conn, "ALTER TABLE t ADD CONSTRAINT u UNIQUE (u)")
		}
		o := Options{BatchBytes: 1 + rng.IntN(4000), HoldRetry: 10 * time.Millisecond}
		b.open(o)
		for range rng.IntN(5) {
			b.consume(h, rng, false)
			b.restart(o)
		}
		b.consume(h, rng, true)
		var got string
		if err := b.conn.QueryRow(context.Background(), "SELECT coalesce(string_agg(t::text, ' ' ORDER BY id), '') FROM t").Scan(&got); err != nil {
			t.Fatal(err)
		}
		if want := h.table(); got != want {
			t.Errorf("history %d, %d shards: the target has\n%s\nthe source\n%s\nstreams:\n%s", seed, shards, got, want, dump(h))
		}
	}
}

func dump(h *history) string {
	var w strings.Builder
	for i, lines := range h.streams {
		fmt.Fprintf(&w, "shard %d\n%s\n", i, strings.Join(lines, "\n"))
	}
	return w.String()
}

// consume reads all shards side by side, each from where it stands: to the end, or until it is stopped somewhere.
func (b *bench) consume(h *history, rng *rand.Rand, end bool) {
	b.t.Helper()
	var names []string
	for i := range h.streams {
		names = append(names, fmt.Sprint(i))
	}
	b.target.Expect(names...)
	var readers sync.WaitGroup
	for i, lines := range h.streams {
		s, limit, seed := b.shard(names[i]), len(lines), rng.Uint64()
		if !end {
			limit = rng.IntN(limit + 1)
		}
		readers.Go(func() {
			if err := feedShard(s, names[i], lines, limit, rand.New(rand.NewPCG(seed, 1))); err != nil && (end || !errors.Is(err, ErrStopped)) {
				b.t.Errorf("shard %d: %v\n%s", i, err, dump(h))
			}
			if end {
				b.target.Done(names[i])
			}
		})
	}
	if !end {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		b.target.Stop()
	}
	readers.Wait()
	if !end || b.t.Failed() {
		return
	}
	if err := b.settle(); err != nil {
		b.t.Errorf("%v\n%s", err, dump(h))
	}
}

// feedShard gives a shard its lines from where it has to begin, each a record of the stream.
func feedShard(s *Shard, name string, lines []string, limit int, rng *rand.Rand) error {
	mark, reread, _ := s.Start()
	from := 0
	if mark.Sequence != "" {
		from, _ = strconv.Atoi(mark.Sequence)
	}
	limit = max(limit, from)
	if reread != "" {
		from, _ = strconv.Atoi(reread)
		from--
	}
	for from < limit {
		batch := record.NewBatch(1<<20, nil, nil)
		for range 1 + rng.IntN(8) {
			if from == limit {
				break
			}
			r := batch.Add()
			if err := record.Parse(batch.Copy([]byte(lines[from])), r); err != nil {
				return fmt.Errorf("%w: %s", err, lines[from])
			}
			from++
			r.Stream = &record.StreamInfo{Name: "s", Shard: name, Sequence: fmt.Sprint(from)}
			batch.Token = sink.Mark{Sequence: fmt.Sprint(from)}
		}
		done := make(chan error, 1)
		if err := s.Write(context.Background(), batch, func(err error) { done <- err }); err != nil {
			return err
		}
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}
