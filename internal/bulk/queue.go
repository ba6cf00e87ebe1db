package bulk

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// span is a run of rows that follow each other in their part.
type span struct {
	part  string
	first int64
	count int64
}

// chunk is COPY rows on their way from a reader to a writer, and where they came from.
type chunk struct {
	buf   []byte
	spans []span
	rows  int64
	held  int64 // of the queue's bytes

	// For rows that the server refuses, in dead-letter runs: the batch they came from.
	batch   *Batch
	origin  []int32 // per row of the chunk, its row in batch
	release func()
}

// note counts a row that was appended.
func (c *chunk) note(part string, row int64) {
	c.rows++
	if n := len(c.spans); n > 0 {
		if s := &c.spans[n-1]; s.part == part && s.first+s.count == row {
			s.count++
			return
		}
	}
	c.spans = append(c.spans, span{part, row, 1})
}

// queue bounds the bytes between readers and writers: those in chunks that are being filled, that wait, and that are
// being sent. A row larger than a chunk waits until its bytes are free, one larger than the whole until it is alone.
type queue struct {
	ready chan *chunk
	bytes *semaphore.Weighted
	limit int64
	unit  int   // bytes of a chunk
	share int64 // what a byte of COPY rows counts for: twice where the batch they came from is kept with them

	mu   sync.Mutex
	free [][]byte

	used, peak atomic.Int64
}

const (
	largestChunk  = 256 << 10
	smallestChunk = 4 << 10
)

func newQueue(limit int64, workers int, share int64) *queue {
	// Every reader fills one and every writer sends one; as many again may wait.
	unit := min(max(limit/(int64(2*workers)*share), smallestChunk), largestChunk)
	limit = max(limit, share*(unit+unit/8))
	n := limit/unit + 1
	return &queue{ready: make(chan *chunk, n), bytes: semaphore.NewWeighted(limit), limit: limit, unit: int(unit), share: share}
}

// get waits for the bytes of an empty chunk.
func (q *queue) get(ctx context.Context) (*chunk, error) {
	c := &chunk{}
	if err := q.take(ctx, c, int64(q.most())); err != nil {
		return nil, err
	}
	q.mu.Lock()
	if n := len(q.free); n > 0 {
		c.buf, q.free = q.free[n-1][:0], q.free[:n-1]
	}
	q.mu.Unlock()
	if c.buf == nil {
		c.buf = make([]byte, 0, q.most())
	}
	return c, nil
}

// take makes c hold n bytes of the queue. c holds none before.
func (q *queue) take(ctx context.Context, c *chunk, n int64) error {
	n = min(n*q.share, q.limit)
	if err := q.bytes.Acquire(ctx, n); err != nil {
		return err
	}
	c.held = n
	if used := q.used.Add(n); used > q.peak.Load() {
		q.peak.Store(used)
	}
	return nil
}

func (q *queue) give(c *chunk) {
	q.bytes.Release(c.held)
	q.used.Add(-c.held)
	c.held = 0
}

// most is how far a chunk may be filled by the row that ends it.
func (q *queue) most() int { return q.unit + q.unit/8 }

// large makes a chunk of a row that outgrew its own; row is the chunk's from then on.
func (q *queue) large(ctx context.Context, row []byte) (*chunk, error) {
	c := &chunk{buf: row}
	return c, q.take(ctx, c, max(int64(cap(row)), int64(q.most())))
}

// send hands c to a writer.
func (q *queue) send(ctx context.Context, c *chunk) error {
	select {
	case q.ready <- c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// put takes back a chunk that is done with.
func (q *queue) put(c *chunk) {
	if c.release != nil {
		c.release()
		c.release = nil
	}
	if cap(c.buf) >= q.unit && cap(c.buf) <= 2*q.unit {
		q.mu.Lock()
		q.free = append(q.free, c.buf)
		q.mu.Unlock()
	}
	c.buf = nil
	q.give(c)
}
