package postgres

import (
	"synctl/internal/record"
)

// rereadWindow is how many records back a restart reads again to know their ids. Ids that are still above their table's
// floor beyond it, those of tables gone quiet, are kept in synctl.seen instead, so that a restart never reads far.
const rereadWindow = 65536

// memoryIDs is how many ids of one table are known in memory. A transaction with more changes than that (its floor rises
// only at its end) has its older ids in synctl.seen alone, and changes are looked up there while it lasts.
const memoryIDs = 2 * rereadWindow

// changeID is the part of an id that differs within one system, timeline and table.
type changeID struct {
	row    record.LSN
	n      uint32
	suffix record.Suffix
}

// tableRef is whose floor a floor is: LSNs of other systems and timelines do not compare (after a failover the same LSN
// can be another transaction).
type tableRef struct {
	system       uint64
	timeline     uint32
	schema, name string
}

// dedupe knows, for one shard, which changes it has had: all at or below the highest floor seen of their table, and the ids
// above it one by one. A floor says that everything of the table up to it was durable in the stream before; what of it
// is this shard's was read before, too.
type dedupe struct {
	tables map[tableRef]*tableState
	last   *tableState
	raw    []byte // of last: the names as the lines write them
	key    []byte

	groups  []*group // from the oldest that has ids not stored
	records int64    // seen so far
	stored  []storedID
	dirty   []*tableState // whose floor rose since the last commit
}

// group is a stretch of the shard that was handed over together: where to read from to know its ids again.
type group struct {
	sequence string
	at       int64 // records seen before it
	live     int   // ids of it that are above their floor and not stored
}

type tableState struct {
	ref   tableRef
	floor record.LSN
	// snapshot is the latest run of a snapshot that the shard has had of the table. What an earlier one left on the way, and
	// arrives late, is older than what this one read.
	snapshot record.LSN
	dirty    bool
	seen     map[changeID]struct{}
	queue    []seenID // in the order of arrival
	head     int
	prune    bool // ids in synctl.seen are to go
	kept     int  // ids in synctl.seen that are in memory, too

	spilled record.LSN // the highest commit whose ids are in synctl.seen alone; 0: none are
}

type seenID struct {
	id     changeID
	commit record.LSN
	group  *group // nil: stored in synctl.seen
}

// storedID is an id on its way to synctl.seen.
type storedID struct {
	ref    tableRef
	id     changeID
	commit record.LSN
}

func newDedupe() *dedupe { return &dedupe{tables: map[tableRef]*tableState{}} }

// begin opens the stretch that starts at a stream record.
func (d *dedupe) begin(sequence string) {
	d.groups = append(d.groups, &group{sequence: string([]byte(sequence)), at: d.records})
}

// table finds the state of a change's table.
func (d *dedupe) table(r *record.Record, schema, name []byte) *tableState {
	d.key = append(append(append(d.key[:0], schema...), 0), name...)
	if l := d.last; l != nil && l.ref.system == r.Pos.System && l.ref.timeline == r.Pos.Timeline && string(d.raw) == string(d.key) {
		return l
	}
	// The names of a line are JSON strings; what differs only in escapes is one table.
	s, _ := record.AppendUnquoted(nil, schema)
	n, _ := record.AppendUnquoted(nil, name)
	t := d.state(tableRef{r.Pos.System, r.Pos.Timeline, string(s), string(n)})
	d.last, d.raw = t, append(d.raw[:0], d.key...)
	return t
}

func (d *dedupe) state(ref tableRef) *tableState {
	t := d.tables[ref]
	if t == nil {
		t = &tableState{ref: ref, seen: map[changeID]struct{}{}}
		d.tables[ref] = t
	}
	return t
}

