package file

import (
	"bytes"
	"testing"

	"synctl/internal/stream"
)

func TestAppendAndRead(t *testing.T) {
	dir := newStream(t, Options{Shards: 4, SegmentBytes: 4000})
	s := openSink(t, dir, SinkOptions{})
	var lines [][]byte
	for i := range 200 {
		lines = append(lines, rowLine(i, 300+i))
	}
	for i := 0; i < len(lines); i += 20 {
		put(t, s, lines[i:i+20]...)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var got int
	for shard := range 4 {
		if len(segments(t, dir, shard)) < 2 {
			t.Errorf("shard %d has one segment, want several", shard)
		}
		recs := readAll(t, dir, shard, stream.Position{})
		got += len(recs)
		for i, rec := range recs {
			if !bytes.HasSuffix(rec.Data, []byte("}\n")) || !containsLine(lines, rec.Data) {
				t.Fatalf("shard %d record %d is not one that was written: %s", shard, i, rec.Data)
			}
			from := readAll(t, dir, shard, stream.Position{Kind: stream.AtSequence, Sequence: rec.Sequence})
			if len(from) != len(recs)-i || from[0].Sequence != rec.Sequence {
				t.Fatalf("shard %d from record %d: %d records, want %d", shard, i, len(from), len(recs)-i)
			}
		}
	}
	if got != len(lines) {
		t.Fatalf("read %d records, wrote %d", got, len(lines))
	}
}

func containsLine(lines [][]byte, data []byte) bool {
	for _, l := range lines {
		if bytes.Equal(append(l[:len(l):len(l)], '\n'), data) {
			return true
		}
	}
	return false
}
