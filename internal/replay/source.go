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

	page  *stream.Page
	next  int // the record of page that comes next
	lines lines
	infos []record.StreamInfo
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

// ReadBatch takes what the current page has and fits. Read again after an error, it would go on behind what b had; the run is
// over then, and the next one begins at the checkpoint.
func (s *source) ReadBatch(ctx context.Context, b *record.Batch) error {
	before := s.mark
	var counted int64
	for !s.ended {
		if s.page == nil || s.next == len(s.page.Records) {
			if s.mark != before {
				break
			}
			if s.page != nil && s.page.Closed {
				s.closed = true
				return io.EOF
			}
			if err := s.turn(ctx); err != nil {
				return err
			}
			continue
		}
		n, full, err := s.take(ctx, b)
		if err != nil {
			return err
		}
		if counted += n; full {
			break
		}
	}
	if s.mark == before {
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
	s.page, s.next = page, 0
	s.behind.Store(int64(page.Behind))
	if n := len(page.Records); n > 0 {
		if !s.begun {
			s.begun = true
			// By the stream's clock: what arrives from now on comes after this.
			s.tip = page.Records[n-1].ArrivedAt.Add(page.Behind)
		}
		s.infos = make([]record.StreamInfo, n)
		return s.begin()
	}
	s.ended = page.AtTip && s.end.Kind == AtTip
	return nil
}

// read is the reader's Next; nil when --until-time has passed.
func (s *source) read(ctx context.Context) (*stream.Page, error) {
	if s.end.Kind != UntilTime {
		page, err := s.reader.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("shard %s: %w", s.shard, err)
		}
		return page, nil
	}
	timed, cancel := context.WithDeadline(ctx, s.end.Time.Add(untilGrace))
	defer cancel()
	// A time that has passed must not keep records from being read: the deadline is for waiting at the tip.
	if s.page == nil || !s.page.AtTip {
		timed = ctx
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

// begin looks at the next record of the page.
func (s *source) begin() error {
	if s.next == len(s.page.Records) {
		s.ended = s.ended || s.page.AtTip && s.end.Kind == AtTip
		return nil
	}
	r := &s.page.Records[s.next]
	if s.pastEnd(r) {
		s.ended = true
		return nil
	}
	info := &s.infos[s.next]
	// One string for both: checkpoints keep it beyond the page's life.
	text := string(append([]byte(r.Sequence), r.PartitionKey...))
	*info = record.StreamInfo{
		Name: s.name, Shard: s.shard, Sequence: text[:len(r.Sequence)], PartitionKey: text[len(r.Sequence):],
		ArrivedAt: record.MicrosOf(r.ArrivedAt),
	}
	return s.lines.begin(info, r.Data)
}

// pastEnd tells whether a record lies after the replay's end.
func (s *source) pastEnd(r *stream.Record) bool {
	switch s.end.Kind {
	case AtTip:
		return r.ArrivedAt.After(s.tip)
	case UntilSequence:
		return sink.CompareSequence(r.Sequence, s.end.Sequence) > 0
	case UntilTime:
		return r.ArrivedAt.After(s.end.Time)
	}
	return false
}

// take puts lines of the current record into b: all, or as many as fit.
func (s *source) take(ctx context.Context, b *record.Batch) (counted int64, full bool, err error) {
	info := s.lines.info
	for s.lines.more() {
		n, full, err := s.takeLine(ctx, b, s.lines.line)
		counted += n
		if err != nil || full {
			return counted, full, err
		}
		s.lines.advance()
		s.mark = sink.Mark{Sequence: info.Sequence, Lines: s.lines.number}
		if s.ended {
			break
		}
	}
	if !s.lines.more() {
		s.mark = sink.Mark{Sequence: info.Sequence}
		s.position.Store(&info.Sequence)
		s.ended = s.ended || s.end.Kind == UntilSequence && sink.CompareSequence(info.Sequence, s.end.Sequence) >= 0
		s.next++
		err = s.begin()
	}
	return counted, s.ended, err
}

// takeLine puts one line into b. full: it does not fit any more.
func (s *source) takeLine(ctx context.Context, b *record.Batch, line []byte) (counted int64, full bool, err error) {
	info, number := s.lines.info, s.lines.number
	covered := s.covered.Covers(info.Sequence, number)
	if covered && s.skip {
		return 0, false, nil
	}
	weight := len(line) + len(info.Sequence) + len(info.PartitionKey)
	if !b.Fits(weight, 0) {
		if len(b.Records) > 0 {
			return 0, true, nil
		}
		if err := b.Reserve(ctx, weight, 0); err != nil {
			return 0, false, err
		}
	}
	var r record.Record
	if err := record.Parse(line, &r); err != nil {
		return 0, false, malformed(s.name, info, number, err)
	}
	if !s.filter.wants(&r) {
		return 0, false, nil
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
	*rec = r
	rec.Line.Bytes = b.Copy(line)
	rec.Stream, rec.StreamLine = info, number
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
