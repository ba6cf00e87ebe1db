package cdc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"synctl/internal/fault"
	"synctl/internal/ndjson"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/testkit"
)

// only runs a snapshot to its end and gives its lines.
func only(t *testing.T, opt Options) []change {
	t.Helper()
	opt.Snapshot = SnapshotOnly
	src, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	out := &lines{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := pipeline.Run(ctx, src, ndjson.NewSink(out, "out"), pipeline.Options{}); err != nil {
		t.Errorf("run: %v", err)
	}
	if err := src.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("close: %v", err)
	}
	return parse(t, out.all())
}

// TestSnapshotZoo: every value of every type is the same as a read as PostgreSQL's to_json gives it.
func TestSnapshotZoo(t *testing.T) {
	dsn, conn := database(t)
	columns := testkit.ZooDDL(t, conn)
	rows := testkit.ZooRows(t, conn, columns)
	got := only(t, Options{DSN: pg.DSN(dsn), Tables: []string{testkit.ZooTable}})
	if len(got) != len(rows) {
		t.Fatalf("%d reads of %d rows", len(got), len(rows))
	}
	sameAsToJSON(t, conn, rows, got)
}

// TestSnapshotTables: what a snapshot gives of every kind of table, in chunks of a few rows.
func TestSnapshotTables(t *testing.T) {
	for name, c := range map[string]struct {
		ddl     string
		minimum int    // server version
		want    string // the rows, as a query gives them
		extra   int    // records that are no rows
	}{
		"empty":     {ddl: `CREATE TABLE a (id int PRIMARY KEY)`, want: `SELECT id FROM a`},
		"one row":   {ddl: `CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (7)`, want: `SELECT id FROM a`},
		"many rows": {ddl: `CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, repeat('x', 300) FROM generate_series(1, 3000) i`, want: `SELECT id, v FROM a`},
		"composite key, its index in another order": {ddl: `CREATE TABLE a (x int, y text, v text, PRIMARY KEY (y, x) INCLUDE (v));
			INSERT INTO a SELECT i, chr(97 + i % 5) || '''\', repeat('y', 400) FROM generate_series(1, 1500) i`, want: `SELECT x, y, v FROM a`},
		"text key under a collation": {ddl: `CREATE TABLE a (k text COLLATE "und-x-icu" PRIMARY KEY, v text);
			INSERT INTO a SELECT (ARRAY['a','B','c','Ä','é','z'])[1 + i % 6] || i, repeat('z', 400) FROM generate_series(1, 1500) i`, want: `SELECT k, v FROM a`},
		"floats, with NaN and infinities": {ddl: `CREATE TABLE a (k float8 PRIMARY KEY, v text); INSERT INTO a SELECT v, repeat('f', 40000) FROM unnest('{NaN,Infinity,-Infinity,-1e300,0,1e-300}'::float8[]) v`, want: `SELECT k, v FROM a`},
		"wide rows":                       {ddl: `CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, repeat('w', 3000000) FROM generate_series(1, 5) i`, want: `SELECT id, v FROM a`},
		"narrow rows, then wide ones":     {ddl: `CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, CASE WHEN i > 2000 THEN repeat('w', 400000) ELSE 'n' END FROM generate_series(1, 2040) i`, want: `SELECT id, v FROM a`},
		"partitioned": {ddl: `CREATE TABLE a (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (500); CREATE TABLE a2 PARTITION OF a DEFAULT;
			INSERT INTO a SELECT i, repeat('p', 300) FROM generate_series(1, 1500) i`, want: `SELECT id, v FROM a`},
		"FULL with a key":   {ddl: `CREATE TABLE a (id int PRIMARY KEY, v text); ALTER TABLE a REPLICA IDENTITY FULL; INSERT INTO a SELECT i, 'v' FROM generate_series(1, 300) i`, want: `SELECT id, v FROM a`},
		"identity by index": {ddl: `CREATE TABLE a (id int PRIMARY KEY, u int NOT NULL UNIQUE); ALTER TABLE a REPLICA IDENTITY USING INDEX a_u_key; INSERT INTO a SELECT i, -i FROM generate_series(1, 300) i`, want: `SELECT id, u FROM a`},
		"no key":            {ddl: `CREATE TABLE a (x int, v text); ALTER TABLE a REPLICA IDENTITY FULL; INSERT INTO a SELECT i % 3, 'same' FROM generate_series(1, 3000) i`, want: `SELECT x, v FROM a`, extra: 1},
		"generated column":  {ddl: `CREATE TABLE a (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED); INSERT INTO a SELECT i FROM generate_series(1, 20) i`, want: `SELECT id FROM a`},
		"odd names":         {ddl: `CREATE TABLE a ("the ""key""" int PRIMARY KEY, "sel'ect" text); INSERT INTO a SELECT i, 'v' FROM generate_series(1, 20) i`, want: `SELECT "the ""key""", "sel'ect" FROM a`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, workers := range []int{1, 3} {
				dsn, conn := database(t)
				testkit.Exec(t, conn, c.ddl)
				got := only(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, SnapshotChunkBytes: 64 << 10, SnapshotWorkers: workers})
				var have []string
				for _, r := range got {
					if r.Op == "read" {
						have = append(have, squeeze(string(r.After)))
					}
				}
				var want []string
				res, err := conn.Query(t.Context(), "SELECT to_json(q)::text FROM ("+c.want+") q")
				if err != nil {
					t.Fatal(err)
				}
				for res.Next() {
					var s string
					if err := res.Scan(&s); err != nil {
						t.Fatal(err)
					}
					want = append(want, squeeze(s))
				}
				slices.Sort(have)
				slices.Sort(want)
				if !slices.Equal(have, want) {
					t.Errorf("%d workers: %d rows, want %d", workers, len(have), len(want))
				}
				if len(got)-len(have) != c.extra {
					t.Errorf("%d workers: %d records that are no rows, want %d", workers, len(got)-len(have), c.extra)
				}
			}
		})
	}
}

