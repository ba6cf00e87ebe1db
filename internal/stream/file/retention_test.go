package file

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

func TestRetentionByBytes(t *testing.T) {
	dir := newStream(t, Options{Shards: 2, SegmentBytes: 2000, RetentionBytes: 12_000})
	s := openSink(t, dir, SinkOptions{})
	for i := range 100 {
		put(t, s, rowLine(i, 400))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	shards, err := st.Shards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bytes := int64(0)
	for i, sh := range shards {
		bytes += sh.Bytes
		recs := readAll(t, dir, i, stream.Position{})
		if int64(len(recs)) != sh.Records || recs[0].Sequence != sh.Oldest || recs[len(recs)-1].Sequence != sh.Newest {
			t.Errorf("shard %d: %d records read, described as %+v", i, len(recs), sh)
		}
	}
	// At most one segment's worth beyond the bound: what was written since a segment was last full.
	if bytes > 12_000+2*2500 || bytes < 6_000 {
		t.Errorf("%d bytes are kept, the bound is 12000", bytes)
	}
}

func TestRetentionByTime(t *testing.T) {
	var now atomic.Int64 // the committer asks for the time, too
	now.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixNano())
	clock := func() time.Time { return time.Unix(0, now.Load()) }
	dir := newStream(t, Options{Retention: time.Hour})
	s := openSink(t, dir, SinkOptions{Now: clock})
	for i := range 10 {
		now.Add(int64(20 * time.Minute)) // more than a quarter of the retention: a segment each
		put(t, s, rowLine(i, 300))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	recs := readAll(t, dir, 0, stream.Position{})
	if len(recs) != 4 { // 0, 20, 40 and 60 minutes old
		t.Fatalf("%d records are kept, want 4", len(recs))
	}
	// The next writer removes what has become too old meanwhile, but never the last segment.
	now.Add(int64(24 * time.Hour))
	openSink(t, dir, SinkOptions{Now: clock})
	if recs := readAll(t, dir, 0, stream.Position{}); len(recs) != 1 {
		t.Fatalf("a day later %d records are kept, want the last segment's", len(recs))
	}
}

// A reader is in the middle of a segment when that and the ones after it are removed: it reads its own to the end and
// is then told; it never goes on behind the hole.
func TestReaderOfATrimmedSegmentNeverSkips(t *testing.T) {
	dir := newStream(t, Options{SegmentBytes: 2000})
	s := openSink(t, dir, SinkOptions{})
	for i := range 40 {
		put(t, s, rowLine(i, 400))
	}
	st, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.Open(t.Context(), shardID(0), stream.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := r.Next(t.Context())
	if err != nil || len(p.Records) == 0 {
		t.Fatal(err)
	}
	got := len(p.Records)
	before := segments(t, dir, 0)
	trimmed, err := st.Trim(t.Context(), stream.Position{Kind: stream.AtTime, Time: time.Now().Add(time.Hour)})
	if err != nil || trimmed.Segments != len(before)-1 || len(segments(t, dir, 0)) != 1 {
		t.Fatalf("trimmed %+v of %d segments, %v", trimmed, len(before), err)
	}
	if left := readAll(t, dir, 0, stream.Position{}); int64(len(left))+trimmed.Records != 40 {
		t.Errorf("%d records trimmed, %d left, of 40", trimmed.Records, len(left))
	}
	for {
		p, err := r.Next(t.Context())
		if err != nil {
			if !errors.Is(err, stream.ErrTrimmed) || fault.HintOf(err) == "" {
				t.Fatal(err)
			}
			break
		}
		if got += len(p.Records); p.AtTip || got > 20 {
			t.Fatalf("the reader went on over the hole, %d records", got)
		}
	}
}

func TestTrimBeforeASequenceIsOfItsShard(t *testing.T) {
	dir := newStream(t, Options{Shards: 2, SegmentBytes: 1000})
	s := openSink(t, dir, SinkOptions{})
	for i := range 40 {
		put(t, s, rowLine(i, 400))
	}
	recs := readAll(t, dir, 1, stream.Position{})
	other := len(readAll(t, dir, 0, stream.Position{}))
	st, _ := Open(dir)
	at := recs[len(recs)/2].Sequence
	if _, err := st.Trim(t.Context(), stream.Position{Kind: stream.AtSequence, Sequence: at}); err != nil {
		t.Fatal(err)
	}
	left := readAll(t, dir, 1, stream.Position{})
	if left[0].Sequence > at || len(left) == len(recs) {
		t.Errorf("trimming before %s left %d of %d, from %s", at, len(left), len(recs), left[0].Sequence)
	}
	if n := len(readAll(t, dir, 0, stream.Position{})); n != other {
		t.Errorf("the other shard went from %d to %d records", other, n)
	}
}

// The system's clock may go back; arrived_at does not, in a shard, also over a restart.
func TestArrivalNeverGoesBack(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	dir := newStream(t, Options{})
	for i := range 3 {
		s := openSink(t, dir, SinkOptions{Now: clock})
		put(t, s, rowLine(i, 300))
		now = now.Add(-time.Hour)
		put(t, s, rowLine(i+10, 300))
		s.Close()
	}
	recs := readAll(t, dir, 0, stream.Position{})
	for i, r := range recs[1:] {
		if r.ArrivedAt.Before(recs[i].ArrivedAt) {
			t.Fatalf("record %d arrived at %v, the one before at %v", i+1, r.ArrivedAt, recs[i].ArrivedAt)
		}
	}
}

// Positions by time and sequence in a segment of many probes, with a line that spans several of them.
func TestPositionsInALargeSegment(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	dir := newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{Now: func() time.Time { return now }})
	for i := range 300 {
		n := 300 + i*7%900
		if i%50 == 20 {
			n = 5 * probeBytes
		}
		put(t, s, rowLine(i, n))
		now = now.Add(time.Second)
	}
	all := readAll(t, dir, 0, stream.Position{})
	for i, r := range all {
		for _, at := range []stream.Position{{Kind: stream.AtSequence, Sequence: r.Sequence}, {Kind: stream.AtTime, Time: r.ArrivedAt},
			{Kind: stream.AtTime, Time: r.ArrivedAt.Add(-time.Millisecond)}} {
			if got := readAll(t, dir, 0, at); len(got) != len(all)-i || got[0].Sequence != r.Sequence {
				t.Fatalf("from record %d by %+v: %d records, want %d", i, at, len(got), len(all)-i)
			}
		}
	}
	if names := segments(t, dir, 0); len(names) != 1 {
		t.Fatalf("the records are in %d segments, one was meant to be searched", len(names))
	}
}
