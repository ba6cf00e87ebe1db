package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"testing"

	"synctl/internal/pg"
	"synctl/internal/record"
)

// stream is what a server sends, made by hand.
type stream struct{ b []byte }

func (s *stream) xlog(lsn uint64, payload []byte) {
	s.b = append(s.b, 'd')
	s.b = binary.BigEndian.AppendUint32(s.b, uint32(4+xlogHeader+len(payload)))
	s.b = append(s.b, 'w')
	s.b = binary.BigEndian.AppendUint64(s.b, lsn)
	s.b = binary.BigEndian.AppendUint64(s.b, lsn)
	s.b = binary.BigEndian.AppendUint64(s.b, 0)
	s.b = append(s.b, payload...)
}

func (s *stream) begin(lsn, commit uint64) {
	p := binary.BigEndian.AppendUint64([]byte{'B'}, commit)
	p = binary.BigEndian.AppendUint64(p, 0)
	s.xlog(lsn, binary.BigEndian.AppendUint32(p, 7))
}

func (s *stream) commit(commit, end uint64) {
	p := binary.BigEndian.AppendUint64([]byte{'C', 0}, commit)
	p = binary.BigEndian.AppendUint64(p, end)
	s.xlog(end, binary.BigEndian.AppendUint64(p, 0))
}

func appendText(p []byte, values ...string) []byte {
	p = binary.BigEndian.AppendUint16(p, uint16(len(values)))
	for _, v := range values {
		p = append(p, 't')
		p = binary.BigEndian.AppendUint32(p, uint32(len(v)))
		p = append(p, v...)
	}
	return p
}

func rowOf(kind byte, mark string, values ...string) []byte {
	p := binary.BigEndian.AppendUint32([]byte{kind}, 1)
	return appendText(append(p, mark...), values...)
}

// loopReader gives one text over and over.
type loopReader struct {
	b   []byte
	off int
}

func (l *loopReader) Read(p []byte) (int, error) {
	n := copy(p, l.b[l.off:])
	if l.off += n; l.off == len(l.b) {
		l.off = 0
	}
	return n, nil
}

// offline is a source that reads from r and knows one table of four text columns, the first its key. It has no server to
// ask.
func offline(r io.Reader) *Source {
	s := &Source{log: slog.New(slog.DiscardHandler), types: pg.NewCatalogue(), meta: &session{guards: true}, filter: &filter{},
		scratch: record.NewBatch(0, nil, nil), relations: map[uint32]*relation{}, timelines: timelines{current: 1}, sure: math.MaxUint64, system: 1}
	text := &record.Type{OID: 25, Name: "text"}
	s.relations[1] = &relation{table: record.NewTable("public", "a", 1, []record.Column{
		{Name: "a", Type: text, Key: true}, {Name: "b", Type: text}, {Name: "c", Type: text}, {Name: "d", Type: text}})}
	s.conn = &replication{frame: newFrame(r)}
	return s
}

