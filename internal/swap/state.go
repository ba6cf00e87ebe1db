package swap

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// stateTable is what synctl remembers of swaps in the target: one row per swap. At most one row of a target is in
// state preparing; the statements of a plan find it by that.
//
// The columns print (fingerprint of the planned definitions), began_at and locked_at serve the exchange alone.
const stateTable = `CREATE TABLE IF NOT EXISTS synctl.swap (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  action text NOT NULL,
  table_schema text NOT NULL,
  table_name text NOT NULL,
  part_schema text NOT NULL,
  part_name text NOT NULL,
  bound text NOT NULL DEFAULT '',
  staging_schema text NOT NULL,
  staging_name text NOT NULL,
  newcomer oid,
  former oid,
  kept_name text,
  state text NOT NULL CHECK (state IN ('preparing', 'exchanged', 'done')),
  default_partition oid,
  rewrite_xid xid8,
  rewritten_at timestamptz,
  print text,
  began_at timestamptz,
  locked_at timestamptz,
  started_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  exchanged_at timestamptz,
  finished_at timestamptz
)`

const stateIndex = `CREATE UNIQUE INDEX IF NOT EXISTS swap_preparing ON synctl.swap (table_schema, table_name, part_schema, part_name) WHERE state = 'preparing'`

// ensureState creates the state table. Two first swaps of a database at once would race in the catalogs: they take
// turns.
func (s *session) ensureState(ctx context.Context) error {
	if there, err := stateExists(ctx, s); err != nil || there {
		return err
	}
	tx, err := s.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(ctx)
	var schema bool
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('synctl schema', 0))`); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := tx.QueryRow(ctx, `SELECT to_regnamespace('synctl') IS NOT NULL`).Scan(&schema); err != nil {
		return fmt.Errorf("look for schema synctl: %w", err)
	}
	statements := []string{stateTable, stateIndex}
	if !schema {
		statements = append([]string{`CREATE SCHEMA synctl`}, statements...)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			if hasCode(err, "42501") {
				return fault.New(fault.Unreachable, "Have the database's owner run: CREATE SCHEMA synctl AUTHORIZATION the_role.",
					"create synctl.swap, where swaps are remembered: %w", err)
			}
			return fmt.Errorf("create synctl.swap: %w", err)
		}
	}
	return tx.Commit(ctx)
}

// stateKey finds the row of the swap that is being prepared.
func stateKey(t *target) string {
	schema, name := partKey(t)
	return fmt.Sprintf("table_schema = %s AND table_name = %s AND part_schema = %s AND part_name = %s AND state = 'preparing'",
		pg.Literal(t.tableSchema), pg.Literal(t.tableName), pg.Literal(schema), pg.Literal(name))
}

func partKey(t *target) (schema, name string) {
	if t.partition() == "" {
		return "", ""
	}
	return t.schema, t.name
}

// claimSQL begins the swap in the state table, or takes one up. The transaction's own number stands for the last
// rewrite of the rows until SET LOGGED puts its own there: what was loaded had committed before. A kept table that
// comes back was not rewritten; its rows are as old as they were. A run that takes a swap up knows only that the
// rewrite committed before now, so rewritten_at moves.
func claimSQL(s *situation, t *target, action string) string {
	schema, name := partKey(t)
	newcomer, deflt, xid, at := "NULL", "NULL", "NULL", "NULL"
	if s.new != nil {
		newcomer = fmt.Sprint(s.new.OID)
		if action == actionSwap {
			xid, at = "pg_catalog.pg_current_xact_id()", "pg_catalog.clock_timestamp()"
		}
	}
	if s.deflt != nil {
		deflt = fmt.Sprint(s.deflt.OID)
	}
	return fmt.Sprintf(`INSERT INTO synctl.swap AS w (action, table_schema, table_name, part_schema, part_name, bound, staging_schema, staging_name, newcomer, default_partition, state, rewrite_xid, rewritten_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'preparing', %s, %s)
