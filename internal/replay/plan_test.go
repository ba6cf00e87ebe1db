package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"synctl/internal/fault"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/sink"
	"synctl/internal/stream"
)

// memory is a stream in memory whose shards can be split and merged, as Kinesis's can.
type memory struct {
	mu     sync.Mutex
	shards []*memoryShard
	opened []string // shards in the order in which they were opened
}

type memoryShard struct {
	stream.Shard
	records []stream.Record
	trimmed int // records gone from the front
}

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func (m *memory) add(id string, open bool, parents ...string) *memoryShard {
	s := &memoryShard{Shard: stream.Shard{ID: id, Parents: parents, Open: open, Records: -1}}
	m.shards = append(m.shards, s)
	return s
}

// put appends records with these sequence numbers, one second apart by number.
func (s *memoryShard) put(data func(seq int) string, seqs ...int) *memoryShard {
	for _, n := range seqs {
		s.records = append(s.records, stream.Record{Sequence: strconv.Itoa(n), PartitionKey: []byte("k"), ArrivedAt: epoch.Add(time.Duration(n) * time.Second), Data: []byte(data(n))})
	}
	return s
}

func (m *memory) Name() string { return "mem" }
func (m *memory) Close() error { return nil }
func (m *memory) Describe(context.Context) (stream.Description, error) {
	return stream.Description{Name: "mem"}, nil
}

func (m *memory) Shards(context.Context) ([]stream.Shard, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []stream.Shard
	for _, s := range m.shards {
		out = append(out, s.Shard)
	}
	return out, nil
}

func (m *memory) Open(_ context.Context, id string, at stream.Position) (stream.Reader, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.shards, func(s *memoryShard) bool { return s.ID == id })
	if i < 0 {
		return nil, stream.NoShard("mem", id)
	}
	m.opened = append(m.opened, id)
	s := m.shards[i]
	r := &memoryReader{m: m, s: s, next: s.trimmed}
	switch at.Kind {
	case stream.Latest:
		r.next = len(s.records)
	case stream.AtTime:
		for r.next < len(s.records) && s.records[r.next].ArrivedAt.Before(at.Time) {
			r.next++
		}
	case stream.AtSequence, stream.AfterSequence:
		r.next = slices.IndexFunc(s.records, func(x stream.Record) bool { return x.Sequence == at.Sequence })
		if r.next < 0 {
			return nil, stream.Foreign("mem", id, at.Sequence, "it is not there")
		}
		if at.Kind == stream.AfterSequence {
			r.next++
		}
		if r.next < s.trimmed {
			return nil, stream.Trimmed("mem", id, at.Sequence, "")
		}
	}
	return r, nil
}

type memoryReader struct {
	m    *memory
	s    *memoryShard
	next int
	tip  bool
}

func (r *memoryReader) Close() error { return nil }

