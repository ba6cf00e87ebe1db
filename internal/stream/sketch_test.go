package stream

import (
	"fmt"
	"testing"
)

func TestSketchFindsHotKeysAmongMany(t *testing.T) {
	s := NewSketch(32)
	add := func(key string) { s.Add([]byte(key), HashKey([]byte(key)), 1, 10) }
	for i := range 20_000 {
		add(fmt.Sprintf("cold.%d", i))
		if i%10 == 0 {
			add("hot.a")
		}
		if i%20 == 0 {
			add("hot.b")
		}
	}
	top := s.Top(2)
	if len(top) != 2 || top[0].PartitionKey != "hot.a" || top[1].PartitionKey != "hot.b" {
		t.Fatalf("the hottest keys are %+v", top)
	}
	// Lower bounds: never more than the truth, and within the sketch's error of total/size of it.
	if r := top[0].Records; r > 2000 || r < 2000-23_000/32 {
		t.Errorf("hot.a had 2000 records, the sketch says %d", r)
	}
	if len(s.order) > 32 || len(s.index) > 32 {
		t.Errorf("the sketch grew to %d keys", len(s.order))
	}
}

func TestSketchIsExactBelowItsSize(t *testing.T) {
	s := NewSketch(0)
	for i := range 100 {
		key := fmt.Appendf(nil, "k%d", i%10)
		s.Add(key, HashKey(key), 1, 5)
	}
	for _, load := range s.Top(10) {
		if load.Records != 10 || load.Bytes != 50 {
			t.Errorf("%s: %d records, %d bytes", load.PartitionKey, load.Records, load.Bytes)
		}
	}
}

func BenchmarkSketchColdKeys(b *testing.B) {
	s := NewSketch(0)
	keys := make([][]byte, 10_000)
	hashes := make([]Hash, len(keys))
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "public.orders.%d", i)
		hashes[i] = HashKey(keys[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(keys[i%len(keys)], hashes[i%len(keys)], 1, 300)
	}
}
