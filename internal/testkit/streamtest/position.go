package streamtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

// same fails when the records are not those.
func same(t *testing.T, what string, got, want []entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d records, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i].Sequence != want[i].Sequence || got[i].data != want[i].data {
			t.Fatalf("%s: record %d is %s, want %s", what, i, got[i].Sequence, want[i].Sequence)
		}
	}
}

// single writes n records of keys of their own, one by one, into a stream of one shard, and reads them.
func single(t *testing.T, f Factory, n int) (*bench, string, []entry) {
	t.Helper()
	b := setup(t, f, 1, SinkOptions{})
	for _, line := range rows(0, n) {
		b.put(line)
	}
	shard := b.shards()[0].ID
	all := b.read(shard, stream.Position{})
	if len(all) != n {
		t.Fatalf("%d records, want %d", len(all), n)
	}
	return b, shard, all
}

func testPositionSequence(t *testing.T, f Factory) {
	b, shard, all := single(t, f, 25)
	for i, e := range all {
		same(t, "at "+e.Sequence, b.read(shard, stream.Position{Kind: stream.AtSequence, Sequence: e.Sequence}), all[i:])
		same(t, "after "+e.Sequence, b.read(shard, stream.Position{Kind: stream.AfterSequence, Sequence: e.Sequence}), all[i+1:])
	}
}

func testPositionTime(t *testing.T, f Factory) {
	b := setup(t, f, 1, SinkOptions{})
	shard := b.shards()[0].ID
	before := time.Now().Add(-time.Hour)
	for i := range 5 {
		b.put(rows(i*4, i*4+4)...)
		b.tick()
	}
	all := b.read(shard, stream.Position{})
	same(t, "before all", b.read(shard, stream.Position{Kind: stream.AtTime, Time: before}), all)
	for i, e := range all {
		if i > 0 && e.ArrivedAt.Before(all[i-1].ArrivedAt) {
			t.Fatalf("record %d arrived before the one before it", i)
		}
		first := i
		for first > 0 && !all[first-1].ArrivedAt.Before(e.ArrivedAt) {
			first--
		}
		same(t, "at "+e.ArrivedAt.String(), b.read(shard, stream.Position{Kind: stream.AtTime, Time: e.ArrivedAt}), all[first:])
	}
	last := all[len(all)-1].ArrivedAt
	same(t, "after all", b.read(shard, stream.Position{Kind: stream.AtTime, Time: last.Add(5 * time.Millisecond)}), nil)
}

func testPositionLatest(t *testing.T, f Factory) {
	b, shard, _ := single(t, f, 5)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := b.st.Open(ctx, shard, stream.Position{Kind: stream.Latest})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := readOn(ctx, r, shard); err != nil || len(got) != 0 {
		t.Fatalf("at the tip: %d records, %v", len(got), err)
	}
	b.put(row("77", 77))
	got := next(t, ctx, r, shard)
	if all := lines(t, got); len(all) != 1 || all[0] != row("77", 77) {
		t.Fatalf("after the tip: %v", all)
	}
}

// next reads until records come.
func next(t *testing.T, ctx context.Context, r stream.Reader, shard string) []entry {
	t.Helper()
	for {
		p, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Records) > 0 {
			return entries(p, shard)
		}
	}
}

