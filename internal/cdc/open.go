package cdc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/record"
)

// Plan is what Open found and would make.
type Plan struct {
	Tables            []TableName
	Publication, Slot string
	MakesPublication  bool
	MakesSlot         bool
	From              record.LSN // where reading begins; 0 for a slot that is to be made
}

// opening is the work of Open.
type opening struct {
	*Source
	opt      Options
	database string
	slotInfo *Slot
	standby  bool
	plan     Plan
	make     []tableInfo // of the publication to be made
}

// Open checks the server, the role, the publication and the slot, makes what is missing and may be made, and begins the
// replication. Everything is checked before anything is made. The caller ends with Close, also after a failed run.
func Open(ctx context.Context, opt Options) (*Source, error) {
	s, _, err := open(ctx, opt)
	return s, err
}

// Check does the checks of Open and makes nothing.
func Check(ctx context.Context, opt Options) (Plan, error) {
	opt.CheckOnly = true
	s, plan, err := open(ctx, opt)
	if s != nil {
		s.meta.close(ctx)
	}
	return plan, err
}

func open(ctx context.Context, opt Options) (*Source, Plan, error) {
	if err := opt.check(); err != nil {
		return nil, Plan{}, err
	}
	cfg, err := pg.Parse(opt.DSN, opt.Application)
	if err != nil {
		return nil, Plan{}, err
	}
	s := &Source{opt: opt, log: opt.Log, types: pg.NewCatalogue(), meta: &session{cfg: cfg}, scratch: record.NewBatch(0, nil, nil),
		relations: map[uint32]*relation{}, until: opt.UntilLSN, temp: opt.Slot == ""}
	s.filter, _ = newFilter(opt.Tables) // checked before
	s.stats.progress.Store(time.Now().UnixNano())
	o := &opening{Source: s, opt: opt, database: cfg.Database}
	if err := o.run(ctx); err != nil {
		// What was made for this run alone goes with it; a fresh context, since ours may be what ended.
		tctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		s.release(tctx)
		return nil, o.plan, err
	}
	return s, o.plan, nil
}

func (o *opening) run(ctx context.Context) error {
	err := o.meta.do(ctx, func(conn *pgx.Conn) (err error) {
		if o.standby, err = checkServer(ctx, conn); err != nil {
			return err
		}
		if !o.opt.CheckOnly && !o.standby { // on a standby, what the primary has in use looks left over
			if err := dropLeftovers(ctx, conn, o.log); err != nil {
				return err
			}
		}
		return o.check(ctx, conn)
	})
	if err != nil || o.opt.CheckOnly {
		return err
	}
	if err := o.makePublication(ctx); err != nil {
		return err
	}
	return o.begin(ctx)
}

// check decides on publication and slot.
func (o *opening) check(ctx context.Context, conn *pgx.Conn) (err error) {
	if o.opt.UntilNow {
		if o.until, err = flushedNow(ctx, conn, o.log); err != nil {
			return err
		}
	}
	if !o.temp {
		if o.slotInfo, err = o.freeSlot(ctx, conn); err != nil {
			return err
		}
		if o.slotInfo != nil {
			if err := checkSlot(o.slotInfo, o.database); err != nil {
				return err
			}
			o.plan.From = o.slotInfo.Confirmed
		} else if !o.opt.Create {
			return fault.New(fault.Check, "Add --create to make it, or see synctl cdc slots list for those there are.", "no slot %s", o.opt.Slot)
		}
	}
	o.slot = o.opt.Slot
	o.publication = o.opt.Publication
	if o.publication == "" {
		o.publication = o.slot
	}
	err = o.checkTables(ctx, conn)
	if err == nil && o.make != nil && o.standby {
		err = standbyPublication(o.publication, o.make)
	}
	o.plan.Publication, o.plan.Slot = o.publication, o.slot
	o.plan.MakesSlot = o.slotInfo == nil
	o.plan.Tables = o.tables
	return err
}

