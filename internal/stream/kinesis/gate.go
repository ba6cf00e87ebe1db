package kinesis

import (
	"sync/atomic"
	"time"

	"synctl/internal/record"
)

// item is one record that waits for its acknowledgement, in the queue of its key. It lives in its batch's items.
type item struct {
	rec   *record.Record
	batch *batch
	next  *item
	moved *move
	at    time.Time // when it was written
}

// batch is one written batch until everything in it was acknowledged.
type batch struct {
	done    func(error)
	items   []item
	pending int // items, and 1 while Write still adds to them
	bytes   int // what it counts against the sink's bound
}

// move ties the halves of a key update: the insert waits in its own key's queue until the delete was acknowledged.
type move struct {
	out, in *item
	acked   atomic.Bool // read by the goroutine that encodes the insert's queue, which holds no lock
	waiting *key        // the insert's key, once the insert is the first of its queue and nothing else holds it back
}

// key is a partition key that has records waiting or in flight. At most one stream record of it is unacknowledged: busy.
type key struct {
	name       string
	head, tail *item
	busy       bool
	ready      bool // in the list of ready keys
	next       *key
}

// blocked tells that the first record waits for the other half of its key update.
func (k *key) blocked() bool { return k.head.waitsForMove() }

func (it *item) waitsForMove() bool {
	return it.moved != nil && it.moved.in == it && !it.moved.acked.Load()
}

// gate holds the queues of all keys. It does no locking.
type gate struct {
	keys        map[string]*key
	first       *key // ready keys: not busy, with a record that may be sent
	last        *key
	ready       int
	oldest      time.Time // not after the arrival of any ready key's first record; meaningless when ready is 0
	items       int       // records not yet acknowledged
	freeKeys    []*key
	freeBatches []*batch
	lastOut     *move // the delete that was added last, when it is half of a key update
	lastPos     record.Pos
}

const maxFree = 4096

func newGate() *gate { return &gate{keys: map[string]*key{}} }

func (g *gate) newBatch(done func(error), records, bytes int) *batch {
	var b *batch
	if n := len(g.freeBatches); n > 0 {
		b, g.freeBatches = g.freeBatches[n-1], g.freeBatches[:n-1]
	} else {
		b = new(batch)
	}
	if cap(b.items) < records {
		b.items = make([]item, 0, records)
	}
	b.done, b.items, b.pending, b.bytes = done, b.items[:0], 1, bytes
	return b
}

func (g *gate) freeBatch(b *batch) {
	clear(b.items)
	b.done = nil
	if len(g.freeBatches) < 64 {
		g.freeBatches = append(g.freeBatches, b)
	}
}

// add puts a record at the end of its key's queue.
func (g *gate) add(b *batch, rec *record.Record, name []byte, now time.Time) {
	b.items = append(b.items, item{rec: rec, batch: b, at: now})
	it := &b.items[len(b.items)-1]
	b.pending++
	g.items++
	k := g.keys[string(name)]
	if k == nil {
		k = g.newKey(string(name))
	}
	g.tie(it, k)
	if k.tail == nil {
		k.head = it
	} else {
		k.tail.next = it
	}
	k.tail = it
	g.offer(k)
}

func (g *gate) newKey(name string) *key {
	var k *key
	if n := len(g.freeKeys); n > 0 {
		k, g.freeKeys = g.freeKeys[n-1], g.freeKeys[:n-1]
	} else {
		k = new(key)
	}
	k.name = name
	g.keys[name] = k
	return k
}

// tie notes the delete of a key update, and ties the insert that follows it to it.
func (g *gate) tie(it *item, k *key) {
	pos := it.rec.Pos
	switch pos.Suffix {
	case record.MovedOut:
		it.moved = &move{out: it}
		g.lastOut, g.lastPos = it.moved, pos
		return
	case record.MovedIn:
		pos.Suffix = record.MovedOut
		// The delete can be the record before in the same queue: then the queue's order is enough.
		if m := g.lastOut; m != nil && pos == g.lastPos && !m.acked.Load() && (k.tail == nil || k.tail != m.out) {
			m.in = it
			it.moved = m
		}
	}
	g.lastOut = nil
}

// offer puts a key into the ready list if its first record may be sent.
func (g *gate) offer(k *key) {
	if k.busy || k.ready || k.head == nil {
		return
	}
	if k.blocked() {
		k.head.moved.waiting = k
		return
	}
	k.ready = true
	if g.ready == 0 || k.head.at.Before(g.oldest) {
		g.oldest = k.head.at
	}
	g.ready++
	if g.last == nil {
		g.first = k
	} else {
		g.last.next = k
	}
	g.last = k
}

// take removes the first ready key and makes it busy. until is the last record that its queue holds now: what comes
// after it belongs to the writer's side.
func (g *gate) take() (k *key, until *item) {
	k = g.first
	g.first = k.next
	if g.first == nil {
		g.last = nil
	}
	k.next, k.ready, k.busy = nil, false, true
	g.ready--
	return k, k.tail
}

// settle finds the oldest again after keys were taken. It is exact for a short list; a long one is sent at once anyhow.
func (g *gate) settle(enough int) {
	if g.ready == 0 || g.ready >= enough {
		return
	}
	g.oldest = g.first.head.at
	for k := g.first; k != nil; k = k.next {
		if k.head.at.Before(g.oldest) {
			g.oldest = k.head.at
		}
	}
}

// putBack returns a key that was taken and not sent to the front of the list.
func (g *gate) putBack(k *key) {
	k.busy, k.ready = false, true
	if g.ready == 0 || k.head.at.Before(g.oldest) {
		g.oldest = k.head.at
	}
	g.ready++
	k.next = g.first
	g.first = k
	if g.last == nil {
		g.last = k
	}
}

// acknowledge takes the records up to and including last off a key's queue. complete is called for each batch that is
// whole by it.
func (g *gate) acknowledge(k *key, last *item, complete func(*batch)) {
	for {
		it := k.head
		k.head = it.next
		g.items--
		if m := it.moved; m != nil && m.out == it {
			m.acked.Store(true)
			if w := m.waiting; w != nil {
				m.waiting = nil
				g.offer(w)
			}
		}
		g.release(it.batch, complete)
		if it == last {
			break
		}
	}
	k.busy = false
	if k.head != nil {
		g.offer(k)
		return
	}
	k.tail = nil
	delete(g.keys, k.name)
	*k = key{}
	if len(g.freeKeys) < maxFree {
		g.freeKeys = append(g.freeKeys, k)
	}
}

// release counts one item of a batch, or Write's own hold on it, as settled.
func (g *gate) release(b *batch, complete func(*batch)) {
	if b.pending--; b.pending == 0 {
		complete(b)
	}
}
