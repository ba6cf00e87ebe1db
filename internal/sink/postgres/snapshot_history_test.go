package postgres

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// history makes what a source's streams hold after writers, a snapshot and kills of the publisher: changes in the order of
// the log, chunks of rows with what was changed meanwhile left out, requests that were on the way at a kill delivered, lost or
// delivered late, and all that was not confirmed delivered again by the next run.
type history struct {
	rng  *rand.Rand
	rows map[int]histRow
	log  []histEvent
	lsn  int

	streams, late [][]string // by shard

	confirmed int
	progress  histProgress

	run *histRun
}

const (
	histKeys  = 16
	histChunk = 4
)

type histRow struct {
	a, u int
	big  string
}

// histEvent is a change or a mark in the source's log. op: I, U, u (big is unchanged), D, K (id becomes to), T, M (a chunk's end).
type histEvent struct {
	op     byte
	lsn    int
	id, to int
	row    histRow
	chunk  *histRead
}

type histRead struct {
	rows  map[int]histRow
	keys  []int // read again; nil: a range
	at    int   // the log when it was read
	last  int
	whole bool // the range's last
}

type histProgress struct {
	last  int
	whole bool
	again []int
}

func (p *histProgress) done() bool { return p.whole && len(p.again) == 0 }

// histRun is one life of the publisher.
type histRun struct {
	epoch, next int // next: of the log
	sent        []histRecord
	acked       int
	chunk       *histRead
	progress    histProgress
	saved       []histSaved
}

type histSaved struct {
	at int
	p  histProgress
}

type histRecord struct {
	commit     int
	key, needs string // needs: a half of a key update that has to be durable before
	shards     []int
	line       string
}

func newHistory(rng *rand.Rand, shards int) *history {
	h := &history{rng: rng, rows: map[int]histRow{}, lsn: 0x1000, streams: make([][]string, shards), late: make([][]string, shards)}
	h.progress.last = -1
	for id := range histKeys {
		if rng.IntN(3) > 0 {
			h.rows[id] = histRow{0, id, fmt.Sprint("first", id)}
		}
	}
	h.confirmed = h.lsn
	return h
}

// play runs changes, snapshot and kills to their end.
func (h *history) play(changes, kills int) {
	h.start()
	for !h.run.progress.done() || changes > 0 || h.run.next < len(h.log) {
		switch r := h.rng.IntN(100); {
		case r < 30 && changes > 0:
			h.change()
			changes--
		case r < 55:
			h.read()
		case r < 90:
			switch {
			case h.run.next == len(h.log) || !h.emit():
			case kills > 0 && h.rng.IntN(4) == 0: // a truncate on the way
				kills--
				h.kill()
			default: // nothing is sent behind one that is not durable
				h.ack(len(h.run.sent))
			}
		case r < 95 && kills > 0:
			kills--
			h.kill()
		default:
			h.ack(len(h.run.sent) - h.rng.IntN(30))
		}
	}
	h.ack(len(h.run.sent))
	for i := range h.late {
		h.streams[i] = append(h.streams[i], h.late[i]...)
	}
}

func (h *history) start() {
	h.lsn += 0x10
	h.run = &histRun{epoch: h.lsn, progress: h.progress}
	h.run.progress.again = slices.Clone(h.progress.again)
	for h.run.next < len(h.log) && h.log[h.run.next].lsn+8 <= h.confirmed {
		h.run.next++
	}
}

func (h *history) append(e histEvent) {
	h.lsn += 0x10
	e.lsn = h.lsn
	h.log = append(h.log, e)
}

// unused is a value of the unique column that no row has.
func (h *history) unused() int {
	for {
		u := h.rng.IntN(2 * histKeys)
		if !slices.ContainsFunc(slices.Collect(maps.Values(h.rows)), func(r histRow) bool { return r.u == u }) {
			return u
		}
	}
}

