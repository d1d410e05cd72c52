package playback

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/weir"
)

// recent caches answers for as long as they are fresh. Concurrent requests for the same key share
// one query.
type recent[V any] struct {
	max     int // number of answers at which all are dropped
	loading singleflight.Group
	mu      sync.Mutex
	answers map[string]recentAnswer[V]
}

type recentAnswer[V any] struct {
	value   V
	err     error
	checked time.Time
}

// get returns a cached answer, or that of load. An error that another attempt may not have is not
// cached. load does not end with the request: others may wait for it too.
func (c *recent[V]) get(ctx context.Context, key string, now time.Time, load func(context.Context) (V, error)) (V, error) {
	c.mu.Lock()
	known, ok := c.answers[key]
	c.mu.Unlock()
	if ok && now.Sub(known.checked) < fresh {
		return known.value, known.err
	}
	found, err, _ := c.loading.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLoad)
		defer cancel()
		value, err := load(ctx)
		if err != nil && weir.Retriable(err) {
			return value, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.answers == nil || len(c.answers) >= c.max {
			c.answers = map[string]recentAnswer[V]{}
		}
		c.answers[key] = recentAnswer[V]{value, err, now}
		return value, err
	})
	return found.(V), err
}

func (c *recent[V]) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, key)
}
