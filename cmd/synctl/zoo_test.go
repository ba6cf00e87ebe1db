package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"synctl/internal/testkit"
)

// TestTypeZooJourney: every type and value, and keys of many types, published and replayed by the commands: in the target
// every column's text is that of the source (promise 5). Then the same for updates, key updates and deletes.
func TestTypeZooJourney(t *testing.T) {
	cluster := testkit.Shared(t)
	source, target := cluster.Database(t), cluster.Database(t)
	z := zooJourney{src: testkit.Connect(t, source), dst: testkit.Connect(t, target)}
	z.columns = testkit.ZooDDL(t, z.src)
	testkit.ZooDDL(t, z.dst)
	z.keyed = testkit.ZooKeysDDL(t, z.src)
	testkit.ZooKeysDDL(t, z.dst)
	dir := t.TempDir()
	url := "file:" + filepath.Join(dir, "stream")
	slot := "zoo_" + z.src.Config().Database
	journey := func() {
		t.Helper()
		synctl(t, "cdc", "publish", "--from", source, "--slot", slot, "--table", testkit.ZooTable, "--table", "zoo.by_*", "--create",
			"--create-stream", "3", "--state", filepath.Join(dir, "state"), "--to", url, "--until-lsn", "now")
		synctl(t, "replay", "--from", url, "--to", target, "--checkpoint", "zoo")
	}
	journey()
	rows := len(testkit.ZooRows(t, z.src, z.columns))
	for _, table := range z.keyed {
		testkit.ZooKeyChanges(t, z.src, table)
	}
	journey()
	z.compare(t)
	// Each row takes the values of the next, so every value comes by an update, too; keys move, a row goes.
	var names []string
	for _, c := range z.columns {
		names = append(names, c.Name)
	}
	columns := strings.Join(names, ", ")
	testkit.Exec(t, z.src, fmt.Sprintf(`UPDATE %[1]s z SET (%[2]s) = (SELECT %[2]s FROM %[1]s y WHERE y.id = z.id %% %[3]d + 1)`, testkit.ZooTable, columns, rows))
	testkit.Exec(t, z.src, `UPDATE zoo SET id = id + 1000 WHERE id % 3 = 0; DELETE FROM zoo WHERE id = 1`)
	journey()
	z.compare(t)
	// And by old rows that are whole.
	testkit.Exec(t, z.src, `ALTER TABLE zoo REPLICA IDENTITY FULL`)
	testkit.Exec(t, z.src, `UPDATE zoo SET id = id + 10000 WHERE id % 2 = 0; DELETE FROM zoo WHERE id = 5`)
	journey()
	z.compare(t)
}

type zooJourney struct {
	src, dst *pgx.Conn
	columns  []testkit.ZooColumn
	keyed    []string
}

// compare looks at the text of each type's output function, which is what the log has. A cast can differ: that of xml
// shows a default declaration which no output has.
func (z zooJourney) compare(t *testing.T) {
	t.Helper()
	for _, c := range append(z.columns, testkit.ZooColumn{Name: "id", Type: "id"}) {
		compareTexts(t, z.src, z.dst, c.Type, fmt.Sprintf("SELECT id::text, CASE WHEN num_nulls(%[1]s) = 0 THEN format('%%s', %[1]s) END FROM zoo ORDER BY id", c.Name))
	}
	for _, table := range z.keyed {
		compareTexts(t, z.src, z.dst, table, fmt.Sprintf("SELECT v::text, format('%%s', k) FROM %s ORDER BY v", table))
	}
	if t.Failed() {
		t.FailNow()
	}
}

func compareTexts(t *testing.T, src, dst *pgx.Conn, what, sql string) {
	t.Helper()
	read := func(conn *pgx.Conn) (out []string) {
		rows, err := conn.Query(context.Background(), sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		var id string
		var text *string
		if _, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			if text == nil {
				out = append(out, id+" NULL")
			} else {
				out = append(out, fmt.Sprintf("%s %q", id, *text))
			}
			return nil
		}); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return out
	}
	want, got := read(src), read(dst)
	if what == "json" {
		// White space between tokens may go.
		for _, texts := range [][]string{want, got} {
			for i, s := range texts {
				texts[i] = strings.NewReplacer(`\n`, "", `\r`, "", `\t`, "", " ", "").Replace(s)
			}
		}
	}
	if len(got) != len(want) || len(want) == 0 {
		t.Errorf("%s: %d rows, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s:\n got %.200s\nwant %.200s", what, got[i], want[i])
		}
	}
}
