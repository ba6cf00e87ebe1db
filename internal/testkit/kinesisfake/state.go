package kinesisfake

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"time"
)

// Record is one stored stream record.
type Record struct {
	Sequence     string
	PartitionKey string
	Data         []byte
	ArrivedAt    time.Time
}

type stored struct {
	counter uint64
	arrived time.Time
	key     string
	data    []byte
}

type shard struct {
	number        int
	parents       []int
	low, top      hash
	created       int64
	first         uint64 // the counter's value when the shard was made
	closedAt      time.Time
	closedCounter uint64 // 0: open
	records       []stored
	trimmed       int // records that are gone from the front, ever

	rate  bucket // writes
	reads readWindow
	put   int64 // records and bytes ever stored, also when they are discarded
	bytes int64
}

func (sh *shard) id() string { return fmt.Sprintf("shardId-%012d", sh.number) }

type streamState struct {
	name        string
	createdAt   time.Time
	activeAt    time.Time
	deletedAt   time.Time // zero: not being deleted
	hours       int
	maxKiB      int
	onDemand    bool
	auto        bool
	shards      []*shard
	open        []*shard // by hash range
	counter     uint64
	incarnation int64
}

func (s *Server) newStream(name string, shards, maxKiB int, onDemand, auto bool) *streamState {
	now := s.now()
	st := &streamState{name: name, createdAt: now, activeAt: now.Add(s.opt.CreateDelay), hours: 24, maxKiB: maxKiB,
		onDemand: onDemand, auto: auto, counter: 1, incarnation: now.UnixNano()}
	width := new(big.Int).Lsh(big.NewInt(1), 128)
	for i := range shards {
		low := new(big.Int).Div(new(big.Int).Mul(width, big.NewInt(int64(i))), big.NewInt(int64(shards)))
		top := new(big.Int).Div(new(big.Int).Mul(width, big.NewInt(int64(i+1))), big.NewInt(int64(shards)))
		top.Sub(top, big.NewInt(1))
		st.addShard(now, hashOf(low), hashOf(top))
	}
	return st
}

func (st *streamState) addShard(now time.Time, low, top hash, parents ...int) *shard {
	sh := &shard{number: len(st.shards), parents: parents, low: low, top: top, created: now.Unix(), first: st.counter}
	for _, p := range parents {
		sh.created = max(sh.created, st.shards[p].created)
	}
	st.shards = append(st.shards, sh)
	st.open = append(st.open, sh)
	sort.Slice(st.open, func(i, j int) bool { return st.open[i].low.less(st.open[j].low) })
	return sh
}

func (st *streamState) close(sh *shard, now time.Time) {
	sh.closedAt = now
	sh.closedCounter = st.counter
	st.counter++
	for i, o := range st.open {
		if o == sh {
			st.open = append(st.open[:i:i], st.open[i+1:]...)
			return
		}
	}
}

// route finds the open shard that holds h.
func (st *streamState) route(h hash) *shard {
	i := sort.Search(len(st.open), func(i int) bool { return !st.open[i].top.less(h) })
	return st.open[i]
}

func (st *streamState) status(now time.Time) string {
	switch {
	case !st.deletedAt.IsZero():
		return "DELETING"
	case now.Before(st.activeAt):
		return "CREATING"
	}
	return "ACTIVE"
}

func (st *streamState) find(id string) *shard {
	for _, sh := range st.shards {
		if sh.id() == id {
			return sh
		}
	}
	return nil
}

// expire drops what retention no longer covers.
func (st *streamState) expire(sh *shard, now time.Time) {
	horizon := now.Add(-time.Duration(st.hours) * time.Hour)
	n := sort.Search(len(sh.records), func(i int) bool { return !sh.records[i].arrived.Before(horizon) })
	sh.drop(n)
}

func (sh *shard) drop(n int) {
	clear(sh.records[:n])
	sh.records = sh.records[n:]
	sh.trimmed += n
}

// listed tells whether a shard is still named: a closed one goes when its last record would have expired.
func (st *streamState) listed(sh *shard, now time.Time) bool {
	return sh.closedCounter == 0 || now.Before(sh.closedAt.Add(time.Duration(st.hours)*time.Hour))
}

func (st *streamState) sequence(sh *shard, counter uint64, at time.Time) sequence {
	return sequence{created: sh.created, counter: counter, arrived: at.Unix(), shard: sh.number}
}

// hash is a 128-bit number.
type hash struct{ hi, lo uint64 }

func (h hash) less(o hash) bool { return h.hi < o.hi || h.hi == o.hi && h.lo < o.lo }

func (h hash) int() *big.Int {
	n := new(big.Int).SetUint64(h.hi)
	return n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(h.lo))
}

func (h hash) String() string { return h.int().String() }

func hashOf(n *big.Int) hash {
	lo := new(big.Int).And(n, new(big.Int).SetUint64(math.MaxUint64))
	return hash{new(big.Int).Rsh(n, 64).Uint64(), lo.Uint64()}
}

func parseHash(s string) (hash, bool) {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.Sign() < 0 || n.BitLen() > 128 || s[0] == '+' {
		return hash{}, false
	}
	return hashOf(n), true
}

// bucket is a shard's write limit: 1000 records and 1 MiB a second, with a second's burst.
type bucket struct {
	at             time.Time
	records, bytes float64
}

func (b *bucket) take(now time.Time, bytes int) bool {
	const records, size = 1000, 1 << 20
	if b.at.IsZero() {
		b.records, b.bytes = records, size
	} else {
		d := now.Sub(b.at).Seconds()
		b.records, b.bytes = min(records, b.records+d*records), min(size, b.bytes+d*size)
	}
	b.at = now
	// A record larger than a second's allowance passes on a full bucket and leaves a debt.
	if b.records < 1 || b.bytes < float64(bytes) && b.bytes < size {
		return false
	}
	b.records--
	b.bytes -= float64(bytes)
	return true
}

// readWindow is a shard's read limit: 5 calls in a second.
type readWindow struct {
	at [5]time.Time
	i  int
}

func (w *readWindow) take(now time.Time) bool {
	if oldest := w.at[w.i]; !oldest.IsZero() && now.Sub(oldest) < time.Second {
		return false
	}
	w.at[w.i] = now
	w.i = (w.i + 1) % len(w.at)
	return true
}
