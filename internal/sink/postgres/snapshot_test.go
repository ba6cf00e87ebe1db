package postgres

import (
	"fmt"
	"strings"
	"testing"

	"synctl/internal/fault"
	"synctl/internal/testkit"
)

// beside puts a line into a run of a snapshot.
func beside(run int, line string) string {
	return strings.Replace(line, `,"floor":`, fmt.Sprintf(`,"snapshot":"0/%X","floor":`, run), 1)
}

// read is a row of a snapshot's run.
func (b *bench) read(run int, table, row string) string {
	key, _, _ := strings.Cut(row, ",")
	return beside(run, b.change("read", table, "", fmt.Sprintf(`"key":{%s},"after":{%s}`, key, row)))
}

func (b *bench) truncateOf(table string) string {
	return b.change("truncate", table, "", fmt.Sprintf(`"tables":[{"schema":"public","table":%q}],"cascade":false,"restart_identity":false`, table))
}

const threeColumns = "CREATE TABLE t (id int PRIMARY KEY, a int, big text)"

// TestReadsAndChanges applies what a source delivers while its snapshot runs: at once, and with a restart after each record.
func TestReadsAndChanges(t *testing.T) {
	row := func(id, a int, big string) string { return fmt.Sprintf(`"id":%d,"a":%d,"big":%q`, id, a, big) }
	some := func(b *bench, id, a int) string {
		return b.change("update", "t", "", fmt.Sprintf(`"key":{"id":%d},"after":{"id":%d,"a":%d},"unchanged":["big"]`, id, id, a))
	}
	for name, c := range map[string]struct {
		lines func(b *bench) []string
		want  string
	}{
		"a late read of a dead run": {func(b *bench) []string {
			late := b.read(1, "t", row(1, 1, "old"))
			return []string{b.read(2, "t", row(1, 2, "new")), late, b.read(1, "t", row(2, 1, "gone")), b.read(2, "t", row(3, 3, "x"))}
		}, "(1,2,new) (3,3,x)"},
		"a late read behind a change alone": {func(b *bench) []string {
			late := b.read(1, "t", row(1, 1, "old"))
			return []string{beside(2, b.delete("t", `"id":1`)), late}
		}, ""},
		"a dead run's read that was in time": {func(b *bench) []string {
			return []string{b.read(1, "t", row(1, 1, "old")), beside(2, b.update("t", row(1, 2, "new"))), b.read(2, "t", row(1, 2, "new"))}
		}, "(1,2,new)"},
		"an update with unchanged before its read": {func(b *bench) []string {
			return []string{beside(1, some(b, 1, 2)), b.read(1, "t", row(1, 2, "big")), beside(1, some(b, 1, 3)), some(b, 1, 4)}
		}, "(1,4,big)"},
		"an update of a whole row before its read": {func(b *bench) []string {
			return []string{beside(1, b.update("t", row(1, 2, "x"))), beside(1, b.update("t", row(1, 3, "y")))}
		}, "(1,3,y)"},
		"a delete, then a read": {func(b *bench) []string {
			return []string{beside(1, b.delete("t", `"id":1`)), b.read(1, "t", row(1, 2, "x")), beside(1, b.delete("t", `"id":2`))}
		}, "(1,2,x)"},
		"a read, then a change once more": {func(b *bench) []string {
			update := b.update("t", row(1, 1, "x"))
			return []string{beside(1, update), b.read(1, "t", row(1, 2, "y")), beside(1, update), beside(2, update)}
		}, "(1,2,y)"},
		"an insert over a read, a read over an insert": {func(b *bench) []string {
			return []string{b.read(1, "t", row(1, 1, "x")), beside(1, b.insert("t", row(1, 2, "y"))), beside(1, b.insert("t", row(2, 1, "x"))), b.read(1, "t", row(2, 2, "y"))}
		}, "(1,2,y) (2,2,y)"},
		"a row read twice": {func(b *bench) []string {
			return []string{b.read(1, "t", row(1, 1, "x")), b.read(1, "t", row(2, 2, "x")), b.read(2, "t", row(1, 3, "y")), b.read(2, "t", row(3, 3, "y"))}
		}, "(1,3,y) (2,2,x) (3,3,y)"},
		"a truncate, then a read of before": {func(b *bench) []string {
			late := b.read(1, "t", row(1, 1, "old"))
			return []string{b.read(1, "t", row(2, 1, "x")), beside(2, b.truncateOf("t")), late}
		}, ""},
		"a truncate of the same run": {func(b *bench) []string {
			return []string{b.read(1, "t", row(1, 1, "x")), beside(1, b.truncateOf("t")), b.read(1, "t", row(2, 1, "y"))}
		}, "(2,1,y)"},
		"key updates": {func(b *bench) []string {
			out := beside(1, b.change("delete", "t", "d", `"key":{"id":1},"before":{"id":1}`))
			in := beside(1, b.change("insert", "t", "i", `"key":{"id":2},"after":{`+row(2, 1, "moved")+`}`))
			back := beside(1, b.change("delete", "t", "d", `"key":{"id":2},"before":{"id":2}`))
			again := beside(1, b.change("insert", "t", "i", `"key":{"id":3},"after":{`+row(3, 1, "moved")+`}`))
			return []string{out, in, b.read(1, "t", row(2, 2, "read")), out, in, back, again, b.read(1, "t", row(3, 5, "read"))}
		}, "(3,5,read)"},
		"rows that are nothing but a key": {func(b *bench) []string {
			return []string{b.read(1, "k", `"id":1`), b.read(1, "k", `"id":1`), beside(1, b.insert("k", `"id":1`)), b.read(1, "t", row(1, 1, "x"))}
		}, "(1,1,x)"},
		"changes behind the snapshot are strict": {func(b *bench) []string {
			return []string{b.read(1, "t", row(1, 1, "x")), b.update("t", row(1, 2, "y")), b.delete("t", `"id":1`), b.insert("t", row(1, 3, "z"))}
		}, "(1,3,z)"},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restarts=%t", name, restarts), func(t *testing.T) {
				b := newBench(t, threeColumns+"; CREATE TABLE k (id int PRIMARY KEY)", Options{})
				lines := c.lines(b)
				if !restarts {
					b.must("a", lines...)
				}
				for i := range lines {
					if restarts {
						// What was applied is read again, for its ids, as a consumer does.
						b.seq = 0
						b.must("a", lines[:i+1]...)
						b.restart(Options{})
					}
				}
				b.want("TABLE t", c.want)
			})
		}
	}
}

