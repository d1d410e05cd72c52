package main

import (
	"bytes"
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestReturnMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- returnMemory(ctx, func() int64 { return 0 }) }()
		before := readHeap().held
		const burst = 256 << 20
		if during := holdBriefly(burst); during < burst {
			t.Fatalf("the heap holds %d bytes, want at least %d", during, burst)
		}
		time.Sleep(3 * memoryEvery)
		synctest.Wait()
		if after := readHeap().held; after > before+burst/2 {
			t.Errorf("the heap held %d bytes before and still holds %d", before, after)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestSetLimits shows that garbage may gather as streams bring it, and not without them.
func TestSetLimits(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer debug.SetMemoryLimit(limit)
	defer debug.SetGCPercent(percent)
	for _, tt := range []struct {
		used        uint64
		streams     int64
		wantPercent int
		wantLimit   int64
	}{
		{used: 20 << 20, wantPercent: 100, wantLimit: 112 << 20},
		{used: 200 << 20, wantPercent: 100, wantLimit: 300 << 20},
		{used: 20 << 20, streams: 1, wantPercent: 110, wantLimit: 114 << 20},
		{used: 60 << 20, streams: 100, wantPercent: 400, wantLimit: 312 << 20},
		{used: 600 << 20, streams: 1000, wantPercent: 400, wantLimit: 2900 << 20},
	} {
		setLimits(heap{used: tt.used}, tt.streams)
		gotPercent, gotLimit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
		if gotPercent != tt.wantPercent || gotLimit != tt.wantLimit {
			t.Errorf("%d MB in use, %d streams: growth %d %%, limit %d MB; want %d %% and %d MB",
				tt.used>>20, tt.streams, gotPercent, gotLimit>>20, tt.wantPercent, tt.wantLimit>>20)
		}
	}
}

// holdBriefly uses a lot of memory and returns what the heap holds meanwhile.
//
//go:noinline
func holdBriefly(size int) uint64 {
	large := bytes.Repeat([]byte{1}, size)
	held := readHeap().held
	return held + uint64(large[0]) - 1
}
