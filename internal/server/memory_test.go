package server

import (
	"bytes"
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestReturnMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(300)) // as main does
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- returnMemory(ctx, func() int64 { return 0 }) }()
		synctest.Wait()
		if limit := debug.SetMemoryLimit(-1); limit != memoryTight {
			t.Errorf("the limit is %d, want %d", limit, memoryTight)
		}
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

// TestMemoryLimit expects that the limit grows with the memory in use, and with live streams.
func TestMemoryLimit(t *testing.T) {
	for _, tt := range []struct {
		used    uint64
		streams int64
		want    int64
	}{
		{used: 20 << 20, want: 96 << 20},
		{used: 200 << 20, want: 300 << 20},
		{used: 20 << 20, streams: 1, want: 98 << 20},
		{used: 60 << 20, streams: 100, want: 296 << 20},
		{used: 600 << 20, streams: 1000, want: 2900 << 20},
	} {
		if got := memoryLimit(tt.used, tt.streams); got != tt.want {
			t.Errorf("%d MB in use, %d streams: limit %d MB, want %d", tt.used>>20, tt.streams, got>>20, tt.want>>20)
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
