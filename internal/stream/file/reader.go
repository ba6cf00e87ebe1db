package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/stream"
)

const (
	readBytes    = 256 << 10             // of a page; one record larger than that has a page of its own
	pollInterval = 10 * time.Millisecond // at the tip: one read of 20 bytes of heads
)

// Reader reads one shard of a stream in order. At the tip it waits for what another process makes durable.
type Reader struct {
	s     *Stream
	files shardFiles
	hf    *headsFile
	heads []head
	head  head // of this shard, as published at the last look

	file  *os.File
	base  uint64 // of the segment being read
	size  int64  // durable bytes of that segment when it is not the last one; -1 while it is not known to be whole
	pos   int64
	next  uint64
	atTip bool // the tip was reported, and nothing read since
	idles int  // how often it waited

	buf       []byte
	page      stream.Page
	sequences []byte
	keys      []byte
	arrived   [arrivedBytes]byte // the last arrival and what it is: most lines repeat it
	arrivedAt time.Time
}

// Close ends reading.
func (r *Reader) Close() error {
	var err error
	if r.file != nil {
		err = r.file.Close()
		r.file = nil
	}
	return errors.Join(err, r.hf.close())
}

// refresh looks at what is durable now.
func (r *Reader) refresh() (changed bool, err error) {
	changed, err = r.hf.published(r.heads)
	if err != nil {
		return false, r.s.headsFault(err)
	}
	before := r.head
	r.head = r.heads[r.files.shard]
	return changed && r.head != before, nil
}

// enter opens a segment at a byte, where the record with this ordinal begins or will.
func (r *Reader) enter(base uint64, pos int64, next uint64) error {
	f, err := os.Open(r.files.path(base))
	if err != nil {
		return err
	}
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.base, r.size, r.pos, r.next = f, base, -1, pos, next
	return nil
}

// enterAt opens a segment at its first record for which reached is true, or at its end.
func (r *Reader) enterAt(base uint64, reached func(place) bool) error {
	if err := r.enter(base, 0, base); err != nil {
		return err
	}
	end, err := r.files.durable(r.file, base, r.head)
	if err != nil {
		return err
	}
	p, ok, err := r.files.find(r.file, end, reached)
	if err != nil {
		return err
	}
	if ok {
		r.pos, r.next = p.off, p.ordinal
		return nil
	}
	last, err := r.files.lastLine(r.file, end)
	r.pos, r.next = end, last.ordinal+1
	return err
}

// Next returns the next records, or the news that the tip was reached.
func (r *Reader) Next(ctx context.Context) (*stream.Page, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		limit, err := r.limit()
		if err != nil {
			return nil, err
		}
		if r.pos < limit {
			return r.read(limit)
		}
		if r.base != r.head.base {
			if err := r.follow(); err != nil {
				return nil, err
			}
			continue
		}
		changed, err := r.refresh()
		if err != nil {
			return nil, err
		}
		if changed {
			continue
		}
		if !r.atTip {
			r.atTip = true
			r.page = stream.Page{AtTip: true}
			return &r.page, nil
		}
		if err := r.idle(ctx); err != nil {
			return nil, err
		}
	}
}

// idle waits a little for more. Now and then it looks whether the stream is still the one that was opened: a reader of a
// directory that was removed or made anew would wait for ever, and nobody would know.
func (r *Reader) idle(ctx context.Context) error {
	if r.idles++; r.idles%100 == 0 {
		if err := r.replaced(); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pollInterval):
		return nil
	}
}

func (r *Reader) replaced() error {
	now, err := os.Stat(r.hf.f.Name())
	if err != nil && !missing(err) {
		return diskFault("read stream "+URL(r.s.dir), err)
	}
	then, errThen := r.hf.f.Stat()
	if errThen != nil {
		return diskFault("read stream "+URL(r.s.dir), errThen)
	}
	if err == nil && os.SameFile(now, then) {
		return nil
	}
	return fault.New(fault.Failed, "Run the same command again to read what is there now.",
		"%s was removed or replaced while it was read", URL(r.s.dir))
}

// limit is up to where the open segment may be read.
func (r *Reader) limit() (int64, error) {
	if r.base == r.head.base {
		return r.head.length, nil
	}
	if r.size < 0 {
		size, err := r.files.durable(r.file, r.base, r.head)
		if err != nil {
			return 0, fmt.Errorf("read segment: %w", err)
		}
		r.size = size
	}
	return r.size, nil
}

