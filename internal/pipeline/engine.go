package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"synctl/internal/record"
)

const (
	// maxPending bounds what is remembered of batches that are done but come after one that is not. Without it one stuck
	// batch would let the list grow as long as the stream.
	maxPending = 1 << 14
	// ackGrace is how long the last acknowledgement may take after a drain timed out.
	ackGrace = 2 * time.Second
)

// Run moves records from src to sink until the input ends, the run is drained, or something fails.
//
// nil: everything that was read is in the sink and acknowledged. An error of the source ends the run like a drain. An
// error of the sink, the checkpoint or an acknowledgement ends it, too, but nothing more is written; what the sink already has is
// awaited for up to DrainTimeout, and what is done before the failure is acknowledged, though nothing after a failed
// checkpoint or acknowledgement. In each case the first error is returned.
// Cancelling ctx forces the run to stop: it returns ctx's cause as soon as source and sink let it, and acknowledges nothing
// further. When Run returns, it calls neither of them again.
func Run(ctx context.Context, src Source, sink Sink, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return fmt.Errorf("start pipeline: %w", err)
	}
	if err := o.Budget.join(int64(o.BatchBytes)); err != nil {
		return fmt.Errorf("start pipeline: %w", err)
	}
	defer o.Budget.leave(int64(o.BatchBytes))
	if _, keeps := sink.(TokenKeeper); keeps {
		o.Checkpoint = nil
	}
	e := &engine{
		src: src, sink: sink, o: o,
		queue:  make(chan *slot, o.QueueBytes/int64(o.BatchBytes)+1), // the budget keeps it from filling
		wake:   make(chan struct{}, 1),
		room:   make(chan struct{}, 1),
		failed: make(chan struct{}),
	}
	return e.run(ctx)
}

// slot is a batch and what it holds of the budget.
type slot struct {
	batch  *record.Batch
	charge int64 // in flight
	entry  *entry
	bytes  int64
	count  int64
}

// entry is what is remembered of a batch until it is acknowledged.
type entry struct {
	token record.Token
	done  bool
}

type engine struct {
	src  Source
	sink Sink
	o    Options

	queue  chan *slot    // read, not yet written
	wake   chan struct{} // the acknowledger has something to look at
	room   chan struct{} // pending became shorter
	failed chan struct{} // closed when err is set

	mu       sync.Mutex
	free     []*slot
	pending  []*entry // in read order
	inFlight int      // batches that the sink has
	written  bool     // the writer has returned: nothing more will be in flight
	expired  bool     // the drain timed out: nothing more is waited for
	err      error    // the first failure
	broken   bool     // the failure is not the source's: nothing more goes to the sink
}

// run starts the goroutines, tells them to stop when it is time, and waits for them.
func (e *engine) run(ctx context.Context) error {
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	writeCtx, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	ackCtx, stopAcking := context.WithCancel(ctx)
	defer stopAcking()

	finished := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { e.read(readCtx, writeCtx) })
	wg.Go(func() { e.write(writeCtx) })
	wg.Go(func() { e.acknowledge(ackCtx) })
	go func() { wg.Wait(); close(finished) }()

	drain, failed := e.o.Drain, (<-chan struct{})(e.failed)
	var timeout, grace <-chan time.Time
	for {
		select {
		case <-finished:
			return e.result(ctx)
		case <-drain:
			drain = nil
		case <-failed:
			failed = nil
		case <-timeout:
			stopWriting()
			e.expire()
			grace = time.After(ackGrace)
			timeout = nil
			continue
		case <-grace:
			stopAcking()
			continue
		}
		stopReading()
		if timeout == nil && grace == nil {
			timeout = time.After(e.o.DrainTimeout)
		}
	}
}

// result is what Run returns once the goroutines are gone.
func (e *engine) result(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return e.err // also when force cut its drain short: it is why the run ended
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case e.expired:
		return fmt.Errorf("%w after %v: %d batches are not acknowledged and will be delivered again",
			ErrDrainTimeout, e.o.DrainTimeout, len(e.pending))
	}
	return nil
}

// fail keeps the first failure. After one of the source, what was read before goes on to the sink; after any other
// (broken) nothing does.
func (e *engine) fail(broken bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = e.broken || broken
	if e.err == nil {
		e.err = err
		close(e.failed)
	}
}

func (e *engine) isBroken() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.broken
}

// read fills batches until the input ends or ctx is cancelled. What has been read is handed on even in a drain, as a
// source such as a pipe cannot read it again: giving up waits for force alone.
func (e *engine) read(ctx, force context.Context) {
	defer close(e.queue)
	for ctx.Err() == nil {
		s := e.take()
		err := e.fill(ctx, s.batch)
		if err == nil {
			err = e.accept(force, s)
		}
		if err != nil {
			e.recycle(s)
			if err != io.EOF && !isCancel(ctx, err) {
				e.fail(false, fmt.Errorf("read: %w", err))
			}
			return
		}
	}
}

// fill has the source fill b, but not beside a record that is larger than the queue.
func (e *engine) fill(ctx context.Context, b *record.Batch) error {
	if err := e.o.Budget.acquire(ctx, 0, 0); err != nil {
		return err
	}
	err := e.src.ReadBatch(ctx, b)
	if err == io.EOF && len(b.Records) > 0 {
		return errors.New("source returned records together with the end of its input")
	}
	return err
}

