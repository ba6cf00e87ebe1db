package postgres

import (
	"slices"
	"strings"

	"synctl/internal/record"
)

// opKind orders the statements of one round: what makes room first, then what refers to it.
type opKind uint8

const (
	opMovedDelete opKind = iota // by text, content to find nothing
	opReplace                   // the insert of a key update: replaces a row whose key is equal
	opInsert
	opLoad // a row of a load, which says nothing of when it was read: only where there is none
	opRead // a row as the source has it, of a snapshot or beside one: inserted, or put over the one that is there
	opUpdate
	opDelete
	opUpdateSome    // beside a snapshot, without all of the row's values: where there is a row; else a read brings it whole
	opDeleteSome    // beside a snapshot: where there is a row
	opKeylessUpdate // one row that is identical
	opKeylessDelete
)

// op is a change, or several of one key folded into one.
type op struct {
	kind  opKind
	item  *item
	shape *shape
	round int
}

// group is a statement: ops of one round, kind, table and shape.
type opGroup struct {
	kind  opKind
	tab   *table
	shape *shape
	by    []string
	ops   []*op
	round int
}

// plan puts changes into rounds: the i-th change of a key goes in round i, so one statement has a key once at most and the order
// per key holds. Its memory is used again.
type plan struct {
	ops    []op
	last   map[string]int // key → its latest op
	groups []opGroup
}

// make plans items in their order. fold joins changes of one key where the row comes out the same: an update after an update
// or an insert that sets all that it set, and a delete after an update.
func (p *plan) make(x *tx, items []item, fold bool) ([]opGroup, error) {
	if p.last == nil {
		p.last = map[string]int{}
	}
	clear(p.last)
	p.ops = p.ops[:0]
	if cap(p.ops) < len(items) {
		p.ops = make([]op, 0, len(items))
	}
	for i := range items {
		o, err := x.op(&items[i])
		if err != nil {
			return nil, err
		}
		at, ok := p.last[items[i].key]
		if !ok {
			p.last[items[i].key] = len(p.ops)
			p.ops = append(p.ops, o)
			continue
		}
		prev := &p.ops[at]
		if fold && prev.fold(&o) {
			continue
		}
		o.round = prev.round + 1
		if len(items[i].by) == 0 && o.kind == opInsert && prev.kind == opInsert {
			o.round = prev.round // a keyless table's inserts in a row
		}
		p.last[items[i].key] = len(p.ops)
		p.ops = append(p.ops, o)
	}
	return p.group(), nil
}

// fold takes o into prev, an earlier op of the same key; false when it cannot.
func (prev *op) fold(o *op) bool {
	if prev.item.tab != o.item.tab || len(o.item.by) == 0 || !slices.Equal(prev.item.by, o.item.by) {
		return false
	}
	switch {
	case o.kind == opUpdate && (prev.kind == opUpdate || prev.kind == opInsert) && o.shape.holds(prev.shape):
		if prev.kind == opInsert && !prev.shape.holds(o.shape) {
			return false
		}
		prev.item, prev.shape = o.item, o.shape
		return true
	case o.kind == opRead && (prev.kind == opRead || prev.kind == opInsert || prev.kind == opUpdate) && o.shape.holds(prev.shape),
		o.kind == opUpdate && prev.kind == opRead && o.shape.holds(prev.shape) && prev.shape.holds(o.shape):
		prev.kind, prev.item, prev.shape = opRead, o.item, o.shape
		return true
	case (o.kind == opDelete || o.kind == opDeleteSome) && (prev.kind == opRead || prev.kind == opUpdateSome):
		prev.kind, prev.item, prev.shape = opDeleteSome, o.item, o.shape
		return true
	case o.kind == opDelete && prev.kind == opUpdate:
		prev.kind, prev.item, prev.shape = opDelete, o.item, o.shape
		return true
	}
	return false
}

// group collects the ops into statements, in the order in which they are to run.
func (p *plan) group() []opGroup {
	type groupKey struct {
		round int
		kind  opKind
		tab   *table
		shape *shape
		by    string
	}
	p.groups = p.groups[:0]
	index := map[groupKey]int{}
	var lastKey groupKey
	lastAt := -1
	for i := range p.ops {
		o := &p.ops[i]
		k := groupKey{o.round, o.kind, o.item.tab, o.shape, ""}
		if lastAt >= 0 && k.round == lastKey.round && k.kind == lastKey.kind && k.shape == lastKey.shape && k.tab == lastKey.tab &&
			slices.Equal(p.groups[lastAt].by, o.item.by) {
			p.groups[lastAt].ops = append(p.groups[lastAt].ops, o)
			continue
		}
		k.by = strings.Join(o.item.by, "\x00")
		at, ok := index[k]
		if !ok {
			at = len(p.groups)
			index[k] = at
			p.groups = append(p.groups, opGroup{kind: o.kind, tab: o.item.tab, shape: o.shape, by: o.item.by, round: o.round})
		}
		p.groups[at].ops = append(p.groups[at].ops, o)
		lastKey, lastAt = k, at
		lastKey.by = ""
	}
	slices.SortStableFunc(p.groups, func(a, b opGroup) int {
		if a.round != b.round {
			return a.round - b.round
		}
		return int(a.kind) - int(b.kind)
	})
	return p.groups
}

// op finds out what a record asks for and in which columns.
func (x *tx) op(it *item) (op, error) {
	l := &it.rec.Line
	o := op{item: it}
	obj, literal := l.Get(l.After), l.Get(l.Literal)
	keyless := len(it.by) == 0
	switch it.rec.Op {
	case record.Insert:
		o.kind = opInsert
		if it.rec.Moved() && !keyless {
			o.kind = opReplace
		}
	case record.Read:
		switch o.kind = opRead; {
		case keyless:
			o.kind = opInsert
		case it.rec.Snapshot == 0:
			o.kind = opLoad
		}
	case record.Update:
		if o.kind = opUpdate; keyless {
			o.kind = opKeylessUpdate
		}
	case record.Delete:
		obj, literal = l.Get(l.Key), nil
		switch o.kind = opDelete; {
		case keyless:
			o.kind = opKeylessDelete
			obj, literal = l.Get(l.Before), l.Get(l.LiteralBefore)
		case it.rec.Moved():
			o.kind = opMovedDelete
		}
	}
	if (it.rec.Snapshot != 0 || it.lenient) && !keyless {
		o.kind = besideSnapshot(o.kind, len(l.Get(l.Unchanged)) == 0)
	}
	if len(obj) == 0 {
		return o, wrapRecord(it.rec, errNoValues)
	}
	var err error
	if o.shape, err = x.shape(it, obj, literal); err != nil {
		return o, err
	}
	return o, nil
}

// besideSnapshot is what a change does while the rows of its table are still coming: the target may not have its row yet.
func besideSnapshot(kind opKind, whole bool) opKind {
	switch {
	case kind == opInsert, kind == opUpdate && whole:
		return opRead
	case kind == opUpdate:
		return opUpdateSome
	case kind == opDelete:
		return opDeleteSome
	}
	return kind
}

// object appends the values of an op as its statement takes them.
func (o *op) object(dst []byte) ([]byte, error) {
	l := &o.item.rec.Line
	switch o.kind {
	case opDelete, opDeleteSome, opMovedDelete:
		return o.shape.appendObject(dst, l.Get(l.Key), nil)
	case opKeylessDelete:
		return o.shape.appendObject(dst, l.Get(l.Before), l.Get(l.LiteralBefore))
	}
	return o.shape.appendObject(dst, l.Get(l.After), l.Get(l.Literal))
}
