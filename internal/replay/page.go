package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/stream"
)

// page is a page of a stream, cut into lines and parsed. Parsing is most of a replay's work, so several cores share it.
type page struct {
	lines  []line
	made   []byte // lines made of other producers' records
	atTip  bool
	closed bool
}

// line is one line of a stream record. Its text is the stream's, valid until the reader's next page.
type line struct {
	info   *record.StreamInfo
	number int    // in its stream record, from 0
	last   bool   // of it
	text   []byte // nil: the stream record has no line
	record record.Record
	err    error // it is not a record
}

// parseAlone is how many lines are not worth sharing out.
const parseAlone = 64

// load takes a page of the stream.
func (p *page) load(name, shard string, from *stream.Page) error {
	p.atTip, p.closed = from.AtTip, from.Closed
	clear(p.lines)
	p.lines, p.made = p.lines[:0], p.made[:0]
	infos := make([]record.StreamInfo, len(from.Records))
	for i := range from.Records {
		r := &from.Records[i]
		// One string for both, and of its own: checkpoints keep it beyond the page's life.
		text := string(append([]byte(r.Sequence), r.PartitionKey...))
		infos[i] = record.StreamInfo{
			Name: name, Shard: shard, Sequence: text[:len(r.Sequence)], PartitionKey: text[len(r.Sequence):],
			ArrivedAt: record.MicrosOf(r.ArrivedAt),
		}
		data := r.Data
		if !ours(data) {
			var err error
			if data, err = p.foreign(&infos[i], data); err != nil {
				return err
			}
		}
		p.cut(&infos[i], data)
	}
	p.parse()
	return nil
}

// cut adds the lines of a stream record; blank ones do not count.
func (p *page) cut(info *record.StreamInfo, data []byte) {
	first := len(p.lines)
	for len(data) > 0 {
		text := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			text, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		if len(text) > 0 && (text[0] == '{' || len(bytes.TrimSpace(text)) > 0) {
			p.lines = append(p.lines, line{info: info, number: len(p.lines) - first, text: text})
		}
	}
	if len(p.lines) == first {
		p.lines = append(p.lines, line{info: info})
	}
	p.lines[len(p.lines)-1].last = true
}

// parse parses all lines.
func (p *page) parse() {
	workers := min(runtime.GOMAXPROCS(0), 4, len(p.lines)/parseAlone)
	if workers < 2 {
		parseLines(p.lines)
		return
	}
	var wg sync.WaitGroup
	share := (len(p.lines) + workers - 1) / workers
	for from := share; from < len(p.lines); from += share {
		wg.Go(func() { parseLines(p.lines[from:min(from+share, len(p.lines))]) })
	}
	parseLines(p.lines[:share])
	wg.Wait()
}

func parseLines(lines []line) {
	for i := range lines {
		if l := &lines[i]; l.text != nil {
			l.err = record.Parse(l.text, &l.record)
		}
	}
}

// ours tells a record that synctl wrote by how it begins: every line of the format begins with the version.
func ours(data []byte) bool {
	const start = `{"v":`
	if bytes.HasPrefix(data, []byte(start)) {
		return true
	}
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte(start))
}

// foreign makes records of op data: one of a record that is one JSON value, or no JSON at all; one of each line of a
// record that is NDJSON.
func (p *page) foreign(info *record.StreamInfo, data []byte) ([]byte, error) {
	payloads := [][]byte{data}
	if !json.Valid(data) {
		if split, ok := jsonLines(data); ok {
			payloads = split
		}
	}
	from := len(p.made)
	for i, payload := range payloads {
		id := fmt.Sprintf("%s/%s/%s/%d", info.Name, info.Shard, info.Sequence, i)
		var err error
		if p.made, err = record.AppendData(p.made, id, payload); err != nil {
			return nil, err
		}
	}
	return p.made[from:], nil
}

// jsonLines cuts NDJSON; ok is false when a line is not JSON.
func jsonLines(data []byte) (out [][]byte, ok bool) {
	for text := range bytes.Lines(data) {
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		if !json.Valid(text) {
			return nil, false
		}
		out = append(out, text)
	}
	return out, len(out) > 0
}

func malformed(name string, info *record.StreamInfo, line int, err error) error {
	return fault.New(fault.Failed,
		"It begins as synctl's records do and was damaged, or comes from a newer synctl. To leave it out, begin after it: --shard "+info.Shard+" --after-sequence "+info.Sequence+".",
		"stream %s shard %s sequence %s line %d is malformed: %w", name, info.Shard, info.Sequence, line, err)
}
