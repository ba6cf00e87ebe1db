package record

import (
	"fmt"
	"unicode/utf8"
)

// Kind says how a type's text becomes JSON: the categories of PostgreSQL's to_json.
type TypeKind uint8

const (
	KindString      TypeKind = iota // everything without a rule of its own: the text, as a JSON string
	KindBool                        // t, f → true, false
	KindNumber                      // int2, int4, int8, float4, float8, numeric: the text; NaN and infinities as strings
	KindDate                        // ISO text as it stands
	KindTimestamp                   // the blank between date and time becomes T
	KindTimestampTZ                 // as KindTimestamp, the zone as +00:00
	KindJSON                        // embedded, line breaks between tokens removed
	KindJSONB                       // embedded
	KindArray                       // nested JSON arrays of Elem
	KindVector                      // int2vector, oidvector: blank-separated text, a JSON array of Elem
	KindComposite                   // a JSON object of Fields
	KindHstore                      // a JSON object of strings and nulls
)

// Type is how values of one PostgreSQL type are rendered. Domains are described by their base type. Immutable: when a
// type is altered, a new Type is made.
type Type struct {
	OID    uint32
	Name   string // schema-qualified where it is not in pg_catalog, for error messages
	Kind   TypeKind
	Elem   *Type   // KindArray, KindVector
	Delim  byte    // KindArray: the element delimiter, ',' for all built-in types but box's ';'
	Fields []Field // KindComposite, in attribute order, without dropped attributes
}

// Field is one attribute of a composite type.
type Field struct {
	Name string
	Type *Type
}

// Column is one column of a published table.
type Column struct {
	Name   string
	Type   *Type
	Key    bool   // part of the record's key
	Prefix []byte // the JSON-quoted name and a colon, made once by NewTable: "name":
}

// Table describes the rows of a table as the stream has them at one moment. Immutable and shared by the records that
// refer to it; DDL makes a new one.
type Table struct {
	Schema, Name string
	OID          uint32 // 0 when it is not from PostgreSQL
	Columns      []Column
	Key          []int // indexes of the key columns in table order; empty: the table is keyless

	header []byte // ,"schema":"public","table":"orders" encoded once
	err    error  // a name that JSON cannot hold: no row of the table can be written
}

// NewTable completes a descriptor: key indexes from the columns' Key, and the parts of a line that never change.
func NewTable(schema, name string, oid uint32, columns []Column) *Table {
	t := &Table{Schema: schema, Name: name, OID: oid, Columns: columns}
	t.checkName(schema)
	t.checkName(name)
	for i := range t.Columns {
		c := &t.Columns[i]
		t.checkName(c.Name)
		if c.Key {
			t.Key = append(t.Key, i)
		}
		c.Prefix = append(AppendString(nil, c.Name), ':')
	}
	t.header = append(t.header, `,"schema":`...)
	t.header = AppendString(t.header, schema)
	t.header = append(t.header, `,"table":`...)
	t.header = AppendString(t.header, name)
	return t
}

// checkName notes a name that is not UTF-8, as there can be in a database whose encoding is SQL_ASCII.
func (t *Table) checkName(name string) {
	if !utf8.ValidString(name) && t.err == nil {
		t.err = fmt.Errorf("name %q: %w", name, errUTF8)
	}
}

// Keyless tells a table whose rows have no key: its order is the table's.
func (t *Table) Keyless() bool { return len(t.Key) == 0 }
