package file

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"synctl/internal/record"
	"synctl/internal/stream"
)

var _ stream.Sink = (*Sink)(nil)

// SinkOptions say how to publish to a stream on disk. The zero value is usable.
type SinkOptions struct {
	KeyBy stream.KeyBy // what the partition key is made of
	// Floor tells, when a record is encoded, up to which LSN every commit is durable in this very stream. Nil: records
	// are written without a floor, or with the one that they have if KeepFloor says so.
	Floor     func() record.LSN
	KeepFloor bool             // only for a copy that keeps what the floor says true: whole, in order, of one shard
	HotKeys   int              // how many of the hottest keys Summary lists; 0 means 10
	Logger    *slog.Logger     // repairs and removed segments; nil: none
	Now       func() time.Time // stamps arrived_at and ages segments, called from two goroutines; nil means time.Now
}

// Sink appends batches to a stream. It is the stream's only writer until it is closed.
type Sink struct {
	m      *meta
	dir    string
	o      SinkOptions
	log    *slog.Logger
	lock   *os.File
	sync   func(*os.File) error // fsync; tests have it fail
	hf     *headsFile           // used by the committer alone
	ranges stream.Ranges

	// Of the goroutine that calls Write.
	shards []*shardWriter
	clock  clock
	key    []byte
	broken error // an earlier Write failed: what it left in buffers and files is not a whole batch

	mu        sync.Mutex
	pending   []pending      // batches that are written and not yet committed
	ends      []head         // of all shards after the last whole batch
	dirty     []dirty        // what must be flushed before ends are true
	committed []head         // what readers may see
	failed    error          // a commit failed: nothing is acknowledged any more
	closed    bool           // Close was called
	sum       stream.Summary // without Shards and HotKeys' lists
	loads     []stream.ShardLoad
	sketch    *stream.Sketch

	wake    chan struct{} // there is something to commit, or closed is set
	stopped chan struct{} // the committer has ended
}

type pending struct {
	done    func(error)
	entries int64
}

// dirty is one file to flush; dir is set when its name has to be made durable, too.
type dirty struct {
	shard   int
	file    *os.File
	retired bool // close it then
	dir     string
}

// OpenSink becomes the writer of the stream in dir, after repairing what an earlier one left unfinished. While another
// process writes, that is a fault with its PID.
func OpenSink(_ context.Context, dir string, o SinkOptions) (*Sink, error) {
	m, err := loadMeta(dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockWriter(dir)
	if err != nil {
		return nil, err
	}
	s := &Sink{m: m, dir: dir, o: o, log: o.Logger, lock: lock, sync: (*os.File).Sync, ranges: stream.EqualRanges(m.Shards),
		sketch: stream.NewSketch(0), loads: make([]stream.ShardLoad, m.Shards),
		wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if s.o.HotKeys == 0 {
		s.o.HotKeys = 10
	}
	if err := s.open(); err != nil {
		s.release()
		return nil, err
	}
	go s.run()
	return s, nil
}

func (s *Sink) open() error {
	hf, heads, err := recoverHeads(s.dir, s.m, s.log)
	if err != nil {
		return err
	}
	s.hf, s.ends, s.committed = hf, heads, slices.Clone(heads)
	for i, h := range heads {
		w, err := openShardWriter(s.m.files(s.dir, i), h)
		if err != nil {
			return err
		}
		s.shards = append(s.shards, w)
		s.loads[i].ID = shardID(i)
	}
	return s.retain()
}

// release gives up files and lock.
func (s *Sink) release() {
	for _, w := range s.shards {
		w.close()
	}
	if s.hf != nil {
		s.hf.close()
	}
	s.lock.Close()
}

// Write appends a batch to its shards' segments; the committer makes it durable. After an error nothing more is taken.
// Write and Close are called from one goroutine.
func (s *Sink) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if len(b.Records) == 0 {
		done(nil)
		return nil
	}
	var floor record.LSN
	if s.o.Floor != nil {
		floor = s.o.Floor()
	}
	s.clock.set(s.o.Now())
	for i := range b.Records {
		r := &b.Records[i]
		if s.o.Floor != nil || !s.o.KeepFloor {
			r.Floor = floor
		}
		if err := s.add(r); err != nil {
			s.broken = err
			return err
		}
	}
	for _, w := range s.shards {
		if err := w.flush(); err != nil {
			s.broken = err
			return err
		}
	}
	s.hand(b, done)
	return nil
}

func (s *Sink) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("write to stream: it is closed")
	case s.failed != nil:
		return s.failed
	}
	return s.broken
}

// add encodes a record into the buffer of its shard; a truncate into every shard's (record.md).
func (s *Sink) add(r *record.Record) error {
	var err error
	if s.key, err = s.o.KeyBy.AppendPartitionKey(s.key[:0], r); err != nil {
		return err
	}
	hash := stream.HashKey(s.key)
	r.Stream = nil // of the stream that it came from
	first, last := 0, len(s.shards)-1
	if r.Op != record.Truncate {
		first = s.ranges.Find(hash)
		last = first
	}
	for i := first; i <= last; i++ {
		n, err := s.shards[i].append(r, s.key, &s.clock)
		if err != nil {
			return err
		}
		s.count(i, hash, int64(n))
	}
	return nil
}

func (s *Sink) count(shard int, hash stream.Hash, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads[shard].Records++
	s.loads[shard].Bytes += bytes
	s.sketch.Add(s.key, hash, 1, bytes)
}

// hand gives a batch that is in its files to the committer.
func (s *Sink) hand(b *record.Batch, done func(error)) {
	s.mu.Lock()
	defer s.signal()
	defer s.mu.Unlock()
	entries := int64(0)
	for i, w := range s.shards {
		if !w.touched {
			continue
		}
		entries += int64(w.head.next - s.ends[i].next)
		s.ends[i] = w.head
		for _, f := range w.retired {
			s.dirty = append(s.dirty, dirty{shard: i, file: f, retired: true})
		}
		d := dirty{shard: i, file: w.file}
		if w.named {
			d.dir = w.files.dir
		}
		s.dirty = append(s.dirty, d)
		w.retired, w.named, w.touched = nil, false, false
	}
	s.pending = append(s.pending, pending{done, entries})
	s.sum.Records += int64(len(b.Records))
	s.sum.Entries += entries
	s.sum.InFlight += entries
}

func (s *Sink) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Summary tells what was written so far.
func (s *Sink) Summary() stream.Summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.sum
	sum.Shards = append([]stream.ShardLoad(nil), s.loads...)
	for _, l := range s.loads {
		sum.Bytes += l.Bytes
	}
	sum.HotKeys = s.sketch.Top(s.o.HotKeys)
	return sum
}

// Close commits what was written, calls every done, cuts off what a failed Write left, and lets another writer in.
func (s *Sink) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.signal()
	<-s.stopped
	var err error
	if s.broken != nil && s.failed == nil {
		for i, w := range s.shards {
			err = errors.Join(err, cutBack(w.files, s.ends[i], s.log))
		}
	}
	s.release()
	return err
}
