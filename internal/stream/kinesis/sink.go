package kinesis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/stream"
)

var _ stream.Sink = (*Sink)(nil)

// DeadLetters takes records that cannot be published. Put returns once the line is durable: the record's batch may be
// acknowledged then (promise 6). It is called concurrently.
type DeadLetters interface {
	// Put keeps line, a whole record with its line feed, and why it could not be published.
	Put(ctx context.Context, line []byte, partitionKey, reason string) error
}

// SinkOptions say how to publish. The zero value of each is its default.
type SinkOptions struct {
	KeyBy stream.KeyBy // what the partition key is made of

	// Linger is how long a record may wait for others to fill its request, counted from its arrival; default 20ms,
	// negative: not at all.
	Linger   time.Duration
	InFlight int // requests at a time; default 8

	// Floor is asked for each request, before any of it is sent: an LSN up to which every commit is durable in this
	// stream. nil: records are published without a floor, also those that brought one from elsewhere.
	Floor func() record.LSN

	// DeadLetters takes records that are larger than the stream's limit; nil: such a record ends the run.
	DeadLetters DeadLetters

	RequestRecords int // stream records in a request; default and at most 500
	RequestBytes   int // data and keys of a request, in bytes; default 5 MiB, which older endpoints take, too
	QueueBytes     int // bytes of batches not yet acknowledged above which Write blocks; default 64 MiB
	RetryBytes     int // bytes of failed entries above which nothing new is sent; default 16 MiB

	RequestTimeout time.Duration // after which a request is given up and sent again; default 30s
	RetryMin       time.Duration // the first pause of a failed entry, doubled each time, with jitter; default 100ms
	RetryMax       time.Duration // the longest; default 5s
	CloseTimeout   time.Duration // how long Close waits for what is not acknowledged; default 25s
	ReportEvery    time.Duration // between warnings of throttled shards and failed requests; default 10s
}

func (o SinkOptions) withDefaults() SinkOptions {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	setTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if o.Linger < 0 {
		o.Linger = 0
	} else if o.Linger == 0 {
		o.Linger = 20 * time.Millisecond
	}
	set(&o.InFlight, 8)
	set(&o.RequestRecords, 500)
	o.RequestRecords = min(o.RequestRecords, 500)
	set(&o.RequestBytes, 5<<20)
	set(&o.QueueBytes, 64<<20)
	set(&o.RetryBytes, 16<<20)
	setTime(&o.RequestTimeout, 30*time.Second)
	setTime(&o.RetryMin, 100*time.Millisecond)
	setTime(&o.RetryMax, 5*time.Second)
	setTime(&o.CloseTimeout, 25*time.Second)
	setTime(&o.ReportEvery, 10*time.Second)
	return o
}

// Sink publishes to one stream. Write is for one goroutine; the rest is for any.
type Sink struct {
	client    *kinesis.Client
	stream    Options
	opt       SinkOptions
	log       *slog.Logger
	maxRecord int // data and key of one stream record, in bytes
	load      load

	cancel  context.CancelFunc
	stopped chan struct{} // closed when no goroutine is left and every done was called
	wake    chan struct{} // the dispatcher has something to look at

	mu      sync.Mutex
	changed *sync.Cond // something was acknowledged, or the sink failed
	gate    *gate
	live    map[*batch]struct{}
	waiting int // bytes of live batches
	retries retryHeap
	held    int   // bytes of entries in retries
	active  int   // requests that a sender has
	urgent  int   // how many wait for everything to be acknowledged: nothing lingers
	err     error // the first failure

	scratch names // Write's own
}

var errClosed = errors.New("sink is closed")

// OpenSink prepares to publish to the stream that o names. ctx is the run's: when it ends, what is in flight is given
// up, Write fails, and every done that is outstanding gets ctx's cause.
func OpenSink(ctx context.Context, o Options, so SinkOptions) (*Sink, error) {
	so = so.withDefaults()
	admin, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	d, err := admin.summary(ctx)
	if err != nil {
		return nil, err
	}
	if d.RecordDistributionStrategy == types.RecordDistributionStrategyAuto {
		return nil, fault.New(fault.Check, "Set its record distribution strategy to USER_PARTITION_KEY, or publish to another stream.",
			"stream %s ignores partition keys (RecordDistributionStrategy AUTO): the order of a row's changes would be lost", o.URL())
	}
	if d.StreamStatus == types.StreamStatusCreating || d.StreamStatus == types.StreamStatusDeleting {
		return nil, fault.New(fault.Check, "Try again when it is ACTIVE.", "stream %s is %s", o.URL(), d.StreamStatus)
	}
	shards, err := admin.Shards(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sink{client: once(admin.client), stream: o, opt: so, log: o.logger(), maxRecord: maxRecord(d), stopped: make(chan struct{}),
		wake: make(chan struct{}, 1), gate: newGate(), live: map[*batch]struct{}{}}
	s.changed = sync.NewCond(&s.mu)
	s.load.begin(shards, time.Now())
	runCtx, cancel := context.WithCancel(ctx)
	s.cancel = cancel
	go s.run(runCtx)
	return s, nil
}

// Write takes b; it blocks while QueueBytes are waiting, and at a truncate until all shards have it. When it fails, b
// is not used any more.
func (s *Sink) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	err := s.write(ctx, b, done)
	if err != nil {
		s.fail(err)
		<-s.stopped // the senders read from b
	}
	return err
}

