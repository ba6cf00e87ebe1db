package kinesis

import (
	"context"
	"sync"
	"time"
)

// run decides what leaves when, hands it to the senders, and at the end tells every batch that was left.
func (s *Sink) run(ctx context.Context) {
	defer close(s.stopped)
	jobs := make(chan *request)
	var senders sync.WaitGroup
	for range s.opt.InFlight {
		senders.Go(func() {
			w := &sender{s: s}
			for q := range jobs {
				w.send(ctx, q)
			}
		})
	}
	s.dispatch(ctx, jobs)
	close(jobs)
	senders.Wait()

	s.mu.Lock()
	if s.err == nil {
		s.err = context.Cause(ctx)
	}
	err, left := s.err, s.live
	s.live = map[*batch]struct{}{}
	s.changed.Broadcast()
	s.mu.Unlock()
	for b := range left {
		b.done(err)
	}
}

func (s *Sink) dispatch(ctx context.Context, jobs chan<- *request) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		q, wait := s.next(time.Now())
		s.mu.Unlock()
		if q != nil {
			select {
			case jobs <- q: // a sender is free, or soon will be: active counts them
			case <-ctx.Done():
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// request is what goes out together: failed entries whose pause is over, and keys with new records.
type request struct {
	entries []entry
	bytes   int // of entries that are encoded
	fresh   []taken
}

type taken struct {
	key   *key
	until *item
}

// entry is one stream record: lines of one key.
type entry struct {
	key     *key
	last    *item  // the last record that it acknowledges
	data    []byte // empty: everything in it went to the dead letters
	records int
	tries   int    // that failed
	shard   string // of a truncate: the explicit hash key, see barrier

	refusedBy string // the shard whose rate refused it just now
}

func (e *entry) size() int { return len(e.data) + len(e.key.name) }

// next takes what may leave now; when that is nothing, it says how long to wait for a reason that nobody signals.
func (s *Sink) next(now time.Time) (*request, time.Duration) {
	const forever = time.Hour
	if s.active >= s.opt.InFlight || s.err != nil {
		return nil, forever
	}
	wait := forever
	if len(s.retries) > 0 {
		wait = s.retries[0].due.Sub(now)
	}
	fresh, freshIn := s.freshDue(now)
	if wait > 0 && !fresh {
		return nil, min(wait, freshIn)
	}
	q := &request{}
	for len(s.retries) > 0 && !s.retries[0].due.After(now) && s.retries[0].fits(q, s.opt) {
		s.takeRetry(q)
	}
	if s.held < s.opt.RetryBytes {
		for s.gate.ready > 0 && len(q.entries)+len(q.fresh) < s.opt.RequestRecords && q.bytes < s.opt.RequestBytes {
			k, until := s.gate.take()
			q.fresh = append(q.fresh, taken{k, until})
		}
		s.gate.settle(s.opt.RequestRecords)
	}
	s.active++
	return q, 0
}

// freshDue tells whether new records are to leave: a request is full of them, the oldest has waited for Linger, which
// a record that was held back by its key mostly has, or somebody waits for everything. in says when they will be due.
func (s *Sink) freshDue(now time.Time) (due bool, in time.Duration) {
	if s.gate.ready == 0 || s.held >= s.opt.RetryBytes {
		return false, time.Hour
	}
	if s.gate.ready >= s.opt.RequestRecords || s.urgent > 0 {
		return true, 0
	}
	in = s.gate.oldest.Add(s.opt.Linger).Sub(now)
	return in <= 0, in
}
