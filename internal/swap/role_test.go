package swap

import (
	"strings"
	"syscall"
	"testing"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// TestPlainRole swaps as an owner without any other right, and says what is missing where something is.
func TestPlainRole(t *testing.T) {
	b := newBench(t)
	b.exec(roles + `DO $$ BEGIN CREATE ROLE swap_app LOGIN; CREATE ROLE swap_other; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
		CREATE TABLE ev (day int, id int, PRIMARY KEY (day, id)) PARTITION BY LIST (day); CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN (1); CREATE TABLE ev_default PARTITION OF ev DEFAULT;
		ALTER TABLE ev OWNER TO swap_app; ALTER TABLE ev_1 OWNER TO swap_app; ALTER TABLE ev_default OWNER TO swap_other; INSERT INTO ev VALUES (1, 1)`)
	b.stage("s", "ev", `SELECT 1, i FROM generate_series(1, 10) i`)
	b.exec(`ALTER TABLE s OWNER TO swap_app; REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	before := b.description("ev", "ev_1", "ev_default")
	o := b.options()
	o.To = pg.DSN(strings.Replace(b.dsn, "postgres@", "swap_app@", 1))
	o.Table, o.Staging, o.Partition = "ev", "s", "ev_1"
	b.refused(o, fault.Unreachable, "create synctl.swap")
	b.exec(`GRANT CREATE ON DATABASE ` + b.one(`SELECT current_database()`) + ` TO swap_app`)
	b.refused(o, fault.Check, "not a member of swap_other, which owns public.ev_default", "may not create indexes in schema public")
	b.same("refusals", before, b.description("ev", "ev_1", "ev_default"))
	b.exec(`ALTER TABLE ev_default OWNER TO swap_app; GRANT CREATE ON SCHEMA public TO swap_app`)
	before = b.description("ev", "ev_1", "ev_default")
	b.swap(b.again(o))
	b.want(`SELECT count(*)::text FROM ev`, "10")
	b.same("swap", before, b.description("ev", "ev_1", "ev_default"))
	b.rollback(b.again(o))
	b.same("rollback", before, b.description("ev", "ev_1", "ev_default"))
}

// TestCrashedStaging: an unlogged table that a crash has emptied is not brought live, whatever --min-rows says.
func TestCrashedStaging(t *testing.T) {
	cluster := testkit.Own(t, testkit.Options{})
	dsn := cluster.Database(t)
	b := &bench{T: t, dsn: dsn, conn: testkit.Connect(t, dsn), log: &logs{}}
	b.exec(`CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1); CREATE TABLE keep (id int PRIMARY KEY); INSERT INTO keep VALUES (1)`)
	b.stage("s", "p", `SELECT generate_series(1, 100)`)
	b.stage("ks", "keep", `SELECT generate_series(1, 100)`)
	b.exec(`ANALYZE s`)
	o := b.options()
	o.Table, o.Staging, o.KeepUnlogged = "keep", "ks", true
	if res := b.swap(o); len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "EMPTY") {
		t.Errorf("warnings of --keep-unlogged: %q", res.Warnings)
	}
	b.want(`SELECT relpersistence::text FROM pg_class WHERE relname = 'keep'`, "u")
	o = b.again(b.options())
	o.Table, o.Staging = "p", "ps"
	b.stage("ps", "p", `SELECT generate_series(1, 100)`)
	b.swap(o) // logged: it survives
	b.exec(`CHECKPOINT`)
	cluster.Stop(syscall.SIGQUIT)
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	b.conn = testkit.Connect(t, dsn)
	b.want(`SELECT count(*)::text FROM p`, "100")
	o = b.again(b.options())
	o.Table, o.Staging, o.MinRows = "p", "s", 0
	b.refused(o, fault.Check, "a crash of the server emptied it")
	b.want(`SELECT count(*)::text FROM p`, "100")
}
