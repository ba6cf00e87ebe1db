package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"synctl/internal/record"
	"synctl/internal/stream"
)

// rowLine is the line of an insert of about size bytes.
func rowLine(id, size int) []byte {
	b := fmt.Appendf(nil, `{"v":1,"id":"7412345678901234567.1.%016X.0","op":"insert","schema":"public","table":"orders","key":{"id":%d},"after":{"id":%d,"note":"`, id, id, id)
	end := fmt.Sprintf(`"},"lsn":"0/%X","row_lsn":"0/%X","xid":7,"committed_at":"2026-11-30T19:58:00.123456Z"}`, id+8, id)
	for len(b)+len(end) < size {
		b = append(b, 'a'+byte(len(b)%26))
	}
	return append(b, end...)
}

// fill puts lines into a batch.
func fill(t testing.TB, b *record.Batch, lines ...[]byte) {
	t.Helper()
	for _, line := range lines {
		if err := record.Parse(b.Copy(line), b.Add()); err != nil {
			t.Fatalf("parse %s: %v", line, err)
		}
	}
}

func newStream(t testing.TB, o Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "orders")
	if err := Create(dir, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openSink(t testing.TB, dir string, o SinkOptions) *Sink {
	t.Helper()
	s, err := OpenSink(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// put writes lines as one batch and waits until they are durable.
func put(t testing.TB, s *Sink, lines ...[]byte) {
	t.Helper()
	b := record.NewBatch(1<<20, nil, nil)
	fill(t, b, lines...)
	done := make(chan error, 1)
	if err := s.Write(t.Context(), b, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// readAll reads one shard up to its tip.
func readAll(t testing.TB, dir string, shard int, at stream.Position) []stream.Record {
	t.Helper()
	recs, err := tryReadAll(t.Context(), dir, shard, at)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

func tryReadAll(ctx context.Context, dir string, shard int, at stream.Position) (all []stream.Record, err error) {
	st, err := Open(dir)
	if err != nil {
		return nil, err
	}
	r, err := st.Open(ctx, shardID(shard), at)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		p, err := r.Next(ctx)
		if err != nil {
			return all, err
		}
		for _, rec := range p.Records {
			rec.PartitionKey = append([]byte(nil), rec.PartitionKey...)
			rec.Data = append([]byte(nil), rec.Data...)
			all = append(all, rec)
		}
		if p.AtTip {
			return all, nil
		}
	}
}

func segments(t testing.TB, dir string, shard int) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, shardID(shard), "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func size(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
