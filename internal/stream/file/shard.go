package file

import (
	"bytes"
	"fmt"
	"os"

	"synctl/internal/fault"
	"synctl/internal/record"
)

const (
	flushBytes = 256 << 10 // a shard's buffer is written when it holds this much, and at the end of a batch
	keepBytes  = 4 << 20   // a buffer that one large record made larger than this is not kept
)

// shardWriter appends to one shard. It belongs to the goroutine that calls Sink.Write.
type shardWriter struct {
	files   shardFiles
	file    *os.File
	head    head // the end of what was written or is in buf, durable or not
	buf     []byte
	began   int64 // arrival of the first record of the segment, µs; 0 while there is none or it is not known
	touched bool  // since the last whole batch

	retired []*os.File // segments that were full in this batch; they are flushed with it, then closed
	named   bool       // a segment was made in this batch: its name must become durable
}

func openShardWriter(s shardFiles, h head) (*shardWriter, error) {
	f, err := os.OpenFile(s.path(h.base), os.O_RDWR, 0)
	if err != nil {
		return nil, diskFault("open segment", err)
	}
	w := &shardWriter{files: s, file: f, head: h}
	if h.length > 0 {
		p, _, err := s.lineAt(f, 0, h.length)
		if err != nil {
			f.Close()
			return nil, err
		}
		w.began = int64(p.arrived)
	}
	return w, nil
}

// append adds one record to the shard and returns how many bytes it takes there.
func (w *shardWriter) append(r *record.Record, key []byte, clock *clock) (int, error) {
	arrived, text := clock.after(w.head.last)
	if w.full(arrived) {
		if err := w.roll(); err != nil {
			return 0, err
		}
	}
	mark := len(w.buf)
	buf, err := record.AppendLine(w.buf, r)
	if err != nil {
		return 0, err
	}
	w.buf = buf
	if n := len(buf) - mark; n > MaxRecordBytes {
		return 0, fault.New(fault.Failed, "Leave the row or its large column out of what is published.",
			"encode record: the line has %d bytes, a stream on disk takes %d", n, MaxRecordBytes)
	}
	line := bytes.TrimRight(buf[mark:], "\r\n\t ")
	if len(line) < 2 || line[len(line)-1] != '}' {
		return 0, fmt.Errorf("encode record: the line is not an object")
	}
	w.buf = w.files.layout.append(buf[:mark+len(line)-1], w.head.next, key, text)
	if w.head.length == 0 {
		w.began = arrived
	}
	n := len(w.buf) - mark
	w.head.length += int64(n)
	w.head.next++
	w.head.last = arrived
	w.touched = true
	if len(w.buf) >= flushBytes {
		err = w.flush()
	}
	return n, err
}

// full tells whether the segment has reached its size, or is so old that retention by time would be late because of it.
func (w *shardWriter) full(now int64) bool {
	if w.head.length == 0 {
		return false
	}
	m := w.files.m
	return w.head.length >= m.SegmentBytes || m.retention > 0 && now-w.began > m.retention.Microseconds()/4
}

// flush writes the buffer at the end of the segment. Not at the file's end: a failed write may have moved that.
func (w *shardWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, err := w.file.WriteAt(w.buf, w.head.length-int64(len(w.buf))); err != nil {
		return diskFault("write segment", err)
	}
	if cap(w.buf) > keepBytes {
		w.buf = nil
	}
	w.buf = w.buf[:0]
	return nil
}

// roll begins a new segment.
func (w *shardWriter) roll() error {
	if err := w.flush(); err != nil {
		return err
	}
	f, err := os.OpenFile(w.files.path(w.head.next), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return diskFault("make segment", err)
	}
	w.retired = append(w.retired, w.file)
	w.file, w.named = f, true
	w.head.base, w.head.length = w.head.next, 0
	return nil
}

func (w *shardWriter) close() {
	for _, f := range w.retired {
		f.Close()
	}
	w.file.Close()
}
