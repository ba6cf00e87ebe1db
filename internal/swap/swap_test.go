package swap

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(killEnv); spec != "" {
		killedRun(spec)
	}
	testkit.Main(m)
}

// bench is a database of one test.
type bench struct {
	*testing.T
	dsn  string
	conn *pgx.Conn
	log  *logs
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dsn := testkit.Shared(t).Database(t)
	return &bench{T: t, dsn: dsn, conn: testkit.Connect(t, dsn), log: &logs{}}
}

func (b *bench) exec(sql string) {
	b.Helper()
	testkit.Exec(b, b.conn, sql)
}

func (b *bench) options() Options {
	o := Defaults()
	o.To = pg.DSN(b.dsn)
	o.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return o
}

func (b *bench) one(sql string) string {
	b.Helper()
	var v *string
	if err := b.conn.QueryRow(context.Background(), sql).Scan(&v); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
	if v == nil {
		return "NULL"
	}
	return *v
}

func (b *bench) want(sql, want string) {
	b.Helper()
	if got := b.one(sql); got != want {
		b.Errorf("%s: got %s, want %s", sql, got, want)
	}
}

func (b *bench) swap(o Options) *Result {
	b.Helper()
	res, err := Run(context.Background(), o)
	if err != nil {
		b.Fatalf("swap: %v\n%s", err, b.log)
	}
	b.Logf("%s: rows %d, kept %q, lock held %.1f ms, waited %.1f ms, %d retries, snapshots %.3f s, %.2f s in all", res.Outcome, res.Rows, res.Kept, 1000*res.LockHeld, 1000*res.LockWaited, res.Retries, res.SnapshotSeconds, res.Seconds)
	for _, st := range res.Steps {
		if st.Seconds > 0.5 {
			b.Logf("step %s took %.2f s", st.Name, st.Seconds)
		}
	}
	return res
}

func (b *bench) refused(o Options, class fault.Class, parts ...string) {
	b.Helper()
	_, err := Run(context.Background(), o)
	if err == nil {
		b.Fatalf("swap was not refused")
	}
	if got := fault.ClassOf(err); got != class {
		b.Errorf("class %d, want %d: %v", got, class, err)
	}
	if fault.HintOf(err) == "" {
		b.Errorf("no hint: %v", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			b.Errorf("error lacks %q: %v", p, err)
		}
	}
}

// logs collects a run's log.
type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// descriptionSQL writes out what the catalogs say of one table and of what hangs on it, names and not OIDs, a line
// each. It shares nothing with the code under test.
const descriptionSQL = `
WITH c AS (SELECT c.*, n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1::text::regclass)
SELECT line FROM (
  SELECT format('table %s.%s kind %s owner %s persistence %s am %s space %s identity %s rls %s/%s options %s toast %s bound %s comment %s', nspname, relname, relkind,
    pg_get_userbyid(relowner), relpersistence, relam, reltablespace, relreplident, relrowsecurity, relforcerowsecurity, reloptions,
    (SELECT t.reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid), pg_get_expr(relpartbound, oid), obj_description(oid, 'pg_class')) FROM c
  UNION ALL SELECT 'parent ' || inhparent::regclass FROM c JOIN pg_inherits ON inhrelid = oid
  UNION ALL SELECT 'acl ' || a.* FROM c, LATERAL (SELECT aclexplode(coalesce(relacl, acldefault('r', relowner)))::text) a
  UNION ALL SELECT format('column %s %s %s notnull %s identity %s generated %s default %s storage %s compression %s target %s options %s collation %s inherited %s local %s comment %s', attnum, attname,
    format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, pg_get_expr(adbin, adrelid), attstorage, attcompression, coalesce(attstattarget::int, -1), attoptions, attcollation::regcollation,
    attinhcount, attislocal, col_description(attrelid, attnum)) FROM c JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
  UNION ALL SELECT format('column acl %s %s', attname, aclexplode(attacl)) FROM c JOIN pg_attribute ON attrelid = c.oid AND attacl IS NOT NULL
  UNION ALL SELECT format('index %s unique %s primary %s valid %s clustered %s replident %s options %s parent %s comment %s targets %s', pg_get_indexdef(indexrelid), indisunique, indisprimary, indisvalid, indisclustered, indisreplident,
    (SELECT reloptions FROM pg_class x WHERE x.oid = indexrelid), (SELECT inhparent::regclass FROM pg_inherits WHERE inhrelid = indexrelid), obj_description(indexrelid, 'pg_class'),
    (SELECT array_agg(a.attstattarget ORDER BY attnum) FROM pg_attribute a WHERE a.attrelid = indexrelid AND a.attstattarget >= 0))
    FROM c JOIN pg_index ON indrelid = c.oid
  UNION ALL SELECT format('constraint %s %s %s valid %s deferrable %s/%s inherited %s local %s parent %s index %s comment %s', conname, contype, pg_get_constraintdef(k.oid), convalidated, condeferrable, condeferred, coninhcount, conislocal,
    (SELECT conname FROM pg_constraint p WHERE p.oid = k.conparentid), conindid::regclass, obj_description(k.oid, 'pg_constraint')) FROM c JOIN pg_constraint k ON conrelid = c.oid
  UNION ALL SELECT format('referenced by %s of %s: %s', conname, conrelid::regclass, pg_get_constraintdef(k.oid)) FROM c JOIN pg_constraint k ON confrelid = c.oid AND contype = 'f'
  UNION ALL SELECT format('trigger %s enabled %s cloned %s comment %s', pg_get_triggerdef(t.oid), tgenabled, tgparentid <> 0, obj_description(t.oid, 'pg_trigger')) FROM c JOIN pg_trigger t ON tgrelid = c.oid
    WHERE NOT EXISTS (SELECT FROM pg_constraint k WHERE k.oid = tgconstraint AND k.contype <> 't')
  UNION ALL SELECT format('internal triggers %s', count(*)) FROM c JOIN pg_trigger t ON tgrelid = c.oid WHERE tgisinternal
  UNION ALL SELECT format('policy %s %s %s %s %s %s %s', polname, polpermissive, polcmd, (SELECT array_agg(pg_get_userbyid(r)) FROM unnest(polroles) r), pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid),
    obj_description(p.oid, 'pg_policy')) FROM c JOIN pg_policy p ON polrelid = c.oid
  UNION ALL SELECT format('statistics %s owner %s target %s comment %s', pg_get_statisticsobjdef(s.oid), pg_get_userbyid(stxowner), coalesce(stxstattarget::int, -1), obj_description(s.oid, 'pg_statistic_ext')) FROM c JOIN pg_statistic_ext s ON stxrelid = c.oid
  UNION ALL SELECT format('publication %s', to_jsonb(r) - 'oid' - 'prrelid' - 'prpubid' - 'prqual' || jsonb_build_object('name', pubname)) FROM c JOIN pg_publication_rel r ON prrelid = c.oid JOIN pg_publication p ON p.oid = prpubid
  UNION ALL SELECT format('sequence %s owned by column %s (%s) owner %s acl %s value %s', s.oid::regclass, d.refobjsubid, d.deptype, pg_get_userbyid(s.relowner), coalesce(s.relacl, acldefault('s', s.relowner)),
    (SELECT to_jsonb(q) - 'seqrelid' FROM pg_sequence q WHERE q.seqrelid = s.oid))
    FROM c JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
  UNION ALL SELECT DISTINCT format('view %s owner %s acl %s options %s comment %s: %s', v.oid::regclass, pg_get_userbyid(v.relowner), v.relacl, v.reloptions, obj_description(v.oid, 'pg_class'), pg_get_viewdef(v.oid))
    FROM c JOIN pg_depend d ON d.refobjid = c.oid AND d.classid = 'pg_rewrite'::regclass JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class
) x(line) ORDER BY line`

