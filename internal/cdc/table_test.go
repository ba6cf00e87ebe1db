package cdc

import (
	"fmt"
	"strings"
	"testing"

	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// scenario is DDL, statements made while the source reads, and the records that are due.
type scenario struct {
	before string   // before the start
	run    []string // each in a transaction of its own
	opt    Options
	want   []string
	since  int // server version from which it can be had
}

func TestTables(t *testing.T) {
	long := strings.Repeat("y", 3000)
	for name, s := range map[string]scenario{
		"full, with a primary key": {
			before: `CREATE TABLE a (id int PRIMARY KEY, s text, n text); ALTER TABLE a ALTER n SET STORAGE EXTERNAL, REPLICA IDENTITY FULL`,
			run: []string{`INSERT INTO a VALUES (1, 'x', repeat('y', 3000))`, `UPDATE a SET s = 'z'`, `UPDATE a SET id = 2`,
				`UPDATE a SET n = NULL`, `DELETE FROM a`},
			want: []string{
				`insert a {"id":1} - {"id":1,"s":"x","n":"` + long + `"}`,
				`update a {"id":1} {"id":1,"s":"x","n":"` + long + `"} {"id":1,"s":"z","n":"` + long + `"}`,
				`delete a {"id":1} {"id":1,"s":"z","n":"` + long + `"} - moved`,
				`insert a {"id":2} - {"id":2,"s":"z","n":"` + long + `"} moved`,
				`update a {"id":2} {"id":2,"s":"z","n":"` + long + `"} {"id":2,"s":"z","n":null}`,
				`delete a {"id":2} {"id":2,"s":"z","n":null} -`},
		},
		"full, keyless": {
			before: `CREATE TABLE a (id int, s text); ALTER TABLE a REPLICA IDENTITY FULL`,
			run:    []string{`INSERT INTO a VALUES (1, 'x')`, `UPDATE a SET id = 2`},
			want:   []string{`insert a - - {"id":1,"s":"x"}`, `update a - {"id":1,"s":"x"} {"id":2,"s":"x"}`},
		},
		"full, deferrable key": {
			before: `CREATE TABLE a (id int PRIMARY KEY DEFERRABLE); ALTER TABLE a REPLICA IDENTITY FULL`,
			run:    []string{`INSERT INTO a VALUES (1), (2)`, `UPDATE a SET id = id + 1`},
			want:   []string{`insert a - - {"id":1}`, `insert a - - {"id":2}`, `update a - {"id":1} {"id":2}`, `update a - {"id":2} {"id":3}`},
		},
		"an index as identity": {
			before: `CREATE TABLE a (id int PRIMARY KEY, x int NOT NULL, y text NOT NULL, UNIQUE (y, x)); ALTER TABLE a REPLICA IDENTITY USING INDEX a_y_x_key`,
			run:    []string{`INSERT INTO a VALUES (1, 2, 'k')`, `UPDATE a SET id = 5`, `UPDATE a SET x = 3`, `DELETE FROM a`},
			want: []string{`insert a {"x":2,"y":"k"} - {"id":1,"x":2,"y":"k"}`, `update a {"x":2,"y":"k"} - {"id":5,"x":2,"y":"k"}`,
				`delete a {"x":2,"y":"k"} {"x":2,"y":"k"} - moved`, `insert a {"x":3,"y":"k"} - {"id":5,"x":3,"y":"k"} moved`,
				`delete a {"x":3,"y":"k"} {"x":3,"y":"k"} -`},
		},
		"nothing, inserts only": {
			before: `CREATE TABLE a (id int PRIMARY KEY); ALTER TABLE a REPLICA IDENTITY NOTHING; CREATE PUBLICATION ins FOR TABLE a WITH (publish = 'insert')`,
			opt:    Options{Publication: "ins"},
			run:    []string{`INSERT INTO a VALUES (1)`},
			want:   []string{`insert a - - {"id":1}`},
		},
		"a TOASTed key that stays": {
			before: `CREATE TABLE a (k text PRIMARY KEY, v int, w text); ALTER TABLE a ALTER k SET STORAGE EXTERNAL`,
			run:    []string{`INSERT INTO a VALUES (repeat('k', 2500), 1)`, `UPDATE a SET v = 2`},
			want: []string{`insert a {"k":"` + strings.Repeat("k", 2500) + `"} - {"k":"` + strings.Repeat("k", 2500) + `","v":1,"w":null}`,
				`update a {"k":"` + strings.Repeat("k", 2500) + `"} {"k":"` + strings.Repeat("k", 2500) + `"} {"k":"` + strings.Repeat("k", 2500) + `","v":2,"w":null}`},
		},
		"DDL within a transaction": {
			before: `CREATE TABLE a (id int PRIMARY KEY, s text)`,
			run: []string{`BEGIN; INSERT INTO a VALUES (1, 'x'); ALTER TABLE a ADD d numeric(4,2) DEFAULT 1.5; INSERT INTO a VALUES (2, 'y'); ALTER TABLE a RENAME s TO z;
INSERT INTO a VALUES (3, 'z'); ALTER TABLE a DROP d; INSERT INTO a VALUES (4, 'w'); ALTER TABLE a ALTER id TYPE bigint; UPDATE a SET id = id + 10 WHERE id = 4; COMMIT`},
			want: []string{`insert a {"id":1} - {"id":1,"s":"x"}`, `insert a {"id":2} - {"id":2,"s":"y","d":1.50}`, `insert a {"id":3} - {"id":3,"z":"z","d":1.50}`,
				`insert a {"id":4} - {"id":4,"z":"w"}`, `delete a {"id":4} {"id":4} - moved`, `insert a {"id":14} - {"id":14,"z":"w"} moved`},
		},
		"types made after the start": {
			before: `CREATE TABLE a (id int PRIMARY KEY)`,
			run: []string{`BEGIN; CREATE TYPE fresh AS ENUM ('one'); CREATE TYPE comp AS (e fresh, n numeric[]); CREATE DOMAIN dom AS comp[];
ALTER TABLE a ADD c comp, ADD d dom, ADD e fresh[]; INSERT INTO a VALUES (1, ROW('one', '{1.50}'), ARRAY[ROW('one', NULL)::comp], '{one}'); COMMIT`,
				`wait 1`, `ALTER TYPE comp ADD ATTRIBUTE j json`, `INSERT INTO a VALUES (2, ROW('one', '{}', '[1]'))`},
			want: []string{`insert a {"id":1} - {"id":1,"c":{"e":"one","n":[1.50]},"d":[{"e":"one","n":null}],"e":["one"]}`,
				`insert a {"id":2} - {"id":2,"c":{"e":"one","n":[],"j":[1]},"d":null,"e":null}`},
		},
		"partitions as their root": {
			before: `CREATE TABLE a (id int, s text, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (10);
CREATE TABLE a2 (s text, id int NOT NULL); ALTER TABLE a ATTACH PARTITION a2 FOR VALUES FROM (10) TO (20)`,
			run:  []string{`INSERT INTO a VALUES (1, 'x'), (11, 'y')`, `UPDATE a SET id = 12 WHERE id = 1`, `DELETE FROM a WHERE id = 11`},
			want: []string{`insert a {"id":1} - {"id":1,"s":"x"}`, `insert a {"id":11} - {"id":11,"s":"y"}`, `delete a {"id":1} {"id":1} -`, `insert a {"id":12} - {"id":12,"s":"x"}`, `delete a {"id":11} {"id":11} -`},
		},
		"partitions by their own names": {
			before: `CREATE TABLE a (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (10);
CREATE TABLE b (id int PRIMARY KEY); CREATE PUBLICATION leaves FOR TABLE a, b`,
			opt:  Options{Publication: "leaves", Tables: []string{"public.a"}},
			run:  []string{`INSERT INTO b VALUES (1)`, `INSERT INTO a VALUES (1)`, `TRUNCATE a1, b`},
			want: []string{`insert a1 {"id":1} - {"id":1}`, `truncate [a1]`},
		},
		"row filter": {since: 15,
			before: `CREATE TABLE a (id int PRIMARY KEY, v int); ALTER TABLE a REPLICA IDENTITY FULL; CREATE PUBLICATION few FOR TABLE a WHERE (v > 10)`,
			opt:    Options{Publication: "few"},
			run:    []string{`INSERT INTO a VALUES (1, 5), (2, 20)`, `UPDATE a SET v = v + 10`, `UPDATE a SET v = 0 WHERE id = 2`},
			want:   []string{`insert a {"id":2} - {"id":2,"v":20}`, `insert a {"id":1} - {"id":1,"v":15}`, `update a {"id":2} {"id":2,"v":20} {"id":2,"v":30}`, `delete a {"id":2} {"id":2,"v":30} -`},
		},
		"column list": {since: 15,
			before: `CREATE TABLE a (id int PRIMARY KEY, secret text, v int); CREATE PUBLICATION cols FOR TABLE a (id, v)`,
			opt:    Options{Publication: "cols"},
			run:    []string{`INSERT INTO a VALUES (1, 's', 5)`, `DELETE FROM a`},
			want:   []string{`insert a {"id":1} - {"id":1,"v":5}`, `delete a {"id":1} {"id":1} -`},
		},
		"a column list without the whole key": {since: 15,
			before: `CREATE TABLE a (x int, y int, v int, PRIMARY KEY (x, y)); CREATE PUBLICATION cols FOR TABLE a (x, v) WITH (publish = 'insert')`,
			opt:    Options{Publication: "cols"},
			run:    []string{`INSERT INTO a VALUES (1, 2, 3)`},
			want:   []string{`insert a - - {"x":1,"v":3}`},
		},
		"generated columns": {since: 18,
			before: `CREATE TABLE a (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED); CREATE PUBLICATION gen FOR TABLE a WITH (publish_generated_columns = stored)`,
			opt:    Options{Publication: "gen"},
			run:    []string{`INSERT INTO a VALUES (4)`},
			want:   []string{`insert a {"id":4} - {"id":4,"g":8}`},
		},
		"savepoints": {
			before: `CREATE TABLE a (id int PRIMARY KEY)`,
			run:    []string{`BEGIN; INSERT INTO a VALUES (1); SAVEPOINT s; INSERT INTO a VALUES (2); ROLLBACK TO s; INSERT INTO a VALUES (3); COMMIT`, `BEGIN; INSERT INTO a VALUES (4); ROLLBACK`},
			want:   []string{`insert a {"id":1} - {"id":1}`, `insert a {"id":3} - {"id":3}`},
		},
		"citext keys that differ as text": {
			before: `CREATE EXTENSION citext; CREATE TABLE a (k citext PRIMARY KEY)`,
			run:    []string{`INSERT INTO a VALUES ('A')`, `UPDATE a SET k = 'a'`},
			want:   []string{`insert a {"k":"A"} - {"k":"A"}`, `delete a {"k":"A"} {"k":"A"} - moved`, `insert a {"k":"a"} - {"k":"a"} moved`},
		},
		"odd names": {
			before: `CREATE SCHEMA "S.x"; CREATE TABLE "S.x"."Ta""ble" ("k ey" int PRIMARY KEY, "q'uote" text)`,
			opt:    Options{Tables: []string{`"S.x".*`}},
			run:    []string{`INSERT INTO "S.x"."Ta""ble" VALUES (1, 'x')`},
			want:   []string{`insert Ta"ble {"k ey":1} - {"k ey":1,"q'uote":"x"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if v := testkit.Shared(t).Version; v < s.since {
				t.Skipf("needs PostgreSQL %d, this is %d", s.since, v)
			}
			dsn, conn := database(t)
			testkit.Exec(t, conn, s.before)
			opt := s.opt
			opt.DSN = pg.DSN(dsn)
			if opt.Publication == "" && opt.Tables == nil {
				opt.Tables = []string{"public.*"}
			}
			r := start(t, opt)
			for _, sql := range s.run {
				if sql == "wait 1" {
					r.wait(1)
					continue
				}
				testkit.Exec(t, conn, sql)
			}
			testkit.Exec(t, conn, `SELECT pg_logical_emit_message(true, 'end', '')`)
			r.wait(len(s.want) + 1)
			got := r.stop()
			for i, c := range got[:len(got)-1] {
				have := describe(c)
				if i >= len(s.want) || have != s.want[i] {
					t.Errorf("record %d: %s\nwant %s", i, have, append(s.want, "nothing")[min(i, len(s.want))])
				}
			}
			if got[len(got)-1].Op != "message" {
				t.Errorf("more records than are due: %v", got[len(got)-1])
			}
		})
	}
}

func describe(c change) string {
	if c.Op == "truncate" {
		var names []string
		for _, table := range c.Tables {
			names = append(names, table.Table)
		}
		return fmt.Sprintf("truncate %v", names)
	}
	part := func(raw []byte) string {
		if len(raw) == 0 {
			return "-"
		}
		return string(raw)
	}
	s := fmt.Sprintf("%s %s %s %s %s", c.Op, c.Table, part(c.Key), part(c.Before), part(c.After))
	if c.Moved {
		s += " moved"
	}
	return s
}

// TestAlteredComposite: a value written before its type was altered is an error that names the type, or its text.
func TestAlteredComposite(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TYPE comp AS (a int, b int); CREATE TABLE a (id int PRIMARY KEY, c comp)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1, ROW(1, 2))`)
	testkit.Exec(t, conn, `ALTER TYPE comp ADD ATTRIBUTE c int`)
	r := start(t, opt)
	if err := <-r.err; err == nil || !strings.Contains(err.Error(), "public.comp was altered") {
		t.Errorf("error %v", err)
	}
	if err := r.src.Close(t.Context()); err != nil {
		t.Error(err)
	}
	opt.UnresolvedType = UnresolvedText
	r = start(t, opt)
	if got := r.wait(1); string(got[0].After) != `{"id":1,"c":"(1,2)"}` {
		t.Errorf("after %s", got[0].After)
	}
	r.stop()
}

// TestLookUp: a key update gets the TOASTed column that was not sent, by the new key.
func TestLookUp(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn,
		`CREATE TABLE a (id int, sub text, n text, j jsonb, PRIMARY KEY (id, sub)); ALTER TABLE a ALTER n SET STORAGE EXTERNAL, ALTER j SET STORAGE EXTERNAL`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1, 'x''y', repeat('n', 5000), jsonb_build_object('k', repeat('v', 5000)))`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	testkit.Exec(t, conn, `UPDATE a SET id = 2`)
	r.wait(2)
	testkit.Exec(t, conn, `BEGIN; UPDATE a SET id = 3; DELETE FROM a; COMMIT`)
	r.wait(5)
	got := r.stop()
	if want := `{"id":2,"sub":"x'y","n":"` + strings.Repeat("n", 5000) + `","j":{"k": "` + strings.Repeat("v", 5000) + `"}}`; string(got[1].After) != want ||
		fmt.Sprint(got[1].Looked_Up) != "[n j]" || got[1].Unchanged != nil {
		t.Errorf("looked up: %.300s", got[1].line)
	}
	if string(got[3].After) != `{"id":3,"sub":"x'y"}` || fmt.Sprint(got[3].Unchanged) != "[n j]" || got[3].Looked_Up != nil {
		t.Errorf("row gone: %.300s", got[3].line)
	}
}
