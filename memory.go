package main

import (
	"context"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"
)

const (
	// memoryEvery is how often returnMemory looks.
	memoryEvery = 20 * time.Second
	// memorySlack is how much more than twice what is in use may be held.
	memorySlack = 16 << 20
)

// returnMemory gives memory back to the system after a burst, until ctx ends. Go
// itself collects garbage only when the heap grows, or after two minutes, and then
// returns it slowly; on a machine that others use too that is long.
func returnMemory(ctx context.Context) error {
	ticker := time.NewTicker(memoryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if held, used := heap(); held > 2*used+memorySlack {
				debug.FreeOSMemory()
			}
		}
	}
}

// heap returns how much memory the heap holds, and how much of it was in use when
// garbage was last collected.
func heap() (held, used uint64) {
	samples := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	runtimemetrics.Read(samples)
	for _, s := range samples[:3] {
		held += s.Value.Uint64()
	}
	return held, samples[3].Value.Uint64()
}
