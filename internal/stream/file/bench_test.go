package file

import (
	"io"
	"sync"
	"testing"

	"synctl/internal/record"
	"synctl/internal/stream"
)

const benchRecords = 400_000

// fillStream appends n records of 350 bytes with batches as the engine would, and returns when all are durable. It
// starts the timer: parsing the lines is the source's.
func fillStream(b *testing.B, s *Sink, n int) {
	const perBatch = 2000
	batches := make(chan *record.Batch, 8)
	for n := range cap(batches) {
		batch := record.NewBatch(1<<20, nil, nil)
		for i := range perBatch {
			fill(b, batch, rowLine((n*perBatch+i)*7919, 350))
		}
		batches <- batch
	}
	b.StartTimer()
	var all sync.WaitGroup
	for done := 0; done < n; done += perBatch {
		batch := <-batches
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

// Every record is flushed to the disk before the clock stops.
func BenchmarkAppend(b *testing.B) {
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
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
