package swap

import (
	"fmt"
	"testing"

	"synctl/internal/fault"
)

// TestPartition goes through the life of one partition: added beside a default, replaced, rolled back, replaced by
// an empty one, taken out again.
func TestPartition(t *testing.T) {
	b := newBench(t)
	b.exec(roles + `CREATE TABLE kind (id int PRIMARY KEY); INSERT INTO kind VALUES (1), (2);
		CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
		CREATE TABLE ev (day date NOT NULL, id bigint NOT NULL, kind int DEFAULT 1 REFERENCES kind, note text CHECK (note <> ''), PRIMARY KEY (day, id)) PARTITION BY LIST (day);
		CREATE INDEX ev_note_idx ON ev (note); CREATE INDEX ON ev (kind, id DESC) WHERE kind > 1;
		CREATE TRIGGER touch BEFORE INSERT ON ev FOR EACH ROW EXECUTE FUNCTION touch();
		ALTER TABLE ev OWNER TO zoo_owner; GRANT SELECT ON ev TO zoo_reader; ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO zoo_clerk;
		CREATE TABLE ev_1 PARTITION OF ev FOR VALUES IN ('2026-11-29'); CREATE TABLE ev_default PARTITION OF ev DEFAULT;
		CREATE VIEW all_ev AS SELECT * FROM ev; CREATE PUBLICATION pub FOR TABLE ev WITH (publish_via_partition_root);
		INSERT INTO ev SELECT '2026-11-29', i, 1, 'old' FROM generate_series(1, 100) i; INSERT INTO ev VALUES ('2026-01-01', 1, 2, 'odd')`)
	others := b.description("ev", "ev_1", "ev_default")
	o := b.debugOptions()
	o.Table, o.Staging, o.Partition, o.Values = "ev", "ev_staging", "ev_2", "IN ('2026-11-30')"
	load := func(note string, n int) {
		b.stage("ev_staging", "ev", fmt.Sprintf(`SELECT '2026-11-30', i, 1 + i %% 2, '%s' FROM generate_series(1, %d) i`, note, n))
	}
	load("new", 200)
	res := b.swap(b.again(o))
	b.scanSkipped("ev_2", "ev_default")
	b.want(`SELECT count(*)::text FROM ev`, "301")
	b.same("others", others, b.description("ev", "ev_1", "ev_default"))
	if res.Kept != "" || res.Rows != 200 {
		t.Errorf("result %+v", res)
	}
	// As CREATE TABLE … PARTITION OF would have made it, but for the privileges, which are the parent's.
	b.want(`SELECT string_agg(i.relname, ' ' ORDER BY i.relname) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE indrelid = 'ev_2'::regclass`, "ev_2_kind_id_idx ev_2_note_idx ev_2_pkey")

	// It gets things of its own, which its successors take over.
	b.exec(`ALTER TABLE ev_2 ALTER kind SET DEFAULT 2; CREATE INDEX mine ON ev_2 (id); GRANT UPDATE (note) ON ev_2 TO zoo_clerk; COMMENT ON TABLE ev_2 IS 'mine'; ALTER TABLE ev_2 SET (fillfactor = 60);
		ALTER TABLE ev_2 DISABLE TRIGGER touch; CREATE TRIGGER own AFTER DELETE ON ev_2 EXECUTE FUNCTION touch(); CREATE VIEW day2 AS SELECT id, note FROM ev_2; ALTER TABLE ev_2 REPLICA IDENTITY FULL;
		CREATE PUBLICATION pub2 FOR TABLE ev_2; CREATE STATISTICS st (dependencies) ON id, kind FROM ev_2; ALTER TABLE ev_2 ADD CONSTRAINT positive CHECK (id > 0); ALTER TABLE ev_2 CLUSTER ON ev_2_pkey`)
	before := b.description("ev", "ev_1", "ev_2", "ev_default", "day2", "kind")
	same := func(what string) {
		t.Helper()
		b.same(what, before, b.description("ev", "ev_1", "ev_2", "ev_default", "day2", "kind"))
	}
	load("newer", 50)
	res = b.swap(b.again(o))
	b.scanSkipped("ev_2", "ev_default")
	b.want(`SELECT count(*)::text FROM ev`, "151")
	b.want(`SELECT count(*)::text FROM day2 WHERE note = 'newer'`, "50")
	same("replacement")
	// A kept table must not forbid deletes in the tables that it pointed at.
	b.want(fmt.Sprintf(`SELECT count(*)::text FROM pg_constraint WHERE conrelid = '%s'::regclass AND contype = 'f'`, res.Kept), "0")

	o.Values = "" // known
	b.rollback(b.again(o))
	b.scanSkipped("ev_2", "ev_default")
	b.want(`SELECT count(*)::text FROM ev`, "301")
	same("rollback")
	if res := b.rollback(b.again(o)); res.Outcome != "already" {
		t.Errorf("second rollback: %+v", res)
	}

	load("none", 0)
	b.refused(b.again(o), fault.Check, "it has 0 rows")
	o.MinRows = 0
	b.swap(b.again(o))
	b.want(`SELECT count(*)::text FROM ev`, "101")
	same("emptied")
	if res := b.swap(b.again(o)); res.Outcome != "already" {
		t.Errorf("the same command again: %+v", res)
	}
	b.want(`SELECT count(*)::text FROM pg_class WHERE relname ~ '_new_|_staging|synctl_'`, "0")
	b.want(`SELECT count(*)::text FROM pg_constraint WHERE conname ~ '_new_|synctl_'`, "0")
}

