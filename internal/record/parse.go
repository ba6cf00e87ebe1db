package record

import (
	"bytes"
	"fmt"
	"math"
)

// ParseError says where a line is not a record.
type ParseError struct {
	Offset int    // in bytes, from 0
	Field  string // the field concerned; empty where it is the line's syntax
	Msg    string
}

func (e *ParseError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("byte %d: %s", e.Offset, e.Msg)
	}
	return fmt.Sprintf("byte %d: field %q: %s", e.Offset, e.Field, e.Msg)
}

// Parse checks that line, which has no line feed, is one record and nothing else, and takes it apart. All of r is
// overwritten. The record refers to line, which must stay as it is for as long as r is used. The error is a *ParseError.
//
// The whole line is checked to be JSON in UTF-8. Fields that are not known are kept in Line.Bytes and ignored. "stream"
// is ignored too: it says where a record was once read, so r.Stream is nil.
func Parse(line []byte, r *Record) error {
	*r = Record{Line: Line{Bytes: line}}
	p := parser{b: line, r: r}
	if len(line) > math.MaxUint32 {
		return p.fail("line is longer than 4 GiB")
	}
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		return p.failAt(i, "line feed inside a line")
	}
	if err := p.fields(); err != nil {
		return err
	}
	return p.check()
}

// parser goes through one line once.
type parser struct {
	b     []byte
	i     int    // what is before it has been read
	field string // the known field that is being read
	r     *Record
	seen  fieldSet

	idAt   int // offset of the id
	hasPos bool
	rowLSN LSN
	n      uint32
	moved  bool
}

func (p *parser) fail(msg string) error {
	return &ParseError{Offset: p.i, Field: p.field, Msg: msg}
}

func (p *parser) failAt(off int, msg string) error {
	p.i = off
	return p.fail(msg)
}

func (p *parser) fields() error {
	b := p.b
	p.i = skipSpace(b, 0)
	if p.i >= len(b) || b[p.i] != '{' {
		return p.fail("a record is a JSON object, {…}")
	}
	// A field that is cut out takes the comma before it along, or, while no field that stays has come, the one after.
	from, leading := p.i+1, true
	for {
		p.i = skipSpace(b, p.i+1)
		name, fl, err := p.name()
		if err != nil {
			return err
		}
		cut, err := p.value(name, fl)
		if err != nil {
			return err
		}
		p.field = ""
		to := p.i
		p.i = skipSpace(b, p.i)
		if p.i >= len(b) || b[p.i] != ',' && b[p.i] != '}' {
			return p.fail("object goes on without , or }")
		}
		more := b[p.i] == ','
		leading = leading && cut != nil
		if leading && more {
			to = p.i + 1
		}
		if cut != nil {
			*cut = span(from, to)
		}
		if !more {
			break
		}
		if from = p.i; leading {
			from++
		}
	}
	if p.i = skipSpace(b, p.i+1); p.i < len(b) {
		return p.fail("text after the end of the record")
	}
	return nil
}

// name passes a field's name, which is returned with its quotes, and the colon after it.
func (p *parser) name() (name []byte, fl strFlags, err error) {
	from := p.i
	if from >= len(p.b) || p.b[from] != '"' {
		return nil, 0, p.fail(noName)
	}
	end, fl, bad := scanString(p.b, from)
	if bad != "" {
		return nil, 0, p.failAt(end, bad)
	}
	p.i = skipSpace(p.b, end)
	if !p.at(':') {
		return nil, 0, p.fail(noColon)
	}
	p.i = skipSpace(p.b, p.i+1)
	return p.b[from:end], fl, nil
}

func span(from, to int) Span { return Span{Off: uint32(from), Len: uint32(to - from)} }

// value reads the value at p.i of the field whose name, quotes included, is given. For a field that is replaced when
// the record is written again, cut is where its span goes.
func (p *parser) value(name []byte, fl strFlags) (cut *Span, err error) {
	plain := name[1 : len(name)-1]
	if fl&hasEscape != 0 {
		// A known name written with escapes must not slip past the checks as an unknown one.
		var buf [64]byte
		var err error
		if plain, err = AppendUnquoted(buf[:0], name); err != nil {
			return nil, p.skip()
		}
	}
	f := fieldOf(plain)
	if f == 0 {
		return nil, p.skip()
	}
	p.field = f.name()
	if p.seen&f != 0 {
		return nil, p.fail("appears twice")
	}
	p.seen |= f
	return p.known(f)
}

// skip passes any value.
func (p *parser) skip() error {
	_, err := p.any()
	return err
}

func (p *parser) any() (Span, error) {
	from := p.i
	end, _, bad := scanValue(p.b, from, 1)
	if bad != "" {
		return Span{}, p.failAt(end, bad)
	}
	p.i = end
	return span(from, end), nil
}

// known reads a known field into the record.
func (p *parser) known(f fieldSet) (cut *Span, err error) {
	l := &p.r.Line
	switch f {
	case fieldV:
		return nil, p.version()
	case fieldID:
		return nil, p.id()
	case fieldOp:
		return nil, p.op()
	case fieldSchema:
		l.Schema, err = p.text()
	case fieldTable:
		l.Table, err = p.text()
	case fieldKey:
		l.Key, err = p.key()
	case fieldBefore:
		l.Before, err = p.object()
	case fieldAfter:
		l.After, err = p.object()
	case fieldUnchanged:
		l.Unchanged, err = p.names()
	case fieldLiteral:
		l.Literal, err = p.texts()
	case fieldLiteralBefore:
		l.LiteralBefore, err = p.texts()
	case fieldMoved:
		p.moved, err = p.boolean()
		l.Moved = p.moved
	case fieldLookedUp:
		l.LookedUp, err = p.names()
	case fieldTables:
		l.Tables, err = p.tables()
	case fieldCascade:
		l.Cascade, err = p.boolean()
	case fieldRestartIdentity:
		l.RestartIdentity, err = p.boolean()
	case fieldPrefix:
		l.Prefix, err = p.text()
	case fieldContent:
		l.Content, err = p.text()
	case fieldTransactional:
		l.Transactional, err = p.boolean()
	case fieldData:
		l.Data, err = p.any()
	case fieldEncoding:
		l.Base64, err = p.encoding()
	default:
		return p.position(f)
	}
	return nil, err
}

// position reads the fields that say when and where a change was made.
func (p *parser) position(f fieldSet) (cut *Span, err error) {
	r := p.r
	switch f {
	case fieldLSN:
		r.Pos.Commit, err = p.lsn()
	case fieldRowLSN:
		p.rowLSN, err = p.lsn()
	case fieldN:
		p.n, err = p.uint32()
	case fieldXID:
		r.XID, err = p.uint32()
	case fieldCommittedAt:
		r.CommittedAt, err = p.time()
	case fieldSnapshot:
		r.Snapshot, err = p.lsn()
	case fieldFloor:
		r.Floor, err = p.lsn()
		if err == nil && r.Floor == 0 {
			err = p.fail("a floor is not 0/0")
		}
		return &r.Line.Floor, err
	case fieldStream:
		_, err = p.object()
		return &r.Line.StreamField, err
	}
	return nil, err
}
