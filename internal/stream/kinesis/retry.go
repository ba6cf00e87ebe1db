package kinesis

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// group is a part of a request that failed and waits to be sent again, as the bytes that were sent before.
type group struct {
	due     time.Time
	entries []entry
	bytes   int // data and keys
}

func (g *group) fits(q *request, o SinkOptions) bool {
	return len(q.entries) == 0 || len(q.entries)+len(g.entries) <= o.RequestRecords && q.bytes+g.bytes <= o.RequestBytes
}

type retryHeap []*group

func (h retryHeap) Len() int           { return len(h) }
func (h retryHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h retryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *retryHeap) Push(x any)        { *h = append(*h, x.(*group)) }
func (h *retryHeap) Pop() any {
	old := *h
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return g
}

// takeRetry moves the group that is due first into q.
func (s *Sink) takeRetry(q *request) {
	g := heap.Pop(&s.retries).(*group)
	q.entries = append(q.entries, g.entries...)
	q.bytes += g.bytes
	s.held -= g.bytes
}

// newGroup copies failed entries: what they were sent from is used for the next request.
func (s *Sink) newGroup(failed []entry) *group {
	g := &group{entries: make([]entry, len(failed))}
	n := 0
	for i := range failed {
		n += len(failed[i].data)
	}
	data := make([]byte, 0, n)
	tries := 0
	for i := range failed {
		e := failed[i]
		from := len(data)
		data = append(data, e.data...)
		e.data = data[from:len(data):len(data)]
		e.tries++
		tries = max(tries, e.tries)
		g.bytes += e.size()
		g.entries[i] = e
	}
	g.due = time.Now().Add(s.pause(tries))
	return g
}

// pause before the next try: doubled each time, half of it at random, so that senders refused together come back apart.
func (s *Sink) pause(tries int) time.Duration {
	p := min(s.opt.RetryMin<<min(tries-1, 20), s.opt.RetryMax)
	return p/2 + rand.N(p/2+1)
}
