package stream

import (
	"container/heap"
	"sort"
)

// Sketch finds the partition keys that get the most records, in memory that does not grow with the number of keys
// (promise 4). It counts a fixed number of keys; a key that is not among them takes the place of the one with the
// fewest records and inherits that count as its possible error ("space-saving"). So a key with more than 1/size of
// all records is always among them. Not safe for concurrent use.
type Sketch struct {
	size  int
	index map[uint64]*counter
	order counterHeap // the key with the fewest records first
}

type counter struct {
	key                []byte
	hash               uint64
	records, bytes     int64
	errRecords, errBts int64 // what was inherited: the key itself has at least records-errRecords
	at                 int   // in order
}

// NewSketch counts at most size keys; 0 means 256.
func NewSketch(size int) *Sketch {
	if size <= 0 {
		size = 256
	}
	return &Sketch{size: size, index: make(map[uint64]*counter, size)}
}

// Add counts records of a key. Keys are told apart by the upper half of their hash; it must be HashKey(key).
func (s *Sketch) Add(key []byte, h Hash, records, bytes int64) {
	if c := s.index[h.Hi]; c != nil {
		c.records += records
		c.bytes += bytes
		heap.Fix(&s.order, c.at)
		return
	}
	if len(s.order) < s.size {
		c := &counter{key: append([]byte(nil), key...), hash: h.Hi, records: records, bytes: bytes}
		s.index[h.Hi] = c
		heap.Push(&s.order, c)
		return
	}
	c := s.order[0]
	delete(s.index, c.hash)
	s.index[h.Hi] = c
	c.hash = h.Hi
	c.key = append(c.key[:0], key...)
	c.errRecords, c.errBts = c.records, c.bytes
	c.records += records
	c.bytes += bytes
	heap.Fix(&s.order, 0)
}

// Top lists at most n keys, hottest first, with the records and bytes that they had at least. Keys of which a single
// record is certain are left out: among many even keys they would be there by chance.
func (s *Sketch) Top(n int) []KeyLoad {
	var loads []KeyLoad
	for _, c := range s.order {
		if r := c.records - c.errRecords; r > 1 {
			loads = append(loads, KeyLoad{PartitionKey: string(c.key), Records: r, Bytes: c.bytes - c.errBts})
		}
	}
	sort.Slice(loads, func(i, j int) bool {
		if loads[i].Records != loads[j].Records {
			return loads[i].Records > loads[j].Records
		}
		return loads[i].PartitionKey < loads[j].PartitionKey
	})
	return loads[:min(n, len(loads))]
}

type counterHeap []*counter

func (h counterHeap) Len() int           { return len(h) }
func (h counterHeap) Less(i, j int) bool { return h[i].records < h[j].records }
func (h counterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *counterHeap) Push(x any) {
	c := x.(*counter)
	c.at = len(*h)
	*h = append(*h, c)
}
func (h *counterHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}
