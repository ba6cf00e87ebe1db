package postgres

import (
	"fmt"
	"slices"
	"strings"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// shape is a set of columns in which a table's values come: those of a JSON object, in its order. Records of one shape go
// into one statement, whose texts are made once.
type shape struct {
	cols    []shapeColumn
	list    []string // their names
	rewrite bool     // the object cannot go as it stands
	sql     map[stmtKey]string
}

type shapeColumn struct {
	*column
	literal bool // its value comes as PostgreSQL's text
}

// stmtKey names one of the statements of a shape.
type stmtKey struct {
	kind stmtKind
	key  string // the key's column names, joined
}

type stmtKind uint8

const (
	stmtInsert stmtKind = iota
	stmtInsertNew
	stmtInsertNewExact // a key that differs as text alone is another row, which has to make room
	stmtUpdate
	stmtUpdateExact
	stmtReplace
	stmtDelete
	stmtDeleteExact
	stmtCount
)

// shapeOf finds the shape of a JSON object. literal is the object of texts beside it, which can be empty.
func (t *table) shapeOf(scratch []byte, obj, literal []byte) (*shape, []byte, error) {
	scratch = scratch[:0]
	for f := record.FieldsOf(obj); f.Next(); {
		scratch = append(scratch, f.Name...)
	}
	for f := record.FieldsOf(literal); f.Next(); {
		scratch = append(scratch, '!')
		scratch = append(scratch, f.Name...)
	}
	if s := t.shapes[string(scratch)]; s != nil {
		return s, scratch, nil
	}
	s := &shape{sql: map[stmtKey]string{}}
	literals := map[string]bool{}
	for f := record.FieldsOf(literal); f.Next(); {
		literals[string(f.Name)] = true
	}
	for f := record.FieldsOf(obj); f.Next(); {
		name, err := record.AppendUnquoted(nil, f.Name)
		if err != nil {
			return nil, scratch, err
		}
		c := t.byName[string(name)]
		if c == nil {
			return nil, scratch, &missingColumnError{table: t, column: string(name)}
		}
		sc := shapeColumn{column: c, literal: literals[string(f.Name)]}
		s.rewrite = s.rewrite || sc.literal || c.hstore != nil
		s.cols = append(s.cols, sc)
		s.list = append(s.list, c.name)
	}
	t.shapes[string(scratch)] = s
	return s, scratch, nil
}

// missingColumnError is a record's column that the target lacks.
type missingColumnError struct {
	table  *table
	column string
}

func (e *missingColumnError) Error() string {
	return fmt.Sprintf("table %s.%s has no column %q in the target database", e.table.schema, e.table.name, e.column)
}

func (e *missingColumnError) fault(where string) error {
	return fault.New(fault.Failed,
		"Add it: ALTER TABLE "+e.table.ident+" ADD COLUMN …, with the source's type; then run the same command again, it goes on here.",
		"%s: %w", where, e)
}

func (s *shape) names() []string { return s.list }

// holds tells whether all of o's columns are in s.
func (s *shape) holds(o *shape) bool {
	if s == o {
		return true
	}
	for _, name := range o.list {
		if s.column(name) == nil {
			return false
		}
	}
	return true
}

// column finds a column of the shape by name.
func (s *shape) column(name string) *shapeColumn {
	for i := range s.cols {
		if s.cols[i].name == name {
			return &s.cols[i]
		}
	}
	return nil
}

// appendObject appends the values as the statement of this shape takes them.
func (s *shape) appendObject(dst, obj, literal []byte) ([]byte, error) {
	if !s.rewrite {
		return append(dst, obj...), nil
	}
	dst = append(dst, '{')
	i := 0
	var err error
	for f := record.FieldsOf(obj); f.Next(); i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, f.Name...)
		dst = append(dst, ':')
		switch c := &s.cols[i]; {
		case c.literal:
			dst = append(dst, fieldValue(literal, f.Name)...)
		case c.hstore != nil:
			if dst, err = c.hstore.append(dst, f.Value); err != nil {
				return dst, fmt.Errorf("column %q: %w", c.name, err)
			}
		default:
			dst = append(dst, f.Value...)
		}
	}
	return append(dst, '}'), nil
}

// fieldValue is the value of one field; name has its quotes.
func fieldValue(obj, name []byte) []byte {
	for f := record.FieldsOf(obj); f.Next(); {
		if string(f.Name) == string(name) {
			return f.Value
		}
	}
	return []byte("null")
}

