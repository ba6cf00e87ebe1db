package record

// Op is what happened to a row, or what else a record is. Its zero value is no operation.
type Op uint8

const (
	Insert Op = iota + 1
	Update
	Delete
	Truncate
	Message // pg_logical_emit_message
	Read    // a row of a snapshot or a load
	Data    // a stream's record that synctl did not write
	Begin   // with --transactions only
	Commit  // with --transactions only
)

var opNames = [...]string{"", "insert", "update", "delete", "truncate", "message", "read", "data", "begin", "commit"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "op?"
}

// ParseOp reads an operation's name; ok is false for an unknown one.
func ParseOp(s string) (o Op, ok bool) {
	for i, name := range opNames {
		if i > 0 && name == s {
			return Op(i), true
		}
	}
	return 0, false
}

// ValueKind says in which form a column's value is held.
type ValueKind uint8

const (
	Absent    ValueKind = iota // not sent: a non-key column of a key tuple
	Null                       // SQL NULL
	Unchanged                  // a TOASTed value that did not change and was not sent
	Text                       // PostgreSQL's text form
	Binary                     // PostgreSQL's binary form
	JSON                       // JSON text
)

// Value is one column's value. Data lies in the batch's arena and lives as long as the batch.
type Value struct {
	Kind ValueKind
	Data []byte
}

// Micros is a time in microseconds since 1970-01-01 UTC.
type Micros int64

// Record is one change, row or message. It comes from PostgreSQL (Before and After hold column values) or from a line
// of NDJSON (Line holds the line and where its parts are; Before and After are nil). Everything it refers to lies in
// its batch's arena, except Table, which is shared and immutable.
type Record struct {
	Op          Op
	Pos         Pos
	XID         uint32
	CommittedAt Micros
	Floor       LSN // 0: none. See record.md: what a consumer needs to drop duplicates in bounded memory

	// Snapshot is the run of a snapshot that the record belongs to, by where it began: of reads, and of changes of a table
	// whose rows are not all in the feed yet. 0: none.
	Snapshot LSN

	Table         *Table  // of rows that came from PostgreSQL
	Before, After []Value // by column; nil when PostgreSQL sent no such tuple
	LookedUp      []int32 // columns of After that were read by key after the change, not sent with it

	Truncate *TruncateInfo // Op Truncate that came from PostgreSQL
	Message  *MessageInfo  // Op Message that came from PostgreSQL

	Line Line // of records that came as NDJSON; zero otherwise
	// Stream says where in a stream the record was read; nil when it was not. It is shared by the lines of one stream record.
	Stream     *StreamInfo
	StreamLine int // the line's number in its stream record, from 0
}

// TruncateInfo is one TRUNCATE statement: every table of it that is published.
type TruncateInfo struct {
	Tables                   []*Table
	Cascade, RestartIdentity bool
}

// MessageInfo is a logical message.
type MessageInfo struct {
	Prefix        string
	Content       []byte
	Transactional bool
}

// StreamInfo is the place of a record in a stream.
type StreamInfo struct {
	Name, Shard, Sequence string
	PartitionKey          string
	ArrivedAt             Micros
}

// Span is a part of a line.
type Span struct{ Off, Len uint32 }

// Line is a record's NDJSON line, checked and taken apart but not decoded. Spans are of whole JSON values, quotes
// included; one of length 0 is a field that is absent.
type Line struct {
	Bytes  []byte // without the line feed
	Number int64  // in its input, from 1; 0 where lines are not counted

	ID, Schema, Table, Key, Before, After, Unchanged, Literal, LiteralBefore Span
	LookedUp, Tables, Prefix, Content, Data                                  Span
	// Floor and StreamField are what is replaced when the record is written again; they span name, colon and value,
	// and the comma that goes when they go: the one before, or the one after where no other field comes first.
	Floor, StreamField                                     Span
	Moved, Cascade, RestartIdentity, Base64, Transactional bool
}

// Get is the text of a part.
func (l *Line) Get(s Span) []byte { return l.Bytes[s.Off : s.Off+s.Len] }