// TestSnapshotOfWhatIsPublished: a row filter and a column list hold for the rows of a snapshot, too.
func TestSnapshotOfWhatIsPublished(t *testing.T) {
	dsn, conn := database(t)
	if v := testkit.Shared(t).Version; v < 15 {
		t.Skipf("needs PostgreSQL 15, this is %d", v)
	}
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text, secret text); INSERT INTO a SELECT i, 'v', 's' FROM generate_series(1, 100) i;
		CREATE PUBLICATION p FOR TABLE a (id, v) WHERE (id > 90)`)
	got := only(t, Options{DSN: pg.DSN(dsn), Publication: "p"})
	if len(got) != 10 || strings.Contains(got[0].line, "secret") || !strings.Contains(got[0].line, `"id":91`) {
		t.Errorf("%d records, the first %s", len(got), got[0].line)
	}
}

// TestSnapshotTableThatChanges: a column that comes or goes while the table is read, and a table that is dropped.
func TestSnapshotTableThatChanges(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text, w text); INSERT INTO a SELECT i, repeat('v', 200), 'w' FROM generate_series(1, 2000) i;
		CREATE TABLE b (id int PRIMARY KEY, v text); INSERT INTO b SELECT i, repeat('v', 200) FROM generate_series(1, 2000) i`)
	slot := slotFor(conn)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.*"}, Slot: slot, Create: true, StateDir: t.TempDir(), Snapshot: SnapshotInitial,
		SnapshotChunkBytes: 64 << 10, SnapshotRate: 1000})
	r.wait(400)
	testkit.Exec(t, conn, `ALTER TABLE a ADD n int DEFAULT 5; ALTER TABLE a DROP w`)
	testkit.Exec(t, conn, `DROP TABLE b`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (5000, 'last', 6)`)
	deadline := time.Now().Add(30 * time.Second)
	for !r.src.snaps.run.Done() && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	seen := map[string]string{}
	for _, c := range r.stop() {
		if c.Table == "a" {
			seen[string(c.Key)] = string(c.After)
		}
	}
	if len(seen) != 2001 || seen[`{"id":2000}`] == "" || strings.Contains(seen[`{"id":2000}`], `"w"`) || !strings.Contains(seen[`{"id":2000}`], `"n":5`) {
		t.Errorf("%d rows of a, the last read %s", len(seen), seen[`{"id":2000}`])
	}
	if !r.src.snaps.run.Done() {
		t.Error("the snapshot never ends")
	}
}

// TestSnapshotResumes: a run that is stopped in the middle goes on where it was, and one whose snapshot is complete reads nothing.
func TestSnapshotResumes(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, repeat('v', 400) FROM generate_series(1, 4000) i`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir(), Snapshot: SnapshotInitial,
		SnapshotChunkBytes: 64 << 10, SnapshotRate: 2000}
	r := start(t, opt)
	r.wait(1500)
	first := r.stop()
	if len(first) >= 4000 {
		t.Fatalf("%d reads at once: nothing is left to resume", len(first))
	}
	opt.SnapshotRate = 0
	second := only(t, opt)
	seen := map[string]bool{}
	for _, c := range append(first, second...) {
		seen[string(c.Key)] = true
	}
	if len(seen) != 4000 || len(second) > 4000-1000 {
		t.Errorf("%d rows in all, %d of them in the second run, after %d in the first", len(seen), len(second), len(first))
	}
	if third := only(t, opt); len(third) != 0 {
		t.Errorf("%d records of a snapshot that was complete", len(third))
	}
}

