package server

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

const (
	// The memory limit is set every limitEvery, and memory is returned to the system every
	// memoryEvery.
	limitEvery  = 2 * time.Second
	memoryEvery = 10 * limitEvery
	// memoryEnough is the heap size up to which no memory is returned.
	memoryEnough = 32 << 20
	// memoryTight is the memory from which on Go collects garbage, even if the heap has not grown by GOGC
	// percent yet: many imports at the same time make more garbage than they use memory.
	memoryTight = 96 << 20
	// memoryOfStream is added for each live stream. A stream makes much garbage of small objects, and
	// collecting it often would take too much time.
	memoryOfStream = 2 << 20
)

// returnMemory limits the memory that weir takes from the system, until ctx ends, and returns
// it after a burst. Go collects garbage only when the heap grows, or after two minutes, and then returns
// memory slowly: an idle service would keep memory for long that it once needed.
//
// streams returns the number of live streams.
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
	for ticks := 1; ; ticks++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, onAir := readHeap(), streams()
		if own {
			debug.SetMemoryLimit(memoryLimit(now.used, onAir))
		}
		if ticks%int(memoryEvery/limitEvery) != 0 || now.held <= memoryEnough {
			continue
		}
		if now.collections == last { // what was in use may be garbage now
			runtime.GC()
			now = readHeap()
		}
		last = now.collections
		// Go needs twice the memory in use. Live streams soon need again what they release.
		if now.held > 2*now.used && onAir == 0 {
			debug.FreeOSMemory()
		}
	}
}

// memoryLimit returns how much memory Go may take from the system.
func memoryLimit(used uint64, streams int64) int64 {
	// A limit close to the memory in use would only cost time.
	return max(memoryTight, 3*int64(used)/2) + streams*memoryOfStream
}

type heap struct {
	held        uint64 // bytes taken from the system
	used        uint64 // bytes that were in use when garbage was last collected
	collections uint64 // of garbage, until now
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
