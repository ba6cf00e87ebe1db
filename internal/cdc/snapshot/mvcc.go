package snapshot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Snap is what pg_current_snapshot() says: which transactions a query sees.
type Snap struct {
	Xmin, Xmax uint64   // below Xmin all have ended, from Xmax on none had begun
	InProgress []uint64 // between them, ascending
}

// ParseSnap reads PostgreSQL's text form: xmin:xmax:xip,xip.
func ParseSnap(s string) (Snap, error) {
	var p Snap
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return p, fmt.Errorf("parse snapshot %q: want xmin:xmax:xip", s)
	}
	var err1, err2 error
	p.Xmin, err1 = strconv.ParseUint(parts[0], 10, 64)
	p.Xmax, err2 = strconv.ParseUint(parts[1], 10, 64)
	if err1 != nil || err2 != nil {
		return p, fmt.Errorf("parse snapshot %q: xmin and xmax have to be numbers", s)
	}
	for x := range strings.SplitSeq(parts[2], ",") {
		if x == "" {
			continue
		}
		v, err := strconv.ParseUint(x, 10, 64)
		if err != nil {
			return p, fmt.Errorf("parse snapshot %q: transaction %q is no number", s, x)
		}
		p.InProgress = append(p.InProgress, v)
	}
	slices.Sort(p.InProgress)
	return p, nil
}

// String is PostgreSQL's text form.
func (s Snap) String() string {
	b := fmt.Appendf(nil, "%d:%d:", s.Xmin, s.Xmax)
	for i, x := range s.InProgress {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, x, 10)
	}
	return string(b)
}

// full completes the 32 bits of a transaction id that replication gives: of the two that are nearest to the snapshot, the
// nearer one.
func (s Snap) full(xid uint32) uint64 {
	v := s.Xmax&^0xffffffff | uint64(xid)
	switch {
	case v > s.Xmax && v-s.Xmax > 1<<31 && v >= 1<<32:
		return v - 1<<32
	case v < s.Xmax && s.Xmax-v > 1<<31:
		return v + 1<<32
	}
	return v
}

// Sees tells whether the snapshot sees a transaction that has committed by now.
func (s Snap) Sees(xid uint32) bool {
	x := s.full(xid)
	if x < s.Xmin {
		return true
	}
	if x >= s.Xmax {
		return false
	}
	_, running := slices.BinarySearch(s.InProgress, x)
	return !running
}

// Decoded remembers which transactions were read from the log, in a bit each, as long as a snapshot could call them
// unfinished.
type Decoded struct {
	blocks map[uint32]*[1024]uint64 // by the upper 16 bits
}

// Add notes a transaction.
func (d *Decoded) Add(xid uint32) {
	if d.blocks == nil {
		d.blocks = map[uint32]*[1024]uint64{}
	}
	b := d.blocks[xid>>16]
	if b == nil {
		b = new([1024]uint64)
		d.blocks[xid>>16] = b
	}
	b[xid&0xffff>>6] |= 1 << (xid & 63)
}

// Has tells whether the transaction was noted.
func (d *Decoded) Has(xid uint32) bool {
	b := d.blocks[xid>>16]
	return b != nil && b[xid&0xffff>>6]&(1<<(xid&63)) != 0
}

// Forget drops what every later snapshot sees.
func (d *Decoded) Forget(s Snap) {
	for hi := range d.blocks {
		if s.full(hi<<16|0xffff) < s.Xmin {
			delete(d.blocks, hi)
		}
	}
}
