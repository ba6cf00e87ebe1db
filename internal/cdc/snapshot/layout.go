package snapshot

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// layoutOf reads what the publication has of a table, as the chunk's snapshot sees it.
func (r *Run) layoutOf(conn *pgx.Conn, j *Job) (*layout, error) {
	l := &layout{shape: &Shape{Schema: j.Schema, Name: j.Table}, types: map[string]string{}}
	var identity string
	err := conn.QueryRow(r.ctx, `SELECT c.oid, c.relkind::text, c.relreplident::text,
CASE WHEN c.relkind = 'p' THEN (SELECT coalesce(sum(greatest(l.reltuples, 0)), 0) FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf)
     ELSE greatest(c.reltuples, -1) END::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, j.Schema, j.Table).
		Scan(&l.shape.OID, &l.kind, &identity, &l.rows)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &errGone{"it was dropped"}
	}
	if err != nil {
		return nil, err
	}
	l.shape.Identity = identity[0]
	// Before 18 no generated column is in the log, whatever the catalogue says; from then on the publication tells.
	published, withGenerated, err := r.published(conn, j, l)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(r.ctx, `SELECT a.attname::text, a.atttypid, format_type(a.atttypid, a.atttypmod), a.attgenerated <> '',
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND a.attnum = ANY(i.indkey::int2[]) AND
    array_position(i.indkey::int2[], a.attnum) - array_lower(i.indkey::int2[], 1) < i.indnkeyatts AND i.indisvalid AND i.indimmediate AND
    CASE WHEN $2 = 'i' THEN i.indisreplident ELSE i.indisprimary END)
FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, l.shape.OID, identity)
	if err != nil {
		return nil, err
	}
	var c Column
	var typ string
	var generated, indexed bool
	_, err = pgx.ForEachRow(rows, []any{&c.Name, &c.Type, &typ, &generated, &indexed}, func() error {
		if published != nil && !published[c.Name] || generated && !withGenerated {
			return nil
		}
		c.Key = identity == "f" || identity != "n" && indexed
		l.shape.Columns = append(l.shape.Columns, c)
		l.types[c.Name] = typ
		return nil
	})
	if err != nil {
		return nil, err
	}
	if identity != "n" {
		l.order, err = r.keyOrder(conn, l, identity)
	}
	return l, err
}

// published gives the columns that the publication has of the table, nil for all, and notes its row filter.
func (r *Run) published(conn *pgx.Conn, j *Job, l *layout) (columns map[string]bool, generated bool, err error) {
	var version int
	if err := conn.QueryRow(r.ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return nil, false, err
	}
	query := `SELECT NULL::text[], '' FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3`
	if version >= 150000 {
		query = `SELECT attnames::text[], coalesce(rowfilter, '') FROM pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3`
	}
	var names []string
	err = conn.QueryRow(r.ctx, query, r.cfg.Publication, j.Schema, j.Table).Scan(&names, &l.filter)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, &errGone{fmt.Sprintf("publication %s does not publish it", r.cfg.Publication)}
	}
	if err != nil || names == nil {
		return nil, false, err
	}
	columns = map[string]bool{}
	for _, n := range names {
		columns[n] = true
	}
	return columns, version >= 180000, nil
}

// keyOrder names the columns of the key in the order of its index, so that the index gives the rows in that order. A key of
// which a column is not published is none.
func (r *Run) keyOrder(conn *pgx.Conn, l *layout, identity string) ([]string, error) {
	rows, err := conn.Query(r.ctx, `SELECT a.attname::text FROM pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, n), pg_attribute a
WHERE i.indrelid = $1 AND a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.n <= i.indnkeyatts AND i.indisvalid AND i.indimmediate AND
  CASE WHEN $2 = 'i' THEN i.indisreplident ELSE i.indisprimary END ORDER BY k.n`, l.shape.OID, identity)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if l.types[n] == "" {
			return nil, nil
		}
	}
	return names, nil
}
