package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/sink"
	"synctl/internal/stream"
)

// source reads one shard into batches: it is the pipeline.Source of that shard's engine.
type source struct {
	name, shard string
	reader      stream.Reader
	end         End
	filter      filter
	limit       *limiter
	covered     sink.Mark // what the checkpoint covers: not counted against the limit
	skip        bool      // and left out; otherwise the outlet does that

	page  page
	next  int // the line of page that comes next
	begun bool
	tip   time.Time // arrival of the last record that was there at the start
	ended bool      // the replay's end was reached
	mark  sink.Mark // covers what was taken
	// closed: the shard itself was read to its end. Read it when the engine has ended.
	closed bool

	mu    sync.Mutex
	taken []taken // records counted against the limit, in batches that are not acknowledged

	behind   atomic.Int64 // nanoseconds behind the tip
	position atomic.Pointer[string]
}

type taken struct {
	mark sink.Mark
	n    int64
}

var _ pipeline.Source = (*source)(nil)

// untilGrace is how long after --until-time a shard without records is still watched: what arrived just before can become
// readable a moment later.
const untilGrace = time.Second

// ReadBatch takes what the current page has and fits.
func (s *source) ReadBatch(ctx context.Context, b *record.Batch) error {
	moved := false // something was read, if only to be left out
	var counted int64
	for !s.ended {
		if s.next == len(s.page.lines) {
			if moved {
				break
			}
			if s.page.closed {
				s.closed = true
				return io.EOF
			}
			if err := s.turn(ctx); err != nil {
				return err
			}
			continue
		}
		at := s.next
		n, full, err := s.take(ctx, b)
		if err != nil {
			return err
		}
		moved = moved || s.next != at
		if counted += n; full {
			break
		}
	}
	if !moved {
		return io.EOF
	}
	b.Token = s.mark
	if counted > 0 {
		s.mu.Lock()
		s.taken = append(s.taken, taken{s.mark, counted})
		s.mu.Unlock()
	}
	return nil
}

// turn reads the next page.
func (s *source) turn(ctx context.Context) error {
	page, err := s.read(ctx)
	if err != nil || page == nil {
		return err
	}
	s.behind.Store(int64(page.Behind))
	if n := len(page.Records); n > 0 && !s.begun {
		s.begun = true
		// By the stream's clock: what arrives from now on comes after this.
		s.tip = page.Records[n-1].ArrivedAt.Add(page.Behind)
	}
	s.next = 0
	if err := s.page.load(s.name, s.shard, page); err != nil {
		return err
	}
	s.ended = len(s.page.lines) == 0 && s.atTip()
	return nil
}

// atTip tells whether the replay ends with the page.
func (s *source) atTip() bool { return s.page.atTip && !s.page.closed && s.end.Kind == AtTip }

// read is the reader's Next; nil when --until-time has passed.
func (s *source) read(ctx context.Context) (*stream.Page, error) {
	timed := ctx
	// A time that has passed must not keep records from being read: the deadline is for waiting at the tip.
	if s.end.Kind == UntilTime && s.page.atTip {
		var cancel context.CancelFunc
		timed, cancel = context.WithDeadline(ctx, s.end.Time.Add(untilGrace))
		defer cancel()
	}
	page, err := s.reader.Next(timed)
	switch {
	case err == nil:
		return page, nil
	case ctx.Err() == nil && errors.Is(timed.Err(), context.DeadlineExceeded):
		s.ended = true
		return nil, nil
	}
	return nil, fmt.Errorf("shard %s: %w", s.shard, err)
}

// pastEnd tells whether a record lies after the replay's end.
func (s *source) pastEnd(info *record.StreamInfo) bool {
	switch s.end.Kind {
	case AtTip:
		return info.ArrivedAt > record.MicrosOf(s.tip)
	case UntilSequence:
		return sink.CompareSequence(info.Sequence, s.end.Sequence) > 0
	case UntilTime:
		return info.ArrivedAt > record.MicrosOf(s.end.Time)
	}
	return false
}

// take puts the next line into b, if it is wanted and fits.
func (s *source) take(ctx context.Context, b *record.Batch) (counted int64, full bool, err error) {
	l := &s.page.lines[s.next]
	if l.number == 0 && s.pastEnd(l.info) {
		s.ended = true
		return 0, true, nil
	}
	if l.text != nil {
		if counted, full, err = s.put(ctx, b, l); err != nil || full {
			return counted, full, err
		}
	}
	s.next++
	if !l.last {
		s.mark = sink.Mark{Sequence: l.info.Sequence, Lines: l.number + 1}
		return counted, s.ended, nil
	}
	s.mark = sink.Mark{Sequence: l.info.Sequence}
	s.position.Store(&l.info.Sequence)
	s.ended = s.ended || s.next == len(s.page.lines) && s.atTip() ||
		s.end.Kind == UntilSequence && sink.CompareSequence(l.info.Sequence, s.end.Sequence) >= 0
	return counted, s.ended, nil
}

// put adds a line to b. full: it does not fit any more, or is beyond the limit.
func (s *source) put(ctx context.Context, b *record.Batch, l *line) (counted int64, full bool, err error) {
	covered := s.covered.Covers(l.info.Sequence, l.number)
	if covered && s.skip {
		return 0, false, nil
	}
	if l.err != nil {
		return 0, false, malformed(s.name, l.info, l.number, l.err)
	}
	if !s.filter.wants(&l.record) {
		return 0, false, nil
	}
	weight := len(l.text) + len(l.info.Sequence) + len(l.info.PartitionKey)
	if !b.Fits(weight, 0) {
		if len(b.Records) > 0 {
			return 0, true, nil
		}
		if err := b.Reserve(ctx, weight, 0); err != nil {
			return 0, false, err
		}
	}
	if !covered {
		ok, last := s.limit.take()
		if !ok {
			s.ended = true
			return 0, true, nil
		}
		s.ended = last
		counted = 1
	}
	rec := b.Add()
	*rec = l.record
	rec.Line.Bytes = b.Copy(l.text)
	rec.Stream, rec.StreamLine = l.info, l.number
	return counted, false, nil
}

// Ack forgets what was counted against the limit: it stays counted.
func (s *source) Ack(_ context.Context, t record.Token) error {
	m, _ := t.(sink.Mark)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range s.taken {
		if e.mark == m {
			s.taken = s.taken[i+1:]
			break
		}
	}
	return nil
}

// giveBack returns to the limit what was read and not acknowledged: it will be read again.
func (s *source) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.taken {
		s.limit.give(e.n)
	}
	s.taken = nil
}

// limiter counts records over all shards.
type limiter struct {
	max  int64 // 0: no limit
	left atomic.Int64
	once sync.Once
	met  chan struct{} // closed when the limit was met
}

func newLimiter(n int64) *limiter {
	l := &limiter{max: n, met: make(chan struct{})}
	l.left.Store(n)
	return l
}

// take counts one record. ok is false when there was none left; last is true for the last one.
func (l *limiter) take() (ok, last bool) {
	if l.max == 0 {
		return true, false
	}
	left := l.left.Add(-1)
	if left <= 0 {
		l.once.Do(func() { close(l.met) })
	}
	return left >= 0, left <= 0
}

func (l *limiter) give(n int64) { l.left.Add(n) }
