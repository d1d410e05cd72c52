package store

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/weir"
)

const (
	// Fresh is how long Recent returns what it has read without reading it again.
	Fresh = time.Second
	// recentTimeout is the timeout of a read for Recent.
	recentTimeout = 10 * time.Second
)

// Recent caches results of queries, by a key, for as long as they are fresh. Concurrent readers of
// the same key share one query.
type Recent[V any] struct {
	Max     int // number of results at which all are dropped
	loading singleflight.Group
	mu      sync.Mutex
	results map[string]recentResult[V]
}

type recentResult[V any] struct {
	value V
	err   error
	read  time.Time
}

// Get returns a cached result, or that of load. An error that another attempt may not have is not
// cached. load does not end with ctx: others may wait for it too.
func (c *Recent[V]) Get(ctx context.Context, key string, now time.Time, load func(context.Context) (V, error)) (V, error) {
	c.mu.Lock()
	known, ok := c.results[key]
	c.mu.Unlock()
	if ok && now.Sub(known.read) < Fresh {
		return known.value, known.err
	}
	found, err, _ := c.loading.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recentTimeout)
		defer cancel()
		value, err := load(ctx)
		if err != nil && weir.Retriable(err) {
			return value, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.results == nil || len(c.results) >= c.Max {
			c.results = map[string]recentResult[V]{}
		}
		c.results[key] = recentResult[V]{value, err, now}
		return value, err
	})
	return found.(V), err
}

// Forget drops the result of a key.
func (c *Recent[V]) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.results, key)
}
