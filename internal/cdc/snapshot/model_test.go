package snapshot

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The model: a table, transactions that commit in the log before they become visible, workers that read chunks, a feed that
// reads the log at its own pace and can be killed, and a consumer. Every step is chosen at random.

const modelKeys = 12

// row is one version of a row. seq is the place of the change that made it among all; toast is a value that an update
// can leave out.
type row struct{ seq, toast int }

type change struct {
	id      int
	xid     uint32
	key     int
	gone    bool // a delete, or the first half of a move
	fresh   bool // an insert
	partial bool // toast was not sent
	cut     bool // a truncate
	to      row
}

type logMark struct {
	run, chunk int
	high       bool
}

// entry is what the log holds: a transaction or a mark.
type entry struct {
	changes []change
	xid     uint32
	mark    *logMark
}

type modelTx struct {
	xid       uint32
	changes   []change
	committed bool
}

type chunk struct {
	id, from, to int   // keys [from, to)
	keys         []int // or these
	high         bool  // its mark is written
	snap         Snap
	rows         map[int]row // nil: not read
	window       *Window     // nil until the feed has the low mark
}

// faults switch parts of the method off: the test has to notice.
type faults struct{ noStale, noAgain, byPosition, noBarrier, noDrop bool }

type model struct {
	t   *testing.T
	rng *rand.Rand
	f   faults

	table   map[int]row // what is visible
	newest  map[int]row // with what is not visible yet; a locked key has one owner
	locks   map[int]*modelTx
	open    []*modelTx // running, or committed and not yet visible
	nextXID uint32
	seq     int
	log     []entry

	// the process
	run     int
	at      int // of the log, read
	decoded Decoded
	chunks  map[int]*chunk
	next    int   // first key that no chunk has
	again   []int // keys to be read again
	barrier map[*modelTx]bool
	done    int // highest key below which every chunk is in the feed, of this run
	ids     int

	// what a kill leaves
	confirmed, saved int
	savedAgain       []int
	states           []state // by log position

	target  map[int]row
	last    map[int]int // per key, the newest seq that the feed has delivered
	applied map[int]bool
	wrong   string
}

type state struct {
	at, next int
	again    []int
}

func (m *model) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

func newModel(t *testing.T, seed uint64, f faults) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 7)), f: f, table: map[int]row{}, newest: map[int]row{}, locks: map[int]*modelTx{}, nextXID: 100,
		target: map[int]row{}, last: map[int]int{}, applied: map[int]bool{}}
	for k := range modelKeys {
		if m.rng.IntN(3) > 0 {
			m.seq++
			m.table[k] = row{m.seq, m.seq}
			m.newest[k] = m.table[k]
		}
	}
	m.start()
	return m
}

// start is a process that begins, with what the one before it saved.
func (m *model) start() {
	m.run++
	m.at, m.next, m.done = m.confirmed, m.saved, m.saved
	m.again = append([]int(nil), m.savedAgain...)
	m.chunks, m.decoded, m.ids = map[int]*chunk{}, Decoded{}, 0
	m.states = []state{{m.confirmed, m.saved, m.savedAgain}}
	m.barrier = map[*modelTx]bool{}
	for _, tx := range m.open {
		if tx.committed && !m.f.noBarrier {
			m.barrier[tx] = true
		}
	}
}

func (m *model) step() {
	switch m.rng.IntN(12) {
	case 0:
		if len(m.open) < 4 {
			m.open = append(m.open, &modelTx{xid: m.nextXID})
			m.nextXID++
		}
	case 1, 2, 3:
		m.modify()
	case 4:
		m.commit()
	case 5:
		m.end()
	case 6, 7, 8:
		m.work()
	case 9, 10:
		m.feed()
	case 11:
		switch m.rng.IntN(12) {
		case 0:
			m.confirm()
		case 1:
			m.confirm()
			if m.rng.IntN(3) == 0 {
				m.start()
			}
		}
	}
}

