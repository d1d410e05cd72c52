package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestReturnMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- returnMemory(ctx) }()
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

// holdBriefly uses a lot of memory and returns what the heap holds meanwhile.
//
//go:noinline
func holdBriefly(size int) uint64 {
	large := bytes.Repeat([]byte{1}, size)
	held := readHeap().held
	return held + uint64(large[0]) - 1
}
