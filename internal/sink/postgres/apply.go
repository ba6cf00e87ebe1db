package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/record"
)

var errNoValues = errors.New("it has neither the row's values nor its key")

// countError is a statement that did not find every row that it was to change, or found too many.
type countError struct{ want, got int64 }

func (e *countError) Error() string { return fmt.Sprintf("%d rows of %d", e.got, e.want) }

// applyAll applies items, those of held keys aside, which join what is held.
func (x *tx) applyAll(items []item) error {
	if len(items) == 0 {
		return nil
	}
	rest := items[:0]
	for _, it := range items {
		held, err := x.joinHeld(&it)
		if err != nil {
			return err
		}
		if !held {
			rest = append(rest, it)
		}
	}
	return x.applyRange(rest, false)
}

// applyRange applies items that hold no held key: all at once, or, where that fails, in halves, until the one at fault stands
// alone. checked: keys may have been held since, by the half before.
func (x *tx) applyRange(items []item, checked bool) error {
	if checked && x.s.hold.records > 0 {
		return x.applyAll(append([]item(nil), items...))
	}
	if len(items) == 0 {
		return nil
	}
	err := x.attempt(items)
	if err == nil || !dataError(err) {
		return err
	}
	if len(items) == 1 {
		why, err := x.one(&items[0], err)
		if err != nil || why == "" {
			return err
		}
		return x.holdItem(&items[0], why)
	}
	if err := x.applyRange(items[:len(items)/2], false); err != nil {
		return err
	}
	return x.applyRange(items[len(items)/2:], true)
}

// dataError tells an error that one record among others can be the cause of.
func dataError(err error) bool {
	var count *countError
	if errors.As(err, &count) {
		return true
	}
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && !Retryable(err)
}

// attempt applies items under a savepoint.
func (x *tx) attempt(items []item) error {
	missing := x.missing
	if _, err := x.exec("SAVEPOINT s"); err != nil {
		return err
	}
	err := x.statements(items)
	if err == nil {
		_, err = x.exec("RELEASE SAVEPOINT s")
		if err == nil {
			x.applied += int64(len(items))
		}
		return err
	}
	if dataError(err) {
		x.missing = missing
		if _, e := x.exec("ROLLBACK TO SAVEPOINT s"); e != nil {
			return e
		}
	}
	return err
}

func (x *tx) statements(items []item) error {
	groups, err := x.s.plan.make(x, items, len(items) > 1)
	if err != nil {
		return err
	}
	if x.s.t.deferrable {
		// What can wait until the set is complete may; it is checked at its end, where the savepoint still helps.
		if _, err := x.exec("SET CONSTRAINTS ALL DEFERRED"); err != nil {
			return err
		}
	}
	for i := range groups {
		if err := x.group(&groups[i]); err != nil {
			return err
		}
	}
	if x.s.t.deferrable {
		_, err = x.exec("SET CONSTRAINTS ALL IMMEDIATE")
	}
	return err
}

