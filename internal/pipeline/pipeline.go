// Package pipeline is the bounded engine between a source and a sink: recycled batches, a queue bounded in bytes, and
// acknowledgement in one place.
//
// Invariants: a token is acknowledged only when the sink holds everything that it covers, in read order, and never
// past a failure (promise 1); memory is bounded by QueueBytes, a record larger than that travels alone (promise 4);
// a drain acknowledges what is in flight and reads nothing more (promise 7).
//
// It knows nothing of LSNs, sequence numbers or formats, and retries nothing: retries are the sink's and the source's own.
package pipeline

import (
	"context"

	"synctl/internal/record"
)

// Source is where records come from.
type Source interface {
	// ReadBatch fills the empty batch b, blocking for at least one record or a new token; it then returns what is
	// there without waiting for more. io.EOF ends the input (b is then empty). It is called from one goroutine.
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
	Write(ctx context.Context, b *record.Batch, done func(error)) error
}

// TokenKeeper is a sink that commits data and token together: the engine stores no checkpoint for it.
type TokenKeeper interface{ KeepsTokens() }