// follow goes on to the segment whose name says that it begins where this one ends. If that is gone, records are.
func (r *Reader) follow() error {
	err := r.enter(r.next, 0, r.next)
	if !missing(err) {
		return err
	}
	if _, err := r.refresh(); err != nil {
		return err
	}
	bases, err := r.files.visible(r.head)
	if err != nil {
		return err
	}
	if bases[0] > r.next {
		return stream.Trimmed(URL(r.s.dir), shardID(r.files.shard), r.s.m.sequence(r.files.shard, r.next), r.s.m.sequence(r.files.shard, bases[0]))
	}
	return damaged(r.files.path(r.next), "the segment is missing, older ones are there")
}

// read makes a page of whole lines between pos and limit.
func (r *Reader) read(limit int64) (*stream.Page, error) {
	size := int64(readBytes)
	for {
		n := min(size, limit-r.pos)
		if int64(cap(r.buf)) < n || cap(r.buf) > readBytes && n <= readBytes {
			r.buf = make([]byte, max(n, readBytes))
		}
		buf := r.buf[:n]
		if _, err := r.file.ReadAt(buf, r.pos); err != nil {
			return nil, readError(r.file, err)
		}
		if end := bytes.LastIndexByte(buf, '\n') + 1; end > 0 {
			return r.parse(buf[:end], limit)
		}
		if n == limit-r.pos {
			return nil, damaged(r.file.Name(), "its durable part does not end with a whole line (from byte %d)", r.pos)
		}
		size *= 4
	}
}

// parse takes whole lines apart. Data is made in place: the first two bytes of the stream field become the line's end.
func (r *Reader) parse(buf []byte, limit int64) (*stream.Page, error) {
	recs := r.page.Records[:0]
	r.sequences, r.keys = r.sequences[:0], r.keys[:0]
	prefix := r.files.layout.before[len(r.files.layout.before)-(sequenceDigits-ordinalDigits):]
	for off := 0; off < len(buf); {
		n := bytes.IndexByte(buf[off:], '\n')
		line := buf[off : off+n]
		t, ok := r.files.layout.parse(line)
		if !ok || t.ordinal != r.next {
			return nil, damaged(r.file.Name(), "want record %s at byte %d", r.s.m.sequence(r.files.shard, r.next), r.pos+int64(off))
		}
		if string(t.arrived) != string(r.arrived[:]) {
			at, err := record.ParseMicros(t.arrived)
			if err != nil {
				return nil, damaged(r.file.Name(), "record %s: arrived_at: %v", r.s.m.sequence(r.files.shard, r.next), err)
			}
			r.arrivedAt = at.Time()
			copy(r.arrived[:], t.arrived)
		}
		key, err := r.key(t.key)
		if err != nil {
			return nil, damaged(r.file.Name(), "record %s: partition_key: %v", r.s.m.sequence(r.files.shard, r.next), err)
		}
		line[t.at], line[t.at+1] = '}', '\n'
		recs = append(recs, stream.Record{PartitionKey: key, ArrivedAt: r.arrivedAt, Data: line[: t.at+2 : t.at+2]})
		r.sequences = append(append(r.sequences, prefix...), line[t.at+len(r.files.layout.before):][:ordinalDigits]...)
		off += n + 1
		r.next++
	}
	all := string(r.sequences) // one allocation for the page
	for i := range recs {
		recs[i].Sequence = all[i*sequenceDigits : (i+1)*sequenceDigits]
	}
	r.pos += int64(len(buf))
	return r.finish(recs, limit)
}

// key is the partition key of which raw is the JSON string.
func (r *Reader) key(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1 : len(raw)-1], nil
	}
	from := len(r.keys)
	var err error
	r.keys, err = record.AppendUnquoted(r.keys, raw)
	return r.keys[from:len(r.keys):len(r.keys)], err
}

// finish says how far the page is behind the tip.
func (r *Reader) finish(recs []stream.Record, limit int64) (*stream.Page, error) {
	r.atTip = false
	if r.pos == limit && r.base == r.head.base {
		changed, err := r.refresh()
		if err != nil {
			return nil, err
		}
		r.atTip = !changed
	}
	r.page = stream.Page{Records: recs, AtTip: r.atTip}
	if !r.atTip {
		r.page.Behind = max(0, time.UnixMicro(r.head.last).Sub(recs[len(recs)-1].ArrivedAt))
	}
	return &r.page, nil
}
