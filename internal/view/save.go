package view

import (
	"context"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// saveEvery is the interval at which views are written.
const saveEvery = 2 * time.Second

// Run writes changed views to the store every saveEvery, and when ctx ends.
func (c *Counter) Run(ctx context.Context) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		ended := false
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		if err := c.save(context.WithoutCancel(ctx), time.Now()); err != nil {
			c.Log.WarnContext(ctx, "views could not be written; trying again", "err", err)
		}
		if ended {
			return nil
		}
	}
}

// save writes what has changed, and drops views that have ended.
func (c *Counter) save(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	changed, usage := c.takeChanges()
	if len(changed) == 0 && len(usage) == 0 {
		c.forget(now)
		return nil
	}
	err := c.Store.Tx(ctx, func(tx *store.Tx) error {
		for _, v := range changed {
			if err := tx.SaveView(ctx, v); err != nil {
				return err
			}
		}
		for u, length := range usage {
			if err := tx.SaveUsage(ctx, weir.Usage{UserID: u.userID, CreatorID: u.creatorID, Hour: u.hour, DeliveryMs: length.Milliseconds()}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		c.putBack(changed, usage)
		return err
	}
	c.forget(now)
	return nil
}

// takeChanges returns what has changed since the last call.
func (c *Counter) takeChanges() ([]weir.View, map[usageKey]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []weir.View
	for _, v := range c.active {
		if v.changed {
			changed = append(changed, v.View)
			v.changed = false
		}
	}
	usage := c.usage
	c.usage = map[usageKey]time.Duration{}
	return changed, usage
}

// forget drops views that have ended and are written.
func (c *Counter) forget(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, v := range c.active {
		if !v.changed && now.Sub(v.LastSeen.Time()) > pause {
			c.drop(key)
		}
	}
}

// putBack keeps what could not be written for the next save.
func (c *Counter) putBack(changed []weir.View, usage map[usageKey]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unwritten := map[string]bool{}
	for _, v := range changed {
		unwritten[v.ID] = true
	}
	for _, v := range c.active {
		v.changed = v.changed || unwritten[v.ID]
	}
	for u, length := range usage {
		c.usage[u] += length
	}
}