// change commits one change at the source.
func (h *history) change() {
	id, to := h.rng.IntN(histKeys), h.rng.IntN(histKeys)
	old, there := h.rows[id]
	_, taken := h.rows[to]
	row := histRow{h.lsn, h.unused(), fmt.Sprint("big", h.lsn)}
	e := histEvent{op: 'I', id: id, to: to, row: row}
	switch r := h.rng.IntN(20); {
	case r == 0:
		e.op = 'T'
		clear(h.rows)
	case !there:
		h.rows[id] = row
	case r < 5:
		e.op = 'D'
		delete(h.rows, id)
	case r < 9 && !taken:
		e.op = 'K'
		delete(h.rows, id)
		h.rows[to] = row
	case r < 15:
		e.op, e.row.big = 'u', old.big
		h.rows[id] = e.row
	default:
		e.op = 'U'
		h.rows[id] = row
	}
	h.append(e)
}

// read reads a chunk, or ends one with its mark. Between the two others may write.
func (h *history) read() {
	r := h.run
	switch c := r.chunk; {
	case c != nil && c.at >= 0:
		h.append(histEvent{op: 'M', chunk: c})
		c.at = -c.at - 1 // ended; kept as it was read
	case c == nil && !r.progress.done():
		c = &histRead{rows: map[int]histRow{}, at: len(h.log), last: histKeys}
		if len(r.progress.again) > 0 && (r.progress.whole || h.rng.IntN(2) == 0) {
			c.keys = slices.Clone(r.progress.again)
			for _, id := range c.keys {
				if row, ok := h.rows[id]; ok {
					c.rows[id] = row
				}
			}
		} else {
			for id := r.progress.last + 1; id < histKeys && len(c.rows) < histChunk; id++ {
				if row, ok := h.rows[id]; ok {
					c.rows[id], c.last = row, id
				}
			}
			c.whole = len(c.rows) < histChunk
		}
		r.chunk = c
	}
}

// emit sends what the next event of the log comes to. It tells of a truncate, which goes to all shards and stands alone.
func (h *history) emit() (truncate bool) {
	r := h.run
	e := h.log[r.next]
	r.next++
	key := func(id int) string { return fmt.Sprintf(`"key":{"id":%d}`, id) }
	after := func(id int) string {
		return fmt.Sprintf(`%s,"after":{"id":%d,"a":%d,"u":%d,"big":%q}`, key(id), id, e.row.a, e.row.u, e.row.big)
	}
	switch e.op {
	case 'I':
		h.send(e, "insert", "", e.id, after(e.id), "")
	case 'U':
		h.send(e, "update", "", e.id, after(e.id), "")
	case 'u':
		h.send(e, "update", "", e.id, fmt.Sprintf(`%s,"after":{"id":%d,"a":%d,"u":%d},"unchanged":["big"]`, key(e.id), e.id, e.row.a, e.row.u), "")
	case 'D':
		h.send(e, "delete", "", e.id, fmt.Sprintf(`%s,"before":{"id":%d}`, key(e.id), e.id), "")
	case 'K':
		h.send(e, "delete", "d", e.id, fmt.Sprintf(`%s,"before":{"id":%d},"moved":true`, key(e.id), e.id), "")
		h.send(e, "insert", "i", e.to, after(e.to)+`,"moved":true`, fmt.Sprint(e.id))
	case 'T':
		h.ack(len(r.sent))
		h.send(e, "truncate", "", -1, `"tables":[{"schema":"public","table":"t"}],"cascade":false,"restart_identity":false`, "")
		return true
	case 'M':
		if e.chunk == r.chunk {
			h.mark(e)
		}
	}
	return false
}

// mark sends a chunk's rows, those aside that were changed since it was read; what is not whole in such a change is read again.
func (h *history) mark(e histEvent) {
	r, c := h.run, e.chunk
	r.chunk = nil
	var again []int
	for _, o := range h.log[-c.at-1 : r.next-1] {
		switch o.op {
		case 'T':
			clear(c.rows)
		case 'M':
		default:
			if _, ok := c.rows[o.id]; ok && o.op == 'u' || slices.Contains(again, o.id) {
				again = append(again, o.id)
			}
			delete(c.rows, o.id)
			if o.op == 'K' {
				delete(c.rows, o.to)
			}
		}
	}
	for n, id := range slices.Sorted(maps.Keys(c.rows)) {
		row := c.rows[id]
		line := fmt.Sprintf(`"key":{"id":%d},"after":{"id":%d,"a":%d,"u":%d,"big":%q}`, id, id, row.a, row.u, row.big)
		h.sendAt(e.lsn+8, e.lsn+8, n, "read", "", id, line, "")
	}
	p := &r.progress
	if c.keys == nil {
		p.last, p.whole = c.last, c.whole
	} else {
		p.again = slices.DeleteFunc(p.again, func(id int) bool { return slices.Contains(c.keys, id) })
	}
	p.again = append(slices.Clone(p.again), again...)
	slices.Sort(p.again)
	p.again = slices.Compact(p.again)
	r.saved = append(r.saved, histSaved{e.lsn + 8, histProgress{p.last, p.whole, slices.Clone(p.again)}})
}

