package file

import (
	"bytes"

	"synctl/internal/record"
)

// layout knows the stream field with which every line of one shard ends:
//
//	,"stream":{"name":"orders","shard":"shardId-000000000000","sequence":"…","line":0,"partition_key":"…","arrived_at":"…"}}
//
// Only ordinal, partition key and arrival differ, so it is written and found again without parsing the line.
type layout struct {
	before []byte // up to the ordinal
	after  []byte // from the ordinal to the partition key
}

const (
	arrivedName  = `,"arrived_at":"`
	arrivedBytes = len("2006-01-02T15:04:05.000000Z")
	lineEnd      = `"}}`
)

func (m *meta) layout(shard int) layout {
	b := append([]byte(nil), `,"stream":{"name":`...)
	b = record.AppendString(b, m.Name)
	b = append(b, `,"shard":"`...)
	b = append(b, shardID(shard)...)
	b = append(b, `","sequence":"`...)
	b = append(b, m.sequencePrefix(shard)...)
	return layout{before: b, after: []byte(`","line":0,"partition_key":`)}
}

// append completes a line whose closing brace has been cut off.
func (l *layout) append(dst []byte, ordinal uint64, key, arrived []byte) []byte {
	dst = append(dst, l.before...)
	dst = appendOrdinal(dst, ordinal)
	dst = append(dst, l.after...)
	dst = record.AppendString(dst, key)
	dst = append(dst, arrivedName...)
	dst = append(dst, arrived...)
	return append(dst, lineEnd+"\n"...)
}

// tail is what the stream field of a line says.
type tail struct {
	at      int // where the field begins in the line
	ordinal uint64
	key     []byte // as a JSON string, quotes included
	arrived []byte
}

// parse finds the stream field of a line without its line feed. ok is false when the line does not end as append ends it.
func (l *layout) parse(line []byte) (t tail, ok bool) {
	fixed := len(l.before) + ordinalDigits + len(l.after)
	end := len(line) - len(lineEnd) - arrivedBytes - len(arrivedName)
	if end < fixed+2 || string(line[len(line)-len(lineEnd):]) != lineEnd || string(line[end:end+len(arrivedName)]) != arrivedName {
		return t, false
	}
	t.arrived = line[end+len(arrivedName) : len(line)-len(lineEnd)]
	quote := openingQuote(line[:end])
	t.at = quote - fixed
	if t.at < 1 {
		return t, false
	}
	t.key = line[quote:end]
	digits := t.at + len(l.before)
	if !bytes.Equal(line[t.at:digits], l.before) || !bytes.Equal(line[digits+ordinalDigits:quote], l.after) {
		return t, false
	}
	t.ordinal, ok = parseOrdinal(line[digits : digits+ordinalDigits])
	return t, ok
}

// openingQuote is where the JSON string begins with which b ends, -1 if it does not: quotes inside it are escaped.
func openingQuote(b []byte) int {
	if len(b) == 0 || b[len(b)-1] != '"' {
		return -1
	}
	for i := len(b) - 1; ; {
		if i = bytes.LastIndexByte(b[:i], '"'); i < 0 {
			return -1
		}
		slashes := 0
		for i-slashes > 0 && b[i-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}
