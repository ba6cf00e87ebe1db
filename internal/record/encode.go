package record

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// AppendLine appends the record as one line of NDJSON, line feed included, its fields in the format's order. A record
// that came as NDJSON is written as it came, unknown fields included, but for floor and stream, which are what r says:
// Floor 0 is no floor field, Stream nil no stream field.
//
// On an error dst is returned as it was. The error names the table and the row's key (promise 5).
func AppendLine(dst []byte, r *Record) ([]byte, error) {
	mark := len(dst)
	var err error
	if r.FromLine() {
		dst, err = appendLine(dst, r)
	} else {
		dst, err = appendRecord(dst, r)
	}
	if err != nil {
		return dst[:mark], describe(r, err)
	}
	return dst, nil
}

// describe says of which record err speaks.
func describe(r *Record, err error) error {
	switch {
	case r.FromLine() && r.Line.Key.Len > 0:
		return fmt.Errorf("encode %s of %s.%s, row %s: %w", r.Op, r.SchemaName(), r.TableName(), r.Line.Get(r.Line.Key), err)
	case r.FromLine():
		return fmt.Errorf("encode %s record %s: %w", r.Op, r.AppendID(nil), err)
	case r.Table == nil:
		return fmt.Errorf("encode %s record %s: %w", r.Op, r.Pos.AppendID(nil), err)
	case r.Table.Keyless():
		return fmt.Errorf("encode %s of %s.%s (no key; record %s): %w", r.Op, r.Table.Schema, r.Table.Name, r.Pos.AppendID(nil), err)
	}
	return fmt.Errorf("encode %s of %s.%s, row %s: %w", r.Op, r.Table.Schema, r.Table.Name, keyForPeople(r), err)
}

// keyForPeople is the key for an error message, also when it is the key that cannot be written.
func keyForPeople(r *Record) []byte {
	if key, err := appendKey(nil, r); err == nil {
		return key
	}
	var b []byte
	for _, i := range r.Table.Key {
		v, err := r.column(i)
		if err != nil {
			v.Data = []byte("?")
		}
		b = fmt.Appendf(b, "%s=%q ", r.Table.Columns[i].Name, v.Data)
	}
	return b
}

// appendLine writes a record that came as NDJSON.
func appendLine(dst []byte, r *Record) ([]byte, error) {
	l := &r.Line
	end := len(l.Bytes) - 1
	for end >= 0 && l.Bytes[end] != '}' {
		end--
	}
	if end < 0 {
		return dst, errors.New("the line is not a parsed record")
	}
	first, second := l.Floor, l.StreamField
	keepFloor := first.Len > 0 && lineFloor(l) == r.Floor
	if keepFloor {
		first = Span{}
	}
	if second.Off < first.Off {
		first, second = second, first
	}
	at := 0
	for _, cut := range [...]Span{first, second} {
		if cut.Len > 0 {
			dst = append(dst, l.Bytes[at:cut.Off]...)
			at = int(cut.Off + cut.Len)
		}
	}
	dst = append(dst, l.Bytes[at:end]...)
	if !keepFloor {
		dst = appendFloor(dst, r.Floor)
	}
	dst, err := appendStream(dst, r)
	if err != nil {
		return dst, err
	}
	dst = append(dst, l.Bytes[end:]...)
	return append(dst, '\n'), nil
}

// lineFloor is the floor that the line has.
func lineFloor(l *Line) LSN {
	field := l.Get(l.Floor)
	// The span holds commas, name, colon and value; an LSN is the one string in it that has a slash.
	to := len(field) - 1
	for to > 0 && field[to] != '"' {
		to--
	}
	from := to - 1
	for from > 0 && field[from] != '"' {
		from--
	}
	lsn, _ := parseLSN(field[from+1 : to])
	return lsn
}

// appendRecord writes a record that holds column values.
func appendRecord(dst []byte, r *Record) ([]byte, error) {
	if !suffixFits(r.Op, r.Pos.Suffix) {
		return dst, fmt.Errorf("an id that ends in %q does not go with op %s", r.Pos.Suffix, r.Op)
	}
	dst = append(dst, `{"v":1,"id":"`...)
	dst = r.Pos.AppendID(dst)
	dst = append(dst, `","op":"`...)
	dst = append(dst, r.Op.String()...)
	dst = append(dst, '"')
	var err error
	switch r.Op {
	case Insert, Update, Delete, Read:
		dst, err = appendRow(dst, r)
	case Truncate:
		dst, err = appendTruncate(dst, r)
	case Message:
		dst, err = appendMessage(dst, r)
	case Begin, Commit:
	default:
		err = fmt.Errorf("operation %d is not written from column values", r.Op)
	}
	if err != nil {
		return dst, err
	}
	if dst, err = appendPosition(dst, r); err != nil {
		return dst, err
	}
	dst = appendLSN(dst, `,"snapshot":"`, r.Snapshot)
	dst = appendFloor(dst, r.Floor)
	if dst, err = appendStream(dst, r); err != nil {
		return dst, err
	}
	return append(dst, '}', '\n'), nil
}