func (r *memoryReader) Next(ctx context.Context) (*stream.Page, error) {
	for {
		r.m.mu.Lock()
		n := min(len(r.s.records)-r.next, 2)
		p := &stream.Page{Records: r.s.records[r.next : r.next+n]}
		r.next += n
		left := len(r.s.records) - r.next
		// As in Kinesis, the tip of a closed shard can be seen before its end.
		p.AtTip = left == 0
		p.Closed = left == 0 && !r.s.Shard.Open && (n == 0 || len(r.s.records)%2 == 0)
		if left > 0 {
			p.Behind = r.s.records[len(r.s.records)-1].ArrivedAt.Sub(p.Records[n-1].ArrivedAt)
		}
		r.m.mu.Unlock()
		if n > 0 || p.Closed || p.AtTip && !r.tip {
			r.tip = p.AtTip
			return p, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// ours is a record of op read, whose key is its sequence number.
func oursLine(n int) string {
	return fmt.Sprintf(`{"v":1,"id":"r.%d","op":"read","schema":"public","table":"t%d","key":{"id":%d},"after":{"id":%d}}`+"\n", n, n%2, n, n)
}

// collector is a sink that remembers what came, in order.
type collector struct {
	mu   sync.Mutex
	got  []string // shard:sequence/line
	data []string
	wait time.Duration
}

func (c *collector) Write(_ context.Context, b *record.Batch, done func(error)) error {
	time.Sleep(c.wait)
	c.mu.Lock()
	for i := range b.Records {
		r := &b.Records[i]
		c.got = append(c.got, fmt.Sprintf("%s:%s/%d", r.Stream.Shard, r.Stream.Sequence, r.StreamLine))
		c.data = append(c.data, string(r.AppendID(nil))+" "+string(r.Line.Get(r.Line.Data)))
	}
	c.mu.Unlock()
	done(nil)
	return nil
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.got, " ")
}

// marks is a store in memory.
type marks struct {
	mu sync.Mutex
	m  map[string]sink.Mark
}

func (s *marks) Get(_ context.Context, shard string) (sink.Mark, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.m[shard]
	return m, ok, nil
}

func (s *marks) Put(_ context.Context, shard string, m sink.Mark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[string]sink.Mark{}
	}
	s.m[shard] = m
	return nil
}

func runOver(t *testing.T, m *memory, o Options, to pipeline.Sink, store Store) error {
	t.Helper()
	o.Stream = m
	if o.Target == nil {
		o.Target = &Plain{Sink: to, Store: store}
	}
	r, err := New(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return r.Run(ctx)
}

func TestWhereAReplayBeginsAndEnds(t *testing.T) {
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	seq := func(k stream.PositionKind, s string) stream.Position { return stream.Position{Kind: k, Sequence: s} }
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"beginning to tip", Options{}, "a:1/0 a:2/0 a:3/0 a:4/0 a:5/0"},
		{"at a sequence", Options{From: seq(stream.AtSequence, "4")}, "a:4/0 a:5/0"},
		{"after a sequence", Options{From: seq(stream.AfterSequence, "4")}, "a:5/0"},
		{"at a time", Options{From: stream.Position{Kind: stream.AtTime, Time: at(3)}}, "a:3/0 a:4/0 a:5/0"},
		{"latest", Options{From: stream.Position{Kind: stream.Latest}}, ""},
		{"until a sequence", Options{End: End{Kind: UntilSequence, Sequence: "2"}}, "a:1/0 a:2/0"},
		{"until a time", Options{End: End{Kind: UntilTime, Time: at(3)}}, "a:1/0 a:2/0 a:3/0"},
		{"until a time past the tip", Options{End: End{Kind: UntilTime, Time: at(30)}}, "a:1/0 a:2/0 a:3/0 a:4/0 a:5/0"},
		{"limit", Options{Limit: 3}, "a:1/0 a:2/0 a:3/0"},
		{"limit, following", Options{Limit: 5, End: End{Kind: Never}}, "a:1/0 a:2/0 a:3/0 a:4/0 a:5/0"},
		{"only", Options{Filter: Filter{Only: []string{"public.t1"}}}, "a:1/0 a:3/0 a:5/0"},
		{"only by globs", Options{Filter: Filter{Only: []string{"pub*.?0", "other.*"}}}, "a:2/0 a:4/0"},
		{"other operations", Options{Filter: Filter{Ops: []record.Op{record.Insert}}}, ""},
		{"one shard", Options{Shards: []string{"a"}, Limit: 1}, "a:1/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &memory{}
			m.add("a", true).put(oursLine, 1, 2, 3, 4, 5)
			var got collector
			if err := runOver(t, m, c.o, &got, nil); err != nil {
				t.Fatal(err)
			}
			if got.text() != c.want {
				t.Errorf("got %q, want %q", got.text(), c.want)
			}
		})
	}
}

