package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Options say what a load does. Zero values are the defaults.
type Options struct {
	To      pg.DSN
	Table   string // the live table, schema.table
	Staging string // name of the staging table; default the live table's with _staging, in its schema
	Logged  bool   // make the staging table logged from the start

	Columns        []string          // of the source, the only ones to load; nil: all
	Rename         map[string]string // source column → table column
	AllowNarrowing bool              // types that may not fit pass the contract, and every value is checked

	Readers    int            // 0: as many as cores, at most 4
	Writers    int            // 0: as many as cores, at most 4
	QueueBytes int64          // between readers and writers; 0: 64 MiB
	CopyFormat convert.Format // TextFormat forces COPY's text form; BinaryFormat still gives way to it where a column has none

	RunID       string
	DeadLetter  string // file for rows that do not fit; empty: the first one fails the load
	NUL         convert.NULPolicy
	Transform   string  // SQL to run on the staging table after the load; {{staging}} and {{table}} stand for the names
	KeepStaging bool    // keep the staging table of a load that failed
	Follow      *Follow // what comes after the load in the same run; nil: nothing

	Log *slog.Logger // nil: none
}

func (o *Options) setDefaults() {
	cores := min(runtime.GOMAXPROCS(0), 4)
	if o.Readers <= 0 {
		o.Readers = cores
	}
	if o.Writers <= 0 {
		o.Writers = cores
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Load is one load of a source.
type Load struct {
	source Source
	o      Options
	count  counts
	queue  *queue

	conn    *pgx.Conn
	live    *target
	staging *staging
	inputs  []convert.Input
	columns []int
	format  convert.Format
	rejects *rejects
	why     string // why the load goes as text
	created bool   // the staging table is ours to drop
}

// New prepares a load; Run or Plan carries it out. src stays the caller's to close.
func New(src Source, o Options) *Load {
	o.setDefaults()
	return &Load{source: src, o: o}
}

// Summary is what a load did.
type Summary struct {
	Table         string        `json:"table"`
	Staging       string        `json:"staging"`
	Source        string        `json:"source"`
	RunID         string        `json:"run_id,omitempty"`
	AlreadyDone   bool          `json:"already_done,omitempty"`
	AlreadyLoaded bool          `json:"already_loaded,omitempty"` // by an earlier try of this run; this one did what follows
	RowsRead      int64         `json:"rows_read"`
	Filtered      int64         `json:"rows_filtered"`
	Rows          int64         `json:"rows"` // copied
	Rejected      int64         `json:"rejected"`
	DeadLetter    string        `json:"dead_letter,omitempty"`
	NULs          int64         `json:"nul_characters,omitempty"`
	AfterSQL      *int64        `json:"rows_after_transform,omitempty"`
	Bytes         int64         `json:"bytes"` // of COPY data
	Seconds       float64       `json:"seconds"`
	RowsPerSec    float64       `json:"rows_per_second"`
	Format        string        `json:"copy_format"`
	TextReason    string        `json:"copy_format_reason,omitempty"`
	Logged        bool          `json:"staging_logged"`
	QueuePeak     int64         `json:"queue_peak_bytes"`
	Trouble       *Trouble      `json:"source_trouble,omitempty"`
	Readers       []ReaderStats `json:"readers,omitempty"`
	Writers       []WriterStats `json:"writers,omitempty"`
}

// Progress is where a load stands.
type Progress struct {
	Read, Copied, CopiedBytes, Rejected int64
	Total                               int64 // rows expected; 0: unknown
	Trouble                             Trouble
}

// Progress can be called at any time, from any goroutine.
func (l *Load) Progress() Progress {
	p := Progress{Read: l.count.read.Load(), Copied: l.count.copied.Load(), CopiedBytes: l.count.copiedBytes.Load(), Rejected: l.count.rejected.Load()}
	if n := l.source.Size().Rows; n > 0 {
		p.Total = n
	}
	if t, ok := l.source.(troubled); ok {
		p.Trouble = t.Trouble()
	}
	return p
}

// open connects and looks the live table up.
func (l *Load) open(ctx context.Context) (err error) {
	if l.conn, err = pg.Connect(ctx, l.o.To, "synctl bulk load"); err != nil {
		return err
	}
	// So that the server ends what a killed client left running. Not every platform has it.
	_, _ = l.conn.Exec(ctx, "SET client_connection_check_interval = '2s'")
	if l.live, err = lookUpTarget(ctx, l.conn, l.o.Table); err != nil {
		return err
	}
	l.staging, err = newStaging(&l.o, l.live)
	return err
}

// agree holds the source against the table, before a row is read, and finds the form in which rows are sent. It tells
// whether an earlier load's staging table is in the way.
func (l *Load) agree(ctx context.Context) (leftover bool, err error) {
	m := mapping{columns: l.o.Columns, rename: l.o.Rename, narrowing: l.o.AllowNarrowing}
	if l.inputs, l.columns, l.staging.filled, err = contract(l.source.Fields(), l.live, m); err != nil {
		return false, err
	}
	l.format = l.o.CopyFormat
	if l.format == convert.TextFormat {
		l.why = "asked for"
	}
	for i := range l.inputs {
		if in := &l.inputs[i]; l.format == convert.BinaryFormat && !in.BinaryPossible() {
			l.format = convert.TextFormat
			l.why = fmt.Sprintf("column %q is of type %s, whose binary form is not known here", in.Target.Name, in.Target.Type.Name)
		}
	}
	return l.staging.leftover(ctx, l.conn)
}

func (l *Load) close() {
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = l.conn.Close(ctx)
	}
}

// Run loads the source into a new staging table.
func (l *Load) Run(ctx context.Context) (*Summary, error) {
	defer l.close()
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	if err := lockTable(ctx, l.conn, l.live); err != nil {
		return nil, err
	}
	sum := &Summary{Table: l.live.String(), Staging: l.staging.String(), Source: l.source.Name(), RunID: l.o.RunID, Logged: l.o.Logged}
	if l.o.RunID != "" {
		done, err := l.resume(ctx, sum)
		if done || err != nil {
			return sum, err
		}
		if sum.AlreadyLoaded {
			return l.goOn(ctx, sum)
		}
		if err := beginRun(ctx, l.conn, l.o.RunID, l.staging, l.source.Name()); err != nil {
			return nil, err
		}
	}
	if err := l.load(ctx, sum); err != nil {
		return nil, l.fail(ctx, sum, err)
	}
	if l.rejects != nil {
		if err := l.rejects.publish(); err != nil {
			return nil, err
		}
	}
	if err := l.follow(ctx, sum); err != nil {
		return nil, err
	}
	return sum, l.rejectedFault(sum)
}

// goOn does what follows a load that an earlier try has completed.
func (l *Load) goOn(ctx context.Context, sum *Summary) (*Summary, error) {
	if err := takeRun(ctx, l.conn, l.o.RunID); err != nil {
		return nil, err
	}
	if sum.DeadLetter != "" {
		if err := recoverRejects(sum.DeadLetter); err != nil {
			return nil, err
		}
	}
	if err := l.follow(ctx, sum); err != nil {
		return nil, err
	}
	return sum, l.rejectedFault(sum)
}

func (l *Load) rejectedFault(sum *Summary) error {
	if sum.Rejected == 0 {
		return nil
	}
	return fault.New(fault.DeadLetters, "Look into the file, mend the rows, and load them; each line says why.",
		"loaded, but %d rows did not fit and are in %s", sum.Rejected, sum.DeadLetter)
}

// load does the work whose failure has to be cleaned up after and remembered.
func (l *Load) load(ctx context.Context, sum *Summary) error {
	old, err := l.agree(ctx)
	if err != nil {
		return err
	}
	if err := l.precheck(ctx, old); err != nil {
		return err
	}
	sum.Format, sum.TextReason = l.format.String(), l.why
	if l.o.DeadLetter != "" {
		if l.rejects, err = openRejects(l.o.DeadLetter, l.live.schema, l.live.name); err != nil {
			return err
		}
	}
	if old {
		l.o.Log.Info("removing the staging table of an earlier load", "table", l.staging.String())
	}
	if err := l.staging.create(ctx, l.conn, old); err != nil {
		return err
	}
	l.created = true
	began := time.Now()
	if err := l.move(ctx, sum); err != nil {
		return err
	}
	sum.Seconds = time.Since(began).Seconds()
	sum.RowsPerSec = float64(sum.Rows) / max(sum.Seconds, 1e-9)
	if err := l.verify(sum); err != nil {
		return err
	}
	if err := l.transform(ctx, sum); err != nil {
		return err
	}
	if l.rejects != nil {
		if err := l.rejects.sync(); err != nil {
			return err
		}
	}
	return l.finish(ctx, sum)
}

// move runs readers and writers until every row is committed.
func (l *Load) move(ctx context.Context, sum *Summary) error {
	writers, err := l.openWriters(ctx)
	defer func() {
		for _, w := range writers {
			closeWriter(w)
		}
	}()
	if err != nil {
		return err
	}
	readers, err := l.source.Readers(ctx, l.columns, l.o.Readers)
	defer func() {
		for _, r := range readers {
			r.Close()
		}
	}()
	if err != nil {
		return err
	}
	share := int64(1)
	if l.rejects != nil {
		share = 2
	}
	l.queue = newQueue(l.o.QueueBytes, len(readers)+len(writers), share)
	plan := &convert.Plan{Inputs: l.inputs, Format: l.format, NUL: l.o.NUL}
	works := make([]*readWork, len(readers))
	for i, r := range readers {
		works[i] = &readWork{reader: r, encoder: plan.NewEncoder(), queue: l.queue, rejects: l.rejects, count: &l.count}
	}
	if err := l.pump(ctx, works, writers); err != nil {
		return err
	}
	for _, w := range writers {
		if l.rejects == nil {
			if err := w.exec(context.WithoutCancel(ctx), "COMMIT"); err != nil {
				return err
			}
		}
		sum.Rows += w.stats.Rows
		sum.Bytes += w.stats.Bytes
		sum.Writers = append(sum.Writers, w.stats)
	}
	for _, w := range works {
		sum.RowsRead += w.stats.Rows
		sum.NULs += w.encoder.NULs()
		sum.Readers = append(sum.Readers, w.stats)
	}
	sum.Filtered, sum.Rejected = l.count.filtered.Load(), l.count.rejected.Load()
	sum.QueuePeak = l.queue.peak.Load()
	if t, ok := l.source.(troubled); ok {
		trouble := t.Trouble()
		sum.Trouble = &trouble
	}
	if sum.Rejected > 0 {
		sum.DeadLetter = l.o.DeadLetter
	}
	return nil
}

// pump runs readers until their parts are read and writers until the queue is empty; the first error stops all.
func (l *Load) pump(ctx context.Context, works []*readWork, writers []*writeWork) error {
	g, ctx := errgroup.WithContext(ctx)
	reading, readCtx := errgroup.WithContext(ctx)
	for _, w := range works {
		reading.Go(func() error { return w.run(readCtx) })
	}
	g.Go(func() error {
		err := reading.Wait()
		if err == nil {
			close(l.queue.ready)
		}
		return err
	})
	for _, w := range writers {
		w.queue, w.count, w.reject = l.queue, &l.count, l.rejects
		g.Go(func() error { return w.run(ctx) })
	}
	return g.Wait()
}

func (l *Load) openWriters(ctx context.Context) ([]*writeWork, error) {
	var writers []*writeWork
	for range l.o.Writers {
		conn, err := pg.Connect(ctx, l.o.To, "synctl bulk load")
		if err != nil {
			return writers, err
		}
		writers = append(writers, &writeWork{conn: conn.PgConn(), copy: l.staging.copySQL(l.inputs, l.format), format: l.format})
	}
	return writers, nil
}

func closeWriter(w *writeWork) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = w.conn.Close(ctx)
}

