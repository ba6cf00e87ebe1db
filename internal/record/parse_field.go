package record

import "math/bits"

// fieldSet is a set of the fields of a record, in record order.
type fieldSet uint32

const (
	fieldV fieldSet = 1 << iota
	fieldID
	fieldOp
	fieldSchema
	fieldTable
	fieldKey
	fieldBefore
	fieldAfter
	fieldUnchanged
	fieldLiteral
	fieldLiteralBefore
	fieldMoved
	fieldLookedUp
	fieldTables
	fieldCascade
	fieldRestartIdentity
	fieldPrefix
	fieldContent
	fieldTransactional
	fieldData
	fieldEncoding
	fieldLSN
	fieldRowLSN
	fieldN
	fieldXID
	fieldCommittedAt
	fieldSnapshot
	fieldFloor
	fieldStream
)

var fieldNames = [...]string{"v", "id", "op", "schema", "table", "key", "before", "after", "unchanged", "literal",
	"literal_before", "moved", "looked_up", "tables", "cascade", "restart_identity", "prefix", "content", "transactional",
	"data", "encoding", "lsn", "row_lsn", "n", "xid", "committed_at", "snapshot", "floor", "stream"}

// name is the name of the set's first field.
func (f fieldSet) name() string { return fieldNames[bits.TrailingZeros32(uint32(f))] }

// fieldOf is the field of that name, 0 for an unknown one.
func fieldOf(name []byte) fieldSet {
	switch string(name) {
	case "v":
		return fieldV
	case "id":
		return fieldID
	case "op":
		return fieldOp
	case "schema":
		return fieldSchema
	case "table":
		return fieldTable
	case "key":
		return fieldKey
	case "before":
		return fieldBefore
	case "after":
		return fieldAfter
	case "unchanged":
		return fieldUnchanged
	case "literal":
		return fieldLiteral
	case "literal_before":
		return fieldLiteralBefore
	case "moved":
		return fieldMoved
	case "looked_up":
		return fieldLookedUp
	case "tables":
		return fieldTables
	case "cascade":
		return fieldCascade
	case "restart_identity":
		return fieldRestartIdentity
	case "prefix":
		return fieldPrefix
	case "content":
		return fieldContent
	case "transactional":
		return fieldTransactional
	case "data":
		return fieldData
	case "encoding":
		return fieldEncoding
	case "lsn":
		return fieldLSN
	case "row_lsn":
		return fieldRowLSN
	case "n":
		return fieldN
	case "xid":
		return fieldXID
	case "committed_at":
		return fieldCommittedAt
	case "snapshot":
		return fieldSnapshot
	case "floor":
		return fieldFloor
	case "stream":
		return fieldStream
	}
	return 0
}

// requiredFields are the fields that a record of this operation cannot be without.
func requiredFields(op Op, transactional bool) fieldSet {
	const (
		always = fieldV | fieldID | fieldOp
		row    = always | fieldSchema | fieldTable
		lsns   = fieldLSN | fieldRowLSN
		change = lsns | fieldXID | fieldCommittedAt
	)
	switch op {
	case Insert, Update:
		return row | fieldAfter | change
	case Delete:
		return row | change
	case Truncate:
		return always | fieldTables | change
	case Message:
		if !transactional {
			return always | fieldPrefix | fieldContent | lsns
		}
		return always | fieldPrefix | fieldContent | fieldTransactional | change
	case Read:
		return row | fieldAfter
	case Data:
		return always | fieldData
	case Begin, Commit:
		return always | change
	}
	return always
}

func (p *parser) at(c byte) bool { return p.i < len(p.b) && p.b[p.i] == c }

func (p *parser) version() error {
	s, err := p.any()
	if err != nil {
		return err
	}
	if v := p.r.Line.Get(s); len(v) != 1 || v[0] != '1' {
		return p.failAt(int(s.Off), "version "+string(v)+" is not known, only 1")
	}
	return nil
}

// text reads a string that can be decoded.
func (p *parser) text() (Span, error) {
	if !p.at('"') {
		return Span{}, p.fail("want a string")
	}
	from := p.i
	end, fl, bad := scanString(p.b, from)
	if bad != "" {
		return Span{}, p.failAt(end, bad)
	}
	if fl&hasLone != 0 {
		return Span{}, p.fail("half of a surrogate pair, which no text can hold")
	}
	p.i = end
	return span(from, end), nil
}

// plain reads a string and gives its content; those that synctl itself writes have no escapes.
func (p *parser) plain() ([]byte, error) {
	s, err := p.text()
	if err != nil {
		return nil, err
	}
	return p.b[s.Off+1 : s.Off+s.Len-1], nil
}