// appendPosition writes when and where the change was made. Rows of a load have no position in a log, and messages
// outside of a transaction no transaction.
func appendPosition(dst []byte, r *Record) ([]byte, error) {
	if r.Op == Read && r.Pos.Commit == 0 {
		return dst, nil
	}
	dst = append(dst, `,"lsn":"`...)
	dst = r.Pos.Commit.Append(dst)
	dst = append(dst, `","row_lsn":"`...)
	dst = r.Pos.Row.Append(dst)
	dst = append(dst, '"')
	if r.Pos.N != 0 {
		dst = append(dst, `,"n":`...)
		dst = strconv.AppendUint(dst, uint64(r.Pos.N), 10)
	}
	if r.Op == Read || r.Op == Message && !r.Message.Transactional {
		return dst, nil
	}
	dst = append(dst, `,"xid":`...)
	dst = strconv.AppendUint(dst, uint64(r.XID), 10)
	if r.CommittedAt < minMicros || r.CommittedAt >= endMicros {
		return dst, fmt.Errorf("commit time %d µs since 1970 is outside of the years 0 to 9999", r.CommittedAt)
	}
	dst = append(dst, `,"committed_at":"`...)
	dst = r.CommittedAt.Append(dst)
	return append(dst, '"'), nil
}

func appendFloor(dst []byte, floor LSN) []byte { return appendLSN(dst, `,"floor":"`, floor) }

// appendLSN writes a field that is left out when it is 0.
func appendLSN(dst []byte, name string, lsn LSN) []byte {
	if lsn == 0 {
		return dst
	}
	dst = append(dst, name...)
	dst = lsn.Append(dst)
	return append(dst, '"')
}

func appendStream(dst []byte, r *Record) ([]byte, error) {
	s := r.Stream
	if s == nil {
		return dst, nil
	}
	if s.ArrivedAt < minMicros || s.ArrivedAt >= endMicros {
		return dst, fmt.Errorf("arrival %d µs since 1970 is outside of the years 0 to 9999", s.ArrivedAt)
	}
	dst = append(dst, `,"stream":{"name":`...)
	dst, err1 := appendText(dst, s.Name)
	dst = append(dst, `,"shard":`...)
	dst, err2 := appendText(dst, s.Shard)
	dst = append(dst, `,"sequence":`...)
	dst, err3 := appendText(dst, s.Sequence)
	dst = append(dst, `,"line":`...)
	dst = strconv.AppendInt(dst, int64(r.StreamLine), 10)
	dst = append(dst, `,"partition_key":`...)
	dst, err4 := appendText(dst, s.PartitionKey)
	dst = append(dst, `,"arrived_at":"`...)
	dst = s.ArrivedAt.Append(dst)
	dst = append(dst, '"', '}')
	for _, err := range [...]error{err1, err2, err3, err4} {
		if err != nil {
			return dst, fmt.Errorf("stream: %w", err)
		}
	}
	return dst, nil
}

func appendTruncate(dst []byte, r *Record) ([]byte, error) {
	if r.Truncate == nil || len(r.Truncate.Tables) == 0 {
		return dst, errors.New("a truncate without tables")
	}
	dst = append(dst, `,"tables":[`...)
	for i, t := range r.Truncate.Tables {
		if t.err != nil {
			return dst, t.err
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		dst = append(dst, t.header[1:]...)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"cascade":`...)
	dst = strconv.AppendBool(dst, r.Truncate.Cascade)
	dst = append(dst, `,"restart_identity":`...)
	return strconv.AppendBool(dst, r.Truncate.RestartIdentity), nil
}

func appendMessage(dst []byte, r *Record) ([]byte, error) {
	m := r.Message
	if m == nil {
		return dst, errors.New("a message without content")
	}
	dst = append(dst, `,"prefix":`...)
	dst, err := appendText(dst, m.Prefix)
	if err != nil {
		return dst, fmt.Errorf("prefix: %w", err)
	}
	dst = append(dst, `,"content":`...)
	text := utf8.Valid(m.Content)
	if text {
		dst = AppendString(dst, m.Content)
	} else {
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, m.Content)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"transactional":`...)
	dst = strconv.AppendBool(dst, m.Transactional)
	if !text {
		dst = append(dst, `,"encoding":"base64"`...)
	}
	return dst, nil
}

// AppendData appends, as one line of NDJSON with its line feed, a record of op data: a stream's record that synctl did not
// write. The payload is embedded if it is JSON, and goes as base64 if it is not.
func AppendData(dst []byte, id string, payload []byte) ([]byte, error) {
	mark := len(dst)
	dst = append(dst, `{"v":1,"id":`...)
	dst, err := appendText(dst, id)
	if err != nil {
		return dst[:mark], fmt.Errorf("encode data record %q: id: %w", id, err)
	}
	dst = append(dst, `,"op":"data","data":`...)
	if _, _, bad := scanDocument(payload); bad == "" {
		dst = appendWithoutBreaks(dst, payload)
	} else {
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, payload)
		dst = append(dst, `","encoding":"base64"`...)
	}
	return append(dst, '}', '\n'), nil
}