ON CONFLICT (table_schema, table_name, part_schema, part_name) WHERE state = 'preparing' DO UPDATE SET action = excluded.action, bound = excluded.bound,
  staging_schema = excluded.staging_schema, staging_name = excluded.staging_name, newcomer = excluded.newcomer, default_partition = excluded.default_partition,
  rewrite_xid = CASE WHEN w.newcomer = excluded.newcomer THEN w.rewrite_xid ELSE excluded.rewrite_xid END,
  rewritten_at = excluded.rewritten_at`,
		pg.Literal(action), pg.Literal(t.tableSchema), pg.Literal(t.tableName), pg.Literal(schema), pg.Literal(name), pg.Literal(s.bound),
		pg.Literal(t.stagingSchema), pg.Literal(t.stagingName), newcomer, deflt, xid, at)
}

func finishSQL(t *target) string {
	schema, name := partKey(t)
	return fmt.Sprintf("UPDATE synctl.swap SET state = 'done', finished_at = pg_catalog.clock_timestamp() WHERE table_schema = %s AND table_name = %s AND part_schema = %s AND part_name = %s AND state = 'exchanged'",
		pg.Literal(t.tableSchema), pg.Literal(t.tableName), pg.Literal(schema), pg.Literal(name))
}

const (
	actionSwap     = "swap"
	actionRollback = "rollback"
)

// record is one row of synctl.swap.
type record struct {
	ID                        int64
	Action                    string
	TableSchema, TableName    string
	PartSchema, PartName      string
	Bound                     string
	StagingSchema, StagingNam string
	Newcomer, Former          *uint32
	Kept                      *string
	State                     string
	Default                   *uint32
	Started                   time.Time
	Exchanged                 *time.Time
}

const recordSQL = `SELECT id, action, table_schema, table_name, part_schema, part_name, bound, staging_schema, staging_name, newcomer, former, kept_name,
  state, default_partition, started_at, exchanged_at FROM synctl.swap `

// schema and name are those of what was exchanged.
func (r *record) live() (schema, name string) {
	if r.PartName != "" {
		return r.PartSchema, r.PartName
	}
	return r.TableSchema, r.TableName
}

func (r *record) display() string {
	schema, name := r.live()
	return displayName(schema, name)
}

// records reads the swaps of one target, the newest first.
func records(ctx context.Context, q querier, t *target) ([]record, error) {
	schema, name := partKey(t)
	return rows[record](ctx, q, "synctl.swap", recordSQL+`WHERE table_schema = $1 AND table_name = $2 AND part_schema = $3 AND part_name = $4
		ORDER BY exchanged_at DESC NULLS FIRST, id DESC`, t.tableSchema, t.tableName, schema, name)
}

// kept is a former table that is still there.
type kept struct {
	record
	OID  uint32
	Rows float32 // the server's estimate
	Size int64
}

const keptSQL = recordSQL + `w JOIN pg_class c ON c.oid = w.former AND c.relname = w.kept_name AND NOT c.relispartition
  JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = CASE w.part_name WHEN '' THEN w.table_schema ELSE w.part_schema END
  WHERE w.state <> 'preparing' AND NOT EXISTS (SELECT FROM synctl.swap x WHERE x.former = w.former AND x.state <> 'preparing' AND x.id > w.id)`

// keptTables are the former tables of one target (all targets when t is nil), the newest first. Only what synctl put
// aside itself is found: OID and name must both be the recorded ones.
func keptTables(ctx context.Context, q querier, t *target) ([]kept, error) {
	sql := `SELECT k.*, c.oid, c.reltuples, pg_total_relation_size(c.oid) FROM (` + keptSQL + `) k JOIN pg_class c ON c.oid = k.former`
	args := []any{}
	if t != nil {
		schema, name := partKey(t)
		sql += ` WHERE k.table_schema = $1 AND k.table_name = $2 AND k.part_schema = $3 AND k.part_name = $4`
		args = append(args, t.tableSchema, t.tableName, schema, name)
	}
	r, err := q.Query(ctx, sql+` ORDER BY k.exchanged_at DESC, k.id DESC`, args...)
	if err != nil {
		return nil, fmt.Errorf("read kept tables: %w", err)
	}
	list, err := pgx.CollectRows(r, func(r pgx.CollectableRow) (kept, error) {
		var k kept
		err := r.Scan(&k.ID, &k.Action, &k.TableSchema, &k.TableName, &k.PartSchema, &k.PartName, &k.Bound, &k.StagingSchema, &k.StagingNam,
			&k.Newcomer, &k.Former, &k.Kept, &k.State, &k.Default, &k.Started, &k.Exchanged, &k.OID, &k.Rows, &k.Size)
		return k, err
	})
	if err != nil {
		return nil, fmt.Errorf("read kept tables: %w", err)
	}
	return list, nil
}

// keptNames are the quoted names of a target's kept tables but one, the newest first.
func keptNames(ctx context.Context, q querier, t *target, but uint32) ([]string, error) {
	there, err := stateExists(ctx, q)
	if err != nil || !there {
		return nil, err
	}
	list, err := keptTables(ctx, q, t)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, k := range list {
		if schema, _ := k.live(); k.OID != but {
			names = append(names, pg.Ident(schema, *k.Kept))
		}
	}
	return names, nil
}

// stateExists tells whether synctl has ever swapped anything in this database.
func stateExists(ctx context.Context, q querier) (there bool, err error) {
	if err := q.QueryRow(ctx, `SELECT to_regclass('synctl.swap') IS NOT NULL`).Scan(&there); err != nil {
		return false, fmt.Errorf("look for synctl.swap: %w", err)
	}
	return there, nil
}
