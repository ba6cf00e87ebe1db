package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/sink"
)

// truncate applies a truncate once all shards have reached it. One of them carries it out and writes its id into
// synctl.truncated in the same transaction; a shard that comes to it later, after a restart or by a redelivery, finds it there and goes on.
func (s *Shard) truncate(ctx context.Context, r *record.Record, mark sink.Mark) error {
	tables, err := r.TruncatedTables()
	if err != nil {
		return wrapRecord(r, err)
	}
	wanted := tables[:0]
	for _, id := range tables {
		if s.t.opts.Only(id.Schema, id.Name) {
			wanted = append(wanted, id)
		}
	}
	if r.Snapshot != 0 && r.Pos.System != 0 {
		// A row that a dead run had read before must not come back behind the truncate.
		for _, id := range wanted {
			s.dedupe.run(s.dedupe.state(tableRef{r.Pos.System, r.Pos.Timeline, id.Schema, id.Name}), r.Snapshot)
		}
	}
	applied, err := s.wasTruncated(ctx, r)
	if err != nil {
		return err
	}
	if applied {
		s.t.stats.duplicates.Add(1)
	}
	if !applied {
		lead, err := s.t.barriers.arrive(ctx, s.id, r.Pos)
		if err != nil {
			return err
		}
		if lead {
			err = s.carryOut(ctx, r, wanted, mark)
			s.t.barriers.left(r.Pos, err == nil)
			if err != nil {
				return err
			}
			s.hold.truncated(s, wanted)
			return nil
		}
	}
	s.hold.truncated(s, wanted)
	return s.transaction(ctx, nil, mark)
}

func (s *Shard) wasTruncated(ctx context.Context, r *record.Record) (yes bool, err error) {
	c, err := s.t.acquire(ctx)
	if err != nil {
		return false, err
	}
	defer func() { s.t.conns <- c }()
	err = c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM synctl.truncated WHERE name = $1 AND stream = $2 AND id = $3)",
		s.t.opts.Checkpoint, s.t.opts.Stream, string(r.AppendID(nil))).Scan(&yes)
	return yes, lost(ctx, c.Conn, err)
}

// carryOut truncates and moves this shard's checkpoint over the record.
func (s *Shard) carryOut(ctx context.Context, r *record.Record, tables []record.TableID, mark sink.Mark) error {
	c, err := s.t.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { s.t.conns <- c }()
	x := &tx{s: s, c: c.Conn, ctx: ctx}
	if err := x.begin(); err != nil {
		return x.failed(err)
	}
	if err := x.truncate(r, tables); err != nil {
		return x.failed(err)
	}
	s.dedupe.begin("")
	if err := x.commit(mark); err != nil {
		return x.failed(err)
	}
	s.t.stats.truncates.Add(1)
	return nil
}

func (x *tx) truncate(r *record.Record, tables []record.TableID) error {
	o := &x.s.t.opts
	var idents, schemas, names []string
	for _, id := range tables {
		schema, name := o.Map(id.Schema, id.Name)
		t, err := x.s.tableNamed(x.ctx, x.c, schema, name)
		if err != nil {
			return wrapRecord(r, err)
		}
		idents, schemas, names = append(idents, t.ident), append(schemas, id.Schema), append(names, id.Name)
	}
	if len(idents) > 0 {
		// Never CASCADE: the record names every table that the source emptied; what else refers to them here was not in it.
		sql := "TRUNCATE " + strings.Join(idents, ", ")
		if r.Line.RestartIdentity {
			sql += " RESTART IDENTITY"
		}
		if _, err := x.exec(sql); err != nil {
			return truncateFault(r, err)
		}
		x.applied++
	}
	// What waits for these tables in any shard came before the truncate: all shards stand at it.
	if _, err := x.exec(`DELETE FROM synctl.held h USING unnest($3::text[], $4::text[]) AS u(s, t)
		WHERE h.name = $1 AND h.stream = $2 AND h.table_schema = u.s AND h.table_name = u.t`, o.Checkpoint, o.Stream, schemas, names); err != nil {
		return err
	}
	_, err := x.exec("INSERT INTO synctl.truncated (name, stream, id) VALUES ($1, $2, $3)", o.Checkpoint, o.Stream, string(r.AppendID(nil)))
	return err
}

func truncateFault(r *record.Record, err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) || Retryable(err) {
		return err
	}
	hint := "Run the same command again when the cause is gone: it goes on here."
	switch e.Code {
	case "0A000":
		hint = "Another table of the target refers to it and was not truncated with it. Drop that foreign key, or leave truncates out with --op insert,update,delete."
	case "42501":
		return fault.New(fault.Unreachable, "GRANT TRUNCATE on the table to the role.", "%s: %s", where(r), e.Message)
	}
	return fault.New(fault.Failed, hint, "%s: %s: %s", where(r), e.Message, e.Detail)
}