// TestSnapshotHoldsNothingBack: no transaction is open for as long as the snapshot lasts, and the log is confirmed meanwhile.
func TestSnapshotHoldsNothingBack(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, repeat('v', 400) FROM generate_series(1, 6000) i`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir(), Snapshot: SnapshotInitial,
		SnapshotChunkBytes: 64 << 10, SnapshotRate: 2000, Application: slotFor(conn)})
	longest, confirmed := time.Duration(0), map[string]bool{}
	for !r.src.snaps.run.Done() {
		var age float64
		var lsn string
		if err := conn.QueryRow(t.Context(), `SELECT coalesce(extract(epoch FROM max(now() - xact_start)), 0)::float8,
			(SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1)
			FROM pg_stat_activity WHERE application_name = $1 AND backend_xmin IS NOT NULL AND backend_type = 'client backend'`, slotFor(conn)).Scan(&age, &lsn); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Duration(age*float64(time.Second)))
		confirmed[lsn] = true
		time.Sleep(10 * time.Millisecond)
	}
	if got := r.stop(); len(got) != 6000 {
		t.Errorf("%d reads", len(got))
	}
	if longest > time.Second || len(confirmed) < 4 {
		t.Errorf("a transaction was open for %s, %d positions were confirmed", longest, len(confirmed))
	}
}

// TestSnapshotRequests: a table is added and asked for again while the run goes on; without a run the request is refused.
func TestSnapshotRequests(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, 'a' FROM generate_series(1, 100) i;
		CREATE TABLE b (id int PRIMARY KEY, v text); INSERT INTO b SELECT i, 'b' FROM generate_series(1, 50) i; CREATE PUBLICATION p FOR TABLE a`)
	slot := slotFor(conn)
	opt := Options{DSN: pg.DSN(dsn), Publication: "p", Slot: slot, Create: true, StateDir: t.TempDir()}
	r := start(t, opt)
	ask := opt
	for _, err := range []error{
		fails(RequestSnapshot(t.Context(), ask, "public.b", "")),
		fails(RequestSnapshot(t.Context(), ask, "public.nope", "")),
	} {
		if fault.ClassOf(err) != fault.Check || fault.HintOf(err) == "" {
			t.Errorf("error %v", err)
		}
	}
	if err := fails(RequestSnapshot(t.Context(), ask, "public.a", "nope = 1")); fault.ClassOf(err) != fault.Usage {
		t.Errorf("error %v", err)
	}
	if _, err := AddTable(t.Context(), ask, "public.b"); err != nil {
		t.Fatal(err)
	}
	r.wait(50)
	if _, err := RequestSnapshot(t.Context(), ask, "public.a", "id > 90"); err != nil {
		t.Fatal(err)
	}
	r.wait(60)
	testkit.Exec(t, conn, `UPDATE b SET v = 'c' WHERE id = 1`)
	got := r.wait(61)
	r.stop()
	count := map[string]int{}
	for _, c := range got {
		count[c.Op+" "+c.Table]++
	}
	if count["read b"] != 50 || count["read a"] != 10 || count["update b"] != 1 || strings.Contains(got[60].line, `"snapshot"`) {
		t.Errorf("records %v, the last %s", count, got[60].line)
	}
	if err := fails(RequestSnapshot(t.Context(), ask, "public.a", "")); fault.ClassOf(err) != fault.Check || !strings.Contains(err.Error(), "nobody reads slot") {
		t.Errorf("error %v", err)
	}
}

