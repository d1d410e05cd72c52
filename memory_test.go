package main

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestReturnMemory(t *testing.T) {
	const burst = 256 << 20
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- returnMemory(ctx) }()
		large := bytes.Repeat([]byte{1}, burst)
		if held, _ := heap(); held < burst {
			t.Fatalf("the heap holds %d bytes, want at least %d", held, burst)
		}
		runtime.KeepAlive(large)
		time.Sleep(memoryEvery + time.Second)
		synctest.Wait()
		if held, _ := heap(); held >= burst {
			t.Errorf("the heap still holds %d bytes", held)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
