package replay

import (
	"bytes"
	"encoding/json"
	"fmt"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// lines walks over the lines of one stream record. Those of a record that another producer wrote are made here, as op data.
type lines struct {
	info   *record.StreamInfo
	line   []byte // the next one
	number int    // its number, from 0
	rest   []byte // after it
	made   []byte // memory for lines of other producers' records
}

// begin starts with a stream record's data.
func (l *lines) begin(info *record.StreamInfo, data []byte) error {
	l.info, l.number = info, 0
	if !ours(data) {
		var err error
		if l.made, err = appendForeign(l.made[:0], info, data); err != nil {
			return err
		}
		data = l.made
	}
	l.rest = data
	l.cut()
	return nil
}

func (l *lines) more() bool { return l.line != nil }

// advance goes on to the next line.
func (l *lines) advance() {
	l.number++
	l.cut()
}

// cut takes the next line that is not blank.
func (l *lines) cut() {
	for len(l.rest) > 0 {
		line := l.rest
		if i := bytes.IndexByte(l.rest, '\n'); i >= 0 {
			line, l.rest = l.rest[:i], l.rest[i+1:]
		} else {
			l.rest = nil
		}
		if len(line) > 0 && (line[0] == '{' || len(bytes.TrimSpace(line)) > 0) {
			l.line = line
			return
		}
	}
	l.line = nil
}

// ours tells a record that synctl wrote by how it begins: every line of the format begins with the version.
func ours(data []byte) bool {
	const start = `{"v":`
	if bytes.HasPrefix(data, []byte(start)) {
		return true
	}
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte(start))
}

// appendForeign makes records of op data: one of a record that is one JSON value, or no JSON at all; one of each line of
// a record that is NDJSON.
func appendForeign(dst []byte, info *record.StreamInfo, data []byte) ([]byte, error) {
	payloads := [][]byte{data}
	if !json.Valid(data) {
		if split, ok := jsonLines(data); ok {
			payloads = split
		}
	}
	var err error
	for i, p := range payloads {
		id := fmt.Sprintf("%s/%s/%s/%d", info.Name, info.Shard, info.Sequence, i)
		if dst, err = record.AppendData(dst, id, p); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// jsonLines cuts NDJSON; ok is false when a line is not JSON.
func jsonLines(data []byte) (out [][]byte, ok bool) {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !json.Valid(line) {
			return nil, false
		}
		out = append(out, line)
	}
	return out, len(out) > 0
}

func malformed(name string, info *record.StreamInfo, line int, err error) error {
	return fault.New(fault.Failed,
		"It begins as synctl's records do and was damaged, or comes from a newer synctl. To leave it out, begin after it: --shard "+info.Shard+" --after-sequence "+info.Sequence+".",
		"stream %s shard %s sequence %s line %d is malformed: %w", name, info.Shard, info.Sequence, line, err)
}