// TestNoAllocationPerRow: rows go from the buffer into the batch and out as lines without an allocation each.
func TestNoAllocationPerRow(t *testing.T) {
	const rows = 500
	var in stream
	in.begin(100, 1000000)
	for i := range rows {
		in.xlog(uint64(200+i), rowOf('I', "N", "1234567", "some text", "more text", "2026-11-30"))
	}
	in.commit(1000000, 1000008)
	s := offline(&loopReader{b: in.b})
	b := record.NewBatch(1<<20, nil, nil)
	line := make([]byte, 0, 1<<20)
	n := 0
	read := func() {
		b.Reset()
		s.read = 0 // the same transaction again
		if err := s.ReadBatch(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		line = line[:0]
		for i := range b.Records {
			var err error
			if line, err = record.AppendLine(line[:0], &b.Records[i]); err != nil {
				t.Fatal(err)
			}
		}
		n += len(b.Records)
	}
	for range 20 {
		read()
	}
	n = 0
	const runs = 20
	allocs := testing.AllocsPerRun(runs, read)
	if per := allocs * (runs + 1) / float64(n); n < rows*runs || per > 0.01 {
		t.Errorf("%.4f allocations per row over %d rows", per, n)
	}
}

func BenchmarkDecodeEncode(b *testing.B) {
	var in stream
	in.begin(100, 1000000)
	for i := range 1000 {
		in.xlog(uint64(200+i), rowOf('I', "N", "1234567", "some text", "more text", "2026-11-30"))
	}
	in.commit(1000000, 1000008)
	s := offline(&loopReader{b: in.b})
	batch := record.NewBatch(1<<20, nil, nil)
	var line []byte
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(batch.Records) {
		batch.Reset()
		s.read = 0
		if err := s.ReadBatch(context.Background(), batch); err != nil {
			b.Fatal(err)
		}
		for i := range batch.Records {
			var err error
			if line, err = record.AppendLine(line[:0], &batch.Records[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// FuzzStream: whatever a server sends, the decoder ends with an error and neither panics nor reads beyond a message; what
// it makes of it can be written, or not with an error.
func FuzzStream(f *testing.F) {
	var in stream
	in.begin(100, 1000)
	in.xlog(200, rowOf('I', "N", "1", "b", "c", "d"))
	in.xlog(200, rowOf('I', "N", "2", "b", "c", "d"))
	in.xlog(300, append(rowOf('U', "O", "1", "b", "c", "d"), appendText([]byte{'N'}, "9", "b", "c", "d")...))
	in.xlog(400, rowOf('D', "K", "9", "", "", ""))
	in.xlog(500, append(binary.BigEndian.AppendUint32([]byte{'T'}, 1), 3, 0, 0, 0, 1))
	in.xlog(600, append([]byte{'M', 1, 0, 0, 0, 0, 0, 0, 2, 88, 'p', 0, 0, 0, 0, 2}, "hi"...))
	in.commit(1000, 1008)
	in.b = append(in.b, 'd', 0, 0, 0, 4+18, 'k', 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	f.Add(in.b)
	f.Add([]byte("d\x00\x00\x00\x05w"))
	f.Add([]byte("E\x00\x00\x00\x0aC40001\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := offline(&onceReader{b: data})
		s.temp = true
		b := record.NewBatch(64<<10, func(_ context.Context, n int) error {
			if n > 1<<20 { // as long as a message says it is; the memory would be the fuzzer's time
				return errors.New("too large for a test")
			}
			return nil
		}, nil)
		for range 1000 {
			b.Reset()
			err := s.ReadBatch(context.Background(), b)
			if err != nil {
				if len(b.Records) > 0 && errors.Is(err, io.EOF) {
					t.Fatal("records beside the end")
				}
				return
			}
			if len(b.Records) == 0 && b.Token == nil {
				t.Fatal("a batch of nothing")
			}
			for i := range b.Records {
				_, _ = record.AppendLine(nil, &b.Records[i])
			}
		}
	})
}

type onceReader struct{ b []byte }

func (o *onceReader) Read(p []byte) (int, error) {
	if len(o.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.b)
	o.b = o.b[n:]
	return n, nil
}

func TestTimelines(t *testing.T) {
	ends, err := parseHistory("# comment\n1\t0/3000000\tno recovery target specified\n\n2\t1/0\tbefore 2026-01-01\n")
	if err != nil {
		t.Fatal(err)
	}
	tl := timelines{current: 3, ends: ends}
	for lsn, want := range map[record.LSN]uint32{1: 1, 0x2ffffff: 1, 0x3000000: 2, 0xffffffff: 2, 1 << 32: 3, 1 << 40: 3} {
		if got := tl.of(lsn); got != want {
			t.Errorf("%s is on timeline %d, want %d", lsn, got, want)
		}
	}
	if !tl.contains(1, 0x3000000) || tl.contains(1, 0x3000001) || !tl.contains(3, 1<<50) || tl.contains(9, 1) {
		t.Error("which positions are part of the history")
	}
	if _, err := parseHistory("1\tnonsense\n"); err == nil {
		t.Error("nonsense is a history")
	}
}
