package cdc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"synctl/internal/record"
)

// Lengths of what comes before a message's own bytes.
const (
	xlogHeader = 1 + 8 + 8 + 8 // 'w', WAL start, WAL end, send time
	rowHeader  = 1 + 4         // kind, relation
)

// pgEpoch is 2000-01-01 in microseconds since 1970, PostgreSQL's own zero of time.
const pgEpoch = 946684800 * 1000000

var errShort = errors.New("message is cut short")

// reader takes a message apart. After a failure it gives zeros; err is looked at once, at the end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) take(n int) []byte {
	if n < 0 || len(r.b) < n {
		r.err, r.b = errShort, nil
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) byte() byte {
	if p := r.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if p := r.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if p := r.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if p := r.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (r *reader) lsn() record.LSN { return record.LSN(r.uint64()) }

func (r *reader) string() string {
	i := bytes.IndexByte(r.b, 0)
	if i < 0 {
		r.err, r.b = errShort, nil
		return ""
	}
	s := string(r.b[:i])
	r.b = r.b[i+1:]
	return s
}

// begin is the start of a transaction.
type begin struct {
	commit record.LSN // of the commit record
	at     record.Micros
	xid    uint32
}

func parseBegin(b []byte) (m begin, err error) {
	r := reader{b: b}
	m.commit, m.at, m.xid = r.lsn(), record.Micros(int64(r.uint64())+pgEpoch), r.uint32()
	return m, r.err
}

// parseCommit gives where the commit record begins and ends.
func parseCommit(b []byte) (commit, end record.LSN, err error) {
	r := reader{b: b}
	r.byte() // flags, none defined
	commit, end = r.lsn(), r.lsn()
	return commit, end, r.err
}

// relationMessage is a table's shape as the next rows have it.
type relationMessage struct {
	oid          uint32
	schema, name string
	identity     byte // pg_class.relreplident
	columns      []relationColumn
}

type relationColumn struct {
	name string
	typ  uint32
	key  bool
}

func parseRelation(b []byte) (m relationMessage, err error) {
	r := reader{b: b}
	m.oid, m.schema, m.name, m.identity = r.uint32(), r.string(), r.string(), r.byte()
	if m.schema == "" {
		m.schema = "pg_catalog" // which the protocol leaves out
	}
	for n := int(r.uint16()); n > 0 && r.err == nil; n-- {
		c := relationColumn{key: r.byte()&1 != 0, name: r.string(), typ: r.uint32()}
		r.uint32() // type modifier
		m.columns = append(m.columns, c)
	}
	return m, r.err
}

type truncateMessage struct {
	cascade, restart bool
	relations        []uint32
}

func parseTruncate(b []byte) (m truncateMessage, err error) {
	r := reader{b: b}
	n, options := int(r.uint32()), r.byte()
	m.cascade, m.restart = options&1 != 0, options&2 != 0
	for ; n > 0 && r.err == nil; n-- {
		m.relations = append(m.relations, r.uint32())
	}
	return m, r.err
}

type logicalMessage struct {
	transactional bool
	lsn           record.LSN // the end of its record
	prefix        string
	content       []byte
}

func parseMessage(b []byte) (m logicalMessage, err error) {
	r := reader{b: b}
	m.transactional, m.lsn, m.prefix = r.byte()&1 != 0, r.lsn(), r.string()
	m.content = r.take(int(r.uint32()))
	return m, r.err
}

// tuples of a row message, as long as its batch. old is nil when none was sent; full tells that it is the whole old row.
type tuples struct {
	old, new []record.Value
	full     bool
}

// parseRow reads what comes after a row message's relation: the tuples that its kind ('I', 'U', 'D') has. The values
// point into p.
func parseRow(kind byte, p []byte, columns int, b *record.Batch) (t tuples, err error) {
	r := reader{b: p}
	mark := r.byte()
	if mark == 'K' || mark == 'O' {
		if kind == 'I' {
			return t, errors.New("an insert with an old row")
		}
		t.full = mark == 'O'
		if t.old, err = parseTuple(&r, columns, b, !t.full); err != nil {
			return t, err
		}
		if kind == 'D' {
			return t, r.err
		}
		mark = r.byte()
	}
	if mark != 'N' || kind == 'D' {
		return t, cmpErr(r.err, fmt.Errorf("tuple of kind %q in a message of kind %q", mark, kind))
	}
	t.new, err = parseTuple(&r, columns, b, false)
	return t, err
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// parseTuple reads one row version. In a key tuple the columns that are not in the key are sent as nulls; keyOnly makes
// every null Absent, which is right for the key's columns too: those of an identity index are NOT NULL.
func parseTuple(r *reader, columns int, b *record.Batch, keyOnly bool) ([]record.Value, error) {
	if n := int(r.uint16()); n != columns || r.err != nil {
		return nil, cmpErr(r.err, fmt.Errorf("tuple of %d columns for a relation of %d", n, columns))
	}
	values := b.Values(columns)
	p := r.b
	for i := range values {
		if len(p) == 0 {
			return nil, errShort
		}
		kind := p[0]
		p = p[1:]
		switch kind {
		case 't':
			if len(p) < 4 {
				return nil, errShort
			}
			n := int(binary.BigEndian.Uint32(p))
			if n < 0 || len(p)-4 < n {
				return nil, errShort
			}
			values[i] = record.Value{Kind: record.Text, Data: p[4 : 4+n : 4+n]}
			p = p[4+n:]
		case 'n':
			if !keyOnly {
				values[i].Kind = record.Null
			}
		case 'u':
			values[i].Kind = record.Unchanged
		default:
			return nil, fmt.Errorf("column value of unknown kind %q", kind)
		}
	}
	r.b = p
	return values, nil
}
