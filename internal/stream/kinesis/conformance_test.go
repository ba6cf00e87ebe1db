package kinesis

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"synctl/internal/stream"
	"synctl/internal/testkit"
	"synctl/internal/testkit/kinesisfake"
	"synctl/internal/testkit/streamtest"
)

var streamNumber atomic.Int64

// factory makes streams by the API of the endpoint that o names.
func factory(o Options, trim func(t *testing.T, stream, shard, before string)) streamtest.Factory {
	return streamtest.Factory{
		Create: func(t *testing.T, n int) *streamtest.Fixture {
			o := o
			o.Name = fmt.Sprintf("conformance-%d", streamNumber.Add(1))
			if err := Create(t.Context(), o, n); err != nil {
				t.Fatal(err)
			}
			open := func(t *testing.T) stream.Stream { return openStream(t, o) }
			f := &streamtest.Fixture{
				Open: open,
				OpenSink: func(t *testing.T, so streamtest.SinkOptions) stream.Sink {
					return openSink(t, o, SinkOptions{KeyBy: so.KeyBy, Floor: so.Floor})
				},
				CreateAgain: func(t *testing.T) error { return Create(t.Context(), o, n) },
				Split:       func(t *testing.T, shard string) { split(t, openStream(t, o), shard) },
			}
			if trim != nil {
				f.Trim = func(t *testing.T, shard, before string) { trim(t, o.Name, shard, before) }
			}
			return f
		},
		Missing: func(t *testing.T) error {
			o := o
			o.Name = "missing"
			s, err := Open(t.Context(), o)
			if err != nil {
				return err
			}
			_, err = s.Describe(t.Context())
			return errors.Join(err, s.Close())
		},
	}
}

// split halves a shard and waits until the stream is active again.
func split(t *testing.T, s *Stream, shard string) {
	t.Helper()
	shards, err := s.Shards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sh := range shards {
		if sh.ID != shard {
			continue
		}
		mid := new(big.Int).Add(sh.HashLow, sh.HashTop)
		mid.Rsh(mid, 1)
		_, err := s.client.SplitShard(context.Background(), &kinesis.SplitShardInput{StreamName: aws.String(s.Name()),
			ShardToSplit: aws.String(shard), NewStartingHashKey: aws.String(mid.String())})
		if err == nil {
			err = s.waitActive(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no shard %s", shard)
}

func TestConformance(t *testing.T) {
	srv, o := fake(t, kinesisfake.Options{CheckOrder: true}, 1)
	streamtest.Run(t, factory(o, func(t *testing.T, name, shard, before string) {
		n := 0
		for _, r := range srv.Records(name, shard) {
			if CompareSequences(r.Sequence, before) < 0 {
				n++
			}
		}
		srv.Trim(name, shard, n)
	}))
	for _, v := range srv.Violations() {
		t.Error(v)
	}
}

// TestConformanceKinesisLocal runs the suite against an emulator that is not ours.
func TestConformanceKinesisLocal(t *testing.T) {
	_, o := fake(t, kinesisfake.Options{}, 1)
	o.Endpoint = testkit.KinesisLocal(t)
	streamtest.Run(t, factory(o, nil))
}
