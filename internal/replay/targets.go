package replay

import (
	"context"
	"errors"
	"sync"
	"time"

	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/sink"
	"synctl/internal/sink/postgres"
)

// Postgres is the Target that applies to a database.
type Postgres struct{ *postgres.Target }

var _ Target = Postgres{}

// Open opens a shard of the database's.
func (p Postgres) Open(ctx context.Context, shard string, parents []string) (Outlet, error) {
	s, err := p.Shard(ctx, shard, parents)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Stopped tells a shard that gave up waiting for others.
func (p Postgres) Stopped(err error) bool { return errors.Is(err, postgres.ErrStopped) }

// Retryable tells whether opening the shard again can help.
func (p Postgres) Retryable(err error) bool { return postgres.Retryable(err) }

// Settle applies what is held.
func (p Postgres) Settle(ctx context.Context, outlets []Outlet) error {
	shards := make([]*postgres.Shard, len(outlets))
	for i, o := range outlets {
		shards[i] = o.(*postgres.Shard)
	}
	return postgres.Settle(ctx, shards)
}

// Store keeps the marks of consumers whose sink cannot.
type Store interface {
	Get(ctx context.Context, shard string) (m sink.Mark, ok bool, err error)
	Put(ctx context.Context, shard string, m sink.Mark) error
}

// Plain is the Target of a sink that all shards share and that keeps no checkpoint itself.
type Plain struct {
	Sink  pipeline.Sink
	Store Store         // nil: no checkpoint
	Every time.Duration // how often a mark is stored at most; 0: 250 ms. The last one always is

	mu sync.Mutex // Sink.Write is for one goroutine at a time
}

var _ Target = (*Plain)(nil)

// Open readies a shard at the stored mark.
func (p *Plain) Open(ctx context.Context, shard string, _ []string) (Outlet, error) {
	o := &plainOutlet{p: p, shard: shard}
	if p.Store == nil {
		return o, nil
	}
	var err error
	o.start, o.exists, err = p.Store.Get(ctx, shard)
	o.stored = o.start
	return o, err
}

// Expect does nothing: no shard waits for another.
func (p *Plain) Expect(...string) {}

// Done does nothing.
func (p *Plain) Done(string) {}

// Stop does nothing.
func (p *Plain) Stop() {}

// Stopped is false: no shard waits for another.
func (p *Plain) Stopped(error) bool { return false }

// Settle does nothing: nothing is held.
func (p *Plain) Settle(context.Context, []Outlet) error { return nil }

// Retryable is false: the sink retries by itself.
func (p *Plain) Retryable(error) bool { return false }

type plainOutlet struct {
	p      *Plain
	shard  string
	start  sink.Mark
	exists bool

	stored sink.Mark
	last   time.Time
}

func (o *plainOutlet) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	return o.p.Sink.Write(ctx, b, done)
}

func (o *plainOutlet) Start() (sink.Mark, string, bool) { return o.start, "", o.exists }

// Checkpoint stores a mark unless one was stored a moment ago: a store that syncs a file for every batch would be the
// slowest part of the run.
func (o *plainOutlet) Checkpoint(ctx context.Context, m sink.Mark) error {
	every := o.p.Every
	if every == 0 {
		every = 250 * time.Millisecond
	}
	if o.p.Store == nil || time.Since(o.last) < every {
		return nil
	}
	return o.Finish(ctx, m)
}

func (o *plainOutlet) Finish(ctx context.Context, m sink.Mark) error {
	if o.p.Store == nil || m == o.stored || m.IsZero() {
		return nil
	}
	if err := o.p.Store.Put(ctx, o.shard, m); err != nil {
		return err
	}
	o.stored, o.last = m, time.Now()
	return nil
}

func (o *plainOutlet) Broken() <-chan error { return nil }
func (o *plainOutlet) Close()               {}
