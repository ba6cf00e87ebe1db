package kinesis

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"

	"synctl/internal/stream"
)

// load counts what was published, by shard and by key, and says when shards throttle. It has its own lock.
type load struct {
	mu     sync.Mutex
	total  stream.Summary
	shards map[string]*shardLoad
	sketch *stream.Sketch
	lows   stream.Ranges // of the open shards, for entries that were refused: the service does not say by which shard
	ids    []string      // of the open shards, as lows
	since  time.Time     // the start of the figures that the next report gives
	warned bool          // a report had something to say
	failed int64         // entries that failed since, but for those that a shard's rate refused
	cause  error         // of the last of these
}

type shardLoad struct {
	stream.ShardLoad
	entries                int64     // stream records: what the shard's rate counts
	room                   time.Time // when the shard has room for what it refused, as far as that is planned
	sent, bytes, throttled int64     // entries, bytes and refusals at the last report
}

const (
	hotKeys = 10

	// What a shard takes in a second.
	shardRecords = 1000
	shardBytes   = 1 << 20
)

func (l *load) begin(shards []stream.Shard, now time.Time) {
	l.shards, l.sketch, l.since = map[string]*shardLoad{}, stream.NewSketch(0), now
	l.remap(shards)
}

// remap takes a fresh list of the stream's shards.
func (l *load) remap(shards []stream.Shard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := slices.DeleteFunc(slices.Clone(shards), func(s stream.Shard) bool { return !s.Open })
	slices.SortFunc(open, func(a, b stream.Shard) int { return a.HashLow.Cmp(b.HashLow) })
	l.lows, l.ids = nil, nil
	for _, sh := range open {
		l.lows, l.ids = append(l.lows, stream.HashOf(sh.HashLow)), append(l.ids, sh.ID)
		l.shard(sh.ID)
	}
}

func (l *load) shard(id string) *shardLoad {
	sh := l.shards[id]
	if sh == nil {
		sh = &shardLoad{ShardLoad: stream.ShardLoad{ID: strings.Clone(id)}}
		l.shards[sh.ID] = sh
	}
	return sh
}

// sent and returned count entries in flight.
func (l *load) sent(n int) {
	l.mu.Lock()
	l.total.InFlight += int64(n)
	l.mu.Unlock()
}

func (l *load) returned(n int) {
	l.mu.Lock()
	l.total.InFlight -= int64(n)
	l.mu.Unlock()
}

func (l *load) deadLetter() {
	l.mu.Lock()
	l.total.DeadLetters++
	l.mu.Unlock()
}

// stored counts an entry that a shard took. The lock is held.
func (l *load) stored(e *entry, shard string) {
	n, size := int64(e.records), int64(e.size())
	l.total.Records += n
	l.total.Entries++
	l.total.Bytes += size
	sh := l.shard(shard)
	sh.Records += n
	sh.entries++
	sh.Bytes += size
	name := []byte(e.key.name)
	l.sketch.Add(name, stream.HashKey(name), n, size)
}

// refused counts an entry that was not taken and will be sent again. The lock is held.
func (l *load) refused(e *entry, errorCode string) {
	l.total.Retries++
	if errorCode != "ProvisionedThroughputExceededException" {
		l.failed++
		l.cause = fmt.Errorf("PutRecords refused an entry: %s", errorCode)
		return
	}
	l.total.Throttled++
	h := stream.HashKey([]byte(e.key.name))
	if e.shard != "" {
		if n, ok := new(big.Int).SetString(e.shard, 10); ok {
			h = stream.HashOf(n)
		}
	}
	if len(l.lows) > 0 {
		sh := l.shard(l.ids[l.lows.Find(h)])
		sh.Throttled++
		e.refusedBy = sh.ID
	}
}

// requestFailed counts the entries of a request that got no answer, or an error for all of them.
func (l *load) requestFailed(entries int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total.Retries += int64(entries)
	l.failed += int64(entries)
	l.cause = err
	if throttle(err) {
		l.total.Throttled += int64(entries)
	}
}

// report warns, once in ReportEvery and soon the first time, of shards that throttle and of requests that fail. It is
// called after every request, so that its figures are of that time alone; last is for what is left at the end.
func (l *load) report(log *slog.Logger, o SinkOptions, s Options, now time.Time, last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	span := now.Sub(l.since)
	if !last && span < o.ReportEvery && (l.warned || span < min(time.Second, o.ReportEvery)) {
		return
	}
	busy := l.throttling(span)
	if l.failed == 0 && len(busy) == 0 && span < o.ReportEvery {
		return
	}
	if l.failed > 0 {
		l.warned = true
		log.Warn("records could not be stored and are sent again", "stream", s.Name,
			"tries", l.failed, "in", span.Round(time.Millisecond), "last_error", l.cause)
	}
	if len(busy) > 0 {
		const most = 8
		l.warned = true
		log.Warn("shards throttle and publishing waits for them: a shard takes 1000 records/s and 1 MiB/s; split it, or look for a hot key",
			"stream", s.Name, "throttling", len(busy), "shards", busy[:min(most, len(busy))])
	}
	for _, sh := range l.shards {
		sh.sent, sh.bytes, sh.throttled = sh.entries, sh.Bytes, sh.Throttled
	}
	l.failed, l.cause, l.since = 0, nil, now
}

// throttling describes the shards that refused entries since the last report, and the load that they took. The lock is held.
func (l *load) throttling(span time.Duration) (busy []string) {
	secs := max(span.Seconds(), 0.001)
	for _, sh := range l.sorted() {
		if d := sh.Throttled - sh.throttled; d > 0 {
			busy = append(busy, fmt.Sprintf("%s: %.0f refused/s at %.0f records/s and %.2f MiB/s", sh.ID, float64(d)/secs,
				float64(sh.entries-sh.sent)/secs, float64(sh.Bytes-sh.bytes)/secs/(1<<20)))
		}
	}
	return busy
}

func (l *load) sorted() []*shardLoad {
	list := make([]*shardLoad, 0, len(l.shards))
	for _, sh := range l.shards {
		list = append(list, sh)
	}
	slices.SortFunc(list, func(a, b *shardLoad) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (l *load) summary() stream.Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.total
	for _, sh := range l.sorted() {
		t.Shards = append(t.Shards, sh.ShardLoad)
	}
	t.HotKeys = l.sketch.Top(hotKeys)
	return t
}
