package snapshot

import (
	"context"
	"encoding/binary"
)

// blockBytes is the size of the pieces in which rows are held.
const blockBytes = 256 << 10

// blocks keeps blocks that have been delivered for the next chunks.
type blocks struct{ free chan []byte }

func (b *blocks) take(size int) []byte {
	if size <= blockBytes {
		select {
		case p := <-b.free:
			return p[:0]
		default:
		}
	}
	return make([]byte, 0, max(blockBytes, size))
}

// give takes a block back; one of a wide row is left to the collector.
func (b *blocks) give(p []byte) {
	if cap(p) != blockBytes {
		return
	}
	select {
	case b.free <- p:
	default:
	}
}

// Column is one column of a row that is read.
type Column struct {
	Name string
	Type uint32 // its type's OID
	Key  bool   // of the replica identity's index; under FULL every column
}

// Shape is a table as a chunk found it.
type Shape struct {
	OID          uint32
	Schema, Name string
	Identity     byte // pg_class.relreplident
	Columns      []Column
}

// Chunk is a piece of a table between two marks. Its worker fills it before it writes the high mark; from then on it belongs to
// the feed.
type Chunk struct {
	job  *Job
	id   int
	from []string   // rows above this key; nil: from the start
	to   []string   // and up to this one; nil: as many as fit
	keys [][]string // or the rows with these keys

	taken bool // a worker has it
	read  bool // its rows are there

	snap  Snap
	shape *Shape
	key   []int // key columns by index in Shape.Columns, in the order of Shape
	rows  [][]byte
	count int
	bytes int64
	last  []string // key of the last row
	whole bool     // there is nothing behind it
	gone  string   // why there is no such table any more

	window *Window // the feed's, from the low mark on
	at     int     // the row to be delivered next
	block  []byte  // what is left of the block at hand
	again  [][]string
	blocks *blocks
	full   []byte      // the block at hand, whole
	stream chan []byte // of a table that is read whole: its blocks, as they come
	seen   chan Snap   // and the snapshot in which it is read; a second one where the first was of no use
	useful chan bool   // whether it is of use
	err    error       // why the stream ended early
}

// Shape tells what the chunk's rows are like.
func (c *Chunk) Shape() *Shape { return c.shape }

// appendValue appends a column's value as chunks hold it: its length and its bytes, -1 for null.
func appendValue(dst, v []byte) []byte {
	if v == nil {
		return append(dst, 0xff, 0xff, 0xff, 0xff)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)))
	return append(dst, v...)
}

// rowBytes is the length of the row at the start of p.
func rowBytes(p []byte, columns int) int {
	n := 0
	for range columns {
		if l := int32(binary.BigEndian.Uint32(p[n:])); l > 0 {
			n += int(l)
		}
		n += 4
	}
	return n
}

// Peek gives the next row, a length and bytes for each column, and nil behind the last. It lies in the chunk's memory.
func (c *Chunk) Peek(ctx context.Context) ([]byte, error) {
	for len(c.block) == 0 {
		c.blocks.give(c.full)
		c.full = nil
		switch {
		case c.stream != nil:
			select {
			case b, ok := <-c.stream:
				if !ok {
					return nil, nil
				}
				c.block, c.full = b, b
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		case len(c.rows) == 0:
			return nil, nil
		default:
			c.block, c.rows[0] = c.rows[0], nil
			c.rows = c.rows[1:]
			c.full = c.block
		}
	}
	n := rowBytes(c.block, len(c.shape.Columns))
	return c.block[:n:n], nil
}

// Skip goes to the next row.
func (c *Chunk) Skip(row []byte) {
	c.block = c.block[len(row):]
	c.at++
}

// Number is that of the row which Peek gives, from 0.
func (c *Chunk) Number() int { return c.at }

// Judge tells what becomes of a row.
func (c *Chunk) Judge(row []byte, scratch []byte) (Verdict, []byte) {
	if c.window == nil || c.window.Quiet() {
		return Deliver, scratch
	}
	scratch = scratch[:0]
	p, k := row, 0
	for i := range c.shape.Columns {
		l := int32(binary.BigEndian.Uint32(p))
		p = p[4:]
		n := max(int(l), 0)
		if k < len(c.key) && c.key[k] == i {
			scratch = AppendKey(scratch, p[:n])
			k++
		}
		p = p[n:]
	}
	v := c.window.Judge(c.snap, scratch)
	if v == ReadAgain {
		var texts []string
		for q := scratch; len(q) > 0; {
			n := int(binary.BigEndian.Uint32(q))
			texts = append(texts, string(q[4:4+n]))
			q = q[4+n:]
		}
		c.again = append(c.again, texts)
	}
	return v, scratch
}
