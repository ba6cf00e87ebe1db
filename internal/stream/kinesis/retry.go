package kinesis

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"strings"
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

// spread is how much of a throttled shard's rate one group takes: groups are the grain of pacing.
const spread = 50 * time.Millisecond

// groups puts failed entries aside for their next try: those that a shard's rate refused when that shard has room for
// them, the others after a pause that grows.
func (s *Sink) groups(failed []entry) []*group {
	now := time.Now()
	slices.SortStableFunc(failed, func(a, b entry) int { return strings.Compare(a.refusedBy, b.refusedBy) })
	var list []*group
	for len(failed) > 0 {
		n, due := 0, time.Time{}
		if shard := failed[0].refusedBy; shard == "" {
			tries := 0
			for n < len(failed) && failed[n].refusedBy == "" {
				tries = max(tries, failed[n].tries)
				n++
			}
			due = now.Add(s.pause(tries + 1))
		} else {
			n, due = s.load.reserve(failed, shard, now.Add(s.pause(1)))
		}
		list = append(list, newGroup(failed[:n], due))
		failed = failed[n:]
	}
	return list
}

// reserve finds when a shard that throttles has room for the first entries of those that it refused, and how many these
// are. Without it they would all come back at once, most to be refused again, while between tries the shard idles.
func (l *load) reserve(refused []entry, shard string, earliest time.Time) (n int, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sh := l.shard(shard)
	if sh.room.Before(earliest) {
		sh.room = earliest
	}
	start := sh.room
	for n < len(refused) && refused[n].refusedBy == shard && sh.room.Sub(start) < spread {
		cost := max(time.Second/shardRecords, time.Duration(refused[n].size())*time.Second/shardBytes)
		sh.room = sh.room.Add(cost)
		n++
	}
	return n, sh.room
}

// newGroup copies entries: what they were sent from is used for the next request.
func newGroup(failed []entry, due time.Time) *group {
	g := &group{entries: make([]entry, len(failed)), due: due}
	n := 0
	for i := range failed {
		n += len(failed[i].data)
	}
	data := make([]byte, 0, n)
	for i := range failed {
		e := failed[i]
		from := len(data)
		data = append(data, e.data...)
		e.data = data[from:len(data):len(data)]
		e.tries++
		e.refusedBy = ""
		g.bytes += e.size()
		g.entries[i] = e
	}
	return g
}

// pause before the next try: doubled each time, half of it at random, so that senders refused together come back apart.
func (s *Sink) pause(tries int) time.Duration {
	p := min(s.opt.RetryMin<<min(tries-1, 20), s.opt.RetryMax)
	return p/2 + rand.N(p/2+1)
}