// isCancel tells whether err is only how an operation says that ctx was cancelled.
func isCancel(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// accept puts a batch that was read into the queue, waiting until the budget has room for it in flight.
func (e *engine) accept(ctx context.Context, s *slot) error {
	b := s.batch
	if err := e.waitForRoom(ctx); err != nil {
		return err
	}
	if len(b.Records) == 0 {
		if b.Token == nil {
			return errors.New("source returned neither records nor a token")
		}
		e.push(&entry{token: b.Token, done: true})
		e.recycle(s)
		return nil
	}
	if s.charge == 0 {
		if err := e.o.Budget.acquire(ctx, 0, int64(b.Limit())); err != nil {
			return err
		}
		s.charge = int64(b.Limit())
	}
	s.entry = &entry{token: b.Token}
	s.bytes, s.count = int64(b.Bytes()), int64(len(b.Records))
	st := e.o.Stats
	st.Records.Add(s.count)
	st.Bytes.Add(s.bytes)
	st.QueuedBytes.Add(s.bytes)
	e.push(s.entry)
	e.queue <- s
	return nil
}

// waitForRoom waits until pending may grow.
func (e *engine) waitForRoom(ctx context.Context) error {
	for {
		e.mu.Lock()
		n := len(e.pending)
		e.mu.Unlock()
		if n < maxPending {
			return nil
		}
		select {
		case <-e.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// push appends to pending. A token without records is merged into one before it that is as done as itself.
func (e *engine) push(n *entry) {
	e.mu.Lock()
	if last := len(e.pending) - 1; n.done && last >= 0 && e.pending[last].done {
		e.pending[last] = n
	} else {
		e.pending = append(e.pending, n)
	}
	e.mu.Unlock()
	signal(e.wake)
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take gives an empty batch. How many there are is bounded by the budget.
func (e *engine) take() *slot {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.free); n > 0 {
		s := e.free[n-1]
		e.free = e.free[:n-1]
		return s
	}
	s := &slot{}
	s.batch = record.NewBatch(e.o.BatchBytes, func(ctx context.Context, n int) error { return e.reserve(ctx, s, n) }, nil)
	return s
}

// reserve makes room for a record larger than a batch. It takes the whole batch in flight at once, so that the batch
// need not wait a second time with the room in its hands.
func (e *engine) reserve(ctx context.Context, s *slot, n int) error {
	more := int64(n)
	if s.charge == 0 {
		more += int64(s.batch.Limit())
	}
	if err := e.o.Budget.acquire(ctx, s.charge, more); err != nil {
		return err
	}
	s.charge += more
	return nil
}

// recycle empties a batch for its next use.
func (e *engine) recycle(s *slot) {
	s.batch.Reset()
	charge := s.charge
	s.charge, s.entry = 0, nil
	e.mu.Lock()
	e.free = append(e.free, s)
	e.mu.Unlock()
	if charge > 0 {
		e.o.Budget.release(charge)
	}
}

// write gives batches to the sink. Once the run is broken or timed out it only empties the queue.
func (e *engine) write(ctx context.Context) {
	for s := range e.queue {
		if ctx.Err() != nil || e.isBroken() {
			e.drop(s)
			continue
		}
		e.mu.Lock()
		e.inFlight++
		e.mu.Unlock()
		e.o.Stats.InFlight.Add(1)
		var once sync.Once
		done := func(err error) { once.Do(func() { e.done(ctx, s, err) }) }
		if err := e.sink.Write(ctx, s.batch, done); err != nil {
			if !isCancel(ctx, err) {
				e.fail(true, fmt.Errorf("write: %w", err))
			}
			done(err)
		}
	}
	e.mu.Lock()
	e.written = true
	e.mu.Unlock()
	signal(e.wake)
}

// drop gives up a batch that the sink never saw.
func (e *engine) drop(s *slot) {
	e.o.Stats.QueuedBytes.Add(-s.bytes)
	e.recycle(s)
}

// done takes a batch back from the sink.
func (e *engine) done(ctx context.Context, s *slot, err error) {
	st := e.o.Stats
	st.InFlight.Add(-1)
	switch {
	case err == nil:
		st.DoneRecords.Add(s.count)
		st.DoneBytes.Add(s.bytes)
	case !isCancel(ctx, err):
		e.fail(true, fmt.Errorf("write: %w", err))
	}
	n := s.entry
	e.drop(s)
	e.mu.Lock()
	n.done = err == nil
	e.inFlight--
	e.mu.Unlock()
	signal(e.wake)
}

// expire stops waiting for what is in flight.
func (e *engine) expire() {
	e.mu.Lock()
	e.expired = true
	e.mu.Unlock()
	signal(e.wake)
}

// acknowledge follows the contiguous prefix of what is done, until nothing more can become done.
func (e *engine) acknowledge(ctx context.Context) {
	for {
		select {
		case <-e.wake:
		case <-ctx.Done():
			return
		}
		for {
			token, last := e.advance()
			if token != nil && ctx.Err() == nil {
				if err := e.ack(ctx, token); err != nil {
					if !isCancel(ctx, err) {
						e.fail(true, err)
					}
					return
				}
				continue
			}
			if last {
				return
			}
			break
		}
	}
}

// advance takes the done prefix off pending and gives the newest token in it, nil for none. last tells that nothing
// more can become done.
func (e *engine) advance() (token record.Token, last bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < len(e.pending) && e.pending[n].done {
		if t := e.pending[n].token; t != nil {
			token = t
		}
		n++
	}
	if n > 0 {
		rest := copy(e.pending, e.pending[n:])
		clear(e.pending[rest:])
		e.pending = e.pending[:rest]
		signal(e.room)
	}
	return token, e.expired || e.written && e.inFlight == 0
}

// ack makes a token durable downstream, then tells the source.
func (e *engine) ack(ctx context.Context, t record.Token) error {
	if e.o.Checkpoint != nil {
		if err := e.o.Checkpoint(ctx, t); err != nil {
			return fmt.Errorf("store checkpoint: %w", err)
		}
	}
	if err := e.src.Ack(ctx, t); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	e.o.Stats.Acks.Add(1)
	return nil
}
