package cdc

import (
	"fmt"
	"strings"
	"testing"

	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// TestLookUpByEveryKey: a TOASTed column that a key update did not send is found by keys of every type that can be one.
func TestLookUpByEveryKey(t *testing.T) {
	dsn, conn := database(t)
	testkit.ZooDDL(t, conn)
	tables := testkit.ZooKeysDDL(t, conn)
	for _, table := range tables {
		testkit.Exec(t, conn, fmt.Sprintf(`ALTER TABLE %[1]s ADD toast text; ALTER TABLE %[1]s ALTER toast SET STORAGE EXTERNAL, ALTER toast SET DEFAULT repeat('t', 3000)`, table))
	}
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"zoo.by_*"}})
	moved := 0
	for _, table := range tables {
		testkit.ZooKeyMove(t, conn, table)
		moved += 5 // two inserts, an update, two halves
		r.wait(moved)
	}
	got := r.stop()
	found := 0
	for _, c := range got {
		if c.Op != "insert" || !c.Moved {
			continue
		}
		found++
		if fmt.Sprint(c.Looked_Up) != "[toast]" || !strings.Contains(string(c.After), strings.Repeat("t", 3000)) {
			t.Errorf("%s, key %s: looked up %v, unchanged %v", c.Table, c.Key, c.Looked_Up, c.Unchanged)
		}
	}
	if found != len(tables) {
		t.Errorf("%d key updates of %d", found, len(tables))
	}
}
