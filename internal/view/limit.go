package view

import (
	"context"
	"math"
	"time"

	"weir/internal/weir"
)

// An account has a limit of viewers at once. Only who begins to watch is refused because of it: the
// viewers on other nodes are known a moment later, and nobody is interrupted.

// Unlimited is the limit of an account that has none.
const Unlimited = math.MaxInt

const (
	// watching is how long after the last request a viewer counts as watching.
	watching = 30 * time.Second
	// countEvery is the interval at which the viewers of all accounts are counted.
	countEvery = time.Second
	// maxAccounts is the number of accounts whose viewers on other nodes are cached.
	maxAccounts = 10_000
)

// watcher is a viewer of an account's titles.
type watcher struct {
	key   watcherKey
	seen  time.Time
	views int
}

type watcherKey struct {
	userID string
	viewer Viewer
}

// room returns how many of a limit may watch on this node.
func (c *Counter) room(ctx context.Context, userID string, limit int) (int, error) {
	if limit == Unlimited || !c.Others {
		return limit, nil
	}
	now := time.Now()
	others, err := c.elsewhere.Get(ctx, userID, now, func(ctx context.Context) (int64, error) {
		return c.Store.ViewersElsewhere(ctx, userID, weir.At(now.Add(-watching)))
	})
	if c.Store.Away() != nil {
		err = nil // those who are known count, and those on this node
	}
	return limit - int(others), err
}

func (c *Counter) admitted(ok bool, limit int) error {
	if ok {
		return nil
	}
	c.refused.Add(1)
	return weir.Errorf(weir.Denied, "the account has reached its limit of %d concurrent viewers", limit)
}

// beginView starts a view, unless the account has so many viewers and this one is not among them.
func (c *Counter) beginView(of *Title, who Viewer, room int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.admits(of.UserID, who, room, now) {
		return false
	}
	c.findOrStart(of, who, now)
	return true
}

// mayBegin reports whether begin would start a view.
func (c *Counter) mayBegin(userID string, who Viewer, room int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admits(userID, who, room, now)
}

// admits reports whether a viewer watches an account's titles, or there is room for one more.
func (c *Counter) admits(userID string, who Viewer, room int, now time.Time) bool {
	if by := c.watchers[watcherKey{userID, who.identity()}]; by != nil && now.Sub(by.seen) < watching {
		return true
	}
	if now.Sub(c.counted) >= countEvery {
		c.counted = now
		clear(c.counts)
		for key, by := range c.watchers {
			if now.Sub(by.seen) < watching {
				c.counts[key.userID]++
			}
		}
	}
	return c.counts[userID] < room
}

func (c *Counter) watcher(key watcherKey) *watcher {
	by := c.watchers[key]
	if by == nil {
		by = &watcher{key: key}
		c.watchers[key] = by
	}
	return by
}
