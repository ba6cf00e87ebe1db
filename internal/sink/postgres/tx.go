package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/sink"
)

// tx is one transaction of a shard: changes, held records, floors and checkpoint together.
type tx struct {
	s    *Shard
	c    *pgx.Conn
	ctx  context.Context
	open bool

	applied, duplicates, missing, skipped, released int64
	dropHeld                                        []int64 // rows of synctl.held that are done with
	newHeld                                         []heldRow
}

// item is a record on its way into a table.
type item struct {
	rec *record.Record
	tab *table
	key string   // the row's partition key: its identity here; the table's when it is keyless
	by  []string // names of the key columns; none: keyless

	lenient bool // a delete that need not find its row: what was to make it never got there
}

func (x *tx) begin() error {
	if _, err := x.c.Exec(x.ctx, "BEGIN"); err != nil {
		return err
	}
	x.open = true
	x.s.dedupe.stored = x.s.dedupe.stored[:0]
	return nil
}

// failed rolls back after an error. The connection is closed when that is not possible.
func (x *tx) failed(err error) error {
	if x.open {
		err = lost(x.ctx, x.c, err)
		if _, e := x.c.Exec(context.WithoutCancel(x.ctx), "ROLLBACK"); e != nil {
			x.c.Close(x.ctx)
		}
		x.open = false
	}
	return lost(x.ctx, x.c, err)
}

func (x *tx) exec(sql string, args ...any) (pgconn.CommandTag, error) {
	return x.c.Exec(x.ctx, sql, args...)
}

