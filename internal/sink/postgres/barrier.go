package postgres

import (
	"context"
	"sync"

	"synctl/internal/record"
)

// barriers hold shards back at a truncate until all have reached it. A shard that waits holds no connection, and what is
// behind it waits in its own share of the queue, so nothing that another shard needs is taken from it.
type barriers struct {
	mu      sync.Mutex
	changed chan struct{}           // closed and replaced when something below changes
	running map[string]bool         // shards that still read
	waiting map[string]*record.Pos  // where a shard waits
	leading map[record.Pos]bool     // truncates that a shard is carrying out
	done    map[record.Pos]struct{} // carried out in this run
	stopped bool
}

func (b *barriers) init() {
	b.changed = make(chan struct{})
	b.running = map[string]bool{}
	b.waiting = map[string]*record.Pos{}
	b.leading = map[record.Pos]bool{}
	b.done = map[record.Pos]struct{}{}
}

func (b *barriers) update(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
}

// Expect says that shards will be read: a truncate waits for them. Children are announced before their parent is Done.
func (t *Target) Expect(shards ...string) {
	t.barriers.update(func() {
		for _, s := range shards {
			t.barriers.running[s] = true
		}
	})
}

// Done says that nothing more comes from a shard: its end or the end of the replay was reached.
func (t *Target) Done(shard string) {
	t.barriers.update(func() { delete(t.barriers.running, shard) })
}

// Stop makes shards that wait for others give up with ErrStopped: the run ends before the others can arrive.
func (t *Target) Stop() {
	t.barriers.update(func() { t.barriers.stopped = true })
}

// arrive waits at the truncate at pos. It returns true to the one shard that has to carry it out, while the others stay; they get
// false once left has told them that it is done.
func (b *barriers) arrive(ctx context.Context, shard string, pos record.Pos) (lead bool, err error) {
	b.update(func() { b.waiting[shard] = &pos })
	defer b.update(func() { delete(b.waiting, shard) })
	for {
		b.mu.Lock()
		_, done := b.done[pos]
		lead := !done && !b.leading[pos] && b.complete(pos)
		if lead {
			b.leading[pos] = true
		}
		stopped, changed := b.stopped, b.changed
		b.mu.Unlock()
		switch {
		case done:
			return false, nil
		case lead:
			return true, nil
		case stopped:
			return false, ErrStopped
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-changed:
		}
	}
}

// complete tells whether every shard that still reads has reached pos: it waits there, or at a later truncate, which
// is where a shard stands that was opened after this one.
func (b *barriers) complete(pos record.Pos) bool {
	for shard := range b.running {
		at := b.waiting[shard]
		if at == nil || at.Timeline < pos.Timeline || at.Timeline == pos.Timeline && at.Compare(pos) < 0 {
			return false
		}
	}
	return true
}

// left ends the lead at pos; done tells whether the truncate was committed.
func (b *barriers) left(pos record.Pos, done bool) {
	b.update(func() {
		delete(b.leading, pos)
		if done {
			b.done[pos] = struct{}{}
		}
	})
}
