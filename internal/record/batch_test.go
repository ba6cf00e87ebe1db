package record

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// TestBatchKeepsWhatItHolds fills a batch several times with values of all sizes and looks at all of them at the end.
func TestBatchKeepsWhatItHolds(t *testing.T) {
	b := NewBatch(64<<10, nil, nil)
	for round := range 5 {
		type kept struct {
			p    []byte
			fill byte
		}
		var all []kept
		bytesIn := 0
		for i := 0; ; i++ {
			n := (i*37 + round) % 5000
			if !b.Fits(n, 3) {
				break
			}
			bytesIn += n + recordBytes + 3*valueBytes
			r := b.Add()
			r.After = b.Values(3)
			p := b.Alloc(n)
			for k := range p {
				p[k] = byte(i)
			}
			r.After[0] = Value{Kind: Text, Data: p}
			all = append(all, kept{p, byte(i)})
		}
		for i, k := range all {
			if !bytes.Equal(k.p, bytes.Repeat([]byte{k.fill}, len(k.p))) {
				t.Fatalf("round %d: value %d was overwritten", round, i)
			}
			if v := b.Records[i].After; !bytes.Equal(v[0].Data, k.p) || v[1].Kind != Absent {
				t.Fatalf("round %d: values of record %d were overwritten", round, i)
			}
		}
		if b.Bytes() != bytesIn || b.Bytes() > b.Limit() {
			t.Errorf("accounts for %d bytes of %d, limit %d", b.Bytes(), bytesIn, b.Limit())
		}
		b.Reset()
		if b.held() > 2*b.Limit() {
			t.Errorf("keeps %d bytes, twice its limit is %d", b.held(), 2*b.Limit())
		}
	}
}

func TestBatchReserve(t *testing.T) {
	var asked, given int
	full := errors.New("full")
	b := NewBatch(1<<10, func(_ context.Context, n int) error {
		if asked+n > 1<<20 {
			return full
		}
		asked += n
		return nil
	}, func(n int) { given += n })
	if b.Fits(5000, 2) {
		t.Fatal("5000 bytes fit a batch of 1 KiB")
	}
	if err := b.Reserve(t.Context(), 5000, 2); err != nil || !b.Fits(5000, 2) || b.Fits(5001, 2) {
		t.Fatalf("%v; after Reserve it must fit exactly", err)
	}
	first := asked
	if err := b.Reserve(t.Context(), 5000, 2); err != nil || asked != first {
		t.Errorf("%v; asked again for what is there", err)
	}
	if err := b.Reserve(t.Context(), 2<<20, 0); err != full {
		t.Errorf("error %v", err)
	}
	b.Adopt(make([]byte, 0, 5000))
	b.Reset()
	if given != asked || b.Bytes() != 0 || b.Fits(5000, 2) {
		t.Errorf("%d of %d bytes given back, %d accounted for", given, asked, b.Bytes())
	}
}

// TestBatchSteadyState: a batch that is filled alike again and again allocates nothing.
func TestBatchSteadyState(t *testing.T) {
	b := NewBatch(256<<10, nil, nil)
	fill := func() {
		for b.Fits(100, 9) {
			r := b.Add()
			r.After = b.Values(9)
			r.After[0].Data = b.Alloc(100)
		}
		b.Reset()
	}
	fill()
	if n := testing.AllocsPerRun(20, fill); n > 0 {
		t.Errorf("%v allocations per batch", n)
	}
}
