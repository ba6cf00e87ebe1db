package kinesis

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/stream"
	"synctl/internal/testkit/kinesisfake"
)

func TestSinkTruncateReachesEveryShard(t *testing.T) {
	srv, o := fake(t, kinesisfake.Options{CheckOrder: true}, 3)
	split := atomic.Bool{}
	srv.SetScript(func(c kinesisfake.Call) kinesisfake.Verdict {
		// The third PutRecords is the barrier's first: a shard is split between being listed and being written to.
		if c.Operation == "PutRecords" && c.Entries == 3 && split.CompareAndSwap(false, true) {
			srv.Split(testStream, "shardId-000000000002")
		}
		return kinesisfake.Verdict{}
	})
	s := openSink(t, o, SinkOptions{})
	var before, after []change
	for i := range 50 {
		before = append(before, change{op: record.Insert, id: i, row: i})
		after = append(after, change{op: record.Insert, id: i, row: 100 + i})
	}
	publish(t, s, batchOf(append(append(before, change{op: record.Truncate, row: 60}), after...)...))
	closeSink(t, s)
	for _, id := range []string{"shardId-000000000000", "shardId-000000000001", "shardId-000000000003", "shardId-000000000004"} {
		truncates := 0
		for _, r := range srv.Records(testStream, id) {
			for line := range bytes.Lines(r.Data) {
				var rec record.Record
				if err := record.Parse(bytes.TrimSuffix(line, []byte("\n")), &rec); err != nil {
					t.Fatal(err)
				}
				switch {
				case rec.Op == record.Truncate:
					truncates++
				case (rec.Pos.Row > 60) != (truncates > 0):
					t.Errorf("shard %s: record %v on the wrong side of the truncate", id, rec.Pos.Row)
				}
			}
		}
		if truncates == 0 {
			t.Errorf("open shard %s has no truncate", id)
		}
	}
}

type letters struct{ lines, reasons []string }

func (l *letters) Put(_ context.Context, line []byte, _, reason string) error {
	l.lines, l.reasons = append(l.lines, string(line)), append(l.reasons, reason)
	return nil
}

func TestSinkOversize(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	t.Run("fail", func(t *testing.T) {
		_, o := fake(t, kinesisfake.Options{}, 1)
		s := openSink(t, o, SinkOptions{})
		done := make(chan error, 1)
		if err := s.Write(t.Context(), batchOf(change{op: record.Insert, id: 42, value: big}), func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		err := <-done
		if err == nil || fault.ClassOf(err) != fault.Failed {
			t.Fatalf("got %v", err)
		}
		for _, part := range []string{"public.orders", `"public.orders.42"`, "1048560", "insert"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not name %s", err, part)
			}
		}
		if !strings.Contains(fault.HintOf(err), "--oversize dead-letter") {
			t.Errorf("hint %q", fault.HintOf(err))
		}
		if err := s.Close(); err == nil {
			t.Error("close hid the failure")
		}
	})
	t.Run("dead letter", func(t *testing.T) {
		srv, o := fake(t, kinesisfake.Options{}, 1)
		l := &letters{}
		s := openSink(t, o, SinkOptions{DeadLetters: l})
		changes := []change{{op: record.Insert, id: 1, row: 0}, {op: record.Update, id: 1, value: big, row: 1}, {op: record.Update, id: 1, row: 2}, {op: record.Insert, id: 2, value: big, row: 3}}
		publish(t, s, batchOf(changes...))
		closeSink(t, s)
		if len(l.lines) != 2 || !strings.Contains(l.lines[0], big) || !strings.Contains(l.reasons[0], "larger than") {
			t.Errorf("%d dead letters, reasons %q", len(l.lines), l.reasons)
		}
		if sum := s.Summary(); sum.DeadLetters != 2 || sum.Records != 2 {
			t.Errorf("summary %+v", sum)
		}
		checkOrder(t, srv, []change{changes[0], changes[2]})
	})
}

func TestSinkPermanentErrors(t *testing.T) {
	for _, c := range []struct {
		code  string
		class fault.Class
		hint  string
	}{
		{"AccessDeniedException", fault.Unreachable, "kinesis:PutRecords"},
		{"ResourceNotFoundException", fault.Check, "synctl stream create"},
		{"ValidationException", fault.Failed, ""},
		{"UnrecognizedClientException", fault.Unreachable, "AWS_PROFILE"},
	} {
		t.Run(c.code, func(t *testing.T) {
			srv, o := fake(t, kinesisfake.Options{}, 1)
			s := openSink(t, o, SinkOptions{})
			srv.SetScript(func(call kinesisfake.Call) kinesisfake.Verdict {
				return kinesisfake.Verdict{Status: 400, Code: c.code, Message: "no"}
			})
			done := make(chan error, 1)
			if err := s.Write(t.Context(), batchOf(change{op: record.Insert}), func(err error) { done <- err }); err != nil {
				t.Fatal(err)
			}
			err := <-done
			if fault.ClassOf(err) != c.class || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("class %d, hint %q: %v", fault.ClassOf(err), fault.HintOf(err), err)
			}
			if n := srv.Calls("PutRecords"); n != 1 {
				t.Errorf("tried %d times", n)
			}
			_ = s.Close() // gives the failure again
		})
	}
}

// A stream that is deleted under a truncate ends the run, like one that is deleted under rows.
func TestSinkTruncateOfADeletedStream(t *testing.T) {
	_, o := fake(t, kinesisfake.Options{}, 1)
	s := openSink(t, o, SinkOptions{})
	admin := openStream(t, o)
	if _, err := admin.client.DeleteStream(t.Context(), &kinesis.DeleteStreamInput{StreamName: aws.String(testStream)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err := s.Write(ctx, batchOf(change{op: record.Truncate}), func(error) { t.Error("done was called") })
	if !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("write: %v", err)
	}
	_ = s.Close() // gives the failure again
}
