package kinesis

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"google.golang.org/protobuf/encoding/protowire"

	"synctl/internal/fault"
	"synctl/internal/stream"
	"synctl/internal/testkit/kinesisfake"
)

const shard0, shard1 = "shardId-000000000000", "shardId-000000000001"

func openStream(t testing.TB, o Options) *Stream {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put stores raw records, all of one key, and gives their sequence numbers.
func put(t testing.TB, s *Stream, data ...string) []string {
	t.Helper()
	var seqs []string
	for _, d := range data {
		out, err := s.client.PutRecord(context.Background(), &kinesis.PutRecordInput{StreamName: aws.String(testStream),
			PartitionKey: aws.String("k"), ExplicitHashKey: aws.String("0"), Data: []byte(d)})
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, *out.SequenceNumber)
	}
	return seqs
}

func dataOf(records []stream.Record) string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.Data))
	}
	return strings.Join(all, " ")
}

func TestReaderPositions(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	_, o := fake(t, kinesisfake.Options{Now: func() time.Time { now = now.Add(time.Second); return now }}, 1)
	s := openStream(t, o)
	seqs := put(t, s, "a", "b", "c", "d")
	all, _ := readAll(t, s, shard0, stream.Position{})
	for _, c := range []struct {
		name string
		at   stream.Position
		want string
	}{
		{"beginning", stream.Position{Kind: stream.Beginning}, "a b c d"},
		{"latest", stream.Position{Kind: stream.Latest}, ""},
		{"at", stream.Position{Kind: stream.AtSequence, Sequence: seqs[1]}, "b c d"},
		{"after", stream.Position{Kind: stream.AfterSequence, Sequence: seqs[1]}, "c d"},
		{"after the last", stream.Position{Kind: stream.AfterSequence, Sequence: seqs[3]}, ""},
		{"time", stream.Position{Kind: stream.AtTime, Time: all[2].ArrivedAt}, "c d"},
		{"time before all", stream.Position{Kind: stream.AtTime, Time: all[0].ArrivedAt.Add(-time.Hour)}, "a b c d"},
		{"time after all", stream.Position{Kind: stream.AtTime, Time: all[3].ArrivedAt.Add(time.Millisecond)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, page := readAll(t, s, shard0, c.at)
			if dataOf(got) != c.want || !page.AtTip || page.Closed {
				t.Errorf("read %q, last page %+v; want %q", dataOf(got), page, c.want)
			}
		})
	}
}

func TestReaderRefusesPositions(t *testing.T) {
	srv, o := fake(t, kinesisfake.Options{}, 2)
	s := openStream(t, o)
	seqs := put(t, s, "a", "b", "c")
	srv.Trim(testStream, shard0, 2)
	for _, c := range []struct {
		name, shard string
		at          stream.Position
		is          error
		class       fault.Class
		hint        string
	}{
		{"trimmed", shard0, stream.Position{Kind: stream.AfterSequence, Sequence: seqs[0]}, stream.ErrTrimmed, fault.Check, seqs[2]},
		{"trimmed last before the oldest", shard0, stream.Position{Kind: stream.AfterSequence, Sequence: seqs[1]}, stream.ErrTrimmed, fault.Check, seqs[2]},
		{"foreign", shard1, stream.Position{Kind: stream.AfterSequence, Sequence: seqs[2]}, stream.ErrForeignSequence, fault.Failed, "describe"},
		{"not a number", shard0, stream.Position{Kind: stream.AtSequence, Sequence: "12x"}, stream.ErrForeignSequence, fault.Failed, "describe"},
		{"bad index", shard0, stream.Position{Kind: stream.AtSequence, Sequence: seqs[2] + ".-1"}, stream.ErrForeignSequence, fault.Failed, "describe"},
		{"no shard", "shardId-000000000009", stream.Position{}, nil, fault.Usage, "describe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.Open(t.Context(), c.shard, c.at)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || fault.ClassOf(err) != c.class || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("class %d, hint %q: %v", fault.ClassOf(err), fault.HintOf(err), err)
			}
		})
	}
}

func TestReaderGoesOnThroughFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{RateLimits: true}, 1)
		s := openStream(t, o)
		var want []string
		for i := range 900 {
			want = append(want, fmt.Sprint(i))
		}
		put(t, s, want...)
		srv.SetScript(kinesisfake.Random(kinesisfake.Faults{Error500: 0.2, Drop: 0.2, ExpireIterator: 0.3, ThrottleRead: 0.2, OnlyData: true}, 3))
		got, _ := readAll(t, s, shard0, stream.Position{})
		if dataOf(got) != strings.Join(want, " ") {
			t.Errorf("read %d records of %d, or in another order", len(got), len(want))
		}
		srv.Close()
	})
}