func (h *history) send(e histEvent, op, suffix string, id int, fields, needs string) {
	h.sendAt(e.lsn+8, e.lsn, 0, op, suffix, id, fields, needs)
}

func (h *history) sendAt(commit, row, n int, op, suffix string, id int, fields, needs string) {
	r := h.run
	floor := commit - 1
	if r.acked < len(r.sent) {
		floor = r.sent[r.acked].commit - 1
	}
	rec := histRecord{commit: commit, key: fmt.Sprint(id), needs: needs}
	names := `"schema":"public","table":"t",`
	if rec.shards = []int{id * 7 % len(h.streams)}; id < 0 {
		rec.shards, names = nil, ""
		for i := range h.streams {
			rec.shards = append(rec.shards, i)
		}
	}
	snapshot, ordinal, tx := "", "", `"xid":1,"committed_at":"2026-11-30T19:58:00.123456Z",`
	if op == "read" || !r.progress.done() {
		snapshot = fmt.Sprintf(`"snapshot":"0/%X",`, r.epoch)
	}
	if op == "read" {
		tx = ""
	}
	if n > 0 {
		ordinal = fmt.Sprintf(`"n":%d,`, n)
	}
	rec.line = fmt.Sprintf(`{"v":1,"id":"7.1.%016X.%d%s","op":%q,%s%s,"lsn":"0/%X","row_lsn":"0/%X",%s%s%s"floor":"0/%X"}`,
		row, n, suffix, op, names, fields, commit, row, ordinal, tx, snapshot, floor)
	r.sent = append(r.sent, rec)
}

// ack lets all up to n be durable, in order.
func (h *history) ack(n int) {
	r := h.run
	for ; r.acked < n; r.acked++ {
		for _, sh := range r.sent[r.acked].shards {
			h.land(sh, r.sent[r.acked].line)
		}
	}
}

func (h *history) land(shard int, line string) {
	h.streams[shard] = append(h.streams[shard], line)
	if n := len(h.late[shard]); n > 0 && h.rng.IntN(5) == 0 {
		i := h.rng.IntN(n)
		h.streams[shard] = append(h.streams[shard], h.late[shard][i])
		h.late[shard] = slices.Delete(h.late[shard], i, i+1)
	}
}

// kill ends the run. Of each key one request at most is on the way, and of it nobody knows.
func (h *history) kill() {
	r := h.run
	if r.acked < len(r.sent) {
		h.confirmed = max(h.confirmed, r.sent[r.acked].commit-1)
	} else if r.next > 0 {
		h.confirmed = max(h.confirmed, h.log[r.next-1].lsn+8)
	}
	blocked := map[string]bool{}
	for _, rec := range r.sent[r.acked:] {
		if !blocked[rec.key] && !blocked[rec.needs] {
			for _, sh := range rec.shards {
				switch h.rng.IntN(3) {
				case 0:
					h.land(sh, rec.line)
				case 1:
					h.late[sh] = append(h.late[sh], rec.line)
				}
			}
		}
		blocked[rec.key] = true
	}
	for _, s := range r.saved {
		if s.at <= h.confirmed {
			h.progress = s.p
		}
	}
	h.start()
}

// table is what the target has to have in the end.
func (h *history) table() string {
	var rows []string
	for _, id := range slices.Sorted(maps.Keys(h.rows)) {
		r := h.rows[id]
		rows = append(rows, fmt.Sprintf("(%d,%d,%d,%s)", id, r.a, r.u, r.big))
	}
	return strings.Join(rows, " ")
}