func TestTipIsThatOfTheStart(t *testing.T) {
	m := &memory{}
	a := m.add("a", true).put(oursLine, 1, 2, 3)
	grow := &collector{}
	to := sinkFunc(func(ctx context.Context, b *record.Batch, done func(error)) error {
		m.mu.Lock()
		a.put(oursLine, 4+len(a.records))
		m.mu.Unlock()
		return grow.Write(ctx, b, done)
	})
	if err := runOver(t, m, Options{}, to, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(grow.text(), "a:1/0 a:2/0 a:3/0") || strings.Count(grow.text(), "a:") > 4 {
		t.Errorf("got %q", grow.text())
	}
}

type sinkFunc func(context.Context, *record.Batch, func(error)) error

func (f sinkFunc) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	return f(ctx, b, done)
}

// reshard is a split of p into c1 and c2, which are merged into d.
func reshard() *memory {
	m := &memory{}
	m.add("p", false).put(oursLine, 1, 2, 3)
	m.add("c1", false, "p").put(oursLine, 11, 12)
	m.add("c2", false, "p").put(oursLine, 21, 22)
	m.add("d", true, "c1", "c2").put(oursLine, 31)
	return m
}

func TestParentsBeforeChildren(t *testing.T) {
	m := reshard()
	got := collector{wait: time.Millisecond}
	store := &marks{}
	if err := runOver(t, m, Options{}, &got, store); err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, g := range got.got {
		at[g] = i
	}
	if len(got.got) != 8 || at["p:3/0"] > at["c1:11/0"] || at["p:3/0"] > at["c2:21/0"] || at["c1:12/0"] > at["d:31/0"] || at["c2:22/0"] > at["d:31/0"] {
		t.Errorf("got %s", got.text())
	}
	for _, id := range []string{"p", "c1", "c2"} {
		if !store.m[id].Ended {
			t.Errorf("shard %s stands at %v, want its end", id, store.m[id])
		}
	}
	// The next run reads none of them again.
	m.opened = nil
	got = collector{}
	if err := runOver(t, m, Options{}, &got, store); err != nil || got.text() != "" || !slices.Equal(m.opened, []string{"d"}) {
		t.Errorf("opened %v, got %q: %v", m.opened, got.text(), err)
	}
}

func TestChildOfATrimmedParentStarts(t *testing.T) {
	m := &memory{}
	m.add("c", true, "gone").put(oursLine, 1)
	var got collector
	if err := runOver(t, m, Options{}, &got, nil); err != nil || got.text() != "c:1/0" {
		t.Errorf("got %q: %v", got.text(), err)
	}
}

func TestLatestLeavesClosedShardsAlone(t *testing.T) {
	m := reshard()
	var got collector
	if err := runOver(t, m, Options{From: stream.Position{Kind: stream.Latest}}, &got, nil); err != nil || got.text() != "" {
		t.Errorf("got %q: %v", got.text(), err)
	}
}

func TestShardsThatAppearWhileFollowing(t *testing.T) {
	m := &memory{}
	p := m.add("p", true).put(oursLine, 1)
	drain := make(chan struct{})
	var got collector
	ended := make(chan error, 1)
	go func() {
		ended <- runOver(t, m, Options{End: End{Kind: Never}, Drain: drain, From: stream.Position{Kind: stream.Latest}, Rescan: 10 * time.Millisecond}, &got, nil)
	}()
	time.Sleep(20 * time.Millisecond)
	m.mu.Lock()
	p.Shard.Open = false
	m.add("c", true, "p").put(oursLine, 2)
	m.mu.Unlock()
	for deadline := time.Now().Add(10 * time.Second); got.text() != "c:2/0" && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	close(drain)
	if err := <-ended; err != nil || got.text() != "c:2/0" {
		t.Errorf("got %q: %v", got.text(), err)
	}
}