// An iterator that expired before anything was read at the tip must not skip what came meanwhile.
func TestReaderLatestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{}, 1)
		s := openStream(t, o)
		put(t, s, "old")
		time.Sleep(time.Hour)
		r, err := s.Open(t.Context(), shard0, stream.Position{Kind: stream.Latest})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := r.Next(t.Context()); err != nil || len(p.Records) != 0 || !p.AtTip {
			t.Fatalf("%+v, %v", p, err)
		}
		put(t, s, "new")
		time.Sleep(10 * time.Minute)
		p, err := r.Next(t.Context())
		if err != nil || dataOf(p.Records) != "new" {
			t.Errorf("after ten minutes: %+v, %v", p, err)
		}
		srv.Close()
	})
}

// What expires together with the iterator, because the reader slept through the retention, is a gap and is said.
func TestReaderSleptThroughRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, o := inProcess(kinesisfake.Options{}, 1)
		s := openStream(t, o)
		put(t, s, "a")
		r, err := s.Open(t.Context(), shard0, stream.Position{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := r.Next(t.Context()); err != nil || dataOf(p.Records) != "a" {
			t.Fatalf("%+v, %v", p, err)
		}
		put(t, s, "lost")
		time.Sleep(25 * time.Hour)
		put(t, s, "c")
		if p, err := r.Next(t.Context()); !errors.Is(err, stream.ErrTrimmed) {
			t.Errorf("%+v, %v", p, err)
		}
		srv.Close()
	})
}

func TestReaderShardEnd(t *testing.T) {
	srv, o := fake(t, kinesisfake.Options{PageShards: 2}, 2)
	s := openStream(t, o)
	put(t, s, "a")
	children := srv.Split(testStream, shard0)
	merged := srv.Merge(testStream, children[1], shard1)
	put(t, s, "b")
	got, page := readAll(t, s, shard0, stream.Position{})
	if dataOf(got) != "a" || !page.Closed || len(page.Children) != 2 || page.Children[0].ID != children[0] {
		t.Errorf("read %q, last page %+v", dataOf(got), page)
	}
	if _, page := readAll(t, s, children[1], stream.Position{}); !page.Closed || len(page.Children) != 1 || len(page.Children[0].Parents) != 2 {
		t.Errorf("last page of the merged shard: %+v", page)
	}
	d, err := s.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, sh := range d.Shards {
		list = append(list, fmt.Sprintf("%s %v %v", strings.TrimLeft(sh.ID[len("shardId-"):], "0"), len(sh.Parents), sh.Open))
	}
	if want := "[ 0 false 1 0 false 2 1 true 3 1 false 4 2 true]"; fmt.Sprint(list) != want {
		t.Errorf("shards %v, want %v", list, want)
	}
	if merged == "" || d.Retention != 24*time.Hour || d.MaxRecordBytes != 1<<20 {
		t.Errorf("description %+v", d)
	}
}

// aggregate packs as the Kinesis Producer Library does.
func aggregate(pairs ...string) string {
	var body []byte
	for i := 0; i < len(pairs); i += 2 {
		body = protowire.AppendTag(body, 1, protowire.BytesType)
		body = protowire.AppendString(body, pairs[i])
	}
	for i := 0; i < len(pairs); i += 2 {
		var rec []byte
		rec = protowire.AppendTag(rec, 1, protowire.VarintType)
		rec = protowire.AppendVarint(rec, uint64(i/2))
		rec = protowire.AppendTag(rec, 3, protowire.BytesType)
		rec = protowire.AppendString(rec, pairs[i+1])
		body = protowire.AppendTag(body, 3, protowire.BytesType)
		body = protowire.AppendBytes(body, rec)
	}
	sum := md5.Sum(body)
	return string(aggregateMagic) + string(body) + string(sum[:])
}

func TestReaderTakesAggregatesApart(t *testing.T) {
	_, o := fake(t, kinesisfake.Options{}, 1)
	s := openStream(t, o)
	seqs := put(t, s, "plain", aggregate("k1", "x", "k2", "y", "k3", "z"), "end")
	got, _ := readAll(t, s, shard0, stream.Position{})
	if dataOf(got) != "plain x y z end" || string(got[2].PartitionKey) != "k2" || got[2].Sequence != seqs[1]+".1" {
		t.Errorf("read %q: %+v", dataOf(got), got)
	}
	for _, c := range []struct {
		kind     stream.PositionKind
		sequence string
		want     string
	}{
		{stream.AfterSequence, seqs[1] + ".1", "z end"},
		{stream.AtSequence, seqs[1] + ".1", "y z end"},
		{stream.AfterSequence, seqs[1] + ".2", "end"},
		{stream.AfterSequence, seqs[1], "end"},
		{stream.AtSequence, seqs[1], "x y z end"},
	} {
		if got, _ := readAll(t, s, shard0, stream.Position{Kind: c.kind, Sequence: c.sequence}); dataOf(got) != c.want {
			t.Errorf("position %d %s: read %q, want %q", c.kind, c.sequence, dataOf(got), c.want)
		}
	}
}

