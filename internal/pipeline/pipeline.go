package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"synctl/internal/record"
)

// Source is where records come from.
type Source interface {
	// ReadBatch fills the empty batch b, blocking for at least one record or a new token; it then returns what is
	// there without waiting for more. io.EOF ends the input (b is then empty). It is called from one goroutine.
	//
	// A batch without records whose token is not nil moves the position on without the sink seeing it. Together with an
	// error b counts for nothing: the source must be able to read again what it had put there.
	//
	// A drain cancels ctx. ReadBatch then returns soon: either nil and a batch that is complete in itself, with a token
	// that covers what is in it and nothing else, or ctx's error. A source that cannot read its input again (a
	// pipe) returns what it has.
	ReadBatch(ctx context.Context, b *record.Batch) error
	// Ack is called in read order, once the sink holds everything that the token covers, concurrently with ReadBatch.
	// Several tokens may be acknowledged by the last of them.
	Ack(ctx context.Context, t record.Token) error
}

// Sink is where records go.
type Sink interface {
	// Write takes b without waiting for it to be durable: done is called exactly once, from any goroutine and in any
	// order, once all of b is durable or cannot be. b belongs to the sink until then. Write is called in read order
	// from one goroutine and blocks while the sink is full. An error from Write ends the run; done is then not called.
	//
	// ctx is cancelled when the run is forced to stop or its drain times out, not when it drains. done may still be
	// called after the run has returned; nothing is acknowledged then.
	Write(ctx context.Context, b *record.Batch, done func(error)) error
}

// TokenKeeper is a sink that commits data and token together: the engine stores no checkpoint for it.
type TokenKeeper interface{ KeepsTokens() }

// Defaults of Options.
const (
	DefaultQueueBytes   = 16 << 20
	DefaultDrainTimeout = 25 * time.Second

	minBatchBytes = 64 << 10
)

// ErrDrainTimeout is in the chain of the error that Run returns when a drain took longer than DrainTimeout. What was
// done by then is acknowledged; the rest will be delivered again.
var ErrDrainTimeout = errors.New("drain timed out")

// Options say how a pipeline runs. The zero value is usable.
type Options struct {
	// QueueBytes bounds the bytes of all batches between the source and the sink's done. 0: DefaultQueueBytes.
	// A record larger than that travels alone.
	QueueBytes int64
	// BatchBytes is the size of one batch, at most half of QueueBytes. 0: a sixteenth of QueueBytes, but 64 KiB where
	// that leaves room for two batches.
	BatchBytes int
	// Budget, when set, bounds the bytes of this run together with other runs, instead of QueueBytes.
	Budget *Budget
	// Drain, when closed, ends the run in good order: nothing more is read, and what was read is finished and
	// acknowledged. nil: never.
	Drain <-chan struct{}
	// DrainTimeout bounds how long the run goes on once Drain is closed, or once it has failed. 0: DefaultDrainTimeout.
	// The end of the input is not bounded.
	DrainTimeout time.Duration
	// Checkpoint stores a token before the source is told. nil, or a sink that is a TokenKeeper: nothing is stored.
	Checkpoint func(ctx context.Context, t record.Token) error
	// Stats, when set, is kept up to date.
	Stats *Stats
}

// Stats count what a run does; they may be read at any time. Several runs may share one.
type Stats struct {
	Records     atomic.Int64 // read from the source
	Bytes       atomic.Int64 // read, as QueueBytes counts them
	DoneRecords atomic.Int64 // that the sink holds
	DoneBytes   atomic.Int64
	QueuedBytes atomic.Int64 // read and not yet done, now
	InFlight    atomic.Int64 // batches that the sink has and is not done with, now
	Acks        atomic.Int64 // acknowledgements to the source
}

// withDefaults fills what is not set and refuses what cannot work.
func (o Options) withDefaults() (Options, error) {
	if o.QueueBytes == 0 {
		o.QueueBytes = DefaultQueueBytes
	}
	if o.Budget != nil {
		o.QueueBytes = o.Budget.max
	}
	if o.QueueBytes < 2 {
		return o, fmt.Errorf("queue of %d bytes is too small", o.QueueBytes)
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = int(min(max(o.QueueBytes/16, minBatchBytes), o.QueueBytes/2))
	}
	if o.BatchBytes < 1 || int64(o.BatchBytes) > o.QueueBytes/2 {
		return o, fmt.Errorf("batches of %d bytes do not fit a queue of %d bytes twice", o.BatchBytes, o.QueueBytes)
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	if o.Stats == nil {
		o.Stats = new(Stats)
	}
	if o.Budget == nil {
		o.Budget = NewBudget(o.QueueBytes)
	}
	return o, nil
}