// flushPatience is how long what was committed with synchronous_commit off is waited for.
const flushPatience = 10 * time.Second

// flushedNow is the server's position once all that is committed by now is on its disk. Commits that did not wait for
// that (synchronous_commit off) are there to see and not yet flushed, and only what is flushed is replicated.
func flushedNow(ctx context.Context, conn *pgx.Conn, log *slog.Logger) (record.LSN, error) {
	var target record.LSN
	for deadline := time.Now().Add(flushPatience); ; {
		var insert, flush string
		var page, segment uint64
		err := conn.QueryRow(ctx, `SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text,
current_setting('wal_block_size')::bigint, pg_size_bytes(current_setting('wal_segment_size'))`).Scan(&insert, &flush, &page, &segment)
		if err != nil {
			return 0, fmt.Errorf("ask for the server's position: %w", err)
		}
		i, err1 := record.ParseLSN(insert)
		f, err2 := record.ParseLSN(flush)
		if err := errors.Join(err1, err2); err != nil {
			return 0, fmt.Errorf("ask for the server's position: %w", err)
		}
		if target == 0 {
			target = written(i, page, segment)
		}
		if f >= target {
			return f, nil
		}
		if time.Now().After(deadline) {
			log.Warn("the server takes long to flush what is committed; the end is what it has flushed", "flushed", flush, "written", insert)
			return f, nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// written is where what has been written ends, given where the next record begins: on a fresh page that is behind the
// page's header, and what is flushed ends before it.
func written(insert record.LSN, page, segment uint64) record.LSN {
	const short, long = 24, 40 // headers of a page, and of a segment's first
	switch at := uint64(insert); {
	case at%segment == long:
		return insert - long
	case at%page == short && at%segment != short:
		return insert - short
	}
	return insert
}

// slotPatience is how long a slot that somebody reads is waited for. The server lets go of the slot of a reader that was
// killed only when it next writes to it, and the same command has to work right after a kill (promise 7).
const slotPatience = 5 * time.Second

// freeSlot finds the slot, once nobody reads it or patience is over.
func (o *opening) freeSlot(ctx context.Context, conn *pgx.Conn) (*Slot, error) {
	deadline, told := time.Now().Add(slotPatience), false
	for {
		slot, err := findSlot(ctx, conn, o.opt.Slot)
		if err != nil || slot == nil || slot.ActivePID == 0 || o.opt.CheckOnly || time.Now().After(deadline) {
			return slot, err
		}
		if !told && time.Until(deadline) < slotPatience-time.Second {
			told = true
			o.log.Info("the slot is in use; waiting for its reader to go", "slot", slot.Name, "pid", slot.ActivePID, "reader", slot.ActiveBy, "at_most", slotPatience.String())
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkTables checks the publication, or decides which tables one that is to be made has.
func (o *opening) checkTables(ctx context.Context, conn *pgx.Conn) error {
	var p *publicationInfo
	var tables []tableInfo
	var err error
	if o.publication != "" {
		if p, err = readPublication(ctx, conn, o.publication); err != nil {
			return err
		}
	}
	switch {
	case p != nil:
		tables, err = checkPublication(ctx, conn, p, o.filter)
	case o.publication != "" && !(o.opt.Create && o.slot != ""):
		return fault.New(fault.Check, "Check the name and the database, or make it: with --slot NAME --create and --table, or by CREATE PUBLICATION.", "no publication %s", o.publication)
	case o.slotInfo != nil:
		return fault.New(fault.Check,
			fmt.Sprintf("The slot has to decode changes from before a publication that is made now, and would fail on them for ever. Give the right --publication, or drop the slot (synctl cdc slots drop %s) and run with --create again.", o.slot),
			"slot %s exists, publication %s does not", o.slot, o.publication)
	case len(o.opt.Tables) == 0:
		return fault.New(fault.Usage, "Say which tables with --table schema.table (repeatable, * matches any name).", "publication %s does not exist and is to be made", o.publication)
	default:
		tables, err = planPublication(ctx, conn, o.filter)
		o.make, o.plan.MakesPublication = tables, true
	}
	for _, t := range tables {
		o.tables = append(o.tables, t.name)
	}
	return err
}

// makePublication comes before the slot: a slot cannot read changes from before its publication.
func (o *opening) makePublication(ctx context.Context) error {
	if o.make == nil {
		return nil
	}
	return o.meta.do(ctx, func(conn *pgx.Conn) (err error) {
		if o.temp {
			o.meta.guards = true
			o.publication, err = temporaryPublication(ctx, conn, o.make)
			o.tmpPub = o.publication
			return err
		}
		if err := createPublication(ctx, conn, o.publication, o.make); err != nil {
			return err
		}
		o.log.Info("created publication", "publication", o.publication, "tables", len(o.make))
		return nil
	})
}

// begin connects for replication, makes the slot, compares the state and starts.
func (o *opening) begin(ctx context.Context) error {
	r, err := connectReplication(ctx, o.meta.cfg)
	if err != nil {
		return err
	}
	o.conn = r
	h, err := r.history(ctx)
	if err != nil {
		return err
	}
	o.system = h.system
	o.setHistory(h)
	from := o.plan.From
	if o.slotInfo == nil {
		if o.temp {
			o.slot = tmpPrefix + randomHex()
		}
		if from, err = createSlot(ctx, r, o.meta, o.slot, o.temp, o.log); err != nil {
			return err
		}
		if !o.temp {
			o.log.Info("created slot", "slot", o.slot, "from", from.String())
		}
	}
	if !o.temp {
		if from, err = o.checkState(from, h.identity); err != nil {
			return err
		}
	}
	o.read = from
	o.confirm.poll = o.until != 0 || o.opt.Snapshot == SnapshotOnly
	interval, err := o.timing(ctx)
	if err != nil {
		return err
	}
	if err := o.startSnapshots(ctx, o.savedSnapshot); err != nil {
		return err
	}
	o.confirm.start(o.log, interval, from, o.store)
	if err := o.store(from); err != nil { // what is to be read is known before any of it is
		return err
	}
	return o.startStream(ctx)
}

func randomHex() string {
	var b [8]byte
	rand.Read(b[:])
	return fmt.Sprintf("%x", b[:])
}

// minSilence is the shortest time after which a server that says nothing is given up, however small its own timeout.
const minSilence = 10 * time.Second

// timing sets when to give the server up and gives how often to write to it: as asked for, at most a third of
// wal_sender_timeout, so that two messages may be late before the server gives us up.
func (o *opening) timing(ctx context.Context) (d time.Duration, err error) {
	d = o.opt.StatusInterval
	var ms, version int64
	err = o.meta.do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT setting::bigint, current_setting('server_version_num')::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'`).Scan(&ms, &version)
	})
	if err != nil {
		return 0, fmt.Errorf("ask for wal_sender_timeout: %w", err)
	}
	// A server that lives answers every status message. One that does not for twice as long as it would bear it from us is
	// not there any more, although the network has not said so; left alone, that takes a quarter of an hour. Before 16 a
	// server can be silent for minutes while it decodes a large transaction that is not published.
	if timeout := time.Duration(ms) * time.Millisecond; timeout > 0 && version >= 160000 {
		o.silence = max(2*timeout, minSilence)
	}
	if third := time.Duration(ms) * time.Millisecond / 3; third > 0 && third < d {
		d = third
	}
	return d, nil
}

// checkState holds the slot against what was confirmed by the last run.
func (o *opening) checkState(slotAt record.LSN, id identity) (from record.LSN, err error) {
	path := o.opt.State
	if path == "" {
		path = StatePath(o.opt.StateDir, o.system, o.slot)
	}
	o.state = &stateFile{path: path}
	saved, lsn, ok, err := o.state.read()
	if err != nil {
		return 0, err
	}
	from = slotAt
	if ok {
		err := o.compareState(saved, lsn, slotAt, id)
		switch {
		case err == nil:
			from = lsn
		case o.opt.AcceptGap && fault.ClassOf(err) == fault.Check:
			o.log.Warn("going on although changes are missing, as --accept-gap says", "gap", err.Error(), "from", slotAt.String())
		default:
			return 0, err
		}
	}
	o.savedSnapshot = saved.Snapshot
	// Also the first time, so that a slot that is made anew before anything was confirmed is known as such.
	return from, o.store(from)
}

func (o *opening) compareState(saved savedState, lsn, slotAt record.LSN, id identity) error {
	hint := "Changes between them were never delivered: bring the target up to date, then go on with --accept-gap."
	switch {
	case saved.System != fmt.Sprint(o.system):
		return fault.New(fault.Check, "Name the right server or state file; --accept-gap makes this server the one to go on with.",
			"the state file %s is of system %s, the server is system %d", o.state.path, saved.System, o.system)
	case saved.Slot != o.slot:
		return fault.New(fault.Usage, "Name the right --state or --slot.", "the state file %s is of slot %s, not %s", o.state.path, saved.Slot, o.slot)
	case !o.timelines.contains(saved.Timeline, lsn) || lsn > id.end:
		return fault.New(fault.Check,
			"The server was restored from a backup or promoted without the last changes: what was delivered beyond that is no longer part of it. Bring the target in line, then go on with --accept-gap.",
			"%s was confirmed on timeline %d, which is not part of the server's history (timeline %d, at %s)", lsn, saved.Timeline, id.timeline, id.end)
	case slotAt > lsn:
		return fault.New(fault.Check, hint, "slot %s stands at %s, ahead of %s, the last position that was confirmed: it was moved, or dropped and made anew", o.slot, slotAt, lsn)
	}
	return nil
}

// store writes the state file, before the server is told.
func (s *Source) store(lsn record.LSN) error {
	if s.state == nil {
		return nil
	}
	saved := savedState{Version: 1, System: fmt.Sprint(s.system), Slot: s.slot, Timeline: s.timeline.Load(), Confirmed: lsn.String(), Snapshot: s.savedSnapshot}
	if run := s.snaps.run; run != nil {
		if state := run.Saved(lsn); len(state.Tables) > 0 {
			saved.Snapshot = &state
		}
	}
	return s.state.write(saved)
}

// startStream begins to replicate behind what has been read.
func (s *Source) startStream(ctx context.Context) error {
	err := s.conn.start(ctx, s.slot, s.read, s.publication)
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return s.explain(e)
	}
	if err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	clear(s.relations)
	s.tx, s.row, s.found = transaction{}, rowCounter{}, nil
	s.confirm.attach(s.conn)
	s.stats.connected.Store(true)
	return nil
}

// explain gives an error of the replication connection its class and the next step.
func (s *Source) explain(e *pgconn.PgError) error {
	switch {
	case e.Code == "55006":
		return fault.New(fault.Unreachable, "Stop the other reader, or choose another --slot.", "slot %s: %w", s.slot, e)
	case e.Code == "42704":
		return s.missingPublication(e)
	case e.Code == "55000":
		return fault.New(fault.Check, fmt.Sprintf("If the slot was lost, changes are gone: bring the target up to date, then synctl cdc slots drop %s, and begin anew with --create.", s.slot),
			"slot %s: %w", s.slot, e)
	case e.Code == "42501":
		return fault.New(fault.Unreachable, "The role needs the REPLICATION attribute.", "slot %s: %w", s.slot, e)
	}
	return fmt.Errorf("replication from slot %s: %w", s.slot, e)
}

// missingPublication is a publication that is not there at the point of the log that is read.
func (s *Source) missingPublication(e *pgconn.PgError) error {
	return fault.New(fault.Check,
		fmt.Sprintf("If %s is missing it was dropped; a publication must also be older than its slot: drop the slot (synctl cdc slots drop %s) and run with --create again.", s.publication, s.slot),
		"slot %s, publication %s: %w", s.slot, s.publication, e)
}
