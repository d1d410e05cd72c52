package weir

import (
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	b := Buckets[string]{AtOnce: 3, PerSecond: 0.5, Max: 10}
	now := time.Now()
	take := func(key string, after time.Duration, want ...bool) {
		t.Helper()
		now = now.Add(after)
		for i, want := range want {
			if allowed := b.Allows(key, now); allowed != want {
				t.Errorf("it is allowed the time %d: %v, want %v", i, allowed, want)
			}
			if taken := b.Take(key, now); taken != want {
				t.Errorf("it is taken the time %d: %v, want %v", i, taken, want)
			}
		}
	}
	take("a", 0, true, true, true, false, false)
	take("b", 0, true)
	take("a", time.Second, false)
	take("a", time.Second, true, false)
	take("a", time.Hour, true, true, true, false)
	take("a", -time.Hour, false) // of a clock that was set back
}

// Keys are kept for as long as they matter, and no more of them than there may be.
func TestBucketsReturn(t *testing.T) {
	b := Buckets[string]{AtOnce: 2, PerSecond: 1, Max: 10}
	now := time.Now()
	b.Return("a") // was never taken
	for range 10 {
		if !b.Take("a", now) {
			t.Fatal("an event that was returned counts")
		}
		b.Return("a")
	}
	later := now.Add(time.Minute)
	b.Return("a")
	for i, want := range []bool{true, true, false} {
		if got := b.Take("a", later); got != want {
			t.Errorf("event %d: Take = %v, want %v", i, got, want)
		}
	}
}

func TestBucketsForget(t *testing.T) {
	const limit = 100
	for name, tt := range map[string]struct {
		step  time.Duration
		exact bool
	}{
		"one after the other": {time.Second, true},
		"all at once":         {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := Buckets[int]{AtOnce: 10, PerSecond: 1, Max: limit}
			now := time.Now()
			for range 10 {
				b.Take(-1, now)
			}
			for i := range 10 * limit {
				now = now.Add(tt.step)
				if !b.Take(i, now) {
					t.Fatalf("key %d may not, the first time", i)
				}
				if len(b.buckets) > limit {
					t.Fatalf("%d keys are kept", len(b.buckets))
				}
				for range 9 {
					b.Take(-1, now) // stays in use
				}
				if tt.exact && b.Take(-1, now) {
					t.Fatalf("a busy key was forgotten when key %d came", i)
				}
			}
		})
	}
}
