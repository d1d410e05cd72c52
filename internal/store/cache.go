package store

import (
	"context"
	"sync"
)

// maxCached bounds a cache. A row as it is shown takes about a kilobyte and a half.
const maxCached = 1 << 14

// cache holds values that were read, until they change.
type cache[V any] struct {
	mu         sync.RWMutex
	values     map[string]V
	generation int64 // counts changes
}

// peek returns the cached value, and the generation of the cache.
func (c *cache[V]) peek(key string) (value V, generation int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	value, ok = c.values[key]
	return value, c.generation, ok
}

// get returns the cached value, or reads it. A value that was read before a change is not cached
// after it.
func (c *cache[V]) get(key string, read func() (V, error)) (V, error) {
	value, generation, ok := c.peek(key)
	if ok {
		return value, nil
	}
	value, err := read()
	if err != nil {
		return value, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return value, nil
	}
	if c.values == nil || len(c.values) >= maxCached {
		c.values = map[string]V{}
	}
	c.values[key] = value
	return value, nil
}

// forget drops values that have changed.
func (c *cache[V]) forget(keys []string) {
	if len(keys) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for _, key := range keys {
		delete(c.values, key)
	}
}

// clear drops all values.
func (c *cache[V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.values = nil
}

// ShownStream is that of a transaction, with a cache. Callers must not change the result.
//
// The cache is off on PostgreSQL: only SQLite notices in time that another process has changed
// something (see sqlite.changedSince).
func (s *Store) ShownStream(ctx context.Context, id string) (Shown, error) {
	if !s.cacheShown {
		return s.queries.ShownStream(ctx, id)
	}
	return s.shown.get(streams.place(id), func() (Shown, error) { return s.queries.ShownStream(ctx, id) })
}
