package kinesis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/testkit/kinesisfake"
)

// changeSource gives changes from where it stands; its tokens say how many are covered.
type changeSource struct {
	t       *testing.T
	srv     *kinesisfake.Server
	stored  *storedIDs
	changes []change
	at      int
	acked   int
}

func (s *changeSource) ReadBatch(_ context.Context, b *record.Batch) error {
	if s.at == len(s.changes) {
		return io.EOF
	}
	for n := 0; n < 60 && s.at < len(s.changes); n++ {
		addChange(b, s.changes[s.at])
		s.at++
	}
	b.Token = s.at
	return nil
}

func (s *changeSource) Ack(_ context.Context, token record.Token) error {
	var ids []string
	for _, c := range s.changes[s.acked:token.(int)] {
		ids = append(ids, string(record.Pos{System: 7, Timeline: 1, Row: record.LSN(c.row + 1)}.AppendID(nil)))
	}
	s.stored.check(s.t, s.srv, ids)
	s.acked = token.(int)
	return nil
}

// TestSinkInPipeline publishes by the engine, which uses batches again, is killed and starts over from what was
// acknowledged, all under faults: nothing is missing, and no key goes back but by the same ids.
func TestSinkInPipeline(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { killed(t, seed) })
		})
	}
}

func killed(t *testing.T, seed uint64) {
	srv, o := inProcess(kinesisfake.Options{Script: kinesisfake.Random(kinesisfake.Faults{Throttle: 0.05, EntryFailure: 0.05,
		Error500: 0.05, Drop: 0.05, LoseAck: 0.05, Late: 0.05, LateBy: 20 * time.Second, Shuffle: true, Latency: 20 * time.Millisecond,
		OnlyData: true}, seed)}, 4)
	rng := newRand(seed)
	src := &changeSource{t: t, srv: srv, stored: &storedIDs{}}
	for row := range 4000 {
		c := change{op: record.Update, id: int(rng.ExpFloat64() * 50), value: "v", row: row}
		if rng.IntN(1500) == 0 {
			c.op = record.Truncate
		}
		src.changes = append(src.changes, c)
	}
	kills := 0
	for src.acked < len(src.changes) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := OpenSink(ctx, o, SinkOptions{RequestRecords: 50})
		if err != nil {
			t.Fatal(err)
		}
		if kills < 10 {
			time.AfterFunc(time.Duration(50+rng.IntN(1500))*time.Millisecond, cancel)
		}
		src.at = src.acked
		err = pipeline.Run(ctx, src, s, pipeline.Options{QueueBytes: 1 << 20, BatchBytes: 64 << 10})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err == nil {
			closeSink(t, s)
		} else {
			cancel()
			kills++
			_ = s.Close() // gives the cancellation
		}
		cancel()
	}
	time.Sleep(time.Minute) // what lands late has landed
	checkOrder(t, srv, src.changes)
	if kills < 3 {
		t.Errorf("only %d kills: the run is over too soon to say anything", kills)
	}
	srv.Close()
}