func fails(_ Asked, err error) error { return err }

// TestSnapshotBesideChanges: a change of a row that is not read yet says that a snapshot runs; reads never come after a later change.
func TestSnapshotBesideChanges(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, n int, v text); INSERT INTO a SELECT i, 0, repeat('v', 300) FROM generate_series(1, 3000) i`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir(), Snapshot: SnapshotInitial,
		SnapshotChunkBytes: 64 << 10, SnapshotRate: 3000})
	for i := range 40 {
		testkit.Exec(t, conn, fmt.Sprintf(`UPDATE a SET n = n + 1 WHERE id %% 40 = %d`, i))
	}
	for !r.src.snaps.run.Done() {
		time.Sleep(10 * time.Millisecond)
	}
	testkit.Exec(t, conn, `UPDATE a SET n = 100 WHERE id = 1`)
	time.Sleep(200 * time.Millisecond)
	last, beside := map[string]int{}, 0
	for _, c := range r.stop() {
		var row struct{ N int }
		if err := json.Unmarshal(c.After, &row); err != nil {
			t.Fatal(err)
		}
		var rec record.Record
		if err := record.Parse([]byte(c.line), &rec); err != nil {
			t.Fatal(err)
		}
		if row.N < last[string(c.Key)] {
			t.Errorf("%s comes after n = %d", c.line, last[string(c.Key)])
		}
		last[string(c.Key)] = row.N
		if c.Op == "update" && rec.Snapshot != 0 {
			beside++
		}
	}
	if len(last) != 3000 || last[`{"id":1}`] != 100 || last[`{"id":2}`] != 1 || beside == 0 {
		t.Errorf("%d rows, n of the first two %d and %d, %d changes beside the snapshot", len(last), last[`{"id":1}`], last[`{"id":2}`], beside)
	}
}

// TestSnapshotRateOfWholeTable: a table that is read in one go is read whole, however low the rate.
func TestSnapshotRateOfWholeTable(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (x int); ALTER TABLE a REPLICA IDENTITY FULL; INSERT INTO a SELECT i FROM generate_series(1, 3000) i`)
	begin := time.Now()
	got := only(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, SnapshotRate: 1500})
	if took := time.Since(begin); len(got) != 3001 || took < time.Second {
		t.Errorf("%d records of 3000 rows and a truncate, in %s", len(got), took)
	}
}

