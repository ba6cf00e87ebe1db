package cdc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"synctl/internal/cdc/snapshot"
	"synctl/internal/fault"
	"synctl/internal/record"
)

// SnapshotMode says what becomes of the rows that the tables have already.
type SnapshotMode uint8

const (
	SnapshotNone    SnapshotMode = iota // they are left out
	SnapshotInitial                     // they are delivered as reads beside the changes
	SnapshotOnly                        // and then the run ends
)

// snapshots is the feed's side of snapshots. It belongs to ReadBatch's goroutine.
type snapshots struct {
	run    *snapshot.Run
	chunk  *snapshot.Chunk // at whose high mark the feed stands
	at     transaction     // the mark's: a connection that is lost meanwhile takes the feed out of it
	table  *relation       // what its rows are like
	shape  *snapshot.Shape // of which table was made
	rows   int64
	bytes  int64
	begun  bool // a whole table's first records are out
	marked bool // a mark or a request stood in the transaction at hand
	before []byte
	after  []byte
	key    []byte
}

// startSnapshots begins what the state file has left and what is asked for. It comes before the replication starts, so that every
// change is known to be beside a snapshot or not.
func (o *opening) startSnapshots(ctx context.Context, saved *snapshot.State) error {
	var state snapshot.State
	if saved != nil {
		state = *saved
	}
	var epoch string
	var standby bool
	err := o.meta.do(ctx, func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery(), CASE WHEN pg_is_in_recovery() THEN '0/0' ELSE pg_current_wal_insert_lsn()::text END`).Scan(&standby, &epoch); err != nil {
			return err
		}
		if o.opt.Snapshot == SnapshotNone {
			return nil
		}
		for _, t := range o.tables {
			if state.Has(t.Schema, t.Name) {
				continue
			}
			keyless, err := keylessTable(ctx, conn, t.Schema, t.Name)
			if err != nil {
				return err
			}
			state.Tables = append(state.Tables, snapshot.TableState{Schema: t.Schema, Table: t.Name, Request: "initial", Keyless: keyless})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("prepare the snapshot: %w", err)
	}
	if standby {
		if o.opt.Snapshot == SnapshotNone {
			return nil
		}
		return fault.New(fault.Check, "Take the snapshot from the primary; the changes can be read from the standby afterwards.",
			"--snapshot on a standby: the marks by which rows and changes are put in order are written into the log, and a standby writes none")
	}
	at, err := record.ParseLSN(epoch)
	if err != nil {
		return err
	}
	var id [8]byte
	rand.Read(id[:])
	o.snaps.run = snapshot.Start(ctx, snapshot.Config{
		Dial:        func(ctx context.Context) (*pgx.Conn, error) { return dial(ctx, o.meta.cfg) },
		Publication: o.publication, Slot: o.slot, Workers: o.opt.SnapshotWorkers, ChunkBytes: o.opt.SnapshotChunkBytes, Rate: o.opt.SnapshotRate,
		Log: o.log, Wake: o.confirm.interrupt,
		Admit: o.admit,
	}, hex.EncodeToString(id[:]), at, state)
	return nil
}

// keylessTable tells whether a table's records have no key.
func keylessTable(ctx context.Context, conn *pgx.Conn, schema, name string) (bool, error) {
	tables, err := readTables(ctx, conn, `WHERE n.nspname = $1 AND c.relname = $2`, schema, name)
	if err != nil || len(tables) == 0 {
		return false, err
	}
	if t := tables[0]; t.identity != "f" && t.identity != "i" && t.identity != "d" {
		return true, nil
	}
	key, err := identityColumns(ctx, conn, tables[0].oid, tables[0].identity[0])
	return len(key) == 0, err
}

// own takes one of our own messages.
func (s *Source) own(content []byte) error {
	if s.snaps.run == nil || s.tx.skip {
		return nil
	}
	c, asked, err := s.snaps.run.Message(content)
	if err != nil {
		return err
	}
	s.snaps.marked = true
	if asked {
		s.findJobs()
	}
	if c != nil {
		s.snaps.chunk, s.snaps.at, s.snaps.rows, s.snaps.bytes, s.snaps.begun = c, s.tx, 0, 0, false
	}
	return nil
}

// findJobs looks again which relations have a snapshot that runs.
func (s *Source) findJobs() {
	for _, rel := range s.relations {
		if rel.table != nil {
			rel.job = s.snaps.run.Job(rel.table.Schema, rel.table.Name)
		}
	}
}

// deliver puts rows of the chunk at hand into the batch, until it is full or the chunk ends.
func (s *Source) deliver(ctx context.Context, b *record.Batch) error {
	sn := &s.snaps
	c := sn.chunk
	if c.Whole() && !sn.begun {
		ok, err := sn.run.Begin(ctx, c)
		if err != nil {
			return err
		}
		if !ok {
			s.finishChunk(c)
			return nil
		}
	}
	if c.Shape() != nil {
		if err := s.shapeOf(ctx, c.Shape()); err != nil {
			return err
		}
	}
	if c.Whole() && !sn.begun {
		// The rows that a run before this one delivered cannot be told apart from these.
		sn.begun = true
		r := s.add(b, record.Truncate, s.markPos(0))
		r.XID, r.CommittedAt = sn.at.xid, sn.at.at
		r.Truncate, r.Snapshot = &record.TruncateInfo{Tables: []*record.Table{sn.table.table}}, sn.run.Epoch()
	}
	for !s.ended { // --limit ends within a chunk, too
		row, err := c.Peek(ctx)
		if err != nil {
			return err
		}
		if row == nil {
			break
		}
		if full, err := s.deliverRow(ctx, b, c, row); full || err != nil {
			return err
		}
	}
	if s.ended {
		return nil
	}
	if c.Whole() && !sn.run.Ended(c) {
		sn.chunk = nil
		return nil
	}
	s.finishChunk(c)
	return nil
}

func (s *Source) finishChunk(c *snapshot.Chunk) {
	s.snaps.run.Delivered(c, s.snaps.rows, s.snaps.bytes)
	s.snaps.chunk = nil
	s.findJobs()
}

// deliverRow puts one row into the batch; full tells that it has to wait for the next one.
func (s *Source) deliverRow(ctx context.Context, b *record.Batch, c *snapshot.Chunk, row []byte) (full bool, err error) {
	sn := &s.snaps
	columns := len(sn.table.table.Columns)
	if !b.Fits(len(row), columns) {
		if len(b.Records) > 0 {
			return true, errFull
		}
		if err := b.Reserve(ctx, len(row), columns); err != nil {
			return false, err
		}
	}
	var verdict snapshot.Verdict
	if verdict, sn.key = c.Judge(row, sn.key); verdict != snapshot.Deliver {
		c.Skip(row)
		return false, nil
	}
	p := b.Copy(row)
	values := b.Values(columns)
	for i := range values {
		n := int32(uint32(p[0])<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3]))
		p = p[4:]
		if n < 0 {
			values[i].Kind = record.Null
			continue
		}
		values[i] = record.Value{Kind: record.Text, Data: p[:n:n]}
		p = p[n:]
	}
	table := sn.table.table
	if sn.table.composite {
		if table, err = s.fitting(ctx, sn.table, tuples{new: values}); err != nil {
			return false, err
		}
	}
	n := c.Number()
	if c.Whole() {
		n++ // behind the truncate
	}
	r := s.add(b, record.Read, s.markPos(uint32(n)))
	r.Table, r.After, r.Snapshot = table, values, sn.run.Epoch()
	c.Skip(row)
	sn.rows++
	sn.bytes += int64(len(row))
	return false, nil
}

// markPos is the position of the n-th record at the mark at hand: that of its transaction's commit record, at which no change begins.
func (s *Source) markPos(n uint32) record.Pos {
	commit := s.snaps.at.commit
	return record.Pos{System: s.system, Timeline: s.timelines.of(commit), Commit: commit, Row: commit, N: n}
}

// shapeOf makes the descriptor of a chunk's rows.
func (s *Source) shapeOf(ctx context.Context, shape *snapshot.Shape) error {
	sn := &s.snaps
	if sn.shape == shape || sn.shape != nil && reflect.DeepEqual(sn.shape, shape) {
		sn.shape = shape
		return nil
	}
	m := relationMessage{oid: shape.OID, schema: shape.Schema, name: shape.Name, identity: shape.Identity}
	for _, c := range shape.Columns {
		m.columns = append(m.columns, relationColumn{name: c.Name, typ: c.Type, key: c.Key})
	}
	table, err := s.describe(ctx, m)
	if err != nil {
		return fmt.Errorf("describe table %s.%s: %w", m.schema, m.name, err)
	}
	sn.shape, sn.table = shape, &relation{table: table, message: m}
	for _, c := range table.Columns {
		sn.table.composite = sn.table.composite || hasComposite(c.Type)
	}
	return nil
}

// beside notes a row's change for the snapshot of its table.
func (s *Source) beside(rel *relation, kind byte, t tuples) {
	sn := &s.snaps
	table := rel.table
	if rel.job.Keyless || !rel.job.Incomplete() {
		return
	}
	sn.before, sn.after = sn.before[:0], sn.after[:0]
	var before, after []byte
	if t.old != nil && (kind == 'D' || keyChanged(table, t)) {
		for _, i := range table.Key {
			sn.before = snapshot.AppendKey(sn.before, t.old[i].Data)
		}
		before = sn.before
	}
	partial := false
	if t.new != nil {
		for _, i := range table.Key {
			v := t.new[i]
			if v.Kind == record.Unchanged && t.old != nil {
				v = t.old[i]
			}
			sn.after = snapshot.AppendKey(sn.after, v.Data)
		}
		after = sn.after
		for i := range t.new {
			partial = partial || t.new[i].Kind == record.Unchanged
		}
	}
	s.snaps.run.Touch(rel.job, s.tx.xid, before, after, partial)
}

// reached tells whether the end that was asked for lies at or before lsn. What is left of the tables' rows comes first.
func (s *Source) reached(lsn record.LSN) bool {
	return s.until != 0 && lsn >= s.until && (s.opt.Snapshot == SnapshotNone || s.snaps.run.Done())
}

// snapshotEnded tells, at a transaction's end, whether the run has nothing more to do.
func (s *Source) snapshotEnded(end record.LSN) bool {
	if s.snaps.run == nil {
		return false
	}
	if s.snaps.marked {
		s.snaps.marked = false
		s.snaps.run.Committed(end)
	}
	return s.opt.Snapshot == SnapshotOnly && s.snaps.run.Done()
}
