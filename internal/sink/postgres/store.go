package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/sink"
)

// Store keeps the marks of a consumer whose sink is not this database, in synctl.checkpoint.
type Store struct {
	conn         *pgx.Conn
	name, stream string
	owner        int64
}

// OpenStore connects, makes schema synctl where it is missing, and takes the checkpoint: one consumer at a time has it.
func OpenStore(ctx context.Context, dsn pg.DSN, name, stream string) (*Store, error) {
	cfg, err := config(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{conn: conn, name: name, stream: stream, owner: newOwner()}
	if err = ensureSchema(ctx, conn); err == nil {
		err = lockConsumer(ctx, conn, name, stream)
	}
	if err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return s, nil
}

// Get reads a shard's mark.
func (s *Store) Get(ctx context.Context, shard string) (m sink.Mark, ok bool, err error) {
	err = s.conn.QueryRow(ctx, "SELECT sequence, lines, ended FROM synctl.checkpoint WHERE name = $1 AND stream = $2 AND shard = $3",
		s.name, s.stream, shard).Scan(&m.Sequence, &m.Lines, &m.Ended)
	if errors.Is(err, pgx.ErrNoRows) {
		return sink.Mark{}, false, nil
	}
	return m, err == nil && !m.IsZero(), err
}

// Put stores a shard's mark.
func (s *Store) Put(ctx context.Context, shard string, m sink.Mark) error {
	_, err := s.conn.Exec(ctx, `INSERT INTO synctl.checkpoint (name, stream, shard, sequence, lines, ended, owner) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (name, stream, shard) DO UPDATE SET sequence = excluded.sequence, lines = excluded.lines, ended = excluded.ended,
			owner = excluded.owner, updated_at = now()`, s.name, s.stream, shard, m.Sequence, m.Lines, m.Ended, s.owner)
	if err != nil {
		return fault.New(fault.Unreachable, "Start the same command again when the server is well: it goes on at the checkpoint stored last.",
			"store checkpoint %q: %w", s.name, err)
	}
	return nil
}

// Close gives the checkpoint back.
func (s *Store) Close() error { return s.conn.Close(context.Background()) }

// Checkpoint is a row of synctl.checkpoint.
type Checkpoint struct {
	Name, Stream, Shard string
	Mark                sink.Mark
	UpdatedAt           time.Time
	Held                int64 // records of it that wait in synctl.held
}

// List reads all checkpoints of a database; none where there is no schema synctl.
func List(ctx context.Context, dsn pg.DSN) ([]Checkpoint, error) {
	conn, err := pg.Connect(ctx, dsn, "synctl checkpoint")
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if ok, err := hasSchema(ctx, conn); err != nil || !ok {
		return nil, err
	}
	rows, err := conn.Query(ctx, `SELECT name, stream, shard, sequence, lines, ended, updated_at,
			(SELECT count(*) FROM synctl.held h WHERE (h.name, h.stream, h.shard) = (c.name, c.stream, c.shard))
		FROM synctl.checkpoint c ORDER BY name, stream, shard`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Checkpoint, err error) {
		err = row.Scan(&c.Name, &c.Stream, &c.Shard, &c.Mark.Sequence, &c.Mark.Lines, &c.Mark.Ended, &c.UpdatedAt, &c.Held)
		return c, err
	})
}

// Set moves a shard's checkpoint by hand. What it knew of duplicates is forgotten: going back is to apply again.
func Set(ctx context.Context, dsn pg.DSN, name, stream, shard string, m sink.Mark) error {
	s, err := OpenStore(ctx, dsn, name, stream)
	if err != nil {
		return err
	}
	defer s.Close()
	return pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		for _, table := range []string{"floor", "seen"} {
			if _, err := tx.Exec(ctx, "DELETE FROM synctl."+table+" WHERE name = $1 AND stream = $2 AND shard = $3", name, stream, shard); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "UPDATE synctl.checkpoint SET reread = '' WHERE name = $1 AND stream = $2 AND shard = $3", name, stream, shard); err != nil {
			return err
		}
		return s.Put(ctx, shard, m)
	})
}

// Delete removes a consumer's checkpoint and all that belongs to it, of one shard or, where shard is empty, of all; it gives the
// number of shards. Records that wait would be lost with it: unless dropHeld says so, they are a fault.
func Delete(ctx context.Context, dsn pg.DSN, name, stream, shard string, dropHeld bool) (n int64, err error) {
	conn, err := pg.Connect(ctx, dsn, "synctl checkpoint")
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	if ok, err := hasSchema(ctx, conn); err != nil || !ok {
		return 0, err
	}
	if err := lockConsumer(ctx, conn, name, stream); err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		const these = " WHERE name = $1 AND stream = $2 AND ($3 = '' OR shard = $3)"
		var held int64
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM synctl.held"+these, name, stream, shard).Scan(&held); err != nil {
			return err
		}
		if held > 0 && !dropHeld {
			return fault.New(fault.Check, "Let a replay apply them first, or drop them too with --drop-held.",
				"%d records of checkpoint %q wait in synctl.held and would be lost", held, name)
		}
		for _, table := range []string{"floor", "seen", "held", "checkpoint"} {
			tag, err := tx.Exec(ctx, "DELETE FROM synctl."+table+these, name, stream, shard)
			if err != nil {
				return err
			}
			n = tag.RowsAffected()
		}
		if shard != "" {
			return nil
		}
		for _, table := range []string{"applied", "truncated"} {
			if _, err := tx.Exec(ctx, "DELETE FROM synctl."+table+" WHERE name = $1 AND stream = $2", name, stream); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}