// items finds out what is to be applied: duplicates are dropped, and records of keys that are held join them.
func (x *tx) items(records []*record.Record) ([]item, error) {
	s := x.s
	if len(records) > 0 && records[0].Stream != nil {
		s.dedupe.begin(records[0].Stream.Sequence)
	} else {
		s.dedupe.begin("")
	}
	items := make([]item, 0, len(records))
	var ask, unfloored []int // items whose ids only the database knows
	for _, r := range records {
		known := s.known(r)
		if row, err := x.isRow(r, known); err != nil {
			return nil, err
		} else if !row {
			continue
		}
		s.catching = s.catching && known
		if s.stale(r) {
			if !known {
				x.duplicates++
			}
			continue
		}
		if r.Pos.System != 0 && r.Floor != 0 {
			dup, more := s.dedupe.duplicate(r, s.dedupe.table(r, r.Line.Get(r.Line.Schema), r.Line.Get(r.Line.Table)), true)
			if dup && !known {
				x.duplicates++
			}
			if dup || known {
				continue
			}
			if more {
				ask = append(ask, len(items))
			}
		} else if known {
			continue
		} else {
			unfloored = append(unfloored, len(items))
		}
		it, err := x.item(r)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	drop := map[int]bool{}
	if err := x.askSeen(items, ask, drop); err != nil {
		return nil, err
	}
	if err := x.askApplied(items, unfloored, drop); err != nil {
		return nil, err
	}
	if len(drop) == 0 {
		return items, nil
	}
	x.duplicates += int64(len(drop))
	kept := items[:0]
	for i, it := range items {
		if !drop[i] {
			kept = append(kept, it)
		}
	}
	return kept, nil
}

// isRow tells records that are rows from those that have nothing to apply here.
func (x *tx) isRow(r *record.Record, known bool) (bool, error) {
	switch r.Op {
	case record.Message, record.Begin, record.Commit:
		if !known {
			x.skipped++
		}
		return false, nil
	case record.Truncate:
		return false, nil // at or before the mark; others are not handed to a transaction
	case record.Data:
		if known {
			return false, nil
		}
		return false, fault.New(fault.Failed, "Apply only changes, with --op insert,update,delete,truncate; or send the others elsewhere.",
			"record %s of op data is not a row and cannot be applied to PostgreSQL", r.AppendID(nil))
	}
	return true, nil
}

// askSeen finds the changes that synctl.seen has, for tables with more ids than memory holds.
func (x *tx) askSeen(items []item, ask []int, drop map[int]bool) error {
	if len(ask) == 0 {
		return nil
	}
	ids := make([]string, len(ask))
	at := map[string]int{}
	for i, n := range ask {
		ids[i] = string(items[n].rec.AppendID(nil))
		at[ids[i]] = n
	}
	rows, err := x.c.Query(x.ctx, "SELECT id FROM synctl.seen WHERE name = $1 AND stream = $2 AND shard = $3 AND id = ANY($4)",
		x.s.t.opts.Checkpoint, x.s.t.opts.Stream, x.s.id, ids)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, id := range found {
		drop[at[id]] = true
	}
	return err
}

// askApplied writes the ids of records without a floor into synctl.applied; those that are there already are duplicates.
func (x *tx) askApplied(items []item, which []int, drop map[int]bool) error {
	if len(which) == 0 {
		return nil
	}
	ids := make([]string, 0, len(which))
	first := map[string]int{}
	for _, n := range which {
		id := string(items[n].rec.AppendID(nil))
		if _, ok := first[id]; ok {
			drop[n] = true
			continue
		}
		first[id] = n
		ids = append(ids, id)
	}
	rows, err := x.c.Query(x.ctx, `INSERT INTO synctl.applied (name, stream, id) SELECT $1, $2, u FROM unnest($3::text[]) u
		ON CONFLICT DO NOTHING RETURNING id`, x.s.t.opts.Checkpoint, x.s.t.opts.Stream, ids)
	if err != nil {
		return err
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, id := range fresh {
		delete(first, id)
	}
	for _, n := range first {
		drop[n] = true
	}
	return nil
}

// item finds table and key of a record.
func (x *tx) item(r *record.Record) (item, error) {
	s := x.s
	if !r.FromLine() {
		return item{}, fmt.Errorf("apply %s: the record did not come as NDJSON", r.Op)
	}
	tab, err := s.table(x.ctx, x.c, r)
	if err != nil {
		return item{}, wrapRecord(r, err)
	}
	it := item{rec: r, tab: tab}
	if s.scratch, err = record.AppendPartitionKey(s.scratch[:0], r); err != nil {
		return item{}, wrapRecord(r, err)
	}
	it.key = string(s.scratch)
	key := r.Line.Get(r.Line.Key)
	if len(key) == 0 {
		return it, nil
	}
	ks, err := x.shape(&it, key, nil)
	if err != nil {
		return item{}, err
	}
	if it.by = ks.names(); !it.tab.checked {
		it.tab.checked = true
		if !it.tab.hasKeyIndex(it.by) {
			s.t.warn(it.tab, "the target table has no unique index on the key of its records: every change reads the whole table, and nothing keeps a key from occurring twice", "key", it.by)
		}
	}
	return it, nil
}

// shape finds the shape of an object of the item's table, looking into the catalogue once more when a column is not known.
func (x *tx) shape(it *item, obj, literal []byte) (*shape, error) {
	sh, scratch, err := it.tab.shapeOf(x.s.scratch, obj, literal)
	x.s.scratch = scratch
	var missing *missingColumnError
	if !errors.As(err, &missing) {
		return sh, err
	}
	fresh, err := loadTable(x.ctx, x.c, it.tab.schema, it.tab.name)
	if err != nil {
		return nil, err
	}
	*it.tab = *fresh
	sh, x.s.scratch, err = it.tab.shapeOf(x.s.scratch, obj, literal)
	if errors.As(err, &missing) {
		return nil, missing.fault(where(it.rec))
	}
	return sh, err
}

func wrapRecord(r *record.Record, err error) error { return fmt.Errorf("apply %s: %w", where(r), err) }

// commit writes floors, ids, held records and the checkpoint, and commits.
func (x *tx) commit(mark sink.Mark) error {
	s := x.s
	reread := s.dedupe.reread(mark.Ended)
	if s.catching {
		reread = s.reread
	}
	if err := x.storeFloors(); err != nil {
		return err
	}
	if err := x.storeHeld(); err != nil {
		return err
	}
	tag, err := x.exec(`UPDATE synctl.checkpoint SET sequence = $5, lines = $6, ended = $7, reread = $8, updated_at = now()
		WHERE name = $1 AND stream = $2 AND shard = $3 AND owner = $4 AND sequence = $9 AND lines = $10`,
		s.t.opts.Checkpoint, s.t.opts.Stream, s.id, s.t.owner, mark.Sequence, mark.Lines, mark.Ended, reread, s.mark.Sequence, s.mark.Lines)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return x.fenced()
	}
	if _, err := x.exec("COMMIT"); err != nil {
		return err
	}
	x.open = false
	s.mark = mark
	s.hold.committed(x)
	st := &s.t.stats
	st.applied.Add(x.applied)
	st.duplicates.Add(x.duplicates)
	st.missing.Add(x.missing)
	st.skipped.Add(x.skipped)
	st.commits.Add(1)
	s.t.released.Add(x.released)
	return nil
}

// fenced explains a checkpoint that is not as we left it.
func (x *tx) fenced() error {
	s := x.s
	var owner int64
	err := x.c.QueryRow(x.ctx, "SELECT owner FROM synctl.checkpoint WHERE name = $1 AND stream = $2 AND shard = $3",
		s.t.opts.Checkpoint, s.t.opts.Stream, s.id).Scan(&owner)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.New(fault.Check, "Start the command again: it begins anew where it is told to.",
			"checkpoint %q of shard %s was deleted while it was in use", s.t.opts.Checkpoint, s.id)
	case err != nil:
		return err
	case owner != s.t.owner:
		return fault.New(fault.Unreachable, "Only one consumer can use a checkpoint; give the other one a name of its own with --checkpoint.",
			"checkpoint %q of shard %s was taken over by another consumer", s.t.opts.Checkpoint, s.id)
	}
	return errRewind
}

