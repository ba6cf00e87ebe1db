package cdc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/record"
)

// lookedUp is what a look-up by the new key gave for the columns that a key update did not send. Columns that were sent
// are Absent; a row that is gone gives no values.
type lookedUp struct {
	values []record.Value
	bytes  int
}

// lookUp reads the TOASTed columns that were left out of a key update. PostgreSQL has sent them for no other record of
// the new key, so without them the insert that stands for the update would not be whole. t is left as it is.
func (s *Source) lookUp(ctx context.Context, rel *relation, t tuples) (*lookedUp, error) {
	found := &lookedUp{}
	if !keyChanged(rel.table, t) {
		return found, nil
	}
	var missing []int
	for i, v := range t.new {
		if v.Kind == record.Unchanged && t.old[i].Kind != record.Text {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	if err := s.waitVisible(ctx, s.tx.xid); err != nil {
		return nil, fmt.Errorf("look up a row of %s.%s: %w", rel.table.Schema, rel.table.Name, err)
	}
	var row [][]byte
	err := s.meta.do(ctx, func(conn *pgx.Conn) (err error) {
		row, err = readByKey(ctx, conn, rel.table, t.new, missing)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up a row of %s.%s: %w", rel.table.Schema, rel.table.Name, err)
	}
	if row == nil {
		return found, nil
	}
	found.values = make([]record.Value, len(t.new))
	for k, i := range missing {
		found.values[i] = record.Value{Kind: record.Null}
		if row[k] != nil {
			found.values[i] = record.Value{Kind: record.Text, Data: row[k]}
			found.bytes += len(row[k])
		}
	}
	return found, nil
}

// readByKey reads columns of one row as text; nil when the row, the table or a column is gone.
func readByKey(ctx context.Context, conn *pgx.Conn, table *record.Table, values []record.Value, columns []int) ([][]byte, error) {
	var schema, name string
	err := conn.QueryRow(ctx, `SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1`, table.OID).Scan(&schema, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	types, err := typeNames(ctx, conn, table.OID)
	if err != nil {
		return nil, err
	}
	var sql strings.Builder
	var params [][]byte
	for k, i := range columns {
		sql.WriteString([...]string{"SELECT ", ", "}[min(k, 1)] + pg.Ident(table.Columns[i].Name))
	}
	sql.WriteString(" FROM " + pg.Ident(schema, name))
	for k, i := range table.Key {
		name := table.Columns[i].Name
		if types[name] == "" {
			return nil, nil // renamed or dropped in the meantime
		}
		// A composite is compared as a record, and PostgreSQL cannot read a parameter of that type.
		fmt.Fprintf(&sql, "%s%s = CAST($%d AS %s)", [...]string{" WHERE ", " AND "}[min(k, 1)], pg.Ident(name), k+1, types[name])
		params = append(params, values[i].Data)
	}
	res := conn.PgConn().ExecParams(ctx, sql.String(), params, nil, nil, nil).Read()
	if res.Err != nil {
		var e *pgconn.PgError
		if errors.As(res.Err, &e) {
			switch e.Code {
			case "42P01", "42703": // dropped or renamed in the meantime
				return nil, nil
			case "42501":
				return nil, fault.New(fault.Unreachable,
					fmt.Sprintf("GRANT SELECT ON %s, or set its REPLICA IDENTITY to FULL, which makes look-ups needless.", pg.Ident(schema, name)),
					"read TOASTed columns that a key update did not send: %w", res.Err)
			}
		}
		return nil, res.Err
	}
	if len(res.Rows) == 0 {
		return nil, nil
	}
	return res.Rows[0], nil
}

// typeNames gives the types of a table's columns as SQL writes them.
func typeNames(ctx context.Context, conn *pgx.Conn, table uint32) (map[string]string, error) {
	rows, err := conn.Query(ctx, `SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped`, table)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	var name, typ string
	_, err = pgx.ForEachRow(rows, []any{&name, &typ}, func() error { names[name] = typ; return nil })
	return names, err
}

// waitVisible waits until queries see the transaction. It is decoded as soon as its commit record is written; it becomes
// visible only when a synchronous standby has answered, if one is waited for.
func (s *Source) waitVisible(ctx context.Context, xid uint32) error {
	pause := 5 * time.Millisecond
	began, told := time.Now(), false
	for {
		var visible bool
		err := s.meta.do(ctx, func(conn *pgx.Conn) (err error) {
			visible, err = seen(ctx, conn, xid)
			return err
		})
		if visible || err != nil {
			return err
		}
		if !told && time.Since(began) > 5*time.Second {
			told = true
			s.log.Warn("waiting for a transaction to become visible; is a synchronous standby down?", "xid", xid)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
			pause = min(2*pause, 250*time.Millisecond)
		}
	}
}

// seen tells whether a snapshot taken now sees the transaction. The 32 bits that the protocol gives are completed by the
// epoch of the latest transaction.
func seen(ctx context.Context, conn *pgx.Conn, xid uint32) (visible bool, err error) {
	err = conn.QueryRow(ctx, `
SELECT pg_visible_in_snapshot((CASE WHEN full_xid > top THEN full_xid - 4294967296 ELSE full_xid END)::text::xid8, snap)
FROM (SELECT snap, top, (top >> 32 << 32) | $1::bigint AS full_xid
      FROM (SELECT snap, pg_snapshot_xmax(snap)::text::bigint AS top FROM pg_current_snapshot() AS snap) a) b`,
		int64(xid)).Scan(&visible)
	return visible, err
}
