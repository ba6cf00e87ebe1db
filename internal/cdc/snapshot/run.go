package snapshot

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/record"
)

// Defaults of Config.
const (
	DefaultWorkers    = 1
	DefaultChunkBytes = 4 << 20
)

// Config says how tables are read.
type Config struct {
	Dial        func(ctx context.Context) (*pgx.Conn, error)
	Publication string // what it publishes of a table is what is read
	Slot        string // requests for other slots are not ours
	Workers     int    // connections that read; 0: DefaultWorkers
	ChunkBytes  int64  // of rows between two marks; 0: DefaultChunkBytes
	Rate        int64  // rows per second in all, at most; 0: no limit
	Log         *slog.Logger
	// Admit tells whether a request is to be carried out, else why not, and whether its table has no key. Whoever may write a
	// message into the log can make one.
	Admit func(q Request) (keyless bool, refuse string, err error)
	Wake  func() // called when the run fails, from any goroutine: the feed has to look at Err
}

// Job is the snapshot of one table.
type Job struct {
	TableState
	windows  []*Chunk // between their marks; the feed's
	chunks   []*Chunk // unfinished, ranges in order of their keys
	next     []string // where the next chunk begins
	all      bool     // every range is a chunk's
	busy     bool     // a worker is about to find where its chunk ends
	perFetch int
	estimate int64 // rows, as the planner sees it; -1: unknown
	began    time.Time
	passed   *Snap
}

// Run is the snapshot work of one process. Feed methods are for the goroutine that reads the feed.
type Run struct {
	cfg     Config
	id      string
	epoch   record.LSN
	decoded Decoded
	lastXID uint32

	mu       sync.Mutex
	changed  *sync.Cond
	jobs     []*Job
	chunks   map[int]*Chunk
	nextID   int
	slots    int // chunks that may be in memory
	blocks   blocks
	settling sync.Mutex // one worker waits for all
	settled  bool
	rateAt   time.Time
	err      error
	failed   chan struct{} // closed once err is set
	history  []moment
	saved    State

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// moment is the state as the feed had it when a transaction ended.
type moment struct {
	end   record.LSN
	state State
}

// Start begins the work that saved has left, and waits for more. Close ends it.
func Start(ctx context.Context, cfg Config, id string, epoch record.LSN, saved State) *Run {
	if cfg.Workers <= 0 {
		cfg.Workers = DefaultWorkers
	}
	if cfg.ChunkBytes <= 0 {
		cfg.ChunkBytes = DefaultChunkBytes
	}
	r := &Run{cfg: cfg, id: id, epoch: epoch, chunks: map[int]*Chunk{}, failed: make(chan struct{}), slots: cfg.Workers + 1, saved: saved.clone()}
	r.changed = sync.NewCond(&r.mu)
	r.blocks.free = make(chan []byte, int(cfg.ChunkBytes/blockBytes+1)*(cfg.Workers+1))
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, t := range saved.clone().Tables {
		r.addJob(t)
	}
	for range cfg.Workers {
		r.wg.Go(r.work)
	}
	r.wg.Go(r.tell)
	return r
}

func (r *Run) addJob(t TableState) {
	j := &Job{TableState: t, next: t.After, estimate: -1, began: time.Now()}
	if t.Seen != "" {
		if s, err := ParseSnap(t.Seen); err == nil {
			j.passed = &s
		}
	}
	r.jobs = append(r.jobs, j)
	r.settled = r.settled && t.Done // a new job waits anew for what had been confirmed before
}

// Close ends the workers.
func (r *Run) Close() {
	r.cancel()
	r.mu.Lock()
	r.changed.Broadcast()
	r.mu.Unlock()
	r.wg.Wait()
}

// Epoch is where the run began.
func (r *Run) Epoch() record.LSN { return r.epoch }

// Err is why the run failed; nil while it has not.
func (r *Run) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *Run) fail(err error) {
	r.mu.Lock()
	first := r.err == nil && r.ctx.Err() == nil
	if first {
		r.err = err
		close(r.failed)
	}
	r.mu.Unlock()
	if first {
		r.cfg.Wake()
	}
}

// Done tells whether every table's rows are in the feed.
func (r *Run) Done() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.jobs, func(j *Job) bool { return !j.Done })
}

// Job is the snapshot of a table that is not complete, or that was read whole; nil for other tables.
func (r *Run) Job(schema, table string) *Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.jobs) - 1; i >= 0; i-- {
		if j := r.jobs[i]; j.Schema == schema && j.Table == table && (!j.Done || j.passed != nil) {
			return j
		}
	}
	return nil
}

// knows tells whether a request was taken up already.
func (r *Run) knows(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.jobs, func(j *Job) bool { return j.Request == id })
}

// ask adds a request.
func (r *Run) ask(q *Request, keyless bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.Log.Info("asked for a snapshot", "table", q.Schema+"."+q.Table, "where", q.Where, "request", q.ID)
	// The table's earlier snapshot is over, done or not: this one reads everything anew.
	r.jobs = slices.DeleteFunc(r.jobs, func(j *Job) bool { return j.Schema == q.Schema && j.Table == q.Table && len(j.chunks) == 0 })
	r.addJob(TableState{Schema: q.Schema, Table: q.Table, Where: q.Where, Request: q.ID, Keyless: keyless})
	r.changed.Broadcast()
}

