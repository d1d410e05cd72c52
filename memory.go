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
	// memoryEvery is how often returnMemory looks.
	memoryEvery = 20 * time.Second
	// memoryEnough is how much the heap may hold without a look at what for.
	memoryEnough = 32 << 20
	// memoryTight is what Go may take from the system before it collects garbage at
	// once, and not only when the heap has doubled: many imports at the same time
	// leave more garbage than they use memory.
	memoryTight = 112 << 20
)

// returnMemory keeps the memory small that weir takes from the system, until ctx ends,
// and gives it back after a burst. Go itself collects garbage only when the heap grows,
// or after two minutes, and then returns it slowly; a service that does nothing would
// long hold what it once needed.
func returnMemory(ctx context.Context) error {
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	limit := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	own := limit == math.MaxInt64 // the operator has not set GOMEMLIMIT
	if own {
		debug.SetMemoryLimit(memoryTight)
	}
	last := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := readHeap()
		if own { // where so much is in use, a tight limit would only cost time
			debug.SetMemoryLimit(max(memoryTight, 3*int64(now.used)/2))
		}
		if now.held <= memoryEnough {
			continue
		}
		if now.collections == last { // what was in use then may be garbage now
			runtime.GC()
			now = readHeap()
		}
		last = now.collections
		// Twice what is in use is what Go works with.
		if now.held > 2*now.used {
			debug.FreeOSMemory()
		}
	}
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
