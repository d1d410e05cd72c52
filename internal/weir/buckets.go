package weir

import (
	"sync"
	"time"
)

// Buckets bound how often something may happen for each of many keys: AtOnce times, and
// then PerSecond times a second. A key that has all of its times again is as good as
// unknown and is forgotten, so that nobody can fill the memory with keys.
type Buckets[K comparable] struct {
	AtOnce    int
	PerSecond float64
	Max       int // keys; if more are busy at once, all begin anew

	mu      sync.Mutex
	buckets map[K]bucket
}

// bucket is how many times a key had left at a moment.
type bucket struct {
	left float64
	at   time.Time
}

// Take reports whether it may happen for a key now, and if so counts it.
func (b *Buckets[K]) Take(key K, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left(key, now)
	if left < 1 {
		return false
	}
	if _, known := b.buckets[key]; !known && len(b.buckets) >= b.Max {
		b.forget(now)
	}
	if b.buckets == nil {
		b.buckets = map[K]bucket{}
	}
	b.buckets[key] = bucket{left - 1, now}
	return true
}

// Allows reports whether it may happen for a key now.
func (b *Buckets[K]) Allows(key K, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left(key, now) >= 1
}

func (b *Buckets[K]) left(key K, now time.Time) float64 {
	bucket, known := b.buckets[key]
	if !known {
		return float64(b.AtOnce)
	}
	return min(float64(b.AtOnce), bucket.left+max(0, now.Sub(bucket.at).Seconds())*b.PerSecond)
}

// forget makes room for at least half of the keys, so that it is not needed all the time.
func (b *Buckets[K]) forget(now time.Time) {
	for key := range b.buckets {
		if b.left(key, now) >= float64(b.AtOnce) {
			delete(b.buckets, key)
		}
	}
	if len(b.buckets) > b.Max/2 {
		clear(b.buckets)
	}
}
