package cdc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// minVersion is the oldest server that sends logical messages through pgoutput.
const minVersion = 140000

// minStandbyVersion is the oldest server that decodes on a standby.
const minStandbyVersion = 160000

// checkServer looks at what logical replication needs of the server and the role.
func checkServer(ctx context.Context, conn *pgx.Conn) (standby bool, err error) {
	var version int
	var level, role string
	var may, rds bool
	err = conn.QueryRow(ctx, `
SELECT pg_is_in_recovery(), current_setting('server_version_num')::int, current_setting('wal_level'), current_user::text,
       r.rolsuper OR r.rolreplication,
       EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication' AND pg_has_role(r.oid, g.oid, 'MEMBER'))
FROM pg_roles r WHERE r.rolname = current_user`).Scan(&standby, &version, &level, &role, &may, &rds)
	if err != nil {
		return false, fmt.Errorf("check the server: %w", err)
	}
	switch {
	case version < minVersion:
		return standby, fault.New(fault.Check, "Change capture works with PostgreSQL 14 and later.", "the server is version %d.%d", version/10000, version%10000)
	case standby && version < minStandbyVersion:
		return standby, fault.New(fault.Check, "Read from the primary; a standby can be read from with PostgreSQL 16 and later.", "the server is a standby, of version %d.%d", version/10000, version%10000)
	case level != "logical":
		return standby, fault.New(fault.Check,
			"Run ALTER SYSTEM SET wal_level = 'logical' and restart the server (Amazon RDS: set rds.logical_replication to 1; Cloud SQL: cloudsql.logical_decoding to on).",
			"wal_level is %s, logical is needed", level)
	case !may && !rds:
		return standby, fault.New(fault.Unreachable, fmt.Sprintf("Run ALTER ROLE %s REPLICATION as a superuser (Amazon RDS: GRANT rds_replication TO %s).", pg.Ident(role), pg.Ident(role)),
			"role %q may not replicate: it lacks the REPLICATION attribute", role)
	}
	return standby, nil
}

// tableInfo is a table as far as its identity goes.
type tableInfo struct {
	oid      uint32
	name     TableName
	kind     string // pg_class.relkind
	identity string // relreplident
	key      []string
	parent   uint32 // the root, when it is a partition
}

// full and keyless: how PostgreSQL identifies the old row.
func (t tableInfo) full() bool    { return t.identity == "f" }
func (t tableInfo) keyless() bool { return t.identity != "f" && len(t.key) == 0 }

const tableColumns = `
c.oid, n.nspname::text, c.relname::text, c.relkind::text, c.relreplident::text,
ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
      WHERE i.indrelid = c.oid AND i.indimmediate AND i.indisvalid
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END ORDER BY 1),
coalesce(CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::oid END, 0::oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace `

func readTables(ctx context.Context, conn *pgx.Conn, where string, args ...any) (tables []tableInfo, err error) {
	rows, err := conn.Query(ctx, "SELECT "+tableColumns+where+" ORDER BY 2, 3", args...)
	if err != nil {
		return nil, fmt.Errorf("read tables from the catalogue: %w", err)
	}
	tables, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (t tableInfo, err error) {
		err = r.Scan(&t.oid, &t.name.Schema, &t.name.Name, &t.kind, &t.identity, &t.key, &t.parent)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read tables from the catalogue: %w", err)
	}
	return tables, nil
}

// wantedTables resolves the patterns against the catalogue. A pattern that nothing matches is an error.
func wantedTables(ctx context.Context, conn *pgx.Conn, f *filter) ([]tableInfo, error) {
	all, err := readTables(ctx, conn, `WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'`)
	if err != nil {
		return nil, err
	}
	var wanted []tableInfo
	for _, p := range f.patterns {
		one := filter{[]TableName{p}}
		before := len(wanted)
		matched := false
		for _, t := range all {
			if !one.match(t.name.Schema, t.name.Name) {
				continue
			}
			matched = true
			if !slices.ContainsFunc(wanted[:before], func(w tableInfo) bool { return w.oid == t.oid }) {
				wanted = append(wanted, t)
			}
		}
		if !matched {
			return nil, fault.New(fault.Check, "Check the name and the database; unlogged and temporary tables have no changes to capture.", "no table matches %s", p)
		}
	}
	return wanted, nil
}

// checkIdentity refuses tables whose updates and deletes PostgreSQL would refuse, or describe falsely, once they are
// published. Leaves of a partitioned table are looked at as well.
func checkIdentity(ctx context.Context, conn *pgx.Conn, tables []tableInfo, viaRoot bool) error {
	var keyless []string
	for _, t := range tables {
		if t.kind != "p" {
			if t.keyless() {
				keyless = append(keyless, t.name.String())
			}
			continue
		}
		leaves, err := readTables(ctx, conn, `JOIN pg_partition_tree($1::oid) p ON p.relid = c.oid WHERE p.isleaf`, t.oid)
		if err != nil {
			return err
		}
		for _, leaf := range leaves {
			if leaf.keyless() {
				keyless = append(keyless, leaf.name.String())
				continue
			}
			if !viaRoot || leaf.full() {
				continue
			}
			if t.full() || !slices.Equal(t.key, leaf.key) {
				return fault.New(fault.Check,
					fmt.Sprintf("Run ALTER TABLE %s REPLICA IDENTITY %s, or give both the same identity otherwise (ALTER TABLE on the root does not reach its partitions).",
						pg.Ident(leaf.name.Schema, leaf.name.Name), identityClause(t)),
					"replica identity of partition %s is %s, that of its root %s is %s: old rows would be sent with false nulls",
					leaf.name, identityName(leaf), t.name, identityName(t))
			}
		}
		if t.keyless() && len(leaves) == 0 {
			keyless = append(keyless, t.name.String())
		}
	}
	if len(keyless) > 0 {
		return fault.New(fault.Check,
			"Add a primary key, or run ALTER TABLE … REPLICA IDENTITY USING INDEX … or FULL; a publication with (publish = 'insert') also takes them.",
			"no replica identity: %s; once published, the application's UPDATE and DELETE on them would fail", strings.Join(keyless, ", "))
	}
	return nil
}

func identityName(t tableInfo) string {
	switch {
	case t.full():
		return "FULL"
	case t.keyless():
		return "none"
	}
	return "(" + strings.Join(t.key, ", ") + ")"
}

func identityClause(t tableInfo) string {
	switch t.identity {
	case "f":
		return "FULL"
	case "i":
		return "USING INDEX …"
	}
	return "DEFAULT"
}
