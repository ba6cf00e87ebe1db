package record

import "fmt"

// FromLine tells a record that came as NDJSON from one that holds column values.
func (r *Record) FromLine() bool { return r.Line.Bytes != nil }

// Moved tells the halves of a key update.
func (r *Record) Moved() bool { return r.Pos.Suffix == MovedOut || r.Pos.Suffix == MovedIn }

// AppendID appends the record's id, without quotes.
func (r *Record) AppendID(dst []byte) []byte {
	if !r.FromLine() {
		return r.Pos.AppendID(dst)
	}
	return appendPart(dst, r.Line.Get(r.Line.ID))
}

// AppendSchema appends the name of the schema of the record's table; nothing when it has no table.
func (r *Record) AppendSchema(dst []byte) []byte {
	switch {
	case r.FromLine():
		return appendPart(dst, r.Line.Get(r.Line.Schema))
	case r.Table != nil:
		return append(dst, r.Table.Schema...)
	}
	return dst
}

// AppendTable appends the name of the record's table, without its schema; nothing when it has none.
func (r *Record) AppendTable(dst []byte) []byte {
	switch {
	case r.FromLine():
		return appendPart(dst, r.Line.Get(r.Line.Table))
	case r.Table != nil:
		return append(dst, r.Table.Name...)
	}
	return dst
}

// appendPart appends the content of a string that Parse has found decodable.
func appendPart(dst, part []byte) []byte {
	if len(part) == 0 {
		return dst
	}
	dst, _ = AppendUnquoted(dst, part)
	return dst
}

// SchemaName is AppendSchema as a string of its own; it allocates for records that came as NDJSON.
func (r *Record) SchemaName() string {
	if r.Table != nil {
		return r.Table.Schema
	}
	return string(r.AppendSchema(nil))
}

// TableName is AppendTable as a string of its own; it allocates for records that came as NDJSON.
func (r *Record) TableName() string {
	if r.Table != nil {
		return r.Table.Name
	}
	return string(r.AppendTable(nil))
}

// TableID is a table's name in two parts.
type TableID struct{ Schema, Name string }

// TruncatedTables lists the tables of a truncate. It allocates.
func (r *Record) TruncatedTables() ([]TableID, error) {
	var ids []TableID
	if !r.FromLine() {
		if r.Truncate != nil {
			for _, t := range r.Truncate.Tables {
				ids = append(ids, TableID{t.Schema, t.Name})
			}
		}
		return ids, nil
	}
	for e := ElementsOf(r.Line.Get(r.Line.Tables)); e.Next(); {
		id, err := parseTableID(e.Value)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// parseTableID reads {"schema":…,"table":…}; other fields are ignored.
func parseTableID(obj []byte) (id TableID, err error) {
	var seen int
	for f := FieldsOf(obj); f.Next(); {
		var into *string
		switch string(f.Name) {
		case `"schema"`:
			into = &id.Schema
		case `"table"`:
			into = &id.Name
		default:
			continue
		}
		text, err := AppendUnquoted(nil, f.Value)
		if err != nil {
			return id, err
		}
		*into = string(text)
		seen++
	}
	if seen != 2 {
		return id, fmt.Errorf(`want {"schema":…,"table":…}, found %s`, excerpt(obj))
	}
	return id, nil
}
