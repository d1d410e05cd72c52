package weir

import (
	"sync"
	"time"
)

// Buckets limit a rate for each of many keys: AtOnce events at once, then PerSecond events a
// second. A key whose bucket is full again can be forgotten, so that nobody can fill the memory
// with keys.
type Buckets[K comparable] struct {
	AtOnce    int
	PerSecond float64
	Max       int // keys; when more are in use at once, all buckets are reset

	mu      sync.Mutex
	buckets map[K]bucket
}

// bucket is how many events a key had left at a time.
type bucket struct {
	left float64
	at   time.Time
}

// Take reports whether an event is allowed for the key now, and if so counts it.
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

// Return undoes a Take.
func (b *Buckets[K]) Return(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, known := b.buckets[key]; known {
		one.left++
		b.buckets[key] = one
	}
}

// Allows reports whether an event is allowed for the key now.
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

// forget drops at least half of the keys, so that it rarely runs.
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
