package postgres

import (
	"strings"

	"synctl/internal/record"
)

// keyless applies an update or delete of a table without a key: to exactly one row that is identical to the old one. Rows are
// compared as text, which every type has and which tells 1.0 from 1.00.
func (x *tx) keyless(o *op) error {
	tab, l := o.item.tab, &o.item.rec.Line
	before, literal := l.Get(l.Before), l.Get(l.LiteralBefore)
	if len(before) == 0 {
		return wrapRecord(o.item.rec, errNoValues)
	}
	old, err := x.shape(o.item, before, literal)
	if err != nil {
		return err
	}
	var same []string
	for i := range old.cols {
		c := &old.cols[i]
		same = append(same, "t."+c.ident+"::text IS NOT DISTINCT FROM ("+old.value(c)+")::text")
	}
	pick := "(SELECT t.tableoid, t.ctid FROM " + tab.ident + " AS t, " + old.recordSet() + " WHERE " + strings.Join(same, " AND ") + " LIMIT 1)"
	array, err := old.appendObject([]byte{'['}, before, literal)
	if err != nil {
		return wrapRecord(o.item.rec, err)
	}
	array = append(array, ']')
	if o.item.rec.Op == record.Delete {
		tag, err := x.exec("DELETE FROM "+tab.ident+" WHERE (tableoid, ctid) IN "+pick, array)
		if err != nil {
			return err
		}
		return x.count(&opGroup{ops: []*op{o}}, tag.RowsAffected())
	}
	var sets []string
	for i := range o.shape.cols {
		if c := &o.shape.cols[i]; !c.generated && !c.always {
			sets = append(sets, c.ident+" = "+o.shape.value(c))
		}
	}
	fresh, err := o.object([]byte{'['})
	if err != nil {
		return wrapRecord(o.item.rec, err)
	}
	from := strings.Replace(o.shape.recordSet(), "$1", "$2", 1)
	tag, err := x.exec("UPDATE "+tab.ident+" AS u SET "+strings.Join(sets, ", ")+" FROM "+from+" WHERE (u.tableoid, u.ctid) IN "+pick, array, append(fresh, ']'))
	if err != nil {
		return err
	}
	return x.count(&opGroup{ops: []*op{o}}, tag.RowsAffected())
}
