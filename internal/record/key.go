package record

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf8"
)

// maxKeyChars is how many characters a partition key may have, in Kinesis and so everywhere.
const maxKeyChars = 256

// AppendPartitionKey appends the partition key of the record: the same for a record straight from PostgreSQL and for its
// line read back. See docs/record.md for the rule. A begin or commit has none: they are not published.
func AppendPartitionKey(dst []byte, r *Record) ([]byte, error) {
	mark := len(dst)
	var err error
	switch r.Op {
	case Insert, Update, Delete, Read:
		dst, err = appendRowKey(dst, r)
	case Truncate:
		dst, err = appendTruncateKey(dst, r)
	case Message:
		if !r.FromLine() && r.Message == nil {
			return dst, describe(r, errors.New("a message without content"))
		}
		dst = append(dst, "message."...)
		at := len(dst)
		if r.FromLine() {
			dst = appendPart(dst, r.Line.Get(r.Line.Prefix))
		} else {
			dst = append(dst, r.Message.Prefix...)
		}
		dst = escapeKey(dst, at)
	case Data:
		if r.Stream != nil {
			return append(dst, r.Stream.PartitionKey...), nil
		}
		dst = r.AppendID(dst)
	default:
		err = errors.New("it is not of a row and has no partition key")
	}
	if err != nil {
		return dst[:mark], describe(r, err)
	}
	return shortenKey(dst, mark), nil
}

// appendRowKey appends schema.table and, where the table has a key, the texts of its values.
func appendRowKey(dst []byte, r *Record) ([]byte, error) {
	if !r.FromLine() && r.Table == nil {
		return dst, errors.New("a row without a table")
	}
	at := len(dst)
	dst = escapeKey(r.AppendSchema(dst), at)
	dst = append(dst, '.')
	at = len(dst)
	dst = escapeKey(r.AppendTable(dst), at)
	if r.FromLine() {
		for f := FieldsOf(r.Line.Get(r.Line.Key)); f.Next(); {
			dst = append(dst, '.')
			at = len(dst)
			var err error
			if dst, err = appendKeyText(dst, f.Value); err != nil {
				return dst, err
			}
			dst = escapeKey(dst, at)
		}
		return dst, nil
	}
	if err := checkTuples(r); err != nil {
		return dst, err
	}
	for _, i := range r.Table.Key {
		v, err := r.column(i)
		if err != nil {
			return dst, err
		}
		dst = append(dst, '.')
		at = len(dst)
		if dst, err = appendKeyValue(dst, &r.Table.Columns[i], v); err != nil {
			return dst, err
		}
		dst = escapeKey(dst, at)
	}
	return dst, nil
}

// appendKeyText appends what the JSON value says: a string's content, any other value's text.
func appendKeyText(dst, value []byte) ([]byte, error) {
	if value[0] == '"' {
		return AppendUnquoted(dst, value)
	}
	return append(dst, value...), nil
}

// appendKeyValue is appendKeyText of the JSON that the column's value becomes.
func appendKeyValue(dst []byte, c *Column, v Value) ([]byte, error) {
	if v.Kind == Text && c.Type.Kind == KindString {
		if !utf8.Valid(v.Data) {
			return dst, fmt.Errorf("column %q: %w", c.Name, errUTF8)
		}
		return append(dst, v.Data...), nil
	}
	at := len(dst)
	dst, _, err := appendValue(dst, c, v)
	if err != nil {
		return dst, err
	}
	end := len(dst)
	if dst, err = appendKeyText(dst, dst[at:end]); err != nil {
		return dst, fmt.Errorf("column %q: %w", c.Name, err)
	}
	return dst[:at+copy(dst[at:], dst[end:])], nil
}

func appendTruncateKey(dst []byte, r *Record) ([]byte, error) {
	tables, err := r.TruncatedTables()
	if err != nil {
		return dst, err
	}
	if len(tables) == 0 {
		return dst, errors.New("a truncate without tables")
	}
	at := len(dst)
	dst = escapeKey(append(dst, tables[0].Schema...), at)
	dst = append(dst, '.')
	at = len(dst)
	return escapeKey(append(dst, tables[0].Name...), at), nil
}

// escapeKey puts a backslash before every dot and backslash in dst[at:], so that ("a.b", "c") and ("a", "b.c") differ.
func escapeKey(dst []byte, at int) []byte {
	n := 0
	for _, c := range dst[at:] {
		if c == '.' || c == '\\' {
			n++
		}
	}
	if n == 0 {
		return dst
	}
	from := len(dst) - 1
	for range n {
		dst = append(dst, 0)
	}
	for to := len(dst) - 1; from >= at; from, to = from-1, to-1 {
		dst[to] = dst[from]
		if dst[from] == '.' || dst[from] == '\\' {
			to--
			dst[to] = '\\'
		}
	}
	return dst
}

// shortenKey replaces a key that is too long by its hash.
func shortenKey(dst []byte, at int) []byte {
	if len(dst)-at <= maxKeyChars || utf8.RuneCount(dst[at:]) <= maxKeyChars {
		return dst
	}
	sum := sha256.Sum256(dst[at:])
	dst = append(dst[:at], "sha256:"...)
	return hex.AppendEncode(dst, sum[:])
}