// group runs the statement of a group.
func (x *tx) group(g *opGroup) error {
	switch g.kind {
	case opInsert:
		return x.insert(g)
	case opLoad:
		return x.set(g, stmtInsertNew, g.ops, nil)
	case opRead:
		return x.read(g)
	case opUpdate, opUpdateSome:
		return x.update(g)
	case opDelete, opDeleteSome:
		var n int64
		if err := x.set(g, stmtDelete, g.ops, &n); err != nil {
			return err
		}
		return x.count(g, n)
	case opMovedDelete:
		return x.set(g, stmtDeleteExact, g.ops, nil)
	case opReplace:
		for _, o := range g.ops {
			var n int64
			if err := x.set(g, stmtReplace, []*op{o}, &n); err != nil {
				return err
			}
			if n == 0 {
				if err := x.insert(&opGroup{kind: g.kind, tab: g.tab, shape: g.shape, by: g.by, ops: []*op{o}}); err != nil {
					return err
				}
			}
		}
		return nil
	case opKeylessUpdate, opKeylessDelete:
		for _, o := range g.ops {
			if err := x.keyless(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// read makes rows what the records say, whether they are there or not. Most often none is.
func (x *tx) read(g *opGroup) error {
	var n int64
	if err := x.set(g, stmtInsertNewExact, g.ops, &n); err != nil || n == int64(len(g.ops)) {
		return err
	}
	if err := x.set(g, stmtUpdateExact, g.ops, &n); err != nil {
		return err
	}
	return x.count(g, n)
}

// update sets what came. A key column that did not come, as its TOASTed value did not change, is taken from the key.
func (x *tx) update(g *opGroup) error {
	for _, name := range g.by {
		if g.shape.column(name) == nil {
			return x.updateByKey(g)
		}
	}
	var n int64
	if err := x.set(g, stmtUpdate, g.ops, &n); err != nil {
		return err
	}
	return x.count(g, n)
}

// updateByKey is update with the key's fields put before the row's.
func (x *tx) updateByKey(g *opGroup) error {
	for _, o := range g.ops {
		l := &o.item.rec.Line
		obj := append([]byte{}, l.Get(l.Key)...)
		if after := l.Get(l.After); g.shape.list != nil {
			obj = append(obj[:len(obj)-1], ',')
			obj = append(obj, after[1:]...)
		}
		literal := l.Get(l.Literal)
		obj = dropRepeated(obj)
		sh, err := x.shape(o.item, obj, literal)
		if err != nil {
			return err
		}
		sql, err := o.item.tab.statement(sh, stmtUpdate, g.by)
		if err != nil {
			return err
		}
		array, err := sh.appendObject([]byte{'['}, obj, literal)
		if err != nil {
			return err
		}
		tag, err := x.exec(sql, append(array, ']'))
		if err != nil {
			return err
		}
		if err := x.count(&opGroup{kind: g.kind, ops: []*op{o}}, tag.RowsAffected()); err != nil {
			return err
		}
	}
	return nil
}

// dropRepeated leaves the first of fields with the same name.
func dropRepeated(obj []byte) []byte {
	seen := map[string]bool{}
	out := []byte{'{'}
	for f := record.FieldsOf(obj); f.Next(); {
		if seen[string(f.Name)] {
			continue
		}
		seen[string(f.Name)] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, f.Name...), ':'), f.Value...)
	}
	return append(out, '}')
}

// set runs one statement over the ops' values. Where n is nil, nobody counts its rows.
func (x *tx) set(g *opGroup, kind stmtKind, ops []*op, n *int64) error {
	by := g.by
	if kind == stmtInsert {
		by = nil
	}
	sql, err := g.tab.statement(g.shape, kind, by)
	if err != nil {
		return err
	}
	buf := append(x.s.array[:0], '[')
	for i, o := range ops {
		if i > 0 {
			buf = append(buf, ',')
		}
		if buf, err = o.object(buf); err != nil {
			return wrapRecord(o.item.rec, err)
		}
	}
	buf = append(buf, ']')
	x.s.array = buf
	tag, err := x.exec(sql, buf)
	if err != nil {
		return err
	}
	if n != nil {
		*n = tag.RowsAffected()
	}
	return nil
}

// count holds the rows that a statement changed against those it was to change.
func (x *tx) count(g *opGroup, n int64) error {
	want := int64(len(g.ops))
	switch {
	case n == want, n < want && (g.kind == opUpdateSome || g.kind == opDeleteSome):
		return nil
	case n < want && x.s.t.opts.IgnoreMissing:
		x.missing += want - n
		return nil
	}
	return &countError{want, n}
}

// one deals with a record that cannot be applied: it gives the reason for which it has to wait, where another shard's progress
// can help, or the error that ends the run; neither when it could be applied after all.
func (x *tx) one(it *item, cause error) (wait string, err error) {
	var count *countError
	if errors.As(cause, &count) {
		return "", x.countFault(it, count)
	}
	var pgErr *pgconn.PgError
	if !errors.As(cause, &pgErr) {
		return "", wrapRecord(it.rec, cause)
	}
	switch pgErr.Code {
	case "23505":
		return x.conflict(it, pgErr)
	case "23503", "23P01":
		return reasonOf(pgErr), nil
	}
	return "", x.dataFault(it, pgErr)
}

func (x *tx) countFault(it *item, c *countError) error {
	if c.got < c.want && (it.rec.Op == record.Insert || it.rec.Op == record.Read) {
		return fault.New(fault.Failed,
			"Switch off the trigger or rule that keeps it out (docs/replay.md says how for all triggers), or count such changes and go on with --missing-row ignore.",
			"%s: the row was inserted into %s and is not there: a trigger or a rule of the table swallowed it", where(it.rec), it.tab.ident)
	}
	if c.got > c.want {
		return fault.New(fault.Failed, "The target needs a unique index on the record's key columns, and one row for each key.",
			"%s: the key is that of %d rows in %s", where(it.rec), c.got, it.tab.ident)
	}
	return fault.New(fault.Failed,
		"The target was not a copy of the source at the point where this replay began, or was written to by others, or cascades deletes (see docs/replay.md). Load it again, or count such changes and go on with --missing-row ignore.",
		"%s: there is no such row in %s, and the change is no duplicate", where(it.rec), it.tab.ident)
}

func (x *tx) dataFault(it *item, e *pgconn.PgError) error {
	what := e.Message
	if e.ColumnName != "" {
		what += fmt.Sprintf(" (column %q)", e.ColumnName)
	}
	if e.ConstraintName != "" {
		what += fmt.Sprintf(" (constraint %q)", e.ConstraintName)
	}
	if e.Detail != "" {
		what += ": " + e.Detail
	}
	hint := "Compare the column's type in the target with the source's, alter it, and run the same command again: it goes on here."
	switch e.Code {
	case "42501":
		hint = "Grant the role INSERT, UPDATE, DELETE and SELECT on the table (TRUNCATE for truncates); then run the same command again."
		return fault.New(fault.Unreachable, hint, "%s into %s: %s", where(it.rec), it.tab.ident, what)
	case "23502", "23514":
		hint = "The target has a constraint that the source's row breaks: drop or relax it, and run the same command again: it goes on here."
	case "53100":
		hint = "Make room on the server's disk and run the same command again: it goes on here."
	}
	return fault.New(fault.Failed, hint, "%s into %s: %s (SQLSTATE %s)", where(it.rec), it.tab.ident, what, e.Code)
}

func reasonOf(e *pgconn.PgError) string {
	why := e.Message
	if e.Detail != "" {
		why += ": " + e.Detail
	}
	return why
}

// conflict deals with a unique index that has the row's value already. On the key's own index it is a row that exists; on another one,
// or where the keys differ as text, a change of another shard can make room.
func (x *tx) conflict(it *item, e *pgconn.PgError) (wait string, err error) {
	if it.rec.Op != record.Insert || len(it.by) == 0 || it.rec.Moved() || it.rec.Snapshot != 0 {
		return reasonOf(e), nil
	}
	l := &it.rec.Line
	key := l.Get(l.Key)
	sh, err := x.shape(it, key, nil)
	if err != nil {
		return "", err
	}
	cond, err := it.tab.match(sh, it.by, true)
	if err != nil {
		return "", err
	}
	tag, err := x.exec("SELECT FROM "+it.tab.ident+" AS t, "+sh.recordSet()+" WHERE "+cond, append(append([]byte{'['}, key...), ']'))
	switch {
	case err != nil:
		return "", err
	case tag.RowsAffected() == 0:
		return reasonOf(e), nil
	case !x.s.t.opts.OverwriteExisting:
		return "", fault.New(fault.Failed,
			"The target had rows before this replay began, or was written to by others. Empty it, begin after the rows that it has (--after-sequence, --from-time), or let the stream win with --existing-row overwrite.",
			"%s: the row exists in %s already, and the change is no duplicate", where(it.rec), it.tab.ident)
	}
	return x.overwrite(it)
}

// overwrite sets an existing row to what its insert says.
func (x *tx) overwrite(it *item) (wait string, err error) {
	o, err := x.op(it)
	if err != nil {
		return "", err
	}
	if _, err := x.exec("SAVEPOINT s"); err != nil {
		return "", err
	}
	g := &opGroup{kind: opUpdate, tab: it.tab, shape: o.shape, by: it.by, ops: []*op{&o}}
	err = x.set(g, stmtUpdate, g.ops, nil)
	if err == nil {
		x.applied++
		_, err = x.exec("RELEASE SAVEPOINT s")
		return "", err
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || Retryable(err) {
		return "", err
	}
	if _, e := x.exec("ROLLBACK TO SAVEPOINT s"); e != nil {
		return "", e
	}
	if pgErr.Code == "23505" || pgErr.Code == "23503" || pgErr.Code == "23P01" {
		return reasonOf(pgErr), nil
	}
	return "", x.dataFault(it, pgErr)
}
