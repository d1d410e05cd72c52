package store

import (
	"context"
	"sync"
)

// maxShown bounds how many rows are remembered; one has about a kilobyte and a half.
const maxShown = 1 << 14

// shownCache remembers rows as they are shown. It is right because it hears of
// every change: of this process's own at their commit, by the id of the row, and
// of those by others from the engine, which then clears it. Only SQLite can tell
// those apart and in time (see sqlite.changedSince), so it is off on PostgreSQL.
type shownCache struct {
	on         bool
	mu         sync.RWMutex
	rows       map[string]Shown
	generation int64
}

// get returns the row that is remembered, or reads it. What was read before a
// change and arrives after it is not remembered.
func (c *shownCache) get(key string, read func() (Shown, error)) (Shown, error) {
	if !c.on {
		return read()
	}
	c.mu.RLock()
	row, ok := c.rows[key]
	generation := c.generation
	c.mu.RUnlock()
	if ok {
		return row, nil
	}
	row, err := read()
	if err != nil {
		return row, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return row, nil
	}
	if c.rows == nil || len(c.rows) >= maxShown {
		c.rows = map[string]Shown{}
	}
	c.rows[key] = row
	return row, nil
}

// forget drops rows that have changed.
func (c *shownCache) forget(keys []string) {
	if len(keys) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for _, key := range keys {
		delete(c.rows, key)
	}
}

// clear drops everything.
func (c *shownCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.rows = nil
}

// ShownStream is that of a transaction, with rows that were read before. Callers
// must not change what they get.
func (s *Store) ShownStream(ctx context.Context, id string) (Shown, error) {
	return s.shown.get(streams.placeOf(id), func() (Shown, error) { return s.queries.ShownStream(ctx, id) })
}
