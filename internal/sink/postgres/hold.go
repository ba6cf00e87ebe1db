package postgres

import (
	"fmt"
	"sync/atomic"
	"time"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// hold is what waits in a shard: records that another shard's progress has to make room for, and what follows them of the same
// keys. They are in synctl.held too, written in the transaction that moved the checkpoint over them, so the shard goes on and a
// restart finds them.
type hold struct {
	keys    map[string]*heldKey
	order   []*heldKey // as they were held
	records int
	bytes   int64
	next    int64 // the next row's n
	tried   time.Time
	took    time.Duration // of the last attempt

	force atomic.Bool // try at the next transaction, whatever the time
	count atomic.Int64
	why   atomic.Pointer[string] // of the first that is held, for the error at the end
}

type heldKey struct {
	key    string
	rows   []heldRow
	reason string
	gone   bool // a moved insert without its TOASTed values: its row's next change settles it
	since  time.Time
}

// heldRow is a row of synctl.held.
type heldRow struct {
	n             int64
	sequence      string
	line          int
	schema, table string // of the record
	record        string // its line
	reason        string
	op            record.Op
	beside        bool // a snapshot: the row may be there already, or not yet
}

const reasonGone = "its TOASTed values were not in the change and its row was gone when they were looked up"

func (h *hold) init() {
	h.keys = map[string]*heldKey{}
	h.order = nil
	h.records, h.bytes = 0, 0
	h.count.Store(0)
}

// due tells when to try again; nil, which never comes, while nothing is held.
func (h *hold) due(every time.Duration) <-chan time.Time {
	if h.records == 0 {
		return nil
	}
	return time.After(max(every, 10*h.took))
}

// retry tells whether what is held is to be tried in the transaction that begins.
func (h *hold) retry() bool {
	return h.force.Swap(false) || h.records > 0 && time.Since(h.tried) >= max(100*time.Millisecond, 10*h.took)
}

// load takes a row of synctl.held when the shard is opened.
func (h *hold) load(s *Shard, row heldRow) error {
	rec, err := parseHeld(s, row)
	if err != nil {
		return err
	}
	key, err := record.AppendPartitionKey(nil, rec)
	if err != nil {
		return err
	}
	row.op, row.schema, row.table, row.beside = rec.Op, rec.SchemaName(), rec.TableName(), rec.Snapshot != 0
	h.add(s, string(key), row)
	return nil
}

// parseHeld makes a record of a held line again.
func parseHeld(s *Shard, row heldRow) (*record.Record, error) {
	rec := &record.Record{}
	if err := record.Parse([]byte(row.record), rec); err != nil {
		return nil, fault.New(fault.Failed, "The row was altered by hand. Mend it, or delete it to leave the change out.",
			"read synctl.held, row %d of shard %s: %w", row.n, s.id, err)
	}
	rec.Stream = &record.StreamInfo{Name: s.t.opts.Stream, Shard: s.id, Sequence: row.sequence}
	rec.StreamLine = row.line
	return rec, nil
}

func (h *hold) add(s *Shard, key string, row heldRow) *heldKey {
	k := h.keys[key]
	if k == nil {
		k = &heldKey{key: key, reason: row.reason, gone: row.reason == reasonGone, since: time.Now()}
		h.keys[key] = k
		h.order = append(h.order, k)
	}
	k.rows = append(k.rows, row)
	h.next = max(h.next, row.n+1)
	h.account(s, 1, int64(len(row.record)))
	return k
}

func (h *hold) account(s *Shard, records int, bytes int64) {
	h.records += records
	h.bytes += bytes
	s.t.noteHeld(s.id, h.records, h.bytes)
}

// heldTotals are the records that wait in a shard and their bytes.
type heldTotals struct{ records, bytes int64 }

// noteHeld keeps a shard's totals, also when the shard has been closed: what waits is in the database.
func (t *Target) noteHeld(shard string, records int, bytes int64) {
	t.heldMu.Lock()
	defer t.heldMu.Unlock()
	t.held[shard] = heldTotals{int64(records), bytes}
}

func (t *Target) heldNow() (sum heldTotals) {
	t.heldMu.Lock()
	defer t.heldMu.Unlock()
	for _, h := range t.held {
		sum.records += h.records
		sum.bytes += h.bytes
	}
	return sum
}

// drop takes the first n rows of a key away, in memory and, with the transaction, in synctl.held.
func (x *tx) drop(k *heldKey, n int) {
	h := &x.s.hold
	for _, row := range k.rows[:n] {
		x.dropHeld = append(x.dropHeld, row.n)
		h.account(x.s, -1, -int64(len(row.record)))
	}
	if k.rows = k.rows[n:]; len(k.rows) > 0 {
		return
	}
	delete(h.keys, k.key)
	for i, o := range h.order {
		if o == k {
			h.order = append(h.order[:i], h.order[i+1:]...)
			break
		}
	}
}

// joinHeld lets a record wait when its key is held, or when it is an insert that only its row's next change can settle.
func (x *tx) joinHeld(it *item) (held bool, err error) {
	h := &x.s.hold
	k := h.keys[it.key]
	if k == nil {
		l := &it.rec.Line
		if it.rec.Op == record.Insert && it.rec.Moved() && l.Unchanged.Len > 2 && len(it.by) > 0 {
			return true, x.holdItem(it, reasonGone)
		}
		return false, nil
	}
	if it.rec.Op == record.Read && it.rec.Snapshot != 0 && len(it.by) > 0 {
		// The row as a whole, and not older than anything that waits.
		x.supersede(k)
		return false, nil
	}
	if it.rec.Op == record.Delete && len(it.by) > 0 {
		switch op := k.rows[0].op; {
		case k.rows[0].beside && op != record.Delete:
			// What waits may have been to lie over a row, or to be its first.
			x.supersede(k)
			it.lenient = true
			return false, nil
		case op == record.Insert, op == record.Read:
			// What was never there need not be removed.
			x.supersede(k)
			x.applied++
			return true, nil
		case op == record.Update:
			x.supersede(k)
			return false, nil
		}
	}
	return true, x.holdItem(it, k.reason)
}

// supersede drops what waits of a key: the record at hand makes its row what it is to be.
func (x *tx) supersede(k *heldKey) {
	x.applied += int64(len(k.rows))
	x.released++
	x.drop(k, len(k.rows))
}

// holdItem makes a record wait.
func (x *tx) holdItem(it *item, reason string) error {
	h := &x.s.hold
	row := heldRow{
		n: h.next, sequence: x.s.mark.Sequence, record: string(it.rec.Line.Bytes), reason: reason, op: it.rec.Op, beside: it.rec.Snapshot != 0,
		schema: it.rec.SchemaName(), table: it.rec.TableName(),
	}
	if st := it.rec.Stream; st != nil {
		row.sequence, row.line = string([]byte(st.Sequence)), it.rec.StreamLine
	}
	k := h.add(x.s, it.key, row)
	x.newHeld = append(x.newHeld, row)
	if x.s.t.heldNow().bytes > x.s.t.opts.HoldBytes {
		return fault.New(fault.Failed,
			"Mend the row that is in the way, or let more wait with --hold-bytes; then run the same command again.",
			"more than %d bytes of records wait for other shards; the first: %s", x.s.t.opts.HoldBytes, x.explain(h.order[0]))
	}
	if len(k.rows) == 1 {
		x.s.t.opts.Log.Debug("a change waits for another shard", "change", where(it.rec), "reason", reason)
	}
	return nil
}

// explain says what a key waits for.
func (x *tx) explain(k *heldKey) string {
	rec, err := parseHeld(x.s, k.rows[0])
	if err != nil {
		return err.Error()
	}
	return where(rec) + ": " + k.reason
}

// retryHeld tries what waits, as long as something gets on.
func (x *tx) retryHeld() error {
	h := &x.s.hold
	if h.records == 0 {
		return nil
	}
	began := time.Now()
	for again := true; again; {
		again = false
		for _, k := range append([]*heldKey(nil), h.order...) {
			n, err := x.retryKey(k)
			if err != nil {
				return err
			}
			again = again || n > 0
		}
	}
	h.tried = time.Now()
	h.took = time.Since(began)
	for _, k := range h.order {
		if time.Since(k.since) > x.s.t.opts.HoldTime {
			return fault.New(fault.Failed,
				"Mend the row that is in the way, or wait longer with --hold-time; then run the same command again. synctl.held in the target has the record, whole.",
				"a change has waited %s for another shard: %s", x.s.t.opts.HoldTime, x.explain(k))
		}
	}
	return nil
}

// retryKey applies a key's records in order, up to the first that still has to wait.
func (x *tx) retryKey(k *heldKey) (n int, err error) {
	if k.gone {
		return 0, nil
	}
	for len(k.rows) > 0 {
		rec, err := parseHeld(x.s, k.rows[0])
		if err != nil {
			return n, err
		}
		it, err := x.item(rec)
		if err != nil {
			return n, err
		}
		err = x.attempt([]item{it})
		if err != nil && !dataError(err) {
			return n, err
		}
		if err != nil {
			wait, err := x.one(&it, err)
			if err != nil {
				return n, err
			}
			if wait != "" {
				k.reason = wait
				return n, nil
			}
		}
		x.drop(k, 1)
		x.released++
		n++
	}
	return n, nil
}

// storeHeld writes what was held and what no longer is.
func (x *tx) storeHeld() error {
	o := &x.s.t.opts
	dropped := map[int64]bool{}
	for _, n := range x.dropHeld {
		dropped[n] = true
	}
	for _, r := range x.newHeld {
		if dropped[r.n] {
			continue
		}
		if _, err := x.exec(`INSERT INTO synctl.held (name, stream, shard, n, sequence, line, table_schema, table_name, record, reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			o.Checkpoint, o.Stream, x.s.id, r.n, r.sequence, r.line, r.schema, r.table, r.record, r.reason); err != nil {
			return fmt.Errorf("write synctl.held: %w", err)
		}
	}
	if len(x.dropHeld) == 0 {
		return nil
	}
	_, err := x.exec("DELETE FROM synctl.held WHERE name = $1 AND stream = $2 AND shard = $3 AND n = ANY($4)", o.Checkpoint, o.Stream, x.s.id, x.dropHeld)
	return err
}

// committed publishes what is held after a commit, for those who ask from outside.
func (h *hold) committed(x *tx) {
	h.count.Store(int64(h.records))
	if len(h.order) > 0 {
		why := x.explain(h.order[0])
		h.why.Store(&why)
	}
}

// truncated forgets what waits for tables that are now empty: in order, it came before.
func (h *hold) truncated(s *Shard, tables []record.TableID) {
	kept := h.order[:0]
	for _, k := range h.order {
		if !hasTable(tables, k.rows[0].schema, k.rows[0].table) {
			kept = append(kept, k)
			continue
		}
		for _, row := range k.rows {
			h.account(s, -1, -int64(len(row.record)))
		}
		delete(h.keys, k.key)
	}
	h.order = kept
	h.count.Store(int64(h.records))
}

func hasTable(tables []record.TableID, schema, name string) bool {
	for _, t := range tables {
		if t.Schema == schema && t.Name == name {
			return true
		}
	}
	return false
}
