package snapshot

// maxTouched bounds the keys that a window remembers. A chunk beside which more is changed is read again.
const maxTouched = 1 << 17

// Window is what the feed carries of a table between a chunk's marks. It is used by the goroutine that reads the feed.
type Window struct {
	keys map[string]touch
	txs  map[uint32]struct{}
	// truncated is the last transaction that emptied the table between the marks; none if cut is false.
	truncated uint32
	cut       bool
	overrun   bool // more was changed than can be remembered
}

// touch is the last change of a key in the window. The one before it had ended when this one was made, since rows are locked:
// a snapshot that does not see an earlier change of a key does not see this one either.
type touch struct {
	xid     uint32
	gone    bool // it was deleted, or moved to another key
	partial bool // one of the changes left out TOASTed values, so the feed does not have the whole row
}

// Touch notes a change of the row with that key. gone: the key has no row any more. partial: values that did not change
// were not sent.
func (w *Window) Touch(xid uint32, key []byte, gone, partial bool) {
	if w.keys == nil {
		w.keys, w.txs = map[string]touch{}, map[uint32]struct{}{}
	}
	t, known := w.keys[string(key)]
	if !known && len(w.keys) >= maxTouched {
		w.overrun = true
		clear(w.keys)
	}
	if w.overrun {
		return
	}
	partial = partial || known && t.partial && !t.gone
	w.keys[string(key)] = touch{xid: xid, gone: gone, partial: partial && !gone}
	w.txs[xid] = struct{}{}
}

// Truncate notes that a transaction emptied the table.
func (w *Window) Truncate(xid uint32) {
	if w.txs == nil {
		w.keys, w.txs = map[string]touch{}, map[uint32]struct{}{}
	}
	w.truncated, w.cut = xid, true
	w.txs[xid] = struct{}{}
}

// Quiet tells that nothing was changed in the window, so that every row may go.
func (w *Window) Quiet() bool { return len(w.txs) == 0 }

// Stale tells that the chunk has to be read again: more was changed beside it than the window remembers, or its snapshot does not
// see a transaction that the feed carried before the low mark, and whose keys nobody has noted for it.
func (w *Window) Stale(s Snap, decoded *Decoded) bool {
	if w.overrun {
		return true
	}
	for _, x := range s.InProgress {
		xid := uint32(x)
		if _, within := w.txs[xid]; !within && decoded.Has(xid) {
			return true
		}
	}
	return false
}

// Verdict on a row of a chunk.
type Verdict uint8

const (
	Deliver   Verdict = iota
	Drop              // the feed has a later change, or the row is gone
	ReadAgain         // as Drop, but the change left values out that nobody has delivered: the key has to be read again
)

// Judge tells what becomes of the row with that key, which the snapshot saw.
func (w *Window) Judge(s Snap, key []byte) Verdict {
	t, ok := w.keys[string(key)]
	if w.cut && !s.Sees(w.truncated) {
		// The row was removed by the truncate. What was put under its key since then came whole.
		return Drop
	}
	switch {
	case !ok || s.Sees(t.xid):
		return Deliver
	case t.partial:
		return ReadAgain
	}
	return Drop
}

// AppendKey appends one key value to the form in which windows know keys: every value with its length, so that no two keys
// look alike.
func AppendKey(dst, value []byte) []byte {
	n := len(value)
	dst = append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	return append(dst, value...)
}
