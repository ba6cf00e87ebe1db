package streamtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"synctl/internal/record"
	"synctl/internal/stream"
)

// Factory makes streams of one kind.
type Factory struct {
	// Create makes a stream that no other test uses, with n shards.
	Create func(t *testing.T, n int) *Fixture
	// Missing looks at a stream that does not exist, by opening and describing it, and returns the error.
	Missing func(t *testing.T) error
}

// Fixture is one stream under test.
type Fixture struct {
	// Open opens the stream. The suite closes it.
	Open func(t *testing.T) stream.Stream
	// OpenSink opens the stream to publish. The suite closes it before it opens another.
	OpenSink func(t *testing.T, o SinkOptions) stream.Sink
	// CreateAgain makes the same stream a second time and returns the error.
	CreateAgain func(t *testing.T) error
	// Trim removes the shard's oldest records: the first of many, not necessarily all before the given one. Nil: the
	// kind cannot.
	Trim func(t *testing.T, shard, before string)
	// Split replaces an open shard by two. Nil: the kind cannot.
	Split func(t *testing.T, shard string)
	// Tick lets the stream's clock go on by at least ten milliseconds. Nil: sleep.
	Tick func()
}

// SinkOptions are what every kind of sink can do.
type SinkOptions struct {
	KeyBy stream.KeyBy
	Floor func() record.LSN // nil: no floor
}

// Run runs the suite, each test on a stream of its own.
func Run(t *testing.T, f Factory) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Factory)
	}{
		{"ReadBackExact", testReadBack},
		{"FloorIsAskedWhenEncoding", testFloor},
		{"OrderPerKey", testOrderPerKey},
		{"ShardIsMD5OfKey", testShards},
		{"OneShardPerTable", testKeyByTable},
		{"UnicodeKeys", testUnicodeKeys},
		{"LargeRecords", testLarge},
		{"TruncateIsInEveryShard", testTruncate},
		{"PositionSequence", testPositionSequence},
		{"PositionTime", testPositionTime},
		{"PositionLatest", testPositionLatest},
		{"TipIsSaidThenNextWaits", testTip},
		{"ForeignSequence", testForeign},
		{"TrimmedPosition", testTrimmed},
		{"Describe", testDescribe},
		{"MissingStream", testMissing},
		{"MissingShard", testMissingShard},
		{"CreateTwice", testCreateTwice},
		{"ReadWhileWriting", testReadWhileWriting},
		{"DoneExactlyOnce", testDoneOnce},
		{"WriteAfterClose", testWriteAfterClose},
		{"Reopen", testReopen},
		{"Split", testSplit},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, f) })
	}
}

// bench is a fixture with what most tests need of it.
type bench struct {
	*Fixture
	t    *testing.T
	st   stream.Stream
	sink stream.Sink
}

func setup(t *testing.T, f Factory, shards int, o SinkOptions) *bench {
	t.Helper()
	fx := f.Create(t, shards)
	b := &bench{Fixture: fx, t: t, st: fx.Open(t), sink: fx.OpenSink(t, o)}
	t.Cleanup(func() {
		if err := b.sink.Close(); err != nil {
			t.Errorf("close sink: %v", err)
		}
		if err := b.st.Close(); err != nil {
			t.Errorf("close stream: %v", err)
		}
	})
	return b
}

func (b *bench) tick() {
	if b.Tick != nil {
		b.Tick()
		return
	}
	time.Sleep(20 * time.Millisecond)
}

// write hands lines over as one batch; the channel gets what done said.
func (b *bench) write(lines ...string) <-chan error {
	b.t.Helper()
	done := make(chan error, 2)
	if err := b.sink.Write(b.t.Context(), batch(b.t, lines), func(err error) { done <- err }); err != nil {
		b.t.Fatalf("write: %v", err)
	}
	return done
}

// put is write, and waits until the lines are durable.
func (b *bench) put(lines ...string) {
	b.t.Helper()
	select {
	case err := <-b.write(lines...):
		if err != nil {
			b.t.Fatalf("done: %v", err)
		}
	case <-time.After(patience):
		b.t.Fatalf("the batch was not done within %v", patience)
	}
}

const patience = 30 * time.Second

func batch(t *testing.T, lines []string) *record.Batch {
	t.Helper()
	b := record.NewBatch(1<<20, nil, nil)
	for _, line := range lines {
		if err := record.Parse(b.Copy([]byte(line)), b.Add()); err != nil {
			t.Fatalf("parse %s: %v", line, err)
		}
	}
	return b
}

// entry is one stream record that was read.
type entry struct {
	stream.Record
	shard string
	data  string
	key   string
}

// read reads a shard from a position to its tip or end.
func (b *bench) read(shard string, at stream.Position) []entry {
	b.t.Helper()
	got, err := b.tryRead(shard, at)
	if err != nil {
		b.t.Fatalf("read shard %s: %v", shard, err)
	}
	return got
}

func (b *bench) tryRead(shard string, at stream.Position) ([]entry, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	r, err := b.st.Open(ctx, shard, at)
	if err != nil {
		return nil, err
	}
	got, err := readOn(ctx, r, shard)
	return got, errors.Join(err, r.Close())
}

func readOn(ctx context.Context, r stream.Reader, shard string) (got []entry, err error) {
	for {
		p, err := r.Next(ctx)
		if err != nil {
			return got, err
		}
		if len(p.Records) == 0 && !p.AtTip && !p.Closed {
			return got, errors.New("a page without records that is neither at the tip nor the last")
		}
		got = append(got, entries(p, shard)...)
		if p.AtTip || p.Closed {
			return got, nil
		}
	}
}

// entries copies a page, which is valid only until the next call.
func entries(p *stream.Page, shard string) []entry {
	var got []entry
	for _, rec := range p.Records {
		got = append(got, entry{Record: rec, shard: shard, data: string(rec.Data), key: string(rec.PartitionKey)})
	}
	return got
}

func (b *bench) shards() []stream.Shard {
	b.t.Helper()
	shards, err := b.st.Shards(b.t.Context())
	if err != nil {
		b.t.Fatalf("list shards: %v", err)
	}
	return shards
}

// readAll reads every shard from its beginning, parents before children.
func (b *bench) readAll() []entry {
	b.t.Helper()
	var all []entry
	for _, s := range b.shards() {
		all = append(all, b.read(s.ID, stream.Position{})...)
	}
	return all
}
