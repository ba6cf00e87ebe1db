package pipeline

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"synctl/internal/record"
)

// item is one batch that a fake source reads: its records' sizes, its token, and what is waited for before it comes.
type item struct {
	sizes []int
	token record.Token
	delay time.Duration
	err   error
}

// fakeSource reads items with tokens 1, 2, 3 …, then ends (or blocks, when hold is set).
type fakeSource struct {
	items []item
	hold  bool
	ackOf func(n int) error // what Ack returns for token n

	mu   sync.Mutex
	next int
	acks []int
}

func (s *fakeSource) ReadBatch(ctx context.Context, b *record.Batch) error {
	s.mu.Lock()
	n := s.next
	s.mu.Unlock()
	if n == len(s.items) {
		if !s.hold {
			return io.EOF
		}
		<-ctx.Done()
		return ctx.Err()
	}
	it := s.items[n]
	select {
	case <-time.After(it.delay):
	case <-ctx.Done():
		return ctx.Err()
	}
	if it.err != nil {
		return it.err
	}
	for _, size := range it.sizes {
		if !b.Fits(size, 0) {
			if err := b.Reserve(ctx, size, 0); err != nil {
				return err
			}
		}
		r := b.Add()
		r.Line.Bytes = b.Alloc(size)
	}
	b.Token = n + 1
	if it.token != nil {
		b.Token = it.token
	}
	s.mu.Lock()
	s.next++
	s.mu.Unlock()
	return nil
}

func (s *fakeSource) Ack(ctx context.Context, t record.Token) error {
	n := t.(int)
	if s.ackOf != nil {
		if err := s.ackOf(n); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks = append(s.acks, n)
	return nil
}

func (s *fakeSource) acked() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acks)
}

func (s *fakeSource) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// fakeSink is done with batch n (from 1) after delay(n), or never when that is negative, with the error errOf(n).
type fakeSink struct {
	delay   func(n int) time.Duration
	errOf   func(n int) error
	writeOf func(n int) error // what Write returns

	mu             sync.Mutex
	n              int
	held, peak     int64
	heldBatches    int
	peakBatches    int
	alone          bool // no batch was held beside one of more than large bytes
	large          int
	written, wrote []int
	wg             sync.WaitGroup
}

func (s *fakeSink) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	s.mu.Lock()
	s.n++
	n := s.n
	s.held += int64(b.Bytes())
	s.heldBatches++
	s.peak = max(s.peak, s.held)
	s.peakBatches = max(s.peakBatches, s.heldBatches)
	if s.large > 0 && s.heldBatches > 1 && s.held >= int64(s.large) {
		s.alone = false
	}
	s.written = append(s.written, n)
	bytes := int64(b.Bytes())
	s.mu.Unlock()
	if s.writeOf != nil {
		if err := s.writeOf(n); err != nil {
			return err
		}
	}
	d := time.Duration(0)
	if s.delay != nil {
		d = s.delay(n)
	}
	if d < 0 {
		return nil
	}
	s.wg.Go(func() {
		time.Sleep(d)
		var err error
		if s.errOf != nil {
			err = s.errOf(n)
		}
		s.mu.Lock()
		s.held -= bytes
		s.heldBatches--
		if err == nil {
			s.wrote = append(s.wrote, n)
		}
		s.mu.Unlock()
		done(err)
	})
	return nil
}

func batches(n int) []item {
	items := make([]item, n)
	for i := range items {
		items[i] = item{sizes: []int{100}}
	}
	return items
}

func last(v []int) int {
	if len(v) == 0 {
		return 0
	}
	return v[len(v)-1]
}