func (b *bench) description(tables ...string) string {
	b.Helper()
	var out []string
	for _, table := range tables {
		r, err := b.conn.Query(context.Background(), descriptionSQL, table)
		if err != nil {
			b.Fatal(err)
		}
		list, err := pgx.CollectRows(r, pgx.RowTo[string])
		if err != nil {
			b.Fatalf("describe %s: %v", table, err)
		}
		out = append(out, list...)
	}
	return strings.Join(out, "\n")
}

// same compares descriptions line by line. Sequence values and acl order are in them, so a difference is a real one.
func (b *bench) same(what, before, after string) {
	b.Helper()
	if before == after {
		return
	}
	x, y := strings.Split(before, "\n"), strings.Split(after, "\n")
	in := func(list []string, l string) bool {
		for _, s := range list {
			if s == l {
				return true
			}
		}
		return false
	}
	var diff []string
	for _, l := range x {
		if !in(y, l) {
			diff = append(diff, "- "+l)
		}
	}
	for _, l := range y {
		if !in(x, l) {
			diff = append(diff, "+ "+l)
		}
	}
	b.Errorf("%s: the description changed:\n%s", what, strings.Join(diff, "\n"))
}

// scanSkipped makes sure that ATTACH found its proof, for the newcomer and for the default partition.
func (b *bench) scanSkipped(tables ...string) {
	b.Helper()
	for _, t := range tables {
		want := fmt.Sprintf(`\"%s\" is implied by existing constraints`, t)
		if !strings.Contains(b.log.String(), want) {
			b.Errorf("no sign that the scan of %s was skipped (%s)", t, want)
		}
	}
}

func (b *bench) debugOptions() Options {
	o := b.options()
	o.To += "&options=-c%20client_min_messages%3Ddebug1"
	return o
}

const staging = `(LIKE %s EXCLUDING ALL INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION)`

func (b *bench) stage(name, like, rows string) {
	b.Helper()
	b.exec(fmt.Sprintf("CREATE UNLOGGED TABLE %s "+staging+"; INSERT INTO %s %s", name, like, name, rows))
}

// again empties the log between two swaps of one test.
func (b *bench) again(o Options) Options {
	b.log = &logs{}
	o.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return o
}

func (b *bench) rollback(o Options) *Result {
	b.Helper()
	res, err := Rollback(context.Background(), o)
	if err != nil {
		b.Fatalf("rollback: %v\n%s", err, b.log)
	}
	return res
}
