package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"synctl/internal/fault"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/sink"
	"synctl/internal/stream"
)

// Replay is one run over a stream.
type Replay struct {
	o     Options
	stats pipeline.Stats
	limit *limiter
	drain chan struct{} // closed when no engine is to read on
	once  sync.Once

	mu      sync.Mutex
	shards  map[string]*shard
	quota   int64 // bytes of the queue that no running shard has
	retries int64
	outlets []Outlet // of shards that were read to the replay's end
}

type shardState uint8

const (
	waiting shardState = iota // for its parents
	running
	finished // read to the replay's end, which is not the shard's
	closed   // read to its own end, or gone
)

type shard struct {
	stream.Shard
	state shardState
	from  stream.Position
	src   *source // of the current attempt
	quota int64

	trouble string // why it is not being read, while it is tried again; empty: it is
}

// New checks the options.
func New(o Options) (*Replay, error) {
	if o.QueueBytes == 0 {
		o.QueueBytes = pipeline.DefaultQueueBytes
	}
	if o.Rescan == 0 {
		o.Rescan = 30 * time.Second
	}
	if o.RetryFor == 0 {
		o.RetryFor = 5 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := o.Filter.Check(); err != nil {
		return nil, err
	}
	r := &Replay{o: o, limit: newLimiter(o.Limit), drain: make(chan struct{}), shards: map[string]*shard{}, quota: o.QueueBytes}
	return r, nil
}

// Run replays until the end that the options give, the drain, or a failure.
func (r *Replay) Run(ctx context.Context) error {
	first, err := r.plan(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	defer close(stopped)
	go r.watch(stopped)

	err = r.supervise(ctx, first)
	r.stop()
	if err == nil && !r.drained() {
		err = r.o.Target.Settle(ctx, r.outlets)
	}
	for _, o := range r.outlets {
		o.Close()
	}
	return err
}

// watch ends reading when the user or the limit asks for it.
func (r *Replay) watch(stopped <-chan struct{}) {
	select {
	case <-r.o.Drain: // nil: never
	case <-r.limit.met:
	case <-stopped:
		return
	}
	r.stop()
}

// stop makes every engine finish what it has, and shards at a truncate give up waiting.
func (r *Replay) stop() {
	r.once.Do(func() {
		r.o.Target.Stop()
		close(r.drain)
	})
}

// drained tells whether the run was ended before it reached its end.
func (r *Replay) drained() bool {
	select {
	case <-r.o.Drain:
		return true
	case <-r.limit.met:
		return true
	default:
		return false
	}
}

type result struct {
	shard  *shard
	outlet Outlet
	closed bool
	err    error
}

// supervise runs shards until none is left to run.
func (r *Replay) supervise(ctx context.Context, first []*shard) error {
	results := make(chan result)
	active := 0
	start := func(list []*shard) {
		for _, s := range list {
			active++
			go func() { results <- r.shard(ctx, s) }()
		}
	}
	r.launch(first)
	start(first)
	rescan := time.NewTicker(r.o.Rescan)
	defer rescan.Stop()
	var failure error
	for active > 0 {
		select {
		case <-rescan.C:
			if failure != nil || r.o.End.Kind != Never {
				continue
			}
			more, err := r.ready(ctx)
			if err != nil {
				r.o.Log.Warn("cannot list the stream's shards; trying again later", "error", err)
				continue
			}
			start(more)
		case res := <-results:
			active--
			if res.err != nil && failure == nil {
				failure = res.err
				r.stop()
			}
			more, err := r.ended(ctx, res)
			if err != nil && failure == nil {
				failure = err
				r.stop()
			}
			if failure == nil {
				start(more)
			}
		}
	}
	return failure
}

// ended takes note of how a shard ended, and gives the shards that can start now.
func (r *Replay) ended(ctx context.Context, res result) (more []*shard, err error) {
	s := res.shard
	r.mu.Lock()
	r.quota += s.quota
	s.quota = 0
	s.state = finished
	if res.closed {
		s.state = closed
	}
	if res.outlet != nil {
		r.outlets = append(r.outlets, res.outlet)
	}
	r.mu.Unlock()
	if res.err == nil && res.closed && !r.stopping() {
		// Children are announced before their parent is done, so that no truncate slips between.
		more, err = r.ready(ctx)
	}
	if res.err == nil {
		r.o.Target.Done(s.ID)
	}
	return more, err
}

func (r *Replay) stopping() bool {
	select {
	case <-r.drain:
		return true
	default:
		return false
	}
}

// launch announces shards and gives each a share of what is left of the queue.
func (r *Replay) launch(list []*shard) {
	if len(list) == 0 {
		return
	}
	ids := make([]string, len(list))
	r.mu.Lock()
	for i, s := range list {
		ids[i] = s.ID
		s.state = running
		// What is left for shards that start later, while this one runs, must not be nothing.
		s.quota = max(r.quota/int64(len(list)-i), 64<<10)
		if waits := r.count(waiting); waits > 0 {
			s.quota = max(r.quota/int64(len(list)-i+waits), 64<<10)
		}
		r.quota -= s.quota
	}
	r.mu.Unlock()
	r.o.Target.Expect(ids...)
}

func (r *Replay) count(state shardState) (n int) {
	for _, s := range r.shards {
		if s.state == state {
			n++
		}
	}
	return n
}

// shard reads one shard, again from its checkpoint when that can help.
func (r *Replay) shard(ctx context.Context, s *shard) result {
	const first, most = 100 * time.Millisecond, 10 * time.Second
	pause, since := first, time.Now()
	var last sink.Mark
	for {
		outlet, closed, mark, err := r.attempt(ctx, s)
		if err == nil || r.o.Target.Stopped(err) {
			return result{s, outlet, closed, nil}
		}
		if outlet != nil {
			outlet.Close()
		}
		if ctx.Err() != nil || !r.o.Target.Retryable(err) || r.stopping() {
			return result{s, nil, false, fmt.Errorf("replay shard %s: %w", s.ID, err)}
		}
		if mark != last {
			last, pause, since = mark, first, time.Now()
		}
		if time.Since(since) > r.o.RetryFor {
			return result{s, nil, false, fault.New(fault.Unreachable, "Start the same command again when the server is well: it goes on at its checkpoint.",
				"shard %s has not got on for %s: %w", s.ID, r.o.RetryFor, err)}
		}
		r.o.Log.Warn("shard was interrupted; going on from its checkpoint", "shard", s.ID, "error", err, "pause", pause)
		r.mu.Lock()
		r.retries++
		s.trouble = fmt.Sprintf("shard %s: %v", s.ID, err)
		r.mu.Unlock()
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-r.drain:
		case <-ctx.Done():
		}
		pause = min(2*pause, most)
	}
}

// attempt reads a shard from its checkpoint to its end or the replay's. The outlet is left open when it ends well.
func (r *Replay) attempt(ctx context.Context, s *shard) (outlet Outlet, closed bool, mark sink.Mark, err error) {
	outlet, err = r.o.Target.Open(ctx, s.ID, s.Parents)
	if err != nil {
		return nil, false, mark, err
	}
	mark, reread, exists := outlet.Start()
	if mark.Ended {
		return outlet, true, mark, nil
	}
	src := &source{
		name: r.o.Stream.Name(), shard: s.ID, end: r.o.End, filter: filter{Filter: r.o.Filter}, limit: r.limit,
		covered: mark, skip: reread == "", mark: mark,
	}
	if _, keeps := outlet.(pipeline.TokenKeeper); keeps {
		src.skip = false
	}
	if !s.Open && src.end.Kind == AtTip {
		// All of a closed shard lies before the tip. Its reader can see the tip before it sees the shard's end, and the
		// children must not be left out.
		src.end.Kind = Never
	}
	if src.reader, err = r.open(ctx, s, mark, reread, exists); err != nil {
		return outlet, false, mark, err
	}
	defer src.reader.Close()
	r.mu.Lock()
	s.src, s.trouble = src, ""
	r.mu.Unlock()
	err = r.engine(ctx, s, src, outlet)
	if err == nil {
		end := src.mark
		end.Ended = src.closed
		err = outlet.Finish(ctx, end)
	}
	src.giveBack()
	return outlet, src.closed && err == nil, mark, err
}

// engine runs the pipeline of one shard. An error that the outlet has for nobody in particular ends it, too.
func (r *Replay) engine(ctx context.Context, s *shard, src *source, outlet Outlet) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case err := <-outlet.Broken():
			cancel(err)
		case <-done:
		}
	}()
	o := pipeline.Options{
		QueueBytes: s.quota, Drain: r.drain, DrainTimeout: r.o.DrainTimeout, Stats: &r.stats,
		Checkpoint: func(ctx context.Context, t record.Token) error {
			m, _ := t.(sink.Mark)
			return outlet.Checkpoint(ctx, m)
		},
	}
	return pipeline.Run(ctx, src, outlet, o)
}

