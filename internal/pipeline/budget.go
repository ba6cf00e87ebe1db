package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Budget bounds the bytes of one run, or of several that share it.
//
// Every run owns the bytes of the one batch that it is filling, for good, so that a source that waits for its next
// record holds nothing that another run needs. All other bytes are in flight and are taken as a whole, first come first served:
// nobody who waits holds any, so the wait always ends. What is too large for the budget is let through once nothing else is in
// flight.
type Budget struct {
	max int64

	mu       sync.Mutex
	filling  int64 // bytes of the batches that the runs fill
	inFlight int64
	waiters  []*waiter
}

type waiter struct {
	n     int64
	ready chan struct{} // closed, under mu, when n is in flight
}

// NewBudget makes a budget of so many bytes.
func NewBudget(bytes int64) *Budget { return &Budget{max: bytes} }

// join takes the bytes of a run's filling batch.
func (b *Budget) join(batch int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.filling+2*batch > b.max {
		return fmt.Errorf("queue of %d bytes is too small: %d are taken, and batches of %d need twice that", b.max, b.filling, batch)
	}
	b.filling += batch
	return nil
}

func (b *Budget) leave(batch int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filling -= batch
	b.grant()
}

// acquire puts n bytes more in flight than the have that the caller has there, waiting until they fit. While it waits
// the caller's own do not count, so that two callers never wait for each other. On an error have is what is in flight.
func (b *Budget) acquire(ctx context.Context, have, n int64) error {
	b.mu.Lock()
	b.inFlight -= have
	if len(b.waiters) == 0 && b.fits(have+n) {
		b.inFlight += have + n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: have + n, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.grant() // what the caller had may be what the others wait for
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiters, w); i >= 0 {
		b.waiters = slices.Delete(b.waiters, i, i+1)
		b.inFlight += have
	} else {
		b.inFlight -= n // granted meanwhile
	}
	b.grant()
	return context.Cause(ctx)
}

// release takes n bytes out of flight.
func (b *Budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight -= n
	b.grant()
}

func (b *Budget) fits(n int64) bool { return b.inFlight == 0 || b.filling+b.inFlight+n <= b.max }

// grant lets waiters through in their order. It is called with mu held.
func (b *Budget) grant() {
	for len(b.waiters) > 0 {
		w := b.waiters[0]
		if !b.fits(w.n) {
			return
		}
		b.inFlight += w.n
		close(w.ready)
		b.waiters = slices.Delete(b.waiters, 0, 1)
	}
}