func testTip(t *testing.T, f Factory) {
	b := setup(t, f, 1, SinkOptions{})
	shard := b.shards()[0].ID
	if got := b.read(shard, stream.Position{}); len(got) != 0 {
		t.Fatalf("an empty stream has %d records", len(got))
	}
	r, err := b.st.Open(t.Context(), shard, stream.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 3 {
		if got, err := readOn(ctx, r, shard); err != nil || len(got) != min(i, 1) {
			t.Fatalf("round %d: %d records to the tip, %v", i, len(got), err)
		}
		b.put(row("1", i))
	}
	if _, err := readOn(ctx, r, shard); err != nil {
		t.Fatal(err)
	}
	short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelShort()
	for {
		p, err := r.Next(short)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if err != nil || len(p.Records) > 0 {
			t.Fatalf("nothing was written, Next gave %+v, %v", p, err)
		}
	}
}

func testForeign(t *testing.T, f Factory) {
	b := setup(t, f, 2, SinkOptions{})
	b.put(rows(0, 40)...)
	shards := b.shards()
	a := b.read(shards[0].ID, stream.Position{})
	if len(a) == 0 {
		t.Fatal("no record in the first of two shards")
	}
	for _, kind := range []stream.PositionKind{stream.AtSequence, stream.AfterSequence} {
		for _, seq := range []string{a[0].Sequence, "nonsense", "", "-1"} {
			_, err := b.tryRead(shards[1].ID, stream.Position{Kind: kind, Sequence: seq})
			if !errors.Is(err, stream.ErrForeignSequence) || fault.ClassOf(err) != fault.Failed || fault.HintOf(err) == "" {
				t.Errorf("sequence number %q: %v (class %d, hint %q)", seq, err, fault.ClassOf(err), fault.HintOf(err))
			}
		}
	}
}

func testTrimmed(t *testing.T, f Factory) {
	b, shard, all := single(t, f, 60)
	if b.Trim == nil {
		t.Skip("this kind is not trimmed on demand")
	}
	b.Trim(t, shard, all[len(all)-1].Sequence)
	left := b.read(shard, stream.Position{})
	if len(left) == 0 || len(left) >= len(all) {
		t.Fatalf("after trimming %d records %d are left", len(all), len(left))
	}
	same(t, "what is left", left, all[len(all)-len(left):])
	for _, kind := range []stream.PositionKind{stream.AtSequence, stream.AfterSequence} {
		_, err := b.tryRead(shard, stream.Position{Kind: kind, Sequence: all[0].Sequence})
		if !errors.Is(err, stream.ErrTrimmed) || fault.HintOf(err) == "" {
			t.Errorf("reading where records were trimmed away: %v", err)
		}
	}
	same(t, "at the oldest", b.read(shard, stream.Position{Kind: stream.AtSequence, Sequence: left[0].Sequence}), left)
	same(t, "by a time before all", b.read(shard, stream.Position{Kind: stream.AtTime, Time: all[0].ArrivedAt}), left)
}

func testDescribe(t *testing.T, f Factory) {
	b := setup(t, f, 3, SinkOptions{})
	b.put(rows(0, 30)...)
	d, err := b.st.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Name == "" || d.Name != b.st.Name() || d.URL == "" || d.Status == "" || d.MaxRecordBytes < 1<<20 || len(d.Shards) != 3 {
		t.Errorf("description: %+v", d)
	}
	records := int64(0)
	for _, s := range d.Shards {
		if !s.Open {
			t.Errorf("shard %s is not open", s.ID)
		}
		if s.Records >= 0 {
			records += s.Records
			if got := b.read(s.ID, stream.Position{}); len(got) > 0 && (s.Oldest != got[0].Sequence || s.Newest != got[len(got)-1].Sequence) {
				t.Errorf("shard %s: oldest %s, newest %s", s.ID, s.Oldest, s.Newest)
			}
		}
	}
	if records != 0 && records != int64(len(b.readAll())) {
		t.Errorf("%d records described, %d read", records, len(b.readAll()))
	}
}

func testMissing(t *testing.T, f Factory) {
	err := f.Missing(t)
	if !errors.Is(err, stream.ErrNotFound) || fault.ClassOf(err) != fault.Check || !strings.Contains(fault.HintOf(err), "stream create") {
		t.Errorf("a missing stream: %v (class %d, hint %q)", err, fault.ClassOf(err), fault.HintOf(err))
	}
}

func testMissingShard(t *testing.T, f Factory) {
	b := setup(t, f, 1, SinkOptions{})
	_, err := b.tryRead("shardId-000000009999", stream.Position{})
	if err == nil || !strings.Contains(err.Error(), "shardId-000000009999") || fault.ClassOf(err) != fault.Usage {
		t.Errorf("a missing shard: %v (class %d)", err, fault.ClassOf(err))
	}
}

func testCreateTwice(t *testing.T, f Factory) {
	b := setup(t, f, 1, SinkOptions{})
	b.put(row("1", 1))
	if err := b.CreateAgain(t); !errors.Is(err, stream.ErrExists) {
		t.Errorf("creating it again: %v", err)
	}
	if got := b.readAll(); len(got) != 1 {
		t.Errorf("%d records after creating it again", len(got))
	}
}

func testSplit(t *testing.T, f Factory) {
	b := setup(t, f, 1, SinkOptions{})
	if b.Split == nil {
		t.Skip("this kind is not resharded")
	}
	old := b.shards()[0].ID
	want := rows(0, 20)
	b.put(want...)
	b.Split(t, old)
	for n := range 3 {
		part := make([]string, 0, 20)
		for k := range 20 {
			part = append(part, row(fmt.Sprint(k), 100+n*20+k))
		}
		want = append(want, part...)
		b.put(part...)
	}
	shards := b.shards()
	if len(shards) != 3 || shards[0].ID != old || shards[0].Open {
		t.Fatalf("shards after the split: %+v", shards)
	}
	for _, s := range shards[1:] {
		if len(s.Parents) != 1 || s.Parents[0] != old || !s.Open {
			t.Errorf("child %+v", s)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := b.st.Open(ctx, old, stream.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		p, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if p.Closed {
			break
		}
	}
	sameByKey(t, lines(t, b.readAll()), want)
}
