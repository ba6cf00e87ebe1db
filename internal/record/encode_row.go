package record

import (
	"errors"
	"fmt"
)

// appendRow writes the fields of a row, from schema to looked_up.
func appendRow(dst []byte, r *Record) ([]byte, error) {
	t := r.Table
	if t == nil {
		return dst, errors.New("a row without a table")
	}
	err := errors.Join(t.err, checkTuples(r))
	if err != nil {
		return dst, err
	}
	dst = append(dst, t.header...)
	if len(t.Key) > 0 {
		dst = append(dst, `,"key":`...)
		if dst, err = appendKey(dst, r); err != nil {
			return dst, err
		}
	}
	var literalBefore, literalAfter, unchanged bool
	if r.Before != nil && r.Op != Insert && r.Op != Read {
		dst = append(dst, `,"before":`...)
		if dst, _, literalBefore, err = appendTuple(dst, t, r.Before, nil); err != nil {
			return dst, err
		}
	}
	if r.Op != Delete {
		dst = append(dst, `,"after":`...)
		if dst, unchanged, literalAfter, err = appendTuple(dst, t, r.After, r.Before); err != nil {
			return dst, err
		}
		if unchanged {
			dst = appendUnchanged(dst, r)
		}
	}
	switch {
	case literalAfter:
		dst = appendLiteral(append(dst, `,"literal":`...), t, r.After, r.Before)
	case literalBefore && r.Op == Delete:
		dst = appendLiteral(append(dst, `,"literal":`...), t, r.Before, nil)
	}
	if literalBefore && r.Op != Delete {
		dst = appendLiteral(append(dst, `,"literal_before":`...), t, r.Before, nil)
	}
	if r.Moved() {
		dst = append(dst, `,"moved":true`...)
	}
	return appendLookedUp(dst, r)
}

func checkTuples(r *Record) error {
	n := len(r.Table.Columns)
	switch {
	case r.Op == Delete && r.Before == nil:
		return errors.New("a delete without an old row")
	case r.Op != Delete && r.After == nil:
		return errors.New("a new row without columns")
	case r.Before != nil && len(r.Before) != n:
		return fmt.Errorf("an old row of %d values for the table's %d columns", len(r.Before), n)
	case r.After != nil && len(r.After) != n:
		return fmt.Errorf("a new row of %d values for the table's %d columns", len(r.After), n)
	}
	return nil
}

// newValue is what column i holds after the change: a TOASTed value that did not change and was not sent is taken from
// the old row where that has it.
func newValue(after, before []Value, i int) Value {
	v := after[i]
	if v.Kind == Unchanged && i < len(before) && before[i].Kind != Absent {
		return before[i]
	}
	return v
}

// column is the value of a key column: after the change; for a delete, before it.
func (r *Record) column(i int) (Value, error) {
	var v Value
	switch {
	case r.Op == Delete && i < len(r.Before):
		v = r.Before[i]
	case r.Op != Delete && i < len(r.After):
		v = newValue(r.After, r.Before, i)
	}
	if v.Kind == Absent || v.Kind == Unchanged {
		return v, fmt.Errorf("key column %q was not sent", r.Table.Columns[i].Name)
	}
	return v, nil
}

func appendKey(dst []byte, r *Record) ([]byte, error) {
	sep := byte('{')
	for _, i := range r.Table.Key {
		v, err := r.column(i)
		if err != nil {
			return dst, err
		}
		c := &r.Table.Columns[i]
		dst = append(dst, sep)
		dst = append(dst, c.Prefix...)
		if dst, _, err = appendValue(dst, c, v); err != nil {
			return dst, err
		}
		sep = ','
	}
	return append(dst, '}'), nil
}

// appendTuple writes a row as an object of the columns that were sent. unchanged tells that some were left out for
// being unchanged, literal that some need their text besides.
func appendTuple(dst []byte, t *Table, row, old []Value) (out []byte, unchanged, literal bool, err error) {
	dst = append(dst, '{')
	empty := len(dst)
	for i := range row {
		v := row[i]
		if v.Kind == Unchanged {
			if v = newValue(row, old, i); v.Kind == Unchanged {
				unchanged = true
				continue
			}
		}
		if v.Kind == Absent {
			continue
		}
		c := &t.Columns[i]
		if len(dst) > empty {
			dst = append(dst, ',')
		}
		dst = append(dst, c.Prefix...)
		var lit bool
		if dst, lit, err = appendValue(dst, c, v); err != nil {
			return dst, unchanged, literal, err
		}
		literal = literal || lit
	}
	return append(dst, '}'), unchanged, literal, nil
}

func appendValue(dst []byte, c *Column, v Value) (out []byte, literal bool, err error) {
	switch v.Kind {
	case Null:
		return append(dst, "null"...), false, nil
	case Text:
		dst, literal, err = c.Type.AppendJSON(dst, v.Data)
	case JSON:
		dst, _, err = appendDocument(dst, v.Data)
	default:
		err = fmt.Errorf("a value of kind %d has no JSON form", v.Kind)
	}
	if err != nil {
		return dst, false, fmt.Errorf("column %q: %w", c.Name, err)
	}
	return dst, literal, nil
}

func appendUnchanged(dst []byte, r *Record) []byte {
	dst = append(dst, `,"unchanged":`...)
	sep := byte('[')
	for i := range r.After {
		if newValue(r.After, r.Before, i).Kind == Unchanged {
			prefix := r.Table.Columns[i].Prefix
			dst = append(dst, sep)
			dst = append(dst, prefix[:len(prefix)-1]...) // without its colon
			sep = ','
		}
	}
	return append(dst, ']')
}

// appendLiteral writes the texts of the columns whose JSON form does not determine them. Such values are rare, so
// which they are is found by rendering again rather than remembered for every row.
func appendLiteral(dst []byte, t *Table, row, old []Value) []byte {
	sep := byte('{')
	for i := range row {
		v := newValue(row, old, i)
		if v.Kind != Text {
			continue
		}
		c := &t.Columns[i]
		mark := len(dst)
		out, literal, err := c.Type.AppendJSON(dst, v.Data)
		dst = out[:mark]
		if err != nil || !literal {
			continue
		}
		dst = append(dst, sep)
		dst = append(dst, c.Prefix...)
		dst = AppendString(dst, v.Data)
		sep = ','
	}
	return append(dst, '}')
}

func appendLookedUp(dst []byte, r *Record) ([]byte, error) {
	if len(r.LookedUp) == 0 {
		return dst, nil
	}
	dst = append(dst, `,"looked_up":`...)
	sep := byte('[')
	for _, i := range r.LookedUp {
		if i < 0 || int(i) >= len(r.Table.Columns) {
			return dst, fmt.Errorf("looked-up column %d of %d", i, len(r.Table.Columns))
		}
		prefix := r.Table.Columns[i].Prefix
		dst = append(dst, sep)
		dst = append(dst, prefix[:len(prefix)-1]...)
		sep = ','
	}
	return append(dst, ']'), nil
}