// verify holds the counts against each other: no row may vanish (promise 6).
func (l *Load) verify(sum *Summary) error {
	if sum.RowsRead != sum.Rows+sum.Rejected+sum.Filtered {
		return fault.New(fault.Failed, "Nothing was kept. This is a fault of synctl's: please report it.",
			"read %d rows, but copied %d, rejected %d, filtered %d", sum.RowsRead, sum.Rows, sum.Rejected, sum.Filtered)
	}
	if size := l.source.Size(); size.Exact && size.Rows != sum.RowsRead {
		return fault.New(fault.Failed, "Nothing was kept. The source is damaged or was changed during the load: check it and run again.",
			"%s holds %d rows by its own count, %d were read", l.source.Name(), size.Rows, sum.RowsRead)
	}
	return nil
}

// finish marks table and run as complete, in one transaction.
func (l *Load) finish(ctx context.Context, sum *Summary) error {
	err := pgx.BeginFunc(ctx, l.conn, func(tx pgx.Tx) error {
		for _, q := range l.staging.finishSQL() {
			if _, err := tx.Exec(ctx, q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		if l.o.RunID == "" {
			return nil
		}
		if err := noteLoaded(ctx, tx, l.o.RunID, sum, l.staging.ident()); err != nil || l.o.Follow != nil {
			return err
		}
		return endRun(ctx, tx, l.o.RunID, sum, exitOf(sum), nil)
	})
	if err != nil {
		return serverFault(fmt.Errorf("mark the load complete: %w", err))
	}
	return nil
}

func exitOf(sum *Summary) int {
	if sum.Rejected > 0 {
		return int(fault.DeadLetters)
	}
	return 0
}

// resume looks a run up in the ledger: one that is done is not done again.
func (l *Load) resume(ctx context.Context, sum *Summary) (done bool, err error) {
	if err := ensureLedger(ctx, l.conn); err != nil {
		return false, err
	}
	r, err := findRun(ctx, l.conn, l.o.RunID)
	if err != nil || r == nil {
		return false, err
	}
	if r.Table != sum.Table || r.Source != sum.Source {
		return false, fault.New(fault.Usage, "Give every load an ID of its own.",
			"run %s was a load of %s into %s, not of %s into %s", r.ID, r.Source, r.Table, sum.Source, sum.Table)
	}
	over := r.State == "done" && (l.o.Follow == nil || r.LiveAt != nil)
	if !over && l.o.Follow != nil {
		if sum.AlreadyLoaded, err = l.loaded(ctx, r); err != nil {
			return false, err
		}
	}
	if !over && !sum.AlreadyLoaded {
		l.o.Log.Info("an earlier try of this run did not finish: starting again", "run", r.ID, "state", r.State)
		return false, nil
	}
	sum.AlreadyDone, sum.Staging = over, r.Staging
	if r.Rows != nil && r.Rejected != nil && r.Bytes != nil {
		sum.Rows, sum.Rejected, sum.Bytes = *r.Rows, *r.Rejected, *r.Bytes
		sum.RowsRead = sum.Rows + sum.Rejected
	}
	if sum.Rejected > 0 {
		sum.DeadLetter = l.o.DeadLetter
	}
	if !over {
		l.o.Log.Info("an earlier try of this run has loaded the data: going on from there", "run", r.ID)
		return false, nil
	}
	if sum.DeadLetter != "" {
		return true, errors.Join(recoverRejects(l.o.DeadLetter), l.rejectedFault(sum))
	}
	return true, l.rejectedFault(sum)
}

// fail cleans up after a load that failed and gives the error to report.
func (l *Load) fail(ctx context.Context, sum *Summary, cause error) error {
	if l.rejects != nil {
		l.rejects.discard()
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	conn := l.conn
	if conn.IsClosed() {
		fresh, err := pg.Connect(clean, l.o.To, "synctl bulk load")
		if err != nil {
			l.o.Log.Warn("the staging table could not be removed; the next load of this table removes it", "table", l.staging.String(), "error", err)
			return cause
		}
		defer fresh.Close(clean)
		conn = fresh
	}
	switch {
	case !l.created: // what is there is not ours, or an earlier load's, which may be complete
	case l.o.KeepStaging:
		l.o.Log.Info("keeping the staging table of the failed load", "table", l.staging.String())
	default:
		if err := l.staging.drop(clean, conn); err != nil {
			l.o.Log.Warn("the staging table could not be removed; the next load of this table removes it", "table", l.staging.String(), "error", err)
		}
	}
	if l.o.RunID != "" {
		if err := endRun(clean, conn, l.o.RunID, sum, int(fault.ClassOf(cause)), cause); err != nil {
			l.o.Log.Warn("the run's failure could not be recorded", "run", l.o.RunID, "error", err)
		}
	}
	return cause
}
