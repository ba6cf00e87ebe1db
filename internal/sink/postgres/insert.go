package postgres

// insert runs an insert and makes sure that its rows are there. A trigger or a rule can swallow them without an error.
func (x *tx) insert(g *opGroup) error {
	var n int64
	if err := x.set(g, stmtInsert, g.ops, &n); err != nil || n >= int64(len(g.ops)) {
		return err
	}
	if len(g.by) == 0 && g.tab.acts {
		return nil // it may have gone to a child table; without a key nobody can tell, and the triggers were warned of
	}
	// A trigger may also have put rows into child tables itself: then they are found by their keys.
	n, err := x.present(g)
	if err != nil {
		return err
	}
	return x.count(g, min(n, int64(len(g.ops))))
}

// present counts the ops' rows that are in the table.
func (x *tx) present(g *opGroup) (int64, error) {
	if len(g.by) == 0 {
		return 0, nil
	}
	l := &g.ops[0].item.rec.Line
	sh, err := x.shape(g.ops[0].item, l.Get(l.Key), nil)
	if err != nil {
		return 0, err
	}
	cond, err := g.tab.match(sh, g.by, false)
	if err != nil {
		return 0, err
	}
	buf := []byte{'['}
	for i, o := range g.ops {
		if i > 0 {
			buf = append(buf, ',')
		}
		l := &o.item.rec.Line
		if buf, err = sh.appendObject(buf, l.Get(l.Key), nil); err != nil {
			return 0, wrapRecord(o.item.rec, err)
		}
	}
	tag, err := x.exec("SELECT FROM "+g.tab.ident+" AS t, "+sh.recordSet()+" WHERE "+cond, append(buf, ']'))
	return tag.RowsAffected(), err
}
