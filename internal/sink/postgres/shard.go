package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/sink"
)

// Shard applies one shard's records. Use it from one engine; Close it after the engine has ended.
type Shard struct {
	t      *Target
	id     string
	mark   sink.Mark // committed
	start  sink.Mark // of when it was opened
	exists bool
	// reread is from which sequence number to read, when that is before mark: records up to mark are only taken note of. It
	// stays in the checkpoint until reading has passed mark (catching).
	reread   string
	catching bool

	dedupe *dedupe
	tables map[[2]string]*table
	byLine map[string]*table // by schema and table as lines write them
	hold   hold
	plan   plan

	queue  chan job
	broken chan error    // an error that there was no Write to tell of
	stop   chan struct{} // closed by Close
	ended  chan struct{} // closed when the goroutine has ended
	once   sync.Once
	ctx    context.Context // of the goroutine, which outlives each Write's
	abort  context.CancelFunc

	scratch, names, array []byte
}

type job struct {
	batch *record.Batch
	done  func(error)
}

var (
	_ pipeline.Sink        = (*Shard)(nil)
	_ pipeline.TokenKeeper = (*Shard)(nil)
)

// Shard opens the sink for one shard of the stream, at its committed checkpoint; where there is none, what the parents' state
// knows of duplicates is taken over.
func (t *Target) Shard(ctx context.Context, id string, parents []string) (*Shard, error) {
	s := &Shard{
		t: t, id: id, dedupe: newDedupe(), tables: map[[2]string]*table{}, byLine: map[string]*table{},
		queue: make(chan job, 64), broken: make(chan error, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	s.hold.init()
	t.noteHeld(id, 0, 0)
	if err := t.relock(ctx); err != nil {
		return nil, err
	}
	c, err := t.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { t.conns <- c }()
	if err := pgx.BeginFunc(ctx, c.Conn, func(tx pgx.Tx) error { return s.load(ctx, tx, parents) }); err != nil {
		return nil, fmt.Errorf("read the checkpoint of shard %s: %w", id, lost(ctx, c.Conn, err))
	}
	s.ctx, s.abort = context.WithCancel(context.WithoutCancel(ctx))
	go s.run()
	return s, nil
}

// KeepsTokens says that a batch's token is committed with its data.
func (s *Shard) KeepsTokens() {}

// Start tells where the shard stood when it was opened: the committed mark, whether there is one, and the sequence number
// at which to begin to read where that is earlier, because ids of before have to be known again; empty where it is not.
func (s *Shard) Start() (mark sink.Mark, reread string, exists bool) {
	return s.start, s.reread, s.exists
}

// Write takes a batch. Its token is a sink.Mark.
func (s *Shard) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case s.queue <- job{b, done}:
		return nil
	}
}

// Checkpoint does nothing: marks are committed with the data.
func (s *Shard) Checkpoint(context.Context, sink.Mark) error { return nil }

// Broken gives an error that no Write could be told of: something that was held failed while nothing came.
func (s *Shard) Broken() <-chan error { return s.broken }

// Finish moves the checkpoint to m, past records that were left out of the batches.
func (s *Shard) Finish(ctx context.Context, m sink.Mark) error {
	return s.ask(ctx, m)
}

// ask sends an empty batch through the goroutine that owns the shard's state, and waits for it.
func (s *Shard) ask(ctx context.Context, token record.Token) error {
	b := record.NewBatch(0, nil, nil)
	b.Token = token
	answer := make(chan error, 1)
	if err := s.Write(ctx, b, func(err error) { answer <- err }); err != nil {
		return err
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.ended:
		return ErrStopped
	}
}

// Close ends the shard; what was written and is not committed is done with an error.
func (s *Shard) Close() {
	s.once.Do(func() {
		close(s.stop)
		s.abort()
	})
	<-s.ended
}

// run applies what is queued until Close, several batches in one transaction when they wait; and tries what is held.
func (s *Shard) run() {
	defer close(s.ended)
	var broken error
	for {
		var jobs []job
		select {
		case <-s.stop:
			s.refuse(nil, ErrStopped)
			return
		case j := <-s.queue:
			jobs = s.gather(j)
		case <-s.hold.due(s.t.opts.HoldRetry):
		}
		if broken == nil {
			broken = s.apply(s.ctx, jobs)
		} else {
			s.refuse(jobs, broken)
		}
	}
}

// gather takes what waits behind j, up to the size of a transaction.
func (s *Shard) gather(j job) []job {
	jobs, bytes := []job{j}, j.batch.Bytes()
	for bytes < s.t.opts.BatchBytes {
		select {
		case j := <-s.queue:
			jobs = append(jobs, j)
			bytes += j.batch.Bytes()
		default:
			return jobs
		}
	}
	return jobs
}

// refuse ends jobs, and those that are queued, with err.
func (s *Shard) refuse(jobs []job, err error) {
	for _, j := range jobs {
		j.done(err)
	}
	for {
		select {
		case j := <-s.queue:
			j.done(err)
		default:
			return
		}
	}
}

// apply commits jobs, in as many transactions as truncates and marks need, and calls their done. After an error the shard's
// memory is ahead of the database, so it takes nothing more: it has to be opened again.
func (s *Shard) apply(ctx context.Context, jobs []job) error {
	records := make([]*record.Record, 0, 1024)
	mark := s.mark
	for _, j := range jobs {
		// While records of before the checkpoint are read again, tokens are behind it.
		if m, ok := j.batch.Token.(sink.Mark); ok && m.After(mark) {
			mark = m
		}
		for i := range j.batch.Records {
			records = append(records, &j.batch.Records[i])
		}
	}
	err := s.applyRecords(ctx, records, mark)
	for _, j := range jobs {
		j.done(err)
	}
	if err != nil && len(jobs) == 0 {
		s.broken <- err
	}
	return err
}

