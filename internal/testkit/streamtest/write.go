package streamtest

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"synctl/internal/record"
	"synctl/internal/stream"
)

func testReadBack(t *testing.T, f Factory) {
	b := setup(t, f, 2, SinkOptions{})
	want := append(rows(0, 40),
		`{"v":1,"id":"1.1.00000000000000FF.0","op":"update","schema":"public","table":"orders","key":{"id":7},"before":{"id":7,"n":1},"after":{"id":7,"n":12.30},"unknown":[1, {"x":null}],"unchanged":["note"],"lsn":"0/1FF","row_lsn":"0/FF","xid":8,"committed_at":"2026-11-30T19:58:00.123456Z"}`)
	for i := 0; i < len(want); i += 7 {
		b.put(want[i:min(i+7, len(want))]...)
	}
	sameByKey(t, lines(t, b.readAll()), want)
	for _, e := range b.readAll() {
		if e.Sequence == "" || e.ArrivedAt.IsZero() || time.Since(e.ArrivedAt) > 48*time.Hour {
			t.Fatalf("record with sequence %q arrived at %v", e.Sequence, e.ArrivedAt)
		}
	}
}

func testFloor(t *testing.T, f Factory) {
	floor := record.LSN(0x10)
	b := setup(t, f, 1, SinkOptions{Floor: func() record.LSN { return floor }})
	b.put(row("1", 1))
	floor = 0x20
	b.put(row("2", 2))
	got := lines(t, b.readAll())
	if len(got) != 2 || !strings.Contains(got[0], `"floor":"0/10"`) || !strings.Contains(got[1], `"floor":"0/20"`) {
		t.Fatalf("floors 0/10 and 0/20 are not in %v", got)
	}
}

func testOrderPerKey(t *testing.T, f Factory) {
	b := setup(t, f, 3, SinkOptions{})
	var want []string
	var waits []<-chan error
	for n := range 60 {
		var part []string
		for k := range 5 {
			part = append(part, row(fmt.Sprint(k), n*10+k))
		}
		want = append(want, part...)
		waits = append(waits, b.write(part...)) // in flight together
	}
	for _, w := range waits {
		if err := <-w; err != nil {
			t.Fatal(err)
		}
	}
	sameByKey(t, lines(t, b.readAll()), want)
}

func testShards(t *testing.T, f Factory) {
	b := setup(t, f, 4, SinkOptions{})
	b.put(rows(0, 200)...)
	ranges := map[string]stream.Shard{}
	for _, s := range b.shards() {
		ranges[s.ID] = s
	}
	if len(ranges) != 4 {
		t.Fatalf("%d shards, want 4", len(ranges))
	}
	used := map[string]bool{}
	for _, e := range b.readAll() {
		sum := md5.Sum([]byte(e.key))
		hash := new(big.Int).SetBytes(sum[:])
		if s := ranges[e.shard]; hash.Cmp(s.HashLow) < 0 || hash.Cmp(s.HashTop) > 0 {
			t.Fatalf("key %s with hash %v is in shard %s of %v to %v", e.key, hash, s.ID, s.HashLow, s.HashTop)
		}
		used[e.shard] = true
	}
	if len(used) != 4 {
		t.Errorf("200 keys are in %d shards", len(used))
	}
}

func testKeyByTable(t *testing.T, f Factory) {
	b := setup(t, f, 4, SinkOptions{KeyBy: stream.ByTable})
	b.put(rows(0, 50)...)
	got := b.readAll()
	for _, e := range got {
		if e.key != "public.orders" || e.shard != got[0].shard {
			t.Fatalf("key %q in shard %s", e.key, e.shard)
		}
	}
	if all := lines(t, got); strings.Join(all, "\n") != strings.Join(rows(0, 50), "\n") {
		t.Error("the table's order was not kept")
	}
}

func testUnicodeKeys(t *testing.T, f Factory) {
	b := setup(t, f, 4, SinkOptions{})
	keys := []string{`"a.b"`, `"c\\d"`, `"say \"hi\""`, `"line\nfeed\ttab"`, `"\u0001"`, `"ключ"`, `"🦀},\"stream\":{\"name\":\""`,
		`"` + strings.Repeat("ö", 300) + `"`, `"\",\"arrived_at\":\"x"`, `""`, `"\\"`}
	var want []string
	for i, k := range keys {
		want = append(want, row(k, i))
	}
	b.put(want...)
	got := b.readAll()
	sameByKey(t, lines(t, got), want)
	for _, e := range got {
		if w := keyOf(t, strings.TrimSuffix(e.data, "\n")); e.key != w {
			t.Errorf("partition key %q, want %q", e.key, w)
		}
	}
}