// duplicate tells whether the shard has had this change, and remembers it. ask: memory does not know it, but synctl.seen
// can. raise is false for records whose floor speaks of more than one table.
func (d *dedupe) duplicate(r *record.Record, t *tableState, raise bool) (dup, ask bool) {
	d.records++
	if raise && r.Floor > t.floor {
		t.floor = r.Floor
		d.rose(t)
		t.drop()
	}
	if r.Pos.Commit <= t.floor {
		return true, false
	}
	id := changeID{r.Pos.Row, r.Pos.N, r.Pos.Suffix}
	if _, ok := t.seen[id]; ok {
		return true, false
	}
	t.seen[id] = struct{}{}
	g := d.groups[len(d.groups)-1]
	g.live++
	t.queue = append(t.queue, seenID{id, r.Pos.Commit, g})
	return false, t.spilled > 0
}

// rose notes that a table has something for the next commit to keep.
func (d *dedupe) rose(t *tableState) {
	if !t.dirty {
		t.dirty = true
		d.dirty = append(d.dirty, t)
	}
}

// run notes which run of a snapshot the shard has had of a table.
func (d *dedupe) run(t *tableState, snapshot record.LSN) {
	if snapshot > t.snapshot {
		t.snapshot = snapshot
		d.rose(t)
	}
}

// stale tells a read that a dead run left on the way and that arrives behind something of a later run. Its id is no help: the
// later run has read the row anew, under an id of its own. A load's read names no run and is never stale.
func (d *dedupe) stale(r *record.Record, t *tableState) bool {
	d.run(t, r.Snapshot)
	return r.Op == record.Read && r.Snapshot != 0 && r.Snapshot < t.snapshot
}

// drop forgets the ids at or below the floor. One that stands behind a later one in the queue, as a redelivery can make
// it, goes a little later.
func (t *tableState) drop() {
	for t.head < len(t.queue) && t.queue[t.head].commit <= t.floor {
		e := &t.queue[t.head]
		delete(t.seen, e.id)
		if e.group != nil {
			e.group.live--
		} else {
			t.kept--
			t.prune = true
		}
		t.head++
	}
	if t.spilled > 0 {
		t.prune = true
		if t.spilled <= t.floor {
			t.spilled = 0
		}
	}
	t.compact()
}

func (t *tableState) compact() {
	if t.head > 1024 && t.head > len(t.queue)/2 {
		t.queue = append(t.queue[:0], t.queue[t.head:]...)
		t.head = 0
	}
}

// keep takes an id out of synctl.seen when a shard is opened.
func (t *tableState) keep(id changeID, commit record.LSN) {
	if _, ok := t.seen[id]; ok || commit <= t.floor {
		return
	}
	t.seen[id] = struct{}{}
	t.queue = append(t.queue, seenID{id: id, commit: commit})
	t.kept++
}

// reread is from which sequence number a restart has to read to know the ids again; empty when everything after the
// checkpoint will do. Ids older than the window are moved to d.stored first; all is for a shard that has ended.
func (d *dedupe) reread(all bool) string {
	boundary := d.records - rereadWindow
	old := false
	for len(d.groups) > 0 {
		g := d.groups[0]
		if g.live > 0 {
			if !all && g.at >= boundary {
				break
			}
			old = true
			g.live = 0
		}
		d.groups = d.groups[1:]
	}
	if old {
		d.store(boundary, all)
	}
	if len(d.groups) == 0 {
		return ""
	}
	return d.groups[0].sequence
}

func (d *dedupe) store(boundary int64, all bool) {
	for _, t := range d.tables {
		for i := t.head; i < len(t.queue); i++ {
			e := &t.queue[i]
			if e.group == nil {
				continue
			}
			if !all && e.group.at >= boundary {
				break
			}
			e.group = nil
			t.kept++
			d.stored = append(d.stored, storedID{t.ref, e.id, e.commit})
		}
		t.spill()
	}
}

// spill forgets the oldest ids that synctl.seen has, when there are too many for memory.
func (t *tableState) spill() {
	for len(t.seen) > memoryIDs && t.head < len(t.queue) && t.queue[t.head].group == nil {
		e := &t.queue[t.head]
		delete(t.seen, e.id)
		t.spilled = max(t.spilled, e.commit)
		t.kept--
		t.head++
	}
	t.compact()
}
