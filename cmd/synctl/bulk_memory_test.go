package main

import (
	"runtime/debug"
	"testing"
)

func TestGarbageIsBounded(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 300}, {4 << 20, 300}, {48 << 20, 100}, {96 << 20, 50}, {1 << 30, 25}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%d MiB alive: %d %%, want %d", c.live>>20, got, c.want)
		}
	}
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	boundGarbage()()
	if after := debug.SetGCPercent(70); after != 70 {
		t.Errorf("left at %d %%, was 70", after)
	}
}