func testLarge(t *testing.T, f Factory) {
	b := setup(t, f, 2, SinkOptions{})
	large := func(id int) string {
		return strings.Replace(row(fmt.Sprint(id), id), `"n":`, `"note":"`+strings.Repeat("x", 900<<10)+`","n":`, 1)
	}
	want := []string{row("1", 0), large(1), row("1", 2), large(3), large(4), row("4", 5)}
	b.put(want[0])
	for _, line := range want[1:] {
		b.put(line)
	}
	sameByKey(t, lines(t, b.readAll()), want)
}

func testTruncate(t *testing.T, f Factory) {
	b := setup(t, f, 3, SinkOptions{})
	lines0 := append(append(rows(0, 30), truncate(50)), rows(60, 90)...)
	b.put(lines0...)
	for _, s := range b.shards() {
		got := lines(t, b.read(s.ID, stream.Position{}))
		at := -1
		for i, line := range got {
			if strings.Contains(line, `"op":"truncate"`) {
				if at >= 0 {
					t.Fatalf("shard %s has the truncate twice", s.ID)
				}
				at = i
			}
		}
		if at < 0 {
			t.Fatalf("shard %s has no truncate", s.ID)
		}
		for i, line := range got {
			var r record.Record
			if err := record.Parse([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			if early := r.Pos.Row < record.LSN(50*16+16); i != at && early != (i < at) {
				t.Errorf("shard %s: record %d is on the wrong side of the truncate at %d: %s", s.ID, i, at, line)
			}
		}
	}
}

func testReadWhileWriting(t *testing.T, f Factory) {
	b := setup(t, f, 2, SinkOptions{})
	const batches, perBatch = 40, 10
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var read atomic.Int64
	var mu sync.Mutex
	var got []string
	var readers sync.WaitGroup
	for _, s := range b.shards() {
		r, err := b.st.Open(ctx, s.ID, stream.Position{})
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			defer r.Close()
			for read.Load() < batches*perBatch {
				p, err := r.Next(ctx)
				if err != nil {
					if read.Load() < batches*perBatch {
						t.Errorf("shard %s: %v after %d of %d records", s.ID, err, read.Load(), batches*perBatch)
					}
					return
				}
				all := bytes.Count(bytes.Join(dataOf(p), nil), []byte("\n"))
				mu.Lock()
				for _, d := range dataOf(p) {
					got = append(got, strings.Split(strings.TrimSuffix(string(d), "\n"), "\n")...)
				}
				mu.Unlock()
				if read.Add(int64(all)) == batches*perBatch {
					cancel() // the other readers wait for more, in vain
				}
			}
		})
	}
	var want []string
	for n := range batches {
		part := rows(n*perBatch, (n+1)*perBatch)
		want = append(want, part...)
		b.put(part...)
	}
	readers.Wait()
	sameByKey(t, got, want)
}

func dataOf(p *stream.Page) [][]byte {
	var all [][]byte
	for _, r := range p.Records {
		all = append(all, r.Data)
	}
	return all
}

func testDoneOnce(t *testing.T, f Factory) {
	b := setup(t, f, 2, SinkOptions{})
	calls := make([]atomic.Int32, 50)
	for i := range calls {
		part := rows(i*3, i*3+3)
		if i%10 == 9 {
			part = nil // a keepalive: a token without records
		}
		err := b.sink.Write(t.Context(), batch(t, part), func(err error) {
			if err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
			calls[i].Add(1)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.sink.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		if n := calls[i].Load(); n != 1 {
			t.Errorf("done of batch %d was called %d times", i, n)
		}
	}
	sum := b.sink.Summary()
	if sum.Records != 135 || sum.InFlight != 0 || sum.Entries < 1 || sum.Bytes < 135*100 {
		t.Errorf("summary after 135 records: %+v", sum)
	}
	perShard := int64(0)
	for _, s := range sum.Shards {
		perShard += s.Records
	}
	if perShard != 135 {
		t.Errorf("the shards' records add up to %d, want 135", perShard)
	}
}

func testWriteAfterClose(t *testing.T, f Factory) {
	b := setup(t, f, 1, SinkOptions{})
	b.put(row("1", 1))
	if err := b.sink.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.sink.Write(t.Context(), batch(t, rows(2, 3)), func(error) { t.Error("done was called") }); err == nil {
		t.Error("a closed sink took a batch")
	}
}

func testReopen(t *testing.T, f Factory) {
	b := setup(t, f, 2, SinkOptions{})
	b.put(rows(0, 20)...)
	if err := b.sink.Close(); err != nil {
		t.Fatal(err)
	}
	before := b.readAll()
	b.sink = b.OpenSink(t, SinkOptions{})
	b.put(rows(20, 40)...)
	sameByKey(t, lines(t, b.readAll()), rows(0, 40))
	for _, e := range before {
		if again := b.read(e.shard, stream.Position{Kind: stream.AtSequence, Sequence: e.Sequence}); again[0].data != e.data {
			t.Errorf("record %s changed from %s to %s", e.Sequence, e.data, again[0].data)
		}
	}
}
