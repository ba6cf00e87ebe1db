package postgres

import (
	"fmt"
	"testing"

	"synctl/internal/record"
)

// feed gives a dedupe one change and says whether it was had before.
func feed(d *dedupe, commit, row, floor int) (dup, ask bool) {
	r := &record.Record{Op: record.Insert, Floor: record.LSN(floor)}
	r.Pos = record.Pos{System: 7, Timeline: 1, Commit: record.LSN(commit), Row: record.LSN(row)}
	return d.duplicate(r, d.table(r, []byte(`"public"`), []byte(`"t"`)), true)
}

func TestMemoryOfOneLargeTransactionIsBounded(t *testing.T) {
	d := newDedupe()
	stored := map[changeID]bool{}
	const changes = 3 * memoryIDs
	for i := range changes {
		if i%5000 == 0 {
			d.reread(false)
			for _, e := range d.stored {
				stored[e.id] = true
			}
			d.stored = d.stored[:0]
			d.begin(fmt.Sprint(i))
		}
		if dup, _ := feed(d, 1<<40, 1000+i, 1); dup {
			t.Fatalf("change %d is new", i)
		}
	}
	table := d.state(tableRef{7, 1, "public", "t"})
	if n := len(table.seen); n > memoryIDs+rereadWindow {
		t.Errorf("%d ids in memory", n)
	}
	// Every id is known: in memory, or in synctl.seen and asked for.
	for _, i := range []int{0, 1, memoryIDs, changes / 2, changes - 1} {
		_, inMemory := table.seen[changeID{row: record.LSN(1000 + i)}]
		if !inMemory && !stored[changeID{row: record.LSN(1000 + i)}] {
			t.Errorf("change %d is forgotten", i)
		}
	}
	d.begin("x")
	if dup, ask := feed(d, 1<<40, 1000, 1); dup || !ask {
		t.Errorf("the first change again: dup %t ask %t, want it asked for", dup, ask)
	}
	// The floor rises over the transaction: nothing has to be remembered.
	if dup, ask := feed(d, 1<<41, 5, 1<<40); dup || ask {
		t.Errorf("the next change: dup %t ask %t", dup, ask)
	}
	if len(table.seen) != 1 || !table.prune {
		t.Errorf("%d ids in memory, prune %t", len(table.seen), table.prune)
	}
}

func TestRereadFollowsTheFloor(t *testing.T) {
	d := newDedupe()
	steps := []struct {
		sequence           string
		commit, row, floor int
		reread             string
	}{
		{"1", 100, 10, 1, "1"},
		{"2", 200, 20, 1, "1"},
		{"3", 300, 30, 100, "2"},
		{"4", 400, 40, 350, "4"},
	}
	for _, s := range steps {
		d.begin(s.sequence)
		feed(d, s.commit, s.row, s.floor)
		if got := d.reread(false); got != s.reread {
			t.Errorf("after %s: re-read from %q, want %q", s.sequence, got, s.reread)
		}
	}
	if got := d.reread(true); got != "" || len(d.stored) != 1 {
		t.Errorf("at the shard's end: re-read from %q, %d ids stored; want all stored", got, len(d.stored))
	}
}

func TestQuietTableIsNotReadFromAfar(t *testing.T) {
	d := newDedupe()
	d.begin("1")
	r := &record.Record{Op: record.Insert, Floor: 1, Pos: record.Pos{System: 7, Timeline: 1, Commit: 9, Row: 9}}
	d.duplicate(r, d.table(r, []byte(`"public"`), []byte(`"quiet"`)), true)
	for i := range rereadWindow + 10 {
		d.begin(fmt.Sprint(i + 2))
		feed(d, 1000+i, 1000+i, 999+i)
		if i%1000 == 0 {
			d.reread(false)
		}
	}
	if got := d.reread(false); got == "1" || len(d.stored) != 1 {
		t.Errorf("re-read from %q with %d ids stored, want the quiet table's id stored", got, len(d.stored))
	}
}