// open begins to read where the checkpoint says, or, without one, where the options say.
func (r *Replay) open(ctx context.Context, s *shard, mark sink.Mark, reread string, exists bool) (stream.Reader, error) {
	at := s.from
	if exists {
		at = stream.Position{Kind: stream.AfterSequence, Sequence: mark.Sequence}
		if mark.Lines > 0 {
			at.Kind = stream.AtSequence
		}
	}
	if reread != "" {
		reader, err := r.o.Stream.Open(ctx, s.ID, stream.Position{Kind: stream.AtSequence, Sequence: reread})
		if !errors.Is(err, stream.ErrTrimmed) {
			return reader, err
		}
		r.o.Log.Warn("records before the checkpoint were trimmed away; a change of those that is delivered once more would not be recognised", "shard", s.ID, "from", reread)
	}
	reader, err := r.o.Stream.Open(ctx, s.ID, at)
	if !exists || !errors.Is(err, stream.ErrTrimmed) {
		return reader, err
	}
	if !r.o.AllowGap {
		return nil, fault.Wrap(fault.Check,
			"What lay between is lost to this consumer. Load the target again, or go on with the gap from the oldest record that is there: --allow-gap.",
			fmt.Errorf("the checkpoint has been trimmed away: %w", err))
	}
	r.o.Log.Warn("the checkpoint has been trimmed away; going on with a gap at the oldest record", "shard", s.ID, "checkpoint", mark.String())
	return r.o.Stream.Open(ctx, s.ID, stream.Position{Kind: stream.Beginning})
}