func (p *parser) id() error {
	p.idAt = p.i
	s, err := p.text()
	if err != nil {
		return err
	}
	p.r.Line.ID = s
	if s.Len == 2 {
		return p.failAt(p.idAt, "is empty")
	}
	pos, ok := parseID(p.b[s.Off+1 : s.Off+s.Len-1])
	if ok {
		pos.Commit = p.r.Pos.Commit
		p.r.Pos, p.hasPos = pos, true
	}
	return nil
}

func (p *parser) op() error {
	at := p.i
	s, err := p.plain()
	if err != nil {
		return err
	}
	for i, name := range opNames {
		if i > 0 && string(s) == name {
			p.r.Op = Op(i)
			return nil
		}
	}
	return p.failAt(at, "operation "+excerpt(s)+" is not known")
}

func (p *parser) boolean() (bool, error) {
	from := p.i
	s, err := p.any()
	if err != nil {
		return false, err
	}
	switch string(p.r.Line.Get(s)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, p.failAt(from, "want true or false")
}

func (p *parser) uint32() (uint32, error) {
	from := p.i
	s, err := p.any()
	if err != nil {
		return 0, err
	}
	v, ok := parseUint(p.r.Line.Get(s), 1<<32-1)
	if !ok {
		return 0, p.failAt(from, "want a whole number from 0 to 4294967295")
	}
	return uint32(v), nil
}

func (p *parser) lsn() (LSN, error) {
	from := p.i
	s, err := p.plain()
	if err != nil {
		return 0, err
	}
	lsn, ok := parseLSN(s)
	if !ok {
		return 0, p.failAt(from, "want an LSN such as \"0/16B3748\", found "+excerpt(s))
	}
	return lsn, nil
}

func (p *parser) time() (Micros, error) {
	from := p.i
	s, err := p.plain()
	if err != nil {
		return 0, err
	}
	m, err := ParseMicros(s)
	if err != nil {
		return 0, p.failAt(from, err.Error())
	}
	return m, nil
}

func (p *parser) encoding() (base64 bool, err error) {
	from := p.i
	s, err := p.plain()
	if err != nil {
		return false, err
	}
	if string(s) != "base64" {
		return false, p.failAt(from, "encoding "+excerpt(s)+` is not known, only "base64"`)
	}
	return true, nil
}

func (p *parser) object() (Span, error) {
	if !p.at('{') {
		return Span{}, p.fail("want an object")
	}
	return p.any()
}

// key reads an object whose strings can be decoded, as the partition key is made of them.
func (p *parser) key() (Span, error) {
	s, err := p.object()
	if err != nil {
		return s, err
	}
	n := 0
	for f := FieldsOf(p.r.Line.Get(s)); f.Next(); n++ {
		if f.Value[0] != '"' {
			continue
		}
		if _, fl, _ := scanString(f.Value, 0); fl&hasLone != 0 {
			return s, p.failAt(int(s.Off), "half of a surrogate pair, which no text can hold")
		}
	}
	if n == 0 {
		return s, p.failAt(int(s.Off), "has no columns; a row of a keyless table has no key field")
	}
	return s, nil
}

// names reads an array of strings.
func (p *parser) names() (Span, error) {
	if !p.at('[') {
		return Span{}, p.fail("want an array of column names")
	}
	s, err := p.any()
	if err != nil {
		return s, err
	}
	for e := ElementsOf(p.r.Line.Get(s)); e.Next(); {
		if !decodable(e.Value) {
			return s, p.failAt(int(s.Off), "want an array of column names")
		}
	}
	return s, nil
}

// texts reads an object of strings.
func (p *parser) texts() (Span, error) {
	s, err := p.object()
	if err != nil {
		return s, err
	}
	for f := FieldsOf(p.r.Line.Get(s)); f.Next(); {
		if !decodable(f.Name) || !decodable(f.Value) {
			return s, p.failAt(int(s.Off), "want an object of strings")
		}
	}
	return s, nil
}

// decodable tells whether a valid JSON value is a string whose content is text.
func decodable(v []byte) bool {
	if v[0] != '"' {
		return false
	}
	_, fl, bad := scanString(v, 0)
	return bad == "" && fl&hasLone == 0
}

func (p *parser) tables() (Span, error) {
	const want = `want an array of {"schema":…,"table":…}`
	if !p.at('[') {
		return Span{}, p.fail(want)
	}
	s, err := p.any()
	if err != nil {
		return s, err
	}
	n := 0
	for e := ElementsOf(p.r.Line.Get(s)); e.Next(); n++ {
		if e.Value[0] != '{' {
			return s, p.failAt(int(s.Off), want)
		}
		if _, err := parseTableID(e.Value); err != nil {
			return s, p.failAt(int(s.Off), err.Error())
		}
	}
	if n == 0 {
		return s, p.failAt(int(s.Off), "names no table")
	}
	return s, nil
}
