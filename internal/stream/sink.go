package stream

import (
	"bytes"

	"synctl/internal/pipeline"
	"synctl/internal/record"
)

// Sink publishes to a stream: a pipeline.Sink that knows what it did. Summary may be called at any time and from any
// goroutine. Close waits for what was written and calls every done before it returns.
type Sink interface {
	pipeline.Sink
	Summary() Summary
	Close() error
}

// KeyBy says what a record's partition key is made of.
type KeyBy uint8

const (
	ByKey   KeyBy = iota // the row's key: order per row (record.md)
	ByTable              // schema and table: order per table, and one shard for each table
)

// AppendPartitionKey appends the partition key of r.
func (k KeyBy) AppendPartitionKey(dst []byte, r *record.Record) ([]byte, error) {
	if k == ByTable {
		switch r.Op {
		case record.Insert, record.Update, record.Delete, record.Read:
			mark := len(dst)
			dst = escapeDots(r.AppendSchema(dst), mark)
			dst = append(dst, '.')
			at := len(dst)
			dst = escapeDots(r.AppendTable(dst), at)
			return dst, nil
		}
	}
	return record.AppendPartitionKey(dst, r)
}

// escapeDots puts a backslash before every dot and backslash of dst[at:], as in every partition key. Names of tables
// are at most 63 bytes: a key of two of them needs no shortening.
func escapeDots(dst []byte, at int) []byte {
	if bytes.IndexByte(dst[at:], '.') < 0 && bytes.IndexByte(dst[at:], '\\') < 0 {
		return dst
	}
	name := bytes.Clone(dst[at:])
	dst = dst[:at]
	for _, c := range name {
		if c == '.' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return dst
}
