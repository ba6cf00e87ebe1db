// Package pipeline is the bounded engine between a source and a sink: recycled batches, a queue bounded in bytes, and
// acknowledgement in one place.
//
// Invariants: a token is acknowledged only when the sink holds everything that it covers, in read order, and never
// past a failure (promise 1); memory is bounded by QueueBytes, a record larger than that travels alone (promise 4);
// a drain acknowledges what is in flight and reads nothing more (promise 7).
//
// One Run is three goroutines, which it waits for. The reader fills batches; the writer gives them to the sink; the
// acknowledger follows the contiguous prefix of what is done. Between reader and writer lies the queue, and its bound is
// the Budget: the reader waits there while too many bytes are in flight, and so a slow sink stops the source.
//
// It knows nothing of LSNs, sequence numbers or formats, and retries nothing: retries are the sink's and the source's own.
package pipeline
