package record

import (
	"context"
	"unsafe"
)

// Token is a position from which a source can go on; it covers its batch and all before it. Its meaning is its
// source's own. A nil token covers nothing new.
type Token any

// What a record and a value weigh in a batch's account beside their bytes, so that --queue-bytes bounds memory also for
// tiny rows.
const (
	recordBytes = int(unsafe.Sizeof(Record{}))
	valueBytes  = int(unsafe.Sizeof(Value{}))
)

// Batch owns the bytes of its records. A source fills it, the engine hands it to the sink, and it is recycled once the
// sink is done with it; nothing in it may be kept beyond that.
//
// A record that does not fit what is left makes the source return the batch as it is and bring the record in the next
// one; a record larger than an empty batch needs Reserve first.
type Batch struct {
	Records []Record
	Token   Token

	blocks  [][]byte // blocks[0] is the arena proper, of limit bytes; others hold single large records
	values  []Value
	used    int // bytes accounted for
	limit   int
	extra   int
	reserve func(ctx context.Context, n int) error
	release func(n int)
}

// NewBatch makes a batch of limit bytes. reserve is asked before the batch grows beyond its limit and blocks until
// that is within the queue's bound; release gives the bytes back when the batch is reset. Both may be nil.
func NewBatch(limit int, reserve func(ctx context.Context, n int) error, release func(n int)) *Batch {
	return &Batch{limit: limit, reserve: reserve, release: release}
}

// Fits tells whether a record with the given bytes and number of column values has room in what is left.
func (b *Batch) Fits(bytes, values int) bool {
	return b.used+bytes+recordBytes+values*valueBytes <= b.limit+b.extra
}

// Reserve makes room for one record larger than the batch, waiting until the queue's bound allows it: at the
// utmost until every other batch is free. The batch must be empty.
func (b *Batch) Reserve(ctx context.Context, bytes, values int) error {
	if len(b.Records) > 0 {
		panic("record: Reserve on a batch that holds records")
	}
	need := b.used + bytes + recordBytes + values*valueBytes - b.limit - b.extra
	if need <= 0 {
		return nil
	}
	if b.reserve != nil {
		if err := b.reserve(ctx, need); err != nil {
			return err
		}
	}
	b.extra += need
	return nil
}

// Add appends an empty record and returns it. The pointer is valid until the next Add.
func (b *Batch) Add() *Record {
	b.used += recordBytes
	b.Records = append(b.Records, Record{})
	return &b.Records[len(b.Records)-1]
}

// Alloc takes n bytes of the arena. What was taken before does not move.
func (b *Batch) Alloc(n int) []byte {
	b.used += n
	if len(b.blocks) == 0 {
		b.blocks = append(b.blocks, make([]byte, 0, max(b.limit, n)))
	}
	last := &b.blocks[len(b.blocks)-1]
	if cap(*last)-len(*last) < n {
		b.blocks = append(b.blocks, make([]byte, 0, max(n, 4096)))
		last = &b.blocks[len(b.blocks)-1]
	}
	off := len(*last)
	*last = (*last)[:off+n]
	return (*last)[off : off+n : off+n]
}

// Copy puts p into the arena.
func (b *Batch) Copy(p []byte) []byte {
	q := b.Alloc(len(p))
	copy(q, p)
	return q
}

// Values takes n values, all Absent.
func (b *Batch) Values(n int) []Value {
	b.used += n * valueBytes
	if cap(b.values)-len(b.values) < n {
		b.values = make([]Value, 0, max(2*cap(b.values), n, 256))
	}
	off := len(b.values)
	b.values = b.values[:off+n]
	v := b.values[off : off+n : off+n]
	clear(v)
	return v
}

// Bytes is what the batch holds, as --queue-bytes counts it.
func (b *Batch) Bytes() int { return b.used }

// Limit is how much the batch holds without Reserve.
func (b *Batch) Limit() int { return b.limit }

// Reset empties the batch for its next use and gives back what Reserve took.
func (b *Batch) Reset() {
	clear(b.Records) // drop references to tables
	b.Records = b.Records[:0]
	b.Token = nil
	b.used = 0
	b.values = b.values[:0]
	if len(b.blocks) > 0 {
		clear(b.blocks[1:])
		b.blocks = b.blocks[:1]
		if cap(b.blocks[0]) > b.limit {
			b.blocks = b.blocks[:0]
		} else {
			b.blocks[0] = b.blocks[0][:0]
		}
	}
	if b.extra > 0 {
		if b.release != nil {
			b.release(b.extra)
		}
		b.extra = 0
	}
}