func TestCheckpointIsTakenUp(t *testing.T) {
	m := &memory{}
	several := func(n int) string { return oursLine(10*n) + oursLine(10*n+1) + oursLine(10*n+2) }
	a := m.add("a", true).put(several, 1, 2)
	store := &marks{}
	for i, want := range []string{"a:1/0 a:1/1", "a:1/2 a:2/0", "a:2/1 a:2/2", ""} {
		var got collector
		if err := runOver(t, m, Options{Limit: 2}, &got, store); err != nil || got.text() != want {
			t.Errorf("run %d: got %q, want %q: %v", i, got.text(), want, err)
		}
	}
	// What was trimmed away since is a gap.
	a.put(several, 3, 4)
	a.trimmed = 3
	var got collector
	err := runOver(t, m, Options{}, &got, store)
	if !errors.Is(err, stream.ErrTrimmed) || fault.ClassOf(err) != fault.Check || !strings.Contains(fault.HintOf(err), "--allow-gap") {
		t.Errorf("%v (next: %s)", err, fault.HintOf(err))
	}
	if err := runOver(t, m, Options{AllowGap: true, Limit: 1}, &got, store); err != nil || got.text() != "a:4/0" {
		t.Errorf("got %q: %v", got.text(), err)
	}
}

func TestSequenceOfAnotherShard(t *testing.T) {
	m := &memory{}
	m.add("a", true).put(oursLine, 1)
	m.add("b", true).put(oursLine, 2)
	for _, o := range []Options{
		{Shards: []string{"a"}, From: stream.Position{Kind: stream.AtSequence, Sequence: "2"}},
		{Shards: []string{"a"}, End: End{Kind: UntilSequence, Sequence: "2"}},
	} {
		err := runOver(t, m, o, &collector{}, nil)
		if !errors.Is(err, stream.ErrForeignSequence) || fault.ClassOf(err) != fault.Failed {
			t.Errorf("%v", err)
		}
	}
	for _, o := range []Options{
		{From: stream.Position{Kind: stream.AtSequence, Sequence: "2"}},
		{Shards: []string{"nope"}},
	} {
		if err := runOver(t, m, o, &collector{}, nil); fault.ClassOf(err) != fault.Usage || fault.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
	}
}

func TestRecordsOfOtherProducers(t *testing.T) {
	m := &memory{}
	data := []string{`{"a": 1}`, "{\n \"pretty\": true\n}", "{\"x\":1}\n{\"x\":2}\n", "\x00\xff", "", "plain text"}
	m.add("a", true).put(func(n int) string { return data[n-1] }, 1, 2, 3, 4, 5, 6)
	var got collector
	if err := runOver(t, m, Options{}, &got, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{`mem/a/1/0 {"a": 1}`, `mem/a/2/0 { "pretty": true}`, `mem/a/3/0 {"x":1}`, `mem/a/3/1 {"x":2}`, `mem/a/4/0 "AP8="`, `mem/a/5/0 ""`, `mem/a/6/0 "cGxhaW4gdGV4dA=="`}
	if strings.Join(got.data, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got.data, "\n"), strings.Join(want, "\n"))
	}
}

func TestMalformedRecordIsNamed(t *testing.T) {
	m := &memory{}
	m.add("a", true).put(func(n int) string { return oursLine(1) + `{"v":1,"id":"x","op":"nonsense"}` }, 7)
	err := runOver(t, m, Options{}, &collector{}, nil)
	if err == nil || !strings.Contains(err.Error(), "shard a sequence 7 line 1") || fault.ClassOf(err) != fault.Failed || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

func TestRenames(t *testing.T) {
	rules, err := ParseRename([]string{"public.orders=archive.o", "app_*.*=app.*", "public.log_*=logs.*_old"})
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{"public.orders": "archive.o", "app_1.users": "app.users", "public.log_a": "logs.a_old", "public.x": "public.x"} {
		schema, table, _ := strings.Cut(from, ".")
		s, n := rules.Apply(schema, table)
		if s+"."+n != want {
			t.Errorf("%s becomes %s.%s, want %s", from, s, n, want)
		}
	}
	for _, bad := range []string{"a.b", "a=b.c", "a.b=c", "a.b=c.*", "a.*b*=c.*", "a.[=c.d", "a.b?*=c.*"} {
		if _, err := ParseRename([]string{bad}); fault.ClassOf(err) != fault.Usage || err == nil {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
