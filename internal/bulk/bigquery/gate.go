package bigquery

import (
	"context"
	"sync"
)

// gate bounds how many streams are open at once; the bound shrinks when the server has had enough.
type gate struct {
	mu     sync.Mutex
	limit  int
	open   int
	waiter chan struct{} // closed and made anew when there may be room
}

func newGate(limit int) *gate { return &gate{limit: limit, waiter: make(chan struct{})} }

func (g *gate) enter(ctx context.Context) error {
	for {
		g.mu.Lock()
		if g.open < g.limit {
			g.open++
			g.mu.Unlock()
			return nil
		}
		wait := g.waiter
		g.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	close(g.waiter)
	g.waiter = make(chan struct{})
}

// shrink lets one stream fewer be open from now on; at least one.
func (g *gate) shrink() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = max(g.limit-1, 1)
	return g.limit
}