// TestFirstLoadRollback takes out again what was not there before.
func TestFirstLoadRollback(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE ev (day date PRIMARY KEY) PARTITION BY RANGE (day); CREATE TABLE ev_default PARTITION OF ev DEFAULT`)
	before := b.description("ev", "ev_default")
	o := b.options()
	o.Table, o.Staging, o.Partition, o.Values = "ev", "s", "ev_1", "FROM ('2026-11-01') TO ('2026-12-01')"
	for range 2 {
		b.stage("s", "ev", `VALUES (date '2026-11-05')`)
		b.swap(b.again(o))
		b.want(`SELECT count(*)::text FROM ev`, "1")
		if res := b.rollback(b.again(o)); res.Outcome != "rolled back" || res.Kept == "" {
			t.Errorf("%+v", res)
		}
		b.want(`SELECT count(*)::text FROM ev`, "0")
		b.same("rollback", before, b.description("ev", "ev_default"))
		if res := b.rollback(b.again(o)); res.Outcome != "already" {
			t.Errorf("second rollback: %+v", res)
		}
		b.exec(`INSERT INTO ev VALUES ('2026-11-05'); DELETE FROM ev`) // to the default again
	}
}

// TestBounds has kinds of keys whose bounds the server must recognise in the CHECK.
func TestBounds(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TYPE mood AS ENUM ('glad', 'sad')`)
	for i, c := range []struct{ key, typ, values, row string }{
		{"LIST (k)", "text", "IN ('a', 'b')", "'a'"},
		{"LIST (k)", "varchar(10)", "IN ('a', NULL)", "NULL"},
		{"LIST (k)", "mood", "IN ('glad')", "'glad'"},
		{"LIST (k)", "boolean", "IN (true)", "true"},
		{"LIST (lower(k))", "text", "IN ('a')", "'A'"},
		{"RANGE (k)", "timestamptz", "FROM ('2026-11-30') TO ('2026-12-01')", "'2026-11-30 23:59:59.9+00'"},
		{"RANGE (k)", "numeric", "FROM (MINVALUE) TO (0.5)", "-3"},
		{"RANGE (k, id)", "date", "FROM ('2026-11-30', 10) TO ('2026-11-30', MAXVALUE)", "'2026-11-30'"},
		{"RANGE (k)", "uuid", "FROM ('a0000000-0000-0000-0000-000000000000') TO (MAXVALUE)", "'b0000000-0000-0000-0000-000000000000'"},
		{"RANGE ((id % 10))", "int", "FROM (2) TO (3)", "0"},
	} {
		name := fmt.Sprintf("t%d", i)
		b.exec(fmt.Sprintf(`CREATE TABLE %[1]s (k %[2]s, id int) PARTITION BY %[3]s; CREATE TABLE %[1]s_default PARTITION OF %[1]s DEFAULT`, name, c.typ, c.key))
		b.stage(name+"_s", name, fmt.Sprintf(`VALUES (%s, 12)`, c.row))
		o := b.debugOptions()
		o.Table, o.Staging, o.Partition, o.Values = name, name+"_s", name+"_p", c.values
		b.swap(b.again(o))
		b.want(`SELECT count(*)::text FROM ONLY `+name+"_p", "1")
		b.scanSkipped(name+"_p", name+"_default")
	}
}

