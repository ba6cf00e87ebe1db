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

	blocks  [][]byte // the arena, in blocks of blockBytes; those before blocks[block] are full, those after it empty
	block   int
	large   [][]byte // memory of single large values, and what was adopted; dropped when the batch is reset
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

// blockBytes is the size of the arena's blocks: small beside the batch, so that memory follows what is used, whether that is
// bytes, values or records.
func (b *Batch) blockBytes() int { return min(max(b.limit/8, 4<<10), 256<<10) }

// Alloc takes n bytes of the arena. What was taken before does not move.
func (b *Batch) Alloc(n int) []byte {
	b.used += n
	size := b.blockBytes()
	if n > size/4 { // in a block it could leave much of the one before unused
		p := make([]byte, n)
		b.large = append(b.large, p)
		return p
	}
	if b.block < len(b.blocks) && cap(b.blocks[b.block])-len(b.blocks[b.block]) < n {
		b.block++
	}
	if b.block == len(b.blocks) {
		b.blocks = append(b.blocks, make([]byte, 0, size))
	}
	p := &b.blocks[b.block]
	off := len(*p)
	*p = (*p)[:off+n]
	return (*p)[off : off+n : off+n]
}

// Copy puts p into the arena.
func (b *Batch) Copy(p []byte) []byte {
	q := b.Alloc(len(p))
	copy(q, p)
	return q
}

// Adopt makes p, with all of its capacity, part of the batch's memory until the batch is reset. It spares the copy of a
// record that was read into memory of its own; Reserve comes first.
func (b *Batch) Adopt(p []byte) {
	b.used += cap(p)
	b.large = append(b.large, p)
}

// Values takes n values, all Absent.
func (b *Batch) Values(n int) []Value {
	b.used += n * valueBytes
	if cap(b.values)-len(b.values) < n {
		b.values = make([]Value, 0, max(min(2*cap(b.values), b.limit/valueBytes), n, 256))
	}
	off := len(b.values)
	b.values = b.values[:off+n]
	return b.values[off : off+n : off+n] // Reset has cleared them
}

// Bytes is what the batch holds, as --queue-bytes counts it.
func (b *Batch) Bytes() int { return b.used }

// Limit is how much the batch holds without Reserve.
func (b *Batch) Limit() int { return b.limit }

// Reset empties the batch for its next use and gives back what Reserve took. The memory is kept for that use, but
// no more than twice the limit: batches of many values and batches of long ones would add up.
func (b *Batch) Reset() {
	clear(b.Records) // drop references to tables
	b.Records = b.Records[:0]
	b.Token = nil
	b.used, b.block = 0, 0
	clear(b.values) // and to large blocks; what lies beyond its length is clear already
	b.values = b.values[:0]
	clear(b.large)
	b.large = b.large[:0]
	for i := range b.blocks {
		b.blocks[i] = b.blocks[i][:0]
	}
	if b.held() > 2*b.limit {
		b.Records, b.values, b.blocks, b.large = nil, nil, nil, nil
	}
	if b.extra > 0 {
		if b.release != nil {
			b.release(b.extra)
		}
		b.extra = 0
	}
}

// held is the memory that an empty batch keeps.
func (b *Batch) held() int {
	return cap(b.Records)*recordBytes + cap(b.values)*valueBytes + len(b.blocks)*b.blockBytes()
}
