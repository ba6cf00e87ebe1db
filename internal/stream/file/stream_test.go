package file

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"synctl/internal/record"
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

// A follower of a directory that is made anew is told; it would wait for ever.
func TestFollowerOfAReplacedStreamIsTold(t *testing.T) {
	dir := newStream(t, Options{})
	st, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.Open(t.Context(), shardID(0), stream.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p, err := r.Next(t.Context()); err != nil || !p.AtTip {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := Create(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Fatalf("following a stream that was made anew: %v", err)
	}
}

// A line of a segment is a record as everywhere (what jq and publish --from - get); without its stream field it is Data.
func TestSegmentsAreRecords(t *testing.T) {
	dir := newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{})
	put(t, s, rowLine(1, 300), rowLine(2, 400))
	text, err := os.ReadFile(segments(t, dir, 0)[0])
	if err != nil {
		t.Fatal(err)
	}
	recs := readAll(t, dir, 0, stream.Position{})
	for i, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		var r record.Record
		if err := record.Parse(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var field struct {
			Name, Shard, Sequence string
			PartitionKey          string `json:"partition_key"`
			ArrivedAt             string `json:"arrived_at"`
			Line                  *int
		}
		if _, value, ok := bytes.Cut(r.Line.Get(r.Line.StreamField), []byte(`"stream":`)); !ok {
			t.Fatalf("no stream field in %s", line)
		} else if err := json.Unmarshal(value, &field); err != nil {
			t.Fatal(err)
		}
		if field.Name != "orders" || field.Shard != shardID(0) || field.Sequence != recs[i].Sequence || field.Line == nil || *field.Line != 0 ||
			field.PartitionKey != string(recs[i].PartitionKey) || field.ArrivedAt != string(record.MicrosOf(recs[i].ArrivedAt).Append(nil)) {
			t.Errorf("stream field %+v of %+v", field, recs[i])
		}
		plain, err := record.AppendLine(nil, &r)
		if err != nil || !bytes.Equal(plain, recs[i].Data) {
			t.Errorf("without its stream field the line is %s, %v, want %s", plain, err, recs[i].Data)
		}
	}
}