// append writes a JSON value with hstore's objects replaced by hstore's text, which is what its input function reads.
func (t *tree) append(dst, v []byte) ([]byte, error) {
	var err error
	switch {
	case t.self && v[0] == '{':
		return appendHstore(dst, v)
	case t.elem != nil && v[0] == '[':
		dst = append(dst, '[')
		first := true
		for e := record.ElementsOf(v); e.Next(); first = false {
			if !first {
				dst = append(dst, ',')
			}
			// An array of several dimensions has arrays of the same tree for elements.
			sub := t.elem
			if e.Value[0] == '[' && t.elem.elem == nil {
				sub = t
			}
			if dst, err = sub.append(dst, e.Value); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	case t.fields != nil && v[0] == '{':
		dst = append(dst, '{')
		first := true
		for f := record.FieldsOf(v); f.Next(); first = false {
			if !first {
				dst = append(dst, ',')
			}
			dst = append(append(dst, f.Name...), ':')
			if sub := t.fields[string(f.Name)]; sub == nil {
				dst = append(dst, f.Value...)
			} else if dst, err = sub.append(dst, f.Value); err != nil {
				return dst, err
			}
		}
		return append(dst, '}'), nil
	}
	return append(dst, v...), nil
}

// appendHstore writes {"a":"1","b":null} as the JSON string of "a"=>"1","b"=>NULL.
func appendHstore(dst, obj []byte) ([]byte, error) {
	var text []byte
	quote := func(s []byte) error {
		raw, err := record.AppendUnquoted(nil, s)
		if err != nil {
			return err
		}
		text = append(text, '"')
		for _, c := range raw {
			if c == '"' || c == '\\' {
				text = append(text, '\\')
			}
			text = append(text, c)
		}
		text = append(text, '"')
		return nil
	}
	for f := record.FieldsOf(obj); f.Next(); {
		if len(text) > 0 {
			text = append(text, ',')
		}
		if err := quote(f.Name); err != nil {
			return dst, err
		}
		text = append(text, "=>"...)
		switch f.Value[0] {
		case 'n':
			text = append(text, "NULL"...)
		case '"':
			if err := quote(f.Value); err != nil {
				return dst, err
			}
		default: // a number or a boolean that another producer wrote
			if err := quote(record.AppendString(nil, f.Value)); err != nil {
				return dst, err
			}
		}
	}
	return record.AppendString(dst, text), nil
}

// statement is the text of one statement over the records of this shape, whose JSON array is $1.
func (t *table) statement(s *shape, kind stmtKind, key []string) (string, error) {
	k := stmtKey{kind, strings.Join(key, "\x00")}
	if sql, ok := s.sql[k]; ok {
		return sql, nil
	}
	sql, err := t.build(s, kind, key)
	if err == nil {
		s.sql[k] = sql
	}
	return sql, err
}

func (t *table) build(s *shape, kind stmtKind, key []string) (string, error) {
	var names, values, sets []string
	for i := range s.cols {
		c := &s.cols[i]
		// A generated column is the target's own to compute.
		if c.generated {
			continue
		}
		names = append(names, c.ident)
		values = append(values, s.value(c))
		if !c.always && (kind == stmtReplace || !slices.Contains(key, c.name)) {
			sets = append(sets, c.ident+" = "+s.value(c))
		}
	}
	from := s.recordSet()
	switch kind {
	case stmtInsert, stmtInsertNew, stmtInsertNewExact:
		sql := "INSERT INTO " + t.ident + " (" + strings.Join(names, ", ") + ") OVERRIDING SYSTEM VALUE SELECT " + strings.Join(values, ", ") + " FROM " + from
		if len(names) == 0 {
			sql = "INSERT INTO " + t.ident + " SELECT FROM " + from
		}
		if kind != stmtInsert {
			where, err := t.match(s, key, kind == stmtInsertNewExact)
			if err != nil {
				return "", err
			}
			sql += " WHERE NOT EXISTS (SELECT FROM " + t.ident + " AS t WHERE " + where + ")"
		}
		return sql, nil
	}
	where, err := t.match(s, key, kind == stmtDeleteExact || kind == stmtUpdateExact)
	if err != nil {
		return "", err
	}
	switch {
	case kind == stmtDelete || kind == stmtDeleteExact:
		return "DELETE FROM " + t.ident + " AS t USING " + from + " WHERE " + where, nil
	case kind == stmtCount || len(sets) == 0:
		// Nothing to set: the row must be there all the same.
		return "SELECT FROM " + t.ident + " AS t, " + from + " WHERE " + where, nil
	}
	return "UPDATE " + t.ident + " AS t SET " + strings.Join(sets, ", ") + " FROM " + from + " WHERE " + where, nil
}

// recordSet declares the columns of the JSON array: with their types, so that PostgreSQL converts each value as it does in
// json_populate_record; literal ones as text.
func (s *shape) recordSet() string {
	if len(s.cols) == 0 {
		return "json_array_elements($1::json) AS r"
	}
	defs := make([]string, len(s.cols))
	for i := range s.cols {
		typ := s.cols[i].declared
		if s.cols[i].literal {
			typ = "text"
		}
		defs[i] = s.cols[i].ident + " " + typ
	}
	return "json_to_recordset($1::json) AS r(" + strings.Join(defs, ", ") + ")"
}

func (s *shape) value(c *shapeColumn) string {
	if c.literal {
		return "r." + c.ident + "::" + c.bare
	}
	return "r." + c.ident
}

// match is the condition that t is the row of r's key; exact compares texts besides, for keys that are equal to the type
// and different as text.
func (t *table) match(s *shape, key []string, exact bool) (string, error) {
	var terms []string
	for _, name := range key {
		c := s.column(name)
		if c == nil {
			return "", &missingColumnError{table: t, column: name}
		}
		terms = append(terms, "t."+c.ident+" "+c.equals+" "+s.value(c))
		if exact {
			terms = append(terms, "t."+c.ident+"::text = ("+s.value(c)+")::text")
		}
	}
	return strings.Join(terms, " AND "), nil
}