func TestCompareSequences(t *testing.T) {
	order := []string{"9", "10", "10.0", "10.1", "10.10", "11", "100000000000000000000000000000000000000000000000000000001"}
	for i, a := range order {
		for j, b := range order {
			if got := CompareSequences(a, b); got != min(1, max(-1, i-j)) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
}

func FuzzDeaggregate(f *testing.F) {
	f.Add([]byte(aggregate("a", "1", "b", "2"))[4:])
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum would keep every mutation out.
		sum := md5.Sum(body)
		data := append(append(bytes.Clone(aggregateMagic), body...), sum[:]...)
		subs, ok := deaggregate(nil, data)
		if !ok && len(subs) > 0 {
			t.Errorf("%d records of what is no aggregate", len(subs))
		}
		total := 0
		for _, s := range subs {
			total += len(s.data)
		}
		if total > len(body) {
			t.Errorf("%d bytes out of %d", total, len(body))
		}
	})
}

func TestParseURL(t *testing.T) {
	for _, c := range []struct{ in, url string }{
		{"kinesis://orders", "kinesis://orders"},
		{"kinesis://orders?region=eu-west-1&endpoint=http://127.0.0.1:4602", "kinesis://orders?endpoint=http://127.0.0.1:4602&region=eu-west-1"},
		{"arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"},
		{"kinesis://arn:aws:kinesis:eu-west-1:123456789012:stream/orders", "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"},
	} {
		o, err := ParseURL(c.in)
		if err != nil || o.Name != "orders" || o.URL() != c.url || !IsURL(c.in) {
			t.Errorf("%s: %+v, %q, %v", c.in, o, o.URL(), err)
		}
	}
	for _, in := range []string{"kinesis://", "kinesis://a b", "kinesis://a?colour=red", "kinesis:a", "arn:aws:kinesis:eu-west-1:1:consumer/x",
		"kinesis://a?endpoint=127.0.0.1:1", "kinesis://a?endpoint=http://me:hunter2@h/"} {
		_, err := ParseURL(in)
		if fault.ClassOf(err) != fault.Usage || fault.HintOf(err) == "" || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: class %d, hint %q: %v", in, fault.ClassOf(err), fault.HintOf(err), err)
		}
	}
}

func TestOpenFaults(t *testing.T) {
	srv, o := fake(t, kinesisfake.Options{}, 1)
	missing := o
	missing.Name = "absent"
	_, err := Open(t.Context(), missing)
	if !errors.Is(err, stream.ErrNotFound) || !strings.Contains(fault.HintOf(err), "synctl stream create kinesis://absent") {
		t.Errorf("missing stream: hint %q: %v", fault.HintOf(err), err)
	}
	if err := Create(t.Context(), o, 2); !errors.Is(err, stream.ErrExists) {
		t.Errorf("create again: %v", err)
	}
	if err := Create(t.Context(), missing, 2); err != nil {
		t.Errorf("create: %v", err)
	}
	if names, err := List(t.Context(), o); fmt.Sprint(names) != "[absent orders]" || err != nil {
		t.Errorf("list %v, %v", names, err)
	}
	if err := openStream(t, o).Trim(t.Context()); !strings.Contains(fault.HintOf(err), "retention") {
		t.Errorf("trim: %v", err)
	}
	srv.Close()
	if _, err := Open(t.Context(), o); fault.ClassOf(err) != fault.Unreachable {
		t.Errorf("no server: class %d: %v", fault.ClassOf(err), err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	o.Credentials = nil
	if _, err := Open(t.Context(), o); fault.ClassOf(err) != fault.Usage || !strings.Contains(fault.HintOf(err), "AWS_PROFILE") {
		t.Errorf("no credentials: class %d: %v", fault.ClassOf(err), err)
	}
}

// The service's own rule for AUTO streams would scatter a key over all shards.
func TestSinkRefusesAutoDistribution(t *testing.T) {
	_, o := fake(t, kinesisfake.Options{}, 1)
	client, err := connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "scattered"
	if _, err := client.CreateStream(t.Context(), &kinesis.CreateStreamInput{StreamName: aws.String(o.Name), ShardCount: aws.Int32(1),
		RecordDistributionStrategy: "AUTO"}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSink(t.Context(), o, SinkOptions{}); fault.ClassOf(err) != fault.Check || !strings.Contains(err.Error(), "AUTO") {
		t.Errorf("%v", err)
	}
}