func (s *Sink) write(ctx context.Context, b *record.Batch, done func(error)) error {
	if err := s.wait(ctx, false, func() bool { return s.waiting == 0 || s.waiting+b.Bytes() <= s.opt.QueueBytes }); err != nil {
		return err
	}
	s.mu.Lock()
	bt := s.gate.newBatch(done, len(b.Records), b.Bytes())
	s.waiting += bt.bytes
	s.mu.Unlock()
	for from := 0; from < len(b.Records); {
		n, err := s.scratch.fill(b.Records[from:], s.opt.KeyBy)
		if err != nil {
			return err
		}
		s.enqueue(bt, b.Records[from:from+n])
		from += n
		if from < len(b.Records) && b.Records[from].Op == record.Truncate {
			if err := s.barrier(ctx, &b.Records[from]); err != nil {
				return err
			}
			from++
		}
	}
	// Only now is the batch alive: until here a failure is Write's own, and done is not called.
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return s.err
	}
	s.live[bt] = struct{}{}
	whole := s.release(bt)
	s.mu.Unlock()
	s.complete(whole)
	return nil
}

// enqueue adds records whose names are in scratch.
func (s *Sink) enqueue(bt *batch, records []record.Record) {
	if len(records) == 0 {
		return
	}
	now := time.Now()
	s.mu.Lock()
	for i := range records {
		s.gate.add(bt, &records[i], s.scratch.at(i), now)
	}
	s.mu.Unlock()
	s.nudge()
}

// wait blocks until ok, which is asked with the lock held. urgent: nothing lingers meanwhile.
func (s *Sink) wait(ctx context.Context, urgent bool, ok func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if urgent {
		s.urgent++
		defer func() { s.urgent-- }()
		s.nudge()
	}
	for {
		switch {
		case s.err != nil:
			return s.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case ok():
			return nil
		}
		s.changed.Wait()
	}
}

// drain waits until every record that was written is acknowledged.
func (s *Sink) drain(ctx context.Context) error {
	return s.wait(ctx, true, func() bool { return s.gate.items == 0 })
}

// nudge wakes the dispatcher.
func (s *Sink) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// release lets go of Write's own hold on a batch, and gives it back if everything in it was acknowledged before.
func (s *Sink) release(b *batch) (whole []*batch) {
	s.gate.release(b, func(b *batch) {
		delete(s.live, b)
		whole = append(whole, b)
	})
	return whole
}

// complete tells the writer of batches that they are durable.
func (s *Sink) complete(batches []*batch) {
	if len(batches) == 0 {
		return
	}
	for _, b := range batches {
		b.done(nil)
	}
	s.mu.Lock()
	for _, b := range batches {
		s.waiting -= b.bytes
		s.gate.freeBatch(b)
	}
	s.changed.Broadcast()
	s.mu.Unlock()
}

// fail keeps the first failure and stops the sink.
func (s *Sink) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	s.cancel()
}

var errGivenUp = errors.New("not everything was acknowledged in time; it will be delivered again")

// Close waits until everything that was written is acknowledged, for CloseTimeout at most, or the run's context ends,
// or the sink fails, and gives the failure. Every done has been called when it returns. After a run in which every
// batch was done there is nothing to wait for.
func (s *Sink) Close() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), s.opt.CloseTimeout, errGivenUp)
	defer cancel()
	err := s.drain(ctx)
	s.mu.Lock()
	if s.err == nil && err != nil {
		s.err = err
	}
	if s.err == nil {
		s.err = errClosed
	}
	s.mu.Unlock()
	s.cancel()
	<-s.stopped
	s.load.report(s.log, s.opt, s.stream, time.Now(), true)
	if err != nil && !errors.Is(err, errClosed) {
		return fmt.Errorf("publish to %s: %w", s.stream.URL(), err)
	}
	return nil
}

// Summary tells what was published so far.
func (s *Sink) Summary() stream.Summary { return s.load.summary() }