func TestBesideASnapshotOnly(t *testing.T) {
	b := newBench(t, threeColumns, Options{})
	b.must("a", b.read(1, "t", `"id":1,"a":1,"big":"x"`), beside(1, b.delete("t", `"id":7`)))
	fails(t, b.apply("a", b.delete("t", `"id":8`)), fault.Failed, `{"id":8}`, "no such row")
	b.restart(Options{})
	fails(t, b.apply("a", b.insert("t", `"id":1,"a":1,"big":"x"`)), fault.Failed, `{"id":1}`, "exists")
}

func TestReadsOfAKeylessTable(t *testing.T) {
	b := newBench(t, "CREATE TABLE t (a int)", Options{})
	read := func(run, a int) string {
		return beside(run, b.change("read", "t", "", fmt.Sprintf(`"after":{"a":%d}`, a)))
	}
	late := read(1, 9)
	b.must("a", read(1, 1), read(1, 1), beside(2, b.truncateOf("t")), late, read(2, 1), read(2, 1), read(2, 2), late)
	b.want("TABLE t", "(1) (1) (2)")
}

// TestStaleReadWithoutAFloor: a stream that was copied has no floors; which run a read is of, it has.
func TestStaleReadWithoutAFloor(t *testing.T) {
	b := newBench(t, threeColumns, Options{})
	bare := func(s string) string { return strings.Replace(s, `,"floor":"0/100"`, "", 1) }
	late := bare(b.read(1, "t", `"id":1,"a":1,"big":"old"`))
	b.must("a", bare(b.read(2, "t", `"id":1,"a":2,"big":"new"`)))
	b.restart(Options{})
	b.must("a", late)
	// A load's row names no run, and is none of a dead one.
	b.must("a", strings.Replace(b.change("read", "t", "", `"key":{"id":2},"after":{"id":2,"a":2,"big":"load"}`), `"floor":"0/100"`, `"floor":"0/101"`, 1))
	b.want("TABLE t", "(1,2,new) (2,2,load)")
}

func TestChildKnowsItsParentsSnapshot(t *testing.T) {
	b := newBench(t, threeColumns, Options{})
	late := b.read(1, "t", `"id":1,"a":1,"big":"old"`)
	b.must("p", beside(2, b.delete("t", `"id":1`)))
	b.shard("c", "p")
	b.must("c", late)
	b.want("TABLE t", "")
}

