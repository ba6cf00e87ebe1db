package stream

import "synctl/internal/pipeline"

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