// storeFloors writes what rose, and the ids that go into or out of synctl.seen.
func (x *tx) storeFloors() error {
	d, o := x.s.dedupe, &x.s.t.opts
	if len(d.dirty) > 0 {
		n := len(d.dirty)
		system, timeline, schema, name, floor, snapshot := make([]string, n), make([]int64, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		for i, t := range d.dirty {
			system[i], timeline[i], schema[i], name[i], floor[i] = fmt.Sprint(t.ref.system), int64(t.ref.timeline), t.ref.schema, t.ref.name, t.floor.String()
			snapshot[i] = t.snapshot.String()
		}
		if _, err := x.exec(`INSERT INTO synctl.floor AS f SELECT $1, $2, $3, a::numeric, b, c, d, e::pg_lsn, g::pg_lsn
			FROM unnest($4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[]) AS u(a, b, c, d, e, g)
			ON CONFLICT (name, stream, shard, system, timeline, table_schema, table_name) DO UPDATE
			SET floor = greatest(f.floor, excluded.floor), snapshot = greatest(f.snapshot, excluded.snapshot)
			WHERE f.floor < excluded.floor OR f.snapshot < excluded.snapshot`,
			o.Checkpoint, o.Stream, x.s.id, system, timeline, schema, name, floor, snapshot); err != nil {
			return err
		}
	}
	if err := x.storeSeen(); err != nil {
		return err
	}
	for _, t := range d.dirty {
		t.dirty = false
		if !t.prune {
			continue
		}
		t.prune = false
		if _, err := x.exec(`DELETE FROM synctl.seen WHERE name = $1 AND stream = $2 AND shard = $3 AND table_schema = $4 AND table_name = $5
			AND commit_lsn <= $6::text::pg_lsn AND id LIKE $7`,
			o.Checkpoint, o.Stream, x.s.id, t.ref.schema, t.ref.name, t.floor.String(), fmt.Sprintf("%d.%d.%%", t.ref.system, t.ref.timeline)); err != nil {
			return err
		}
	}
	d.dirty = d.dirty[:0]
	return nil
}

func (x *tx) storeSeen() error {
	d, o := x.s.dedupe, &x.s.t.opts
	n := len(d.stored)
	if n == 0 {
		return nil
	}
	id, schema, name, commit := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, e := range d.stored {
		pos := record.Pos{System: e.ref.system, Timeline: e.ref.timeline, Row: e.id.row, N: e.id.n, Suffix: e.id.suffix}
		id[i], schema[i], name[i], commit[i] = string(pos.AppendID(nil)), e.ref.schema, e.ref.name, e.commit.String()
	}
	_, err := x.exec(`INSERT INTO synctl.seen SELECT $1, $2, $3, a, b, c, d::pg_lsn
		FROM unnest($4::text[], $5::text[], $6::text[], $7::text[]) AS u(a, b, c, d) ON CONFLICT DO NOTHING`,
		o.Checkpoint, o.Stream, x.s.id, id, schema, name, commit)
	d.stored = d.stored[:0]
	return err
}