// TestHeldBesideASnapshot: what waits may have been to lie over a row, or to be the first of it.
func TestHeldBesideASnapshot(t *testing.T) {
	const ddl = "CREATE TABLE t (id int PRIMARY KEY, email text UNIQUE); INSERT INTO t VALUES (1, 'x'), (2, 'old')"
	for name, c := range map[string]struct {
		held  func(b *bench) string
		then  func(b *bench) string
		want  string // at once
		freed string // when row 1 has gone
	}{
		"a read over a row, a delete": {
			func(b *bench) string { return b.read(1, "t", `"id":2,"email":"x"`) },
			func(b *bench) string { return b.delete("t", `"id":2`) }, "(1,x)", ""},
		"an insert over a row": {
			func(b *bench) string { return beside(1, b.insert("t", `"id":2,"email":"x"`)) }, nil, "(1,x) (2,old)", "(2,x)"},
		"an insert over a row, a delete": {
			func(b *bench) string { return beside(1, b.insert("t", `"id":2,"email":"x"`)) },
			func(b *bench) string { return beside(1, b.delete("t", `"id":2`)) }, "(1,x)", ""},
		"an update that is to be a row, a delete": {
			func(b *bench) string { return beside(1, b.update("t", `"id":3,"email":"x"`)) },
			func(b *bench) string { return b.delete("t", `"id":3`) }, "(1,x) (2,old)", "(2,old)"},
		"a read, a later read": {
			func(b *bench) string { return b.read(1, "t", `"id":3,"email":"x"`) },
			func(b *bench) string { return b.read(2, "t", `"id":3,"email":"y"`) }, "(1,x) (2,old) (3,y)", "(2,old) (3,y)"},
		"a read, an update": {
			func(b *bench) string { return b.read(1, "t", `"id":3,"email":"x"`) },
			func(b *bench) string { return b.update("t", `"id":3,"email":"y"`) }, "(1,x) (2,old)", "(2,old) (3,y)"},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/restart=%t", name, restart), func(t *testing.T) {
				b := newBench(t, ddl, Options{})
				b.must("a", c.held(b))
				if restart {
					b.restart(Options{})
				}
				if c.then != nil {
					b.must("a", c.then(b))
				}
				b.want("TABLE t", c.want)
				b.must("b", b.delete("t", `"id":1`))
				b.shard("a")
				if err := b.settle(); err != nil {
					t.Fatal(err)
				}
				b.want("TABLE t", c.freed)
				b.want("SELECT count(*) FROM synctl.held", "(0)")
			})
		}
	}
}

// TestReadSettlesAMovedInsert: a read has the values that the insert of a key update lacked.
func TestReadSettlesAMovedInsert(t *testing.T) {
	b := newBench(t, threeColumns, Options{})
	b.must("a", beside(1, b.change("insert", "t", "i", `"key":{"id":2},"after":{"id":2,"a":1},"unchanged":["big"]`)))
	b.must("a", b.read(1, "t", `"id":2,"a":2,"big":"x"`))
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "(2,2,x)")
}

// TestReadOfAKeyThatDiffersAsText: the row that has the equal key goes first, by its own shard's delete.
func TestReadOfAKeyThatDiffersAsText(t *testing.T) {
	b := newBench(t, "CREATE EXTENSION citext; CREATE TABLE t (id citext PRIMARY KEY, note text)", Options{})
	b.must("a", b.read(1, "t", `"id":"A","note":"1"`))
	del := beside(1, b.delete("t", `"id":"A"`))
	b.must("b", b.read(1, "t", `"id":"a","note":"2"`))
	b.want("TABLE t", "(A,1)")
	b.must("a", del)
	if err := b.settle(); err != nil {
		t.Fatal(err)
	}
	b.want("TABLE t", "(a,2)")
}

func TestSwallowedRead(t *testing.T) {
	b := newBench(t, threeColumns+"; CREATE RULE r AS ON INSERT TO t WHERE new.id = 2 DO INSTEAD NOTHING", Options{})
	err := b.apply("a", b.read(1, "t", `"id":1,"a":1,"big":"x"`), b.read(1, "t", `"id":2,"a":1,"big":"x"`))
	fails(t, err, fault.Failed, `{"id":2}`, "swallowed")
}

// TestCheckpointOfAnOlderVersion: its floors are kept, and the run's place is added.
func TestCheckpointOfAnOlderVersion(t *testing.T) {
	b := newBench(t, threeColumns, Options{})
	high := strings.Replace(b.insert("t", `"id":1,"a":1,"big":"x"`), `"floor":"0/100"`, `"floor":"0/1010"`, 1)
	b.must("a", high)
	b.close()
	testkit.Exec(t, b.conn, "ALTER TABLE synctl.floor DROP COLUMN snapshot")
	b.open(Options{})
	b.want("SELECT floor, snapshot FROM synctl.floor", "(0/1010,0/0)")
	late := b.read(1, "t", `"id":1,"a":9,"big":"late"`)
	b.must("a", b.read(2, "t", `"id":1,"a":2,"big":"y"`), late)
	b.want("TABLE t", "(1,2,y)")
	b.want("SELECT floor, snapshot FROM synctl.floor", "(0/1010,0/2)")
}