// applyRecords applies records in order; a truncate ends a transaction before it and is one of its own.
func (s *Shard) applyRecords(ctx context.Context, records []*record.Record, mark sink.Mark) error {
	from := 0
	for i, r := range records {
		if r.Op != record.Truncate || s.known(r) {
			continue
		}
		before := s.mark
		if i > 0 {
			before = markAfter(records[i-1], s.mark)
		}
		if err := s.transaction(ctx, records[from:i], before); err != nil {
			return err
		}
		from = i + 1
		if err := s.truncate(ctx, r, markAfter(r, s.mark)); err != nil {
			return err
		}
	}
	return s.transaction(ctx, records[from:], mark)
}

// stale tells a read of a dead run. It does not need a floor: what was copied from another stream has none.
func (s *Shard) stale(r *record.Record) bool {
	if r.Snapshot == 0 || r.Pos.System == 0 {
		return false
	}
	return s.dedupe.stale(r, s.dedupe.table(r, r.Line.Get(r.Line.Schema), r.Line.Get(r.Line.Table)))
}

// known tells whether a record is at or before the committed mark: it is read again only for its id.
func (s *Shard) known(r *record.Record) bool {
	return r.Stream != nil && s.mark.Covers(r.Stream.Sequence, r.StreamLine)
}

// markAfter is the mark that covers r and all before it.
func markAfter(r *record.Record, mark sink.Mark) sink.Mark {
	if r.Stream == nil || mark.Covers(r.Stream.Sequence, r.StreamLine) {
		return mark
	}
	// Whether r is the last line of its stream record is not known here, so the lines are counted: a mark that covers one
	// line less would apply it twice, were it without a floor.
	return sink.Mark{Sequence: string([]byte(r.Stream.Sequence)), Lines: r.StreamLine + 1}
}

// transaction applies records and moves the checkpoint, in one transaction.
func (s *Shard) transaction(ctx context.Context, records []*record.Record, mark sink.Mark) error {
	retry := s.hold.retry()
	if len(records) == 0 && mark == s.mark && !retry {
		return nil
	}
	c, err := s.t.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { s.t.conns <- c }()
	tx := &tx{s: s, c: c.Conn, ctx: ctx}
	if err := tx.begin(); err != nil {
		return tx.failed(err)
	}
	if retry {
		if err := tx.retryHeld(); err != nil {
			return tx.failed(err)
		}
	}
	items, err := tx.items(records)
	if err != nil {
		return tx.failed(err)
	}
	if err := tx.applyAll(items); err != nil {
		return tx.failed(err)
	}
	if err := tx.commit(mark); err != nil {
		return tx.failed(err)
	}
	return nil
}

// table finds the target table of a record.
func (s *Shard) table(ctx context.Context, c *pgx.Conn, r *record.Record) (*table, error) {
	l := &r.Line
	s.names = append(append(append(s.names[:0], l.Get(l.Schema)...), 0), l.Get(l.Table)...)
	if t := s.byLine[string(s.names)]; t != nil {
		return t, nil
	}
	schema, name := s.t.opts.Map(r.SchemaName(), r.TableName())
	t, err := s.tableNamed(ctx, c, schema, name)
	if err != nil {
		return nil, err
	}
	s.byLine[string(s.names)] = t
	return t, nil
}

func (s *Shard) tableNamed(ctx context.Context, c *pgx.Conn, schema, name string) (*table, error) {
	k := [2]string{schema, name}
	if t := s.tables[k]; t != nil {
		return t, nil
	}
	t, err := loadTable(ctx, c, schema, name)
	if err != nil {
		return nil, err
	}
	if t.acts {
		s.t.warn(t, "the target table has triggers or cascading foreign keys: what they change the stream has, too, and rows can be missing; docs/replay.md says how to switch them off")
	}
	s.tables[k] = t
	return t, nil
}

// where names a record for an error.
func where(r *record.Record) string {
	w := fmt.Sprintf("%s of %s.%s", r.Op, r.AppendSchema(nil), r.AppendTable(nil))
	if key := r.Line.Get(r.Line.Key); len(key) > 0 {
		w += ", row " + string(key)
	}
	w += ", id " + string(r.AppendID(nil))
	if st := r.Stream; st != nil {
		w += fmt.Sprintf(", at %s shard %s sequence %s line %d", st.Name, st.Shard, st.Sequence, r.StreamLine)
	}
	return w
}

// Settle tries what the shards hold until nothing gets on any more, and explains what then is left. Call it when all shards have
// been read to where the replay ends, before they are closed.
func Settle(ctx context.Context, shards []*Shard) error {
	for {
		before, held := shardsProgress(shards), 0
		for _, s := range shards {
			s.hold.force.Store(true)
			if err := s.ask(ctx, nil); err != nil {
				return err
			}
			held += int(s.hold.count.Load())
		}
		if held == 0 {
			return nil
		}
		if shardsProgress(shards) == before {
			return heldFault(shards)
		}
	}
}

func shardsProgress(shards []*Shard) int64 {
	if len(shards) == 0 {
		return 0
	}
	return shards[0].t.released.Load()
}

func heldFault(shards []*Shard) error {
	for _, s := range shards {
		if why := s.hold.why.Load(); why != nil && s.hold.count.Load() > 0 {
			return fault.New(fault.Failed,
				"Look at synctl.held in the target: it has the records, whole. Replay the rest of the stream (or the other shards), or mend the row that is in the way; the same command then goes on.",
				"the replay has ended and %d record(s) could not be applied yet: %s", s.t.heldNow().records, *why)
		}
	}
	return nil
}