// TestSnapshotKeyWithInclude: columns that a primary key merely includes are no part of the key, under FULL either; a change beside the
// snapshot is known by the same key as the row.
func TestSnapshotKeyWithInclude(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int, v text, PRIMARY KEY (id) INCLUDE (v)); ALTER TABLE a REPLICA IDENTITY FULL; INSERT INTO a SELECT i, 'v' FROM generate_series(1, 30) i`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Snapshot: SnapshotInitial})
	r.wait(30)
	testkit.Exec(t, conn, `UPDATE a SET v = 'w' WHERE id = 3`)
	r.wait(31)
	for _, c := range r.stop() {
		if strings.Contains(string(c.Key), "v") || c.Moved {
			t.Errorf("key %s of %s", c.Key, c.line)
		}
	}
}

// TestSnapshotReconnects: connections that are lost again and again, those of the workers as well, cost no row.
func TestSnapshotReconnects(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT i, repeat('v', 400) FROM generate_series(1, 6000) i;
		CREATE TABLE b (x int); ALTER TABLE b REPLICA IDENTITY FULL; INSERT INTO b SELECT i FROM generate_series(1, 3000) i`)
	slot := slotFor(conn)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.*"}, Slot: slot, Create: true, StateDir: t.TempDir(), Snapshot: SnapshotInitial,
		SnapshotChunkBytes: 64 << 10, SnapshotRate: 4000, Application: slot})
	kills := 0
	for deadline := time.Now().Add(40 * time.Second); !r.src.snaps.run.Done(); time.Sleep(150 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the snapshot never ends")
		}
		if kills++; kills < 15 {
			testkit.Exec(t, conn, fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '%s'`, slot))
		}
	}
	keys, whole := map[string]bool{}, 0
	for _, c := range r.stop() {
		switch {
		case c.Op == "truncate":
			whole = 0
		case c.Table == "b":
			whole++
		default:
			keys[string(c.Key)] = true
		}
		if c.LSN == "0/0" {
			t.Errorf("no position: %s", c.line)
		}
	}
	if len(keys) != 6000 || whole != 3000 {
		t.Errorf("%d rows of 6000, %d of 3000 since the last truncate", len(keys), whole)
	}
	if r.src.Status().Reconnects == 0 {
		t.Error("no connection was lost, so nothing was tested")
	}
}

// TestSnapshotLimit: --limit holds within a chunk.
func TestSnapshotLimit(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a SELECT i FROM generate_series(1, 500) i`)
	if got := only(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Limit: 3}); len(got) != 3 {
		t.Errorf("%d records, want 3", len(got))
	}
}

// TestSnapshotForgedRequest: any role may write messages into the log. One with a condition of its own is not carried out with our rights,
// and one that is no request ends no run.
func TestSnapshotForgedRequest(t *testing.T) {
	t.Parallel()
	dsn, conn := database(t)
	slot := slotFor(conn)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1); CREATE ROLE forger_`+slot)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slot, Create: true, StateDir: t.TempDir()})
	for _, content := range []string{
		`no json`, `{}`, `{"run":"x","chunk":1,"mark":"high"}`,
		`{"snapshot":{"id":"0123456789abcdef","slot":"` + slot + `","schema":"public","table":"a","where":"true"}}`,
		`{"snapshot":{"id":"'; DROP TABLE a; --","slot":"` + slot + `","schema":"public","table":"a"}}`,
		`{"snapshot":{"id":"0123456789abcdee","slot":"` + slot + `","schema":"public","table":"nope"}}`,
	} {
		if _, err := conn.Exec(t.Context(), `SET ROLE forger_`+slot); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `SELECT pg_logical_emit_message(true, 'synctl', $1::text)`, content); err != nil {
			t.Fatal(err)
		}
		testkit.Exec(t, conn, `RESET ROLE`)
	}
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2)`)
	r.wait(1)
	time.Sleep(2 * time.Second) // a worker that had taken one up would be done by then
	if got := r.stop(); len(got) != 1 || got[0].Op != "insert" {
		t.Errorf("a forged request was carried out: %v", got)
	}
	testkit.Exec(t, conn, `DROP ROLE forger_`+slot)
}