func (m *model) running() *modelTx {
	var list []*modelTx
	for _, tx := range m.open {
		if !tx.committed {
			list = append(list, tx)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[m.rng.IntN(len(list))]
}

func (m *model) modify() {
	tx := m.running()
	if tx == nil {
		return
	}
	if m.rng.IntN(40) == 0 { // TRUNCATE waits for all others
		for _, owner := range m.locks {
			if owner != tx {
				return
			}
		}
		m.seq++
		tx.changes = append(tx.changes, change{xid: tx.xid, cut: true, to: row{seq: m.seq}})
		clear(m.newest)
		for k := range modelKeys {
			m.locks[k] = tx
		}
		return
	}
	k := m.rng.IntN(modelKeys)
	if owner := m.locks[k]; owner != nil && owner != tx {
		return
	}
	m.locks[k] = tx
	old, exists := m.newest[k]
	m.seq++
	c := change{id: m.seq, xid: tx.xid, key: k}
	switch {
	case !exists:
		c.fresh, c.to = true, row{m.seq, m.seq}
	case m.rng.IntN(3) == 0:
		c.gone, c.to = true, row{seq: m.seq}
		if j := m.rng.IntN(modelKeys); m.rng.IntN(2) == 0 && (m.locks[j] == nil || m.locks[j] == tx) {
			if _, taken := m.newest[j]; !taken && j != k { // a move: the toast is looked up
				m.locks[j] = tx
				delete(m.newest, k)
				tx.changes = append(tx.changes, c)
				m.seq++
				c = change{id: m.seq, xid: tx.xid, key: j, fresh: true, to: row{m.seq, old.toast}}
			}
		}
	case m.rng.IntN(2) == 0:
		c.partial, c.to = true, row{m.seq, old.toast}
	default:
		c.to = row{m.seq, m.seq}
	}
	if c.gone {
		delete(m.newest, c.key)
	} else {
		m.newest[c.key] = c.to
	}
	tx.changes = append(tx.changes, c)
}

// commit writes the commit record: from here on the transaction is decoded, but not yet seen.
func (m *model) commit() {
	if tx := m.running(); tx != nil {
		tx.committed = true
		m.log = append(m.log, entry{changes: tx.changes, xid: tx.xid})
	}
}

// end makes a committed transaction visible and frees its locks.
func (m *model) end() {
	var list []int
	for i, tx := range m.open {
		if tx.committed {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return
	}
	i := list[m.rng.IntN(len(list))]
	tx := m.open[i]
	m.open = append(m.open[:i], m.open[i+1:]...)
	delete(m.barrier, tx)
	for _, c := range tx.changes {
		switch {
		case c.cut:
			clear(m.table)
		case c.gone:
			delete(m.table, c.key)
		default:
			m.table[c.key] = c.to
		}
	}
	for k, owner := range m.locks {
		if owner == tx {
			delete(m.locks, k)
		}
	}
}

func (m *model) snap() Snap {
	s := Snap{Xmin: uint64(m.nextXID), Xmax: uint64(m.nextXID)}
	for _, tx := range m.open {
		s.InProgress = append(s.InProgress, uint64(tx.xid))
		s.Xmin = min(s.Xmin, uint64(tx.xid))
	}
	return s
}

// work is a step of the workers: begin a chunk, read it, or write its high mark.
func (m *model) work() {
	if len(m.barrier) > 0 {
		return
	}
	var mine []*chunk
	for id := 1; id <= m.ids; id++ {
		if c := m.chunks[id]; c != nil && !c.high {
			mine = append(mine, c)
		}
	}
	if len(mine) < 2 && (m.next < modelKeys || len(m.again) > 0) && m.rng.IntN(2) == 0 {
		m.ids++
		c := &chunk{id: m.ids}
		if len(m.again) > 0 {
			c.keys, m.again = m.again, nil
		} else {
			c.from = m.next
			m.next = min(modelKeys, m.next+1+m.rng.IntN(5))
			c.to = m.next
		}
		m.chunks[c.id] = c
		m.log = append(m.log, entry{mark: &logMark{m.run, c.id, false}})
		return
	}
	if len(mine) == 0 {
		return
	}
	c := mine[m.rng.IntN(len(mine))]
	if c.rows == nil {
		c.snap, c.rows = m.snap(), map[int]row{}
		for k, r := range m.table {
			if k >= c.from && k < c.to {
				c.rows[k] = r
			}
		}
		for _, k := range c.keys {
			if r, ok := m.table[k]; ok {
				c.rows[k] = r
			}
		}
		return
	}
	c.high = true
	m.log = append(m.log, entry{mark: &logMark{m.run, c.id, true}})
}

func key(k int) []byte { return AppendKey(nil, []byte{byte(k)}) }

// feed reads one entry of the log.
func (m *model) feed() {
	if m.at == len(m.log) {
		return
	}
	e := m.log[m.at]
	m.at++
	switch {
	case e.mark == nil:
		complete := m.complete()
		m.decoded.Add(e.xid)
		for _, c := range e.changes {
			m.touch(c)
			m.apply(c, complete)
		}
	case e.mark.run == m.run && !e.mark.high:
		m.chunks[e.mark.chunk].window = &Window{}
	case e.mark.run == m.run:
		m.deliver(m.chunks[e.mark.chunk])
	}
	m.states = append(m.states, state{m.at, m.prefix(), m.outstanding()})
}

func (m *model) touch(c change) {
	for _, k := range m.chunks {
		if k.window == nil {
			continue
		}
		if c.cut {
			k.window.Truncate(c.xid)
		} else {
			k.window.Touch(c.xid, key(c.key), c.gone, c.partial)
		}
	}
}

func (m *model) deliver(c *chunk) {
	delete(m.chunks, c.id)
	if c.window.Stale(c.snap, &m.decoded) && !m.f.noStale {
		m.ids++
		retry := &chunk{id: m.ids, from: c.from, to: c.to, keys: c.keys}
		m.chunks[retry.id] = retry
		m.log = append(m.log, entry{mark: &logMark{m.run, retry.id, false}})
		return
	}
	m.decoded.Forget(c.snap)
	for k, r := range c.rows {
		v := c.window.Judge(c.snap, key(k))
		if m.f.byPosition { // what was committed before the high mark is taken for seen
			v = Deliver
		}
		if m.f.noDrop && v == Drop {
			v = Deliver
		}
		switch {
		case v == ReadAgain:
			if !m.f.noAgain {
				m.again = append(m.again, k)
			}
		case v == Deliver:
			if r.seq < m.last[k] {
				m.fail("a read of key %d is older (%d) than what was delivered (%d)", k, r.seq, m.last[k])
			}
			m.last[k] = r.seq
			m.target[k] = r
		}
	}
}

// complete tells whether the feed has the whole snapshot.
func (m *model) complete() bool {
	return m.next == modelKeys && len(m.chunks) == 0 && len(m.again) == 0
}

// apply is the consumer. While the snapshot is not complete, it bears with rows that it does not have yet.
func (m *model) apply(c change, strict bool) {
	if !c.cut && m.applied[c.id] {
		return
	}
	if c.cut {
		if m.applied[-c.to.seq] {
			return
		}
		m.applied[-c.to.seq] = true
		clear(m.target)
		for k := range modelKeys {
			m.last[k] = c.to.seq
		}
		return
	}
	m.applied[c.id] = true
	m.last[c.key] = c.to.seq
	_, exists := m.target[c.key]
	switch {
	case strict && exists == c.fresh:
		m.fail("change %+v finds a row: %t", c, exists)
	case c.gone:
		delete(m.target, c.key)
	case c.partial && !exists:
		// its row is still to come
	case c.partial:
		m.target[c.key] = row{c.to.seq, m.target[c.key].toast}
	default:
		m.target[c.key] = c.to
	}
}

// prefix is the first key that is not in the feed whole.
func (m *model) prefix() int {
	p := m.next
	for _, c := range m.chunks {
		if c.keys == nil {
			p = min(p, c.from)
		}
	}
	return p
}

// outstanding are the keys to be read again that no finished chunk has.
func (m *model) outstanding() []int {
	out := append([]int(nil), m.again...)
	for _, c := range m.chunks {
		out = append(out, c.keys...)
	}
	return out
}

// confirm stores a position up to which everything is durable, and what was finished by then.
func (m *model) confirm() {
	s := m.states[m.rng.IntN(len(m.states))]
	if s.at >= m.confirmed {
		m.confirmed, m.saved, m.savedAgain = s.at, s.next, s.again
	}
}

func (m *model) runAll(steps int) string {
	for range steps {
		m.step()
		if m.wrong != "" {
			return m.wrong
		}
	}
	for range 20_000 { // and to the end
		if len(m.open) == 0 && m.at == len(m.log) && m.complete() {
			break
		}
		switch m.rng.IntN(4) {
		case 0:
			m.commit()
		case 1:
			m.end()
		case 2:
			m.work()
		case 3:
			m.feed()
		}
	}
	if !m.complete() {
		m.fail("the snapshot never ends: next %d, %d chunks, again %v", m.next, len(m.chunks), m.again)
	}
	for k := range modelKeys {
		a, okA := m.table[k]
		b, okB := m.target[k]
		if okA != okB || a != b {
			m.fail("key %d: the source has %v %t, the consumer %v %t", k, a, okA, b, okB)
		}
	}
	return m.wrong
}

// TestRandomInterleavings: no row is lost, stale or resurrected, and no read comes after a change that it predates, however
// chunk reads, transactions, visibility, the feed's pace and kills fall (promises 1, 2, 7).
func TestRandomInterleavings(t *testing.T) {
	n := uint64(20_000)
	if testing.Short() {
		n = 2000
	}
	for seed := range n {
		m := newModel(t, seed, faults{})
		if wrong := m.runAll(150 + int(seed%200)); wrong != "" {
			t.Fatalf("seed %d: %s", seed, wrong)
		}
	}
}

// TestModelFindsFaults: were a part of the method left out, the model would notice.
func TestModelFindsFaults(t *testing.T) {
	for name, f := range map[string]faults{
		"a snapshot that misses what was decoded before": {noStale: true},
		"values that were left out are not read again":   {noAgain: true},
		"what a chunk has seen is told by positions":     {byPosition: true},
		"no wait for what a killed run had confirmed":    {noBarrier: true},
		"rows that were changed are delivered":           {noDrop: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20_000) {
				if wrong := newModel(t, seed, f).runAll(150 + int(seed%200)); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}

func TestParseSnap(t *testing.T) {
	s, err := ParseSnap("4294967300:4294967310:4294967300,4294967305")
	if err != nil {
		t.Fatal(err)
	}
	for xid, want := range map[uint32]bool{4: false, 5: true, 9: false, 14: false, 20: false, 3: true, 4294967290: true} {
		if s.Sees(xid) != want {
			t.Errorf("xid %d: seen %t", xid, !want)
		}
	}
	for _, bad := range []string{"", "1:2", "a:2:", "1:b:", "1:2:x", "1:2:3:4"} {
		if _, err := ParseSnap(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestDecodedForgets(t *testing.T) {
	var d Decoded
	for _, x := range []uint32{10, 70_000, 140_000} {
		d.Add(x)
	}
	d.Forget(Snap{Xmin: 100_000, Xmax: 150_000})
	if d.Has(10) || !d.Has(70_000) || !d.Has(140_000) || d.Has(11) {
		t.Errorf("has %t %t %t %t", d.Has(10), d.Has(70_000), d.Has(140_000), d.Has(11))
	}
	if len(d.blocks) != 2 {
		t.Errorf("%d blocks are kept", len(d.blocks))
	}
}

// TestWindowIsBounded: more changed keys than a window remembers make the chunk stale, and are not kept.
func TestWindowIsBounded(t *testing.T) {
	var w Window
	for i := range maxTouched + 2 {
		w.Touch(7, AppendKey(nil, []byte{byte(i), byte(i >> 8), byte(i >> 16)}), false, false)
		if stale := w.Stale(Snap{}, &Decoded{}); stale != (i >= maxTouched) {
			t.Fatalf("after %d keys: stale %t", i+1, stale)
		}
	}
	if len(w.keys) != 0 {
		t.Errorf("%d keys are kept", len(w.keys))
	}
}
