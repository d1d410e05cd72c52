package main

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

const (
	// limitEvery is how often it is looked how much garbage may gather, and memoryEvery
	// how often memory is given back.
	limitEvery  = 2 * time.Second
	memoryEvery = 10 * limitEvery
	// memoryEnough is how much the heap may hold without a look at what for.
	memoryEnough = 32 << 20
	// memoryTight is what Go may take from the system before it collects garbage at
	// once, and not only when the heap has grown as gcPercent says: many imports at the same time
	// leave more garbage than they use memory.
	memoryTight = 96 << 20
	// memoryOfStream is how much more that is for each stream on air, whose garbage comes
	// fast and is small: to collect it often would cost more time than it is worth.
	memoryOfStream = 2 << 20
)

// returnMemory keeps the memory small that weir takes from the system, until ctx ends,
// and gives it back after a burst. Go itself collects garbage only when the heap grows,
// or after two minutes, and then returns it slowly; a service that does nothing would
// long hold what it once needed.
//
// streams tells how many streams are on air.
func returnMemory(ctx context.Context, streams func() int64) error {
	ticker := time.NewTicker(limitEvery)
	defer ticker.Stop()
	limit := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	own := limit == math.MaxInt64 // the operator has not set GOMEMLIMIT
	if own {
		debug.SetMemoryLimit(memoryTight)
	}
	last := uint64(0)
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, onAir := readHeap(), streams()
		if own {
			debug.SetMemoryLimit(memoryLimit(now.used, onAir))
		}
		if looks%int(memoryEvery/limitEvery) != 0 || now.held <= memoryEnough {
			continue
		}
		if now.collections == last { // what was in use then may be garbage now
			runtime.GC()
			now = readHeap()
		}
		last = now.collections
		// Twice what is in use is what Go works with; what streams leave is soon needed again.
		if now.held > 2*now.used && onAir == 0 {
			debug.FreeOSMemory()
		}
	}
}

// memoryLimit is what Go may take from the system when so much of it is in use and so many
// streams are on air.
func memoryLimit(used uint64, streams int64) int64 {
	// Where so much is in use, a tight limit would only cost time.
	return max(memoryTight, 3*int64(used)/2) + streams*memoryOfStream
}

// heap is the state of the heap.
type heap struct {
	held        uint64 // bytes taken from the system
	used        uint64 // bytes that were in use when garbage was last collected
	collections uint64 // of garbage, so far
}

func readHeap() heap {
	samples := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	runtimemetrics.Read(samples)
	n := func(i int) uint64 { return samples[i].Value.Uint64() }
	return heap{held: n(0) + n(1) + n(2), used: n(3), collections: n(4)}
}