// Message takes one of our messages out of the feed, as it stands in its transaction. A chunk that is returned is to be delivered
// here; asked tells that there is a new job.
func (r *Run) Message(content []byte) (deliver *Chunk, asked bool, err error) {
	var m mark
	if err := json.Unmarshal(content, &m); err != nil {
		r.cfg.Log.Warn("passed over a message of prefix "+Prefix+" that does not come from synctl", "error", err)
		return nil, false, nil
	}
	if q := m.Request; q != nil {
		if q.Slot != r.cfg.Slot || r.knows(q.ID) {
			return nil, false, nil
		}
		keyless, refuse, err := r.cfg.Admit(*q)
		if err != nil {
			return nil, false, err
		}
		if refuse != "" {
			r.cfg.Log.Warn("refused to snapshot a table", "table", q.Schema+"."+q.Table, "reason", refuse, "request", q.ID)
			return nil, false, nil
		}
		r.ask(q, keyless)
		return nil, true, nil
	}
	if m.Run != r.id {
		return nil, false, nil
	}
	r.mu.Lock()
	c := r.chunks[m.Chunk]
	r.mu.Unlock()
	switch {
	case c == nil:
		return nil, false, nil
	case c.stream != nil:
		return c, false, nil
	case m.Mark == "low":
		if c.window == nil {
			c.window = &Window{}
			c.job.windows = append(c.job.windows, c)
		}
		return nil, false, nil
	}
	if c.gone == "" && (c.window == nil || c.window.Stale(c.snap, &r.decoded)) {
		r.again(c)
		return nil, false, nil
	}
	return c, false, nil
}

// again has a chunk read anew.
func (r *Run) again(c *Chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.job.close(c)
	delete(r.chunks, c.id)
	r.slots++
	r.nextID++
	n := r.chunk(c.job, r.nextID)
	n.from, n.to, n.keys = c.from, c.to, c.keys
	switch {
	case c.stream != nil:
	case n.keys != nil || n.to != nil:
	case c.whole: // the last one; it may end elsewhere this time
		c.job.all, c.job.busy = false, true
	default:
		n.to = c.last // what follows it may be read already
	}
	c.job.chunks[slices.Index(c.job.chunks, c)] = n
	r.changed.Broadcast()
}

// chunk makes a chunk of the job.
func (r *Run) chunk(j *Job, id int) *Chunk {
	c := &Chunk{job: j, id: id, blocks: &r.blocks}
	if j.Keyless {
		c.stream, c.seen, c.useful = make(chan []byte, 4), make(chan Snap), make(chan bool)
	}
	return c
}

func (j *Job) close(c *Chunk) {
	j.windows = slices.DeleteFunc(j.windows, func(w *Chunk) bool { return w == c })
}

// Touch notes a change of a row: its keys before and after, in the form of AppendKey. before is nil where it did not change.
func (r *Run) Touch(j *Job, xid uint32, before, after []byte, partial bool) {
	r.note(xid)
	for _, c := range j.windows {
		if before != nil {
			c.window.Touch(xid, before, true, false)
		}
		if after != nil {
			c.window.Touch(xid, after, false, partial)
		}
	}
}

// Truncate notes that the table was emptied.
func (r *Run) Truncate(j *Job, xid uint32) {
	r.note(xid)
	for _, c := range j.windows {
		c.window.Truncate(xid)
	}
}

func (r *Run) note(xid uint32) {
	if xid != r.lastXID {
		r.decoded.Add(xid)
		r.lastXID = xid
	}
}

// LeaveOut tells of a change of a table without a key whether the rows that are read whole have it.
func (r *Run) LeaveOut(j *Job, xid uint32) bool {
	if !j.Keyless {
		return false
	}
	if j.passed != nil {
		return j.passed.Sees(xid)
	}
	r.note(xid)
	return true
}

// Incomplete tells that rows are still to come.
func (j *Job) Incomplete() bool { return !j.Done }

// Delivered notes that the chunk is in the feed.
func (r *Run) Delivered(c *Chunk, rows, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j := c.job
	j.close(c)
	delete(r.chunks, c.id)
	r.slots++
	r.decoded.Forget(c.snap)
	j.Rows, j.Bytes = j.Rows+rows, j.Bytes+bytes
	j.chunks = slices.DeleteFunc(j.chunks, func(b *Chunk) bool { return b == c })
	// Everything before the first range that is not delivered is.
	j.After = j.next
	if i := slices.IndexFunc(j.chunks, func(b *Chunk) bool { return b.keys == nil }); i >= 0 {
		j.After = j.chunks[i].from
	}
	j.Again = append(j.Again, c.again...)
	j.all = j.all || c.stream != nil // its worker may not have come to say so yet
	if c.gone != "" {
		r.cfg.Log.Warn("the rest of a table's snapshot is left out", "table", j.Schema+"."+j.Table, "reason", c.gone, "rows", j.Rows)
		j.all, j.Again = true, nil
		j.chunks = nil
	}
	if j.all && len(j.chunks) == 0 && len(j.Again) == 0 {
		j.Done = true
		r.cfg.Log.Info("snapshot of a table is complete", "table", j.Schema+"."+j.Table, "rows", j.Rows, "bytes", j.Bytes, "took", time.Since(j.began).Round(time.Millisecond).String())
	}
	r.changed.Broadcast()
}

// Committed notes the state at the end of a transaction in which marks stood.
func (r *Run) Committed(end record.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s State
	for _, j := range r.jobs {
		t := j.TableState
		t.Again = slices.Clone(t.Again)
		for _, c := range j.chunks {
			t.Again = append(t.Again, c.keys...)
		}
		if j.passed != nil && t.Seen == "" {
			t.Seen = j.passed.String()
		}
		s.Tables = append(s.Tables, t)
	}
	r.history = append(r.history, moment{end, s})
}

// Saved is the state that goes with a position up to which everything is durable. It is for any goroutine.
func (r *Run) Saved(durable record.LSN) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.history) > 0 && r.history[0].end <= durable {
		r.saved = r.history[0].state
		r.history = r.history[1:]
	}
	return r.saved.clone()
}
