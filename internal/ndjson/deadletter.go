package ndjson

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// DeadLetters is a file of records that could not be delivered, one line each:
//
//	{"reason":"…","partition_key":"…","record":{…}}
//
// The record is whole, as it would have been delivered; jq -c .record FILE gives the records back. A line is on the disk
// before Put returns, so what is in the file may be acknowledged upstream (promise 6). A record that is delivered again
// because a run was killed in between is in the file again, under the same id.
type DeadLetters struct {
	mu    sync.Mutex
	file  *os.File
	buf   []byte
	err   error // an earlier write failed: what it left would run into the next line
	count atomic.Int64
}

// OpenDeadLetters opens or makes the file and cuts off the line that a killed run left unfinished.
func OpenDeadLetters(path string) (*DeadLetters, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, "Give a path that can be written to.", fmt.Errorf("open dead-letter file: %w", err))
	}
	if _, err := repairTail(f, deadLetterStart); err != nil {
		f.Close()
		return nil, err
	}
	return &DeadLetters{file: f}, nil
}

const deadLetterStart = `{"reason":`

// Put appends a record. line is its NDJSON line; whether it ends with a line feed does not matter.
func (d *DeadLetters) Put(_ context.Context, line []byte, partitionKey, reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	d.buf = append(d.buf[:0], deadLetterStart...)
	d.buf = record.AppendString(d.buf, strings.ToValidUTF8(reason, "\uFFFD"))
	d.buf = append(d.buf, `,"partition_key":`...)
	d.buf = record.AppendString(d.buf, partitionKey)
	d.buf = append(d.buf, `,"record":`...)
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	d.buf = append(d.buf, line...)
	d.buf = append(d.buf, '}', '\n')
	_, err := d.file.Write(d.buf)
	if err == nil {
		err = d.file.Sync()
	}
	if cap(d.buf) > 1<<20 {
		d.buf = nil // a rare, large record must not stay in memory
	}
	if err != nil {
		d.err = fault.Wrap(fault.Failed, "Make room, then run the same command again: the record is delivered again.", fmt.Errorf("write dead letter: %w", err))
		return d.err
	}
	d.count.Add(1)
	return nil
}

// Count is how many records were put in.
func (d *DeadLetters) Count() int64 { return d.count.Load() }

// Close closes the file.
func (d *DeadLetters) Close() error { return d.file.Close() }