func TestPartitionRefusals(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE ev (day date, id int) PARTITION BY RANGE (day); CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM ('2026-11-01') TO ('2026-12-01');
		CREATE TABLE ev_sub PARTITION OF ev FOR VALUES FROM ('2025-01-01') TO ('2026-01-01') PARTITION BY LIST (id);
		CREATE TABLE ev_default PARTITION OF ev DEFAULT; INSERT INTO ev VALUES ('2027-01-05', 1), ('2026-11-02', 2);
		CREATE TABLE h (id int) PARTITION BY HASH (id); CREATE TABLE h0 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE plain (day date, id int)`)
	b.stage("s", "ev", `VALUES ('2027-01-06', 1)`)
	o := b.options()
	o.Staging = "s"
	for _, c := range []struct {
		table, partition, values string
		class                    fault.Class
		want                     string
	}{
		{"h", "h0", "", fault.Check, "partitioned by hash"},
		{"ev", "", "", fault.Check, "is partitioned: name the partition"},
		{"plain", "p", "IN (1)", fault.Check, "is not partitioned"},
		{"ev_1", "", "", fault.Check, "is a partition: name its parent"},
		{"ev", "plain", "", fault.Check, "exists and is no partition of"},
		{"ev", "ev_sub", "", fault.Check, "is itself partitioned"},
		{"ev", "ev_3", "", fault.Usage, "no bounds are given"},
		{"ev", "ev_3", "DEFAULT", fault.Check, "can be replaced, not added"},
		{"ev", "ev_3", "FROM ('2026-11-15') TO ('2027-01-01')", fault.Check, `partition "ev_3" would overlap partition public.ev_1`},
		{"ev", "ev_1", "FROM ('2026-11-15') TO ('2026-12-01')", fault.Check, "--values says"},
		{"ev", "ev_3", "IN (1)", fault.Usage, "invalid bound specification for a range partition"},
		{"ev", "ev_3", "FROM (1", fault.Usage, "syntax error"},
		{"ev", "ev_3", "FROM ('2027-01-01') TO ('2027-02-01'); DROP TABLE plain", fault.Usage, "syntax error|multiple commands"},
		{"ev", "ev_3", "FROM ('2027-01-01') TO ('2027-02-01')", fault.Check, "1 rows in the default partition public.ev_default belong to the new partition"},
		{"ev", "ev_1", "", fault.Check, "1 rows are outside the partition's bounds"},
	} {
		o := b.again(o)
		o.Table, o.Partition, o.Values = c.table, c.partition, c.values
		if c.want == "syntax error|multiple commands" {
			c.want = "bounds"
		}
		b.refused(o, c.class, c.want)
	}
	b.want(`SELECT count(*)::text FROM ev`, "2")
	b.want(`SELECT count(*)::text FROM plain`, "0")
	b.want(`SELECT count(*)::text FROM pg_constraint WHERE conname ~ 'exclude'`, "0")
}

// TestIncomingKeys: a partition to which rows refer cannot be detached; one to which none refers can.
func TestIncomingKeys(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE ev (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM (0) TO (10); CREATE TABLE ev_2 PARTITION OF ev FOR VALUES FROM (10) TO (20);
		CREATE TABLE ref (ev int REFERENCES ev); INSERT INTO ev VALUES (1), (11); INSERT INTO ref VALUES (1)`)
	before := b.description("ev", "ev_1", "ev_2", "ref")
	o := b.debugOptions()
	o.Table, o.Staging, o.Partition = "ev", "s", "ev_1"
	b.stage("s", "ev", `VALUES (1)`)
	b.refused(b.again(o), fault.Check, "rows of public.ref refer to rows of partition public.ev_1")
	b.exec(`UPDATE s SET id = 12`)
	o.Partition = "ev_2"
	b.swap(b.again(o))
	b.want(`SELECT string_agg(id::text, ',' ORDER BY id) FROM ev`, "1,12")
	b.same("swap", before, b.description("ev", "ev_1", "ev_2", "ref"))
	b.exec(`INSERT INTO ref VALUES (12)`)
}

// TestMultiLevel exchanges a leaf of a partitioned partition: the root's bound is demanded of it too.
func TestMultiLevel(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE ev (day date, shop int, PRIMARY KEY (day, shop)) PARTITION BY RANGE (day);
		CREATE TABLE ev_26 PARTITION OF ev FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') PARTITION BY LIST (shop);
		CREATE TABLE ev_26_1 PARTITION OF ev_26 FOR VALUES IN (1);
		CREATE TABLE ev_26_default PARTITION OF ev_26 DEFAULT PARTITION BY RANGE (day); CREATE TABLE ev_26_rest PARTITION OF ev_26_default DEFAULT; INSERT INTO ev VALUES ('2026-01-01', 1), ('2026-01-01', 9)`)
	before := b.description("ev", "ev_26", "ev_26_1", "ev_26_default", "ev_26_rest")
	o := b.debugOptions()
	o.Table, o.Staging, o.Partition = "ev_26", "s", "ev_26_1"
	b.stage("s", "ev", `VALUES ('2025-01-01', 1)`)
	b.refused(b.again(o), fault.Check, "1 rows are outside")
	b.exec(`UPDATE s SET day = '2026-02-02'`)
	b.swap(b.again(o))
	b.scanSkipped("ev_26_1")
	b.want(`SELECT string_agg(day::text, ',' ORDER BY day) FROM ev WHERE shop = 1`, "2026-02-02")
	b.same("swap", before, b.description("ev", "ev_26", "ev_26_1", "ev_26_default", "ev_26_rest"))
	// A default partition can be replaced as well.
	b.exec(`CREATE TABLE d (k int PRIMARY KEY) PARTITION BY LIST (k); CREATE TABLE d1 PARTITION OF d FOR VALUES IN (1); CREATE TABLE dd PARTITION OF d DEFAULT; INSERT INTO d VALUES (1), (2)`)
	b.stage("d_s", "d", `VALUES (3), (4)`)
	o.Table, o.Staging, o.Partition = "d", "d_s", "dd"
	b.swap(b.again(o))
	b.scanSkipped("dd")
	b.want(`SELECT string_agg(k::text, ',' ORDER BY k) FROM d`, "1,3,4")
}
