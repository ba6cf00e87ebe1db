package bulk

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"synctl/internal/bulk/convert"
)

// Nulls is what a source knows of a column's nulls before it is read.
type Nulls uint8

const (
	NullsUnknown Nulls = iota
	NoNulls            // the schema forbids them, or statistics count none
	SomeNulls          // statistics count some
)

// Field is one column of a data set.
type Field struct {
	Name  string
	Arrow arrow.DataType // nil: the values are text or JSON and have no type of their own
	JSON  bool           // the cells can be JSON
	Nulls Nulls
}

// Source is a data set that is open: its schema is known, nothing of it has been read.
type Source interface {
	// Name is the data set's, as the user gave it, without secrets.
	Name() string
	Fields() []Field
	// Size is what is known of the whole before it is read.
	Size() Size
	// Readers starts the reading of the given columns, in this order, by at most n readers: at least one, each with parts of
	// its own. It is called once.
	Readers(ctx context.Context, columns []int, n int) ([]Reader, error)
	Close() error
}

// Size is how much a data set holds.
type Size struct {
	Rows      int64 // -1: unknown
	Exact     bool  // Rows is what has to be read in all, or something is wrong; otherwise it is an estimate
	Bytes     int64 // as stored; -1: unknown
	Parts     int   // that can be read at once
	PartsName string
	Note      string // what else a plan should tell: bytes that are billed, row groups that are skipped
}

// Reader reads some parts of a source. It is used by one goroutine.
type Reader interface {
	// Next gives the next batch, valid until the next call; io.EOF ends the reader.
	Next(ctx context.Context) (*Batch, error)
	Close() error
}

// Batch is some rows of one part: Arrow columns, or cells.
type Batch struct {
	Part  string // the file or stream, for messages
	First int64  // the number of the batch's first row in its part, from 1

	Arrow arrow.RecordBatch // nil: Cells

	Cells []convert.Cell // row by row, Width each
	Width int
	// Bad holds rows that could not be taken apart: their cells are not there and the reason is. Cells batches only.
	Bad map[int]error
	// Lines gives the line on which row i begins, where the source has lines.
	Lines func(i int) int64

	Rows int
	// Keep tells which rows pass the filter; nil: all.
	Keep []bool
	// Whole appends row i, with all that the source has of it, as a JSON object: for the dead-letter file.
	Whole func(dst []byte, i int) []byte
	// Detach makes the batch safe to keep until release is called, however often Next is called meanwhile.
	Detach func() (release func())
}

// Trouble is how a source's server holds us up.
type Trouble struct {
	Retries         int64 `json:"retries"`
	Throttled       int64 `json:"throttled"`        // times that a quota was exhausted
	ThrottlePercent int   `json:"throttle_percent"` // as last told
}

// troubled is a source whose server can hold us up.
type troubled interface{ Trouble() Trouble }
