package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

// mark is what the comment of a staging table says: by it a later run knows its own kind's tables from all others.
type mark struct {
	Table string `json:"table"` // the live table's name
	State string `json:"state"` // loading, or complete
	Run   string `json:"run,omitempty"`
}

const (
	markPrefix    = "synctl staging "
	markLoading   = "loading"
	markComplete  = "complete"
	lockClass     = 0x73796e62 // of the advisory locks of loads; the object is the live table's OID
	lockPatience  = 5 * time.Second
	dropPatience  = 30 * time.Second
	cleanPatience = 30 * time.Second
)

func (m mark) comment() string {
	b, _ := json.Marshal(m) // strings alone: cannot fail
	return markPrefix + string(b)
}

func parseMark(comment string) (m mark, ok bool) {
	rest, ok := strings.CutPrefix(comment, markPrefix)
	return m, ok && json.Unmarshal([]byte(rest), &m) == nil
}

// staging is the table that is loaded.
type staging struct {
	schema, name string
	logged       bool
	live         *target
	run          string
	filled       []*targetColumn // columns that the source lacks and that have a default
}

func (s *staging) ident() string  { return pg.Ident(s.schema, s.name) }
func (s *staging) String() string { return s.schema + "." + s.name }

func newStaging(o *Options, live *target) (*staging, error) {
	s := &staging{schema: live.schema, name: live.name + "_staging", logged: o.Logged, live: live, run: o.RunID}
	if o.Staging != "" {
		parts, err := splitTable(o.Staging)
		if err != nil {
			return nil, err
		}
		s.name = parts[len(parts)-1]
		if len(parts) == 2 {
			s.schema = parts[0]
		}
	}
	if len(s.name) > 63 {
		return nil, fault.New(fault.Usage, "Give a shorter name with --staging.", "staging table's name %q is longer than 63 bytes", s.name)
	}
	if s.schema == live.schema && s.name == live.name {
		return nil, fault.New(fault.Usage, "Give the staging table a name of its own.", "--staging %s is the live table", s)
	}
	return s, nil
}

// createSQL makes the table: like the live one without constraints and indexes, and marked as ours.
func (s *staging) createSQL() []string {
	kind := "UNLOGGED "
	if s.logged {
		kind = ""
	}
	sql := []string{
		fmt.Sprintf("CREATE %sTABLE %s (LIKE %s EXCLUDING ALL INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION)",
			kind, s.ident(), pg.Ident(s.live.schema, s.live.name)),
		s.commentSQL(markLoading),
	}
	for _, c := range s.filled {
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s", s.ident(), pg.Ident(c.Name), c.fill))
	}
	return sql
}

// finishSQL marks the table as complete; defaults that were only for the load go.
func (s *staging) finishSQL() []string {
	var sql []string
	for _, c := range s.filled {
		sql = append(sql, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT", s.ident(), pg.Ident(c.Name)))
	}
	return append(sql, s.commentSQL(markComplete))
}

func (s *staging) commentSQL(state string) string {
	return fmt.Sprintf("COMMENT ON TABLE %s IS %s", s.ident(), pg.Literal(mark{s.live.String(), state, s.run}.comment()))
}

// copySQL is the statement of every writer.
func (s *staging) copySQL(inputs []convert.Input, f convert.Format) string {
	var cols []string
	for _, in := range inputs {
		cols = append(cols, pg.Ident(in.Target.Name))
	}
	return fmt.Sprintf("COPY %s (%s) FROM STDIN (FORMAT %s)", s.ident(), strings.Join(cols, ", "), f)
}

// leftover looks for a table where the staging table is to be: whether there is one of ours. Another's is a fault.
func (s *staging) leftover(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var comment *string
	var partition bool
	err := conn.QueryRow(ctx, `SELECT obj_description(c.oid, 'pg_class'), c.relispartition FROM pg_class c WHERE c.oid = to_regclass($1)`, s.ident()).
		Scan(&comment, &partition)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, serverFault(fmt.Errorf("look for staging table: %w", err))
	}
	if comment != nil {
		if m, ok := parseMark(*comment); ok && m.Table == s.live.String() && !partition {
			return true, nil
		}
	}
	return false, fault.New(fault.Check, "Nothing was changed. Drop or rename it if it is not needed, or name another with --staging.",
		"table %s exists and is no staging table of %s that synctl made", s, s.live)
}

// create makes the table anew, dropping what an earlier run of ours left.
func (s *staging) create(ctx context.Context, conn *pgx.Conn, old bool) error {
	if old {
		if err := s.drop(ctx, conn); err != nil {
			return err
		}
	}
	return inTransaction(ctx, conn, s.createSQL())
}

// drop removes the table, waiting no longer than dropPatience for whoever uses it: the connections of a run that was
// killed end by themselves.
func (s *staging) drop(ctx context.Context, conn *pgx.Conn) error {
	err := inTransaction(ctx, conn, []string{
		fmt.Sprintf("SET LOCAL lock_timeout = %d", dropPatience.Milliseconds()),
		"DROP TABLE IF EXISTS " + s.ident(),
	})
	if err != nil {
		return fmt.Errorf("drop staging table: %w", err)
	}
	return nil
}

func inTransaction(ctx context.Context, conn *pgx.Conn, sql []string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, q := range sql {
			if _, err := tx.Exec(ctx, q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	})
	if err != nil {
		return serverFault(err)
	}
	return nil
}

// lockTable takes the lock that only one load of a table can have. The connection of a run that was killed keeps it for a
// moment, so a little patience is right.
func lockTable(ctx context.Context, conn *pgx.Conn, t *target) error {
	deadline := time.Now().Add(lockPatience)
	for {
		var got bool
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2)`, lockClass, int32(t.oid)).Scan(&got); err != nil {
			return serverFault(fmt.Errorf("lock table %s for the load: %w", t, err))
		}
		if got {
			return nil
		}
		if time.Now().After(deadline) {
			break
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	who, _ := lockHolder(ctx, conn, t.oid)
	return fault.New(fault.Check, "Wait until it ends; 'synctl bulk status' tells of runs with an ID. One load of a table at a time.",
		"another load of %s is running (server process %d)", t, who)
}

// lockHolder is the server process that holds a table's lock; 0 when none does.
func lockHolder(ctx context.Context, conn *pgx.Conn, oid uint32) (pid int32, err error) {
	err = conn.QueryRow(ctx, `SELECT coalesce(max(pid), 0) FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = $1 AND objid = $2 AND objsubid = 2
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, uint32(lockClass), oid).Scan(&pid)
	return pid, err
}
