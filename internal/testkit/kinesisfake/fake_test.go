package kinesisfake_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"

	"synctl/internal/testkit/kinesisfake"
)

func start(t *testing.T, o kinesisfake.Options) (*kinesisfake.Server, *kinesis.Client) {
	t.Helper()
	s, err := kinesisfake.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.CreateStream("s", 2)
	return s, kinesis.New(kinesis.Options{Region: "us-east-1", BaseEndpoint: aws.String(s.URL()), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")})
}

func entry(key, data string) types.PutRecordsRequestEntry {
	return types.PutRecordsRequestEntry{PartitionKey: aws.String(key), Data: []byte(data)}
}

func put(c *kinesis.Client, entries ...types.PutRecordsRequestEntry) (*kinesis.PutRecordsOutput, error) {
	return c.PutRecords(context.Background(), &kinesis.PutRecordsInput{StreamName: aws.String("s"), Records: entries})
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if e, ok := errors.AsType[smithy.APIError](err); !ok || e.ErrorCode() != code {
		t.Errorf("got %v, want %s", err, code)
	}
}

func TestPutRecordsLimits(t *testing.T) {
	s, c := start(t, kinesisfake.Options{})
	many := slices.Repeat([]types.PutRecordsRequestEntry{entry("k", "x")}, 501)
	large := strings.Repeat("x", 1<<20-1)
	eleven := make([]types.PutRecordsRequestEntry, 11)
	for i := range eleven {
		eleven[i] = entry(fmt.Sprint(i%10), large)
	}
	for _, test := range []struct {
		name    string
		entries []types.PutRecordsRequestEntry
		code    string
	}{
		{"501 records", many, "ValidationException"},
		{"11 MiB", eleven, "InvalidArgumentException"},
		{"record over 1 MiB with its key", []types.PutRecordsRequestEntry{entry("kk", large)}, "InvalidArgumentException"},
		{"empty key", []types.PutRecordsRequestEntry{entry("", "x")}, "ValidationException"},
		{"257 characters", []types.PutRecordsRequestEntry{entry(strings.Repeat("ö", 257), "x")}, "ValidationException"},
		{"hash key out of range", []types.PutRecordsRequestEntry{{PartitionKey: aws.String("k"), Data: []byte("x"),
			ExplicitHashKey: aws.String("340282366920938463463374607431768211456")}}, "InvalidArgumentException"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := put(c, test.entries...)
			wantCode(t, err, test.code)
		})
	}
	out, err := put(c, append(many[:499:499], entry(strings.Repeat("ö", 256), large[:1<<20-512]))...)
	if err != nil || *out.FailedRecordCount != 0 {
		t.Fatalf("500 records at the limits: %v", err)
	}
	if n, _ := s.Stored("s"); n != 500 {
		t.Errorf("%d records stored", n)
	}
}

func TestSequencesGrow(t *testing.T) {
	_, c := start(t, kinesisfake.Options{})
	last := ""
	for range 20 {
		out, err := put(c, entry("k", "x"))
		if err != nil {
			t.Fatal(err)
		}
		seq := *out.Records[0].SequenceNumber
		if len(seq) != 56 || seq <= last {
			t.Fatalf("sequence %q after %q", seq, last)
		}
		last = seq
	}
}

func TestRateLimit(t *testing.T) {
	now := time.Unix(1e9, 0)
	_, c := start(t, kinesisfake.Options{RateLimits: true, Now: func() time.Time { return now }})
	refused := 0
	for range 3 {
		out, err := put(c, slices.Repeat([]types.PutRecordsRequestEntry{entry("k", "x")}, 500)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Records {
			if aws.ToString(r.ErrorCode) == "ProvisionedThroughputExceededException" && r.ShardId == nil {
				refused++
			}
		}
	}
	if refused != 500 {
		t.Errorf("%d of 1500 records in a second were refused, want 500", refused)
	}
	now = now.Add(time.Second)
	if out, err := put(c, entry("k", strings.Repeat("x", 1<<20-1)), entry("k", "y")); err != nil || *out.FailedRecordCount != 1 {
		t.Errorf("1 MiB and a byte in a second: %v, %v", out, err)
	}
}

func TestFaults(t *testing.T) {
	s, c := start(t, kinesisfake.Options{})
	stored := func() int64 { n, _ := s.Stored("s"); return n }
	for _, test := range []struct {
		name    string
		verdict kinesisfake.Verdict
		stored  int64 // at once
		later   int64
		ok      bool
	}{
		{"drop", kinesisfake.Verdict{Drop: true}, 0, 0, false},
		{"lost acknowledgement", kinesisfake.Verdict{LoseAck: true}, 1, 1, false},
		{"late", kinesisfake.Verdict{Drop: true, Late: 300 * time.Millisecond}, 0, 1, false},
		{"server error", kinesisfake.Verdict{Status: 503, Code: "ServiceUnavailable"}, 0, 0, false},
		{"entry", kinesisfake.Verdict{Entry: func(int, string) string { return "InternalFailure" }}, 0, 0, true},
		{"none", kinesisfake.Verdict{}, 1, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.SetScript(func(kinesisfake.Call) kinesisfake.Verdict { return test.verdict })
			before := stored()
			_, err := put(c, entry("k", "x"))
			if (err == nil) != test.ok {
				t.Errorf("error %v", err)
			}
			if n := stored() - before; n != test.stored {
				t.Errorf("%d records stored at once, want %d", n, test.stored)
			}
			for deadline := time.Now().Add(5 * time.Second); stored()-before != test.later && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			if n := stored() - before; n != test.later {
				t.Errorf("%d records stored in the end, want %d", n, test.later)
			}
		})
	}
}

// The check of the publisher's law must itself find what breaks it.
func TestCheckOrder(t *testing.T) {
	s, c := start(t, kinesisfake.Options{CheckOrder: true})
	if _, err := put(c, entry("k", "1")); err != nil {
		t.Fatal(err)
	}
	s.SetScript(func(kinesisfake.Call) kinesisfake.Verdict { return kinesisfake.Verdict{LoseAck: true} })
	for range 2 {
		_, _ = put(c, entry("k", "2")) // lost, and sent again as it was: lawful
	}
	if v := s.Violations(); len(v) != 0 {
		t.Fatalf("lawful requests: %v", v)
	}
	_, _ = put(c, entry("k", "3"))
	if v := s.Violations(); len(v) != 1 {
		t.Errorf("a new entry before the acknowledgement of the last: %v", v)
	}
	s.SetScript(nil)
	if _, err := put(c, entry("j", "1"), entry("j", "2")); err != nil {
		t.Fatal(err)
	}
	if v := s.Violations(); len(v) != 3 { // twice in one request, and new before the acknowledgement
		t.Errorf("two entries of a key in one request: %v", v)
	}
}

func TestListShardsFilters(t *testing.T) {
	now := time.Unix(1e9, 0)
	s, c := start(t, kinesisfake.Options{Now: func() time.Time { return now }, PageShards: 2})
	now = now.Add(time.Hour)
	s.Split("s", "shardId-000000000000")
	list := func(filter types.ShardFilterType) (ids string) {
		in := &kinesis.ListShardsInput{StreamName: aws.String("s"), ShardFilter: &types.ShardFilter{Type: filter}}
		out, err := c.ListShards(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range out.Shards {
			ids += (*sh.ShardId)[len(*sh.ShardId)-1:]
		}
		return ids
	}
	if got := list(types.ShardFilterTypeAtTrimHorizon) + " " + list(types.ShardFilterTypeFromTrimHorizon); got != "01 01" {
		t.Errorf("at and from the trim horizon, the first page of two: %s", got)
	}
	if got := list(types.ShardFilterTypeAtLatest); got != "12" {
		t.Errorf("open shards, the first page of two: %s", got)
	}
	now = now.Add(25 * time.Hour)
	if got := list(types.ShardFilterTypeFromTrimHorizon); got != "12" {
		t.Errorf("after the retention: %s", got)
	}
}

func TestIteratorExpires(t *testing.T) {
	now := time.Unix(1e9, 0)
	_, c := start(t, kinesisfake.Options{Now: func() time.Time { return now }})
	it, err := c.GetShardIterator(t.Context(), &kinesis.GetShardIteratorInput{StreamName: aws.String("s"),
		ShardId: aws.String("shardId-000000000000"), ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(301 * time.Second)
	_, err = c.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: it.ShardIterator})
	wantCode(t, err, "ExpiredIteratorException")
}

func TestReadLimits(t *testing.T) {
	s, c := start(t, kinesisfake.Options{})
	// After an answer of many MiB the client's own transport now and then cuts the connection under the next call.
	c = kinesis.New(c.Options(), func(o *kinesis.Options) { o.Retryer = retry.NewStandard() })
	for i := range 25 { // 12.5 MiB in one shard
		e := entry("k", strings.Repeat("x", 512<<10))
		e.ExplicitHashKey = aws.String("0")
		if _, err := put(c, e); err != nil {
			t.Fatal(i, err)
		}
	}
	it, err := c.GetShardIterator(t.Context(), &kinesis.GetShardIteratorInput{StreamName: aws.String("s"),
		ShardId: aws.String("shardId-000000000000"), ShardIteratorType: types.ShardIteratorTypeTrimHorizon})
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: it.ShardIterator})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Records) != 20 || *out.MillisBehindLatest == 0 {
		t.Errorf("%d records of half a MiB in one answer, want 10 MiB", len(out.Records))
	}
	s.Trim("s", "shardId-000000000000", 24)
	out, err = c.GetRecords(t.Context(), &kinesis.GetRecordsInput{ShardIterator: it.ShardIterator, Limit: aws.Int32(10)})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Records) != 1 || *out.MillisBehindLatest != 0 {
		t.Errorf("after trimming: %d records", len(out.Records))
	}
}
