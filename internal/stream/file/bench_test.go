package file

import (
	"io"
	"sync"
	"testing"

	"synctl/internal/record"
	"synctl/internal/stream"
)

const benchRecords = 400_000

// fillStream appends n records of 350 bytes with batches as the engine would, and returns when all are durable.
func fillStream(b *testing.B, s *Sink, n int) {
	const perBatch = 2000
	batches := make(chan *record.Batch, 8)
	for range cap(batches) {
		batches <- record.NewBatch(1<<20, nil, nil)
	}
	var all sync.WaitGroup
	lines := make([][]byte, perBatch)
	for i := range lines {
		lines[i] = rowLine(i*7919, 350)
	}
	for done := 0; done < n; done += perBatch {
		batch := <-batches
		batch.Reset()
		fill(b, batch, lines...)
		all.Add(1)
		err := s.Write(b.Context(), batch, func(err error) {
			if err != nil {
				b.Error(err)
			}
			batches <- batch
			all.Done()
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	all.Wait()
}

// Every record is flushed to the disk before the clock stops. Parsing the lines is part of it.
func BenchmarkAppend(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s := openSink(b, newStream(b, Options{Shards: 4}), SinkOptions{})
		fillStream(b, s, benchRecords)
		s.Close()
	}
	b.ReportMetric(float64(benchRecords)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkRead(b *testing.B) {
	dir := newStream(b, Options{Shards: 4})
	s := openSink(b, dir, SinkOptions{})
	fillStream(b, s, benchRecords)
	s.Close()
	st, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		got := 0
		for i := range 4 {
			r, err := st.Open(b.Context(), shardID(i), stream.Position{})
			if err != nil {
				b.Fatal(err)
			}
			for {
				p, err := r.Next(b.Context())
				if err != nil && err != io.EOF {
					b.Fatal(err)
				}
				got += len(p.Records)
				if p.AtTip {
					break
				}
			}
			r.Close()
		}
		if got != benchRecords {
			b.Fatalf("read %d records, want %d", got, benchRecords)
		}
	}
	b.ReportMetric(float64(benchRecords)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
