package kinesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"synctl/internal/record"
	"synctl/internal/stream"
	"synctl/internal/testkit/kinesisfake"
)

const testStream = "orders"

// fake starts a server with a stream of so many shards, and gives the options that reach it.
func fake(t testing.TB, o kinesisfake.Options, shards int) (*kinesisfake.Server, Options) {
	t.Helper()
	s, err := kinesisfake.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.CreateStream(testStream, shards)
	return s, Options{Name: testStream, Endpoint: s.URL(), Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		PollInterval: 10 * time.Millisecond}
}

// inProcess is fake without sockets, for a synctest bubble.
func inProcess(o kinesisfake.Options, shards int) (*kinesisfake.Server, Options) {
	s := kinesisfake.New(o)
	s.CreateStream(testStream, shards)
	return s, Options{Name: testStream, Endpoint: "http://127.0.0.1:1", Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient: &http.Client{Transport: s.Transport()}}
}

var (
	textType = &record.Type{Name: "text"}
	intType  = &record.Type{Name: "int8", Kind: record.KindNumber}
	orders   = record.NewTable("public", "orders", 1, []record.Column{{Name: "id", Type: intType, Key: true}, {Name: "v", Type: textType}})
)

// change is one record of a batch under construction.
type change struct {
	op     record.Op
	id     int
	value  string
	row    int // its place in the order of all changes
	suffix record.Suffix
}

func batchOf(changes ...change) *record.Batch {
	b := record.NewBatch(4<<10, nil, nil)
	for _, c := range changes {
		addChange(b, c)
	}
	return b
}

func addChange(b *record.Batch, c change) {
	r := b.Add()
	r.Op, r.CommittedAt = c.op, 1
	r.Pos = record.Pos{System: 7, Timeline: 1, Commit: record.LSN(c.row + 1), Row: record.LSN(c.row + 1), Suffix: c.suffix}
	if c.op == record.Truncate {
		r.Truncate = &record.TruncateInfo{Tables: []*record.Table{orders}}
		return
	}
	r.Table = orders
	row := b.Values(2)
	row[0] = record.Value{Kind: record.Text, Data: fmt.Append(nil, c.id)}
	if c.op == record.Delete {
		r.Before = row
		return
	}
	row[1] = record.Value{Kind: record.Text, Data: []byte(c.value)}
	r.After = row
}

func keyOf(id int) string { return fmt.Sprintf("public.orders.%d", id) }

// publish writes batches and waits until they are done.
func publish(t testing.TB, s *Sink, batches ...*record.Batch) {
	t.Helper()
	done := make(chan error, len(batches))
	for _, b := range batches {
		if err := s.Write(context.Background(), b, func(err error) { done <- err }); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
	for range batches {
		if err := <-done; err != nil {
			t.Fatalf("done: %v", err)
		}
	}
}

func openSink(t testing.TB, o Options, so SinkOptions) *Sink {
	t.Helper()
	s, err := OpenSink(context.Background(), o, so)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeSink(t testing.TB, s *Sink) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// readAll reads a shard from a position to its tip.
func readAll(t testing.TB, s *Stream, shard string, at stream.Position) (records []stream.Record, last *stream.Page) {
	t.Helper()
	r, err := s.Open(context.Background(), shard, at)
	if err != nil {
		t.Fatalf("open shard %s: %v", shard, err)
	}
	defer r.Close()
	for {
		p, err := r.Next(context.Background())
		if err != nil {
			t.Fatalf("read shard %s: %v", shard, err)
		}
		records = append(records, p.Records...)
		if p.AtTip || p.Closed {
			return records, p
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }
