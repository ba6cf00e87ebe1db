package main

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A load's heap is mostly plain bytes that die young. The runtime's habit, to let the heap double, is too much where the queue is
// full; a fixed small percentage collects a small heap at every turn, which takes a third of the load's CPU time. So the
// room for garbage is given in bytes.
const (
	garbageRoom    = 48 << 20
	leastGCPercent = 25  // where much is alive, the room grows with it
	mostGCPercent  = 300 // where little is alive: or a heap that grows suddenly would be given many times its size
	gcTick         = 20 * time.Millisecond
)

// boundGarbage keeps the heap within what is alive and garbageRoom, or a quarter more than what is alive, until stop is called.
func boundGarbage() (stop func()) {
	before := debug.SetGCPercent(mostGCPercent)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(gcTick)
		defer tick.Stop()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		now := mostGCPercent
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			metrics.Read(live)
			// Setting it stops the world for a moment: only when it matters.
			if want := gcPercent(live[0].Value.Uint64()); want < now*9/10 || want > now*11/10 {
				debug.SetGCPercent(want)
				now = want
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
		debug.SetGCPercent(before)
	}
}

func gcPercent(live uint64) int {
	return int(min(max(100*garbageRoom/max(live, 1), leastGCPercent), mostGCPercent))
}
