package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/record"
)

// load reads a shard's committed state and makes us its owner. A shard without a checkpoint takes over what its parents know
// of duplicates: a change can come again in a child that was had in its parent.
func (s *Shard) load(ctx context.Context, tx pgx.Tx, parents []string) error {
	o := &s.t.opts
	if err := synchronous(ctx, tx); err != nil {
		return err
	}
	err := tx.QueryRow(ctx, `UPDATE synctl.checkpoint SET owner = $4 WHERE name = $1 AND stream = $2 AND shard = $3
		RETURNING sequence, lines, ended, reread`, o.Checkpoint, o.Stream, s.id, s.t.owner).
		Scan(&s.mark.Sequence, &s.mark.Lines, &s.mark.Ended, &s.reread)
	s.exists = err == nil
	if errors.Is(err, pgx.ErrNoRows) {
		err = s.inherit(ctx, tx, parents)
	}
	if err != nil {
		return err
	}
	s.start, s.catching = s.mark, s.reread != ""
	// A row that was made and never moved says no more than none.
	s.exists = s.exists && !s.mark.IsZero()
	if err := s.loadFloors(ctx, tx); err != nil {
		return err
	}
	if err := s.loadSeen(ctx, tx); err != nil {
		return err
	}
	return s.loadHeld(ctx, tx)
}

func (s *Shard) inherit(ctx context.Context, tx pgx.Tx, parents []string) error {
	o := &s.t.opts
	if _, err := tx.Exec(ctx, "INSERT INTO synctl.checkpoint (name, stream, shard, owner) VALUES ($1, $2, $3, $4)",
		o.Checkpoint, o.Stream, s.id, s.t.owner); err != nil {
		return err
	}
	if len(parents) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `INSERT INTO synctl.floor
		SELECT name, stream, $3, system, timeline, table_schema, table_name, max(floor), max(snapshot) FROM synctl.floor
		WHERE name = $1 AND stream = $2 AND shard = ANY($4) GROUP BY name, stream, system, timeline, table_schema, table_name
		ON CONFLICT DO NOTHING`, o.Checkpoint, o.Stream, s.id, parents); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO synctl.seen
		SELECT name, stream, $3, id, table_schema, table_name, commit_lsn FROM synctl.seen
		WHERE name = $1 AND stream = $2 AND shard = ANY($4) ON CONFLICT DO NOTHING`, o.Checkpoint, o.Stream, s.id, parents)
	return err
}

func (s *Shard) loadFloors(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT system::text, timeline, table_schema, table_name, floor::text, snapshot::text FROM synctl.floor
		WHERE name = $1 AND stream = $2 AND shard = $3`, s.t.opts.Checkpoint, s.t.opts.Stream, s.id)
	if err != nil {
		return err
	}
	var system, schema, name, floor, snapshot string
	var timeline int64
	_, err = pgx.ForEachRow(rows, []any{&system, &timeline, &schema, &name, &floor, &snapshot}, func() error {
		sys, err := strconv.ParseUint(system, 10, 64)
		if err != nil {
			return err
		}
		lsn, err := record.ParseLSN(floor)
		if err != nil {
			return err
		}
		run, err := record.ParseLSN(snapshot)
		if err != nil {
			return err
		}
		t := s.dedupe.state(tableRef{sys, uint32(timeline), schema, name})
		t.floor, t.snapshot = lsn, run
		return nil
	})
	return err
}

// loadSeen takes the ids of synctl.seen into memory; of tables with too many, only that they are there.
func (s *Shard) loadSeen(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT id, table_schema, table_name, commit_lsn::text FROM synctl.seen
		WHERE name = $1 AND stream = $2 AND shard = $3 ORDER BY commit_lsn`, s.t.opts.Checkpoint, s.t.opts.Stream, s.id)
	if err != nil {
		return err
	}
	var id, schema, name, commit string
	_, err = pgx.ForEachRow(rows, []any{&id, &schema, &name, &commit}, func() error {
		lsn, err := record.ParseLSN(commit)
		if err != nil {
			return err
		}
		pos, err := record.ParseID(id)
		if err != nil {
			return err
		}
		t := s.dedupe.state(tableRef{pos.System, pos.Timeline, schema, name})
		t.keep(changeID{pos.Row, pos.N, pos.Suffix}, lsn)
		t.spill()
		return nil
	})
	return err
}

func (s *Shard) loadHeld(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT n, sequence, line, record, reason FROM synctl.held
		WHERE name = $1 AND stream = $2 AND shard = $3 ORDER BY n`, s.t.opts.Checkpoint, s.t.opts.Stream, s.id)
	if err != nil {
		return err
	}
	var h heldRow
	_, err = pgx.ForEachRow(rows, []any{&h.n, &h.sequence, &h.line, &h.record, &h.reason}, func() error {
		return s.hold.load(s, heldRow{n: h.n, sequence: strings.Clone(h.sequence), line: h.line, record: h.record, reason: h.reason})
	})
	return err
}
