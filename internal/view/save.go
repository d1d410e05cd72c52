package view

import (
	"context"
	"maps"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// A view is written when it begins, when its first media was sent, and when its viewer has gone.
// Between, it is written rarely: each time the store gets a LastSeen that is ahead, until when the
// viewer counts as watching without another write. So the store knows who watches as if each request
// were written at once; only the watch time is behind.

const (
	// saveEvery is the interval at which what must be written is written.
	saveEvery = 2 * time.Second
	// ahead is how far LastSeen is ahead in the store while a viewer watches. A crash loses the watch
	// time of so long, and of saveEvery.
	ahead = 20 * time.Second
	// gone is how long after the last request the store gets the real LastSeen. It must have it before
	// the viewer would not count as watching any more, so gone is well below watching.
	gone = 15 * time.Second
	// saveAtOnce is the maximum number of views, and of hours of accounts, in a transaction.
	saveAtOnce = 1000
	// saveTimeout is the timeout of a transaction, and of the last writes of a Counter together.
	saveTimeout = 10 * time.Second
	// lastRetry is the pause before the last writes are tried again.
	lastRetry = 50 * time.Millisecond
)

// stored is what of a view changes, as the store has it.
type stored struct {
	lastSeen    weir.Millis // 0 = the store does not have the view
	playtimeMs  int64
	exitedEarly bool
}

// exact returns what the store should have when the viewer sends no more requests.
func (v *activeView) exact() stored { return stored{v.LastSeen, v.PlaytimeMs, v.ExitedEarly} }

// due returns what the store should have, and whether it must be written now. all says that nothing
// may be left for later.
func (v *activeView) due(now time.Time, all bool) (want stored, ok bool) {
	want = v.exact()
	if all || now.Sub(v.LastSeen.Time()) >= gone {
		return want, want != v.stored
	}
	want.lastSeen = max(want.lastSeen, weir.At(now.Add(ahead)))
	setBack := v.stored.lastSeen > want.lastSeen // the clock was
	return want, v.LastSeen > v.stored.lastSeen || v.ExitedEarly != v.stored.exitedEarly || setBack
}

// Run writes what must be written every saveEvery, and everything when ctx ends.
func (c *Counter) Run(ctx context.Context) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			c.saveAll(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
		}
		if err := c.save(context.WithoutCancel(ctx), time.Now(), false); err != nil {
			c.Log.WarnContext(ctx, "views could not be written; trying again", "err", err)
		}
	}
}

// saveAll writes everything. It tries again, because the connections to the database may be dead: its
// server was restarted. Each is gone once it was tried.
func (c *Counter) saveAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	for {
		err := c.save(ctx, time.Now(), true)
		if err == nil {
			return
		}
		select {
		case <-time.After(lastRetry):
		case <-ctx.Done():
			c.Log.WarnContext(ctx, "the last views could not be written", "err", err)
			return
		}
	}
}

// save writes what must be written, in transactions of a bounded size, and drops views that have
// ended. What can't be written waits: however long the database is away, that is one state of each
// view and one sum for each hour of an account.
func (c *Counter) save(ctx context.Context, now time.Time, all bool) error {
	defer c.forget(now)
	for views := range slices.Chunk(c.due(now, all), saveAtOnce) {
		rows, wanted := c.rows(views, now, all)
		if err := c.tx(ctx, func(ctx context.Context, tx *store.Tx) error { return tx.SaveViews(ctx, rows...) }); err != nil {
			return err
		}
		c.written(views, wanted)
	}
	usage := c.takeUsage(now, all)
	defer c.putBack(usage) // what is left of it
	for keys := range slices.Chunk(slices.Collect(maps.Keys(usage)), saveAtOnce) {
		rows := make([]weir.Usage, len(keys))
		for i, u := range keys {
			rows[i] = weir.Usage{UserID: u.userID, CreatorID: u.creatorID, Hour: u.hour, DeliveryMs: usage[u].Milliseconds()}
		}
		if err := c.tx(ctx, func(ctx context.Context, tx *store.Tx) error { return tx.SaveUsage(ctx, rows...) }); err != nil {
			return err
		}
		for _, u := range keys {
			delete(usage, u)
		}
	}
	return nil
}

func (c *Counter) tx(ctx context.Context, do func(context.Context, *store.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	return c.Store.Tx(ctx, func(tx *store.Tx) error { return do(ctx, tx) })
}

// due returns the views that must be written.
func (c *Counter) due(now time.Time, all bool) []*activeView {
	c.mu.Lock()
	defer c.mu.Unlock()
	var views []*activeView
	for _, v := range c.active {
		if _, ok := v.due(now, all); ok {
			views = append(views, v)
		}
	}
	return views
}

// rows returns views as they are to be written, and what the store will have then.
func (c *Counter) rows(views []*activeView, now time.Time, all bool) ([]weir.View, []stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows, wanted := make([]weir.View, len(views)), make([]stored, len(views))
	for i, v := range views {
		rows[i] = v.View
		wanted[i], _ = v.due(now, all)
		rows[i].LastSeen = wanted[i].lastSeen
	}
	return rows, wanted
}

// written notes what the store has now.
func (c *Counter) written(views []*activeView, wanted []stored) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, v := range views {
		v.stored = wanted[i]
	}
}

// forget drops views that have ended and are written.
func (c *Counter) forget(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, v := range c.active {
		if v.stored == v.exact() && now.Sub(v.LastSeen.Time()) > pause {
			c.drop(key)
		}
	}
}

// takeUsage returns the usage that was not written yet, once it is old enough.
func (c *Counter) takeUsage(now time.Time, all bool) map[usageKey]time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !all && now.Before(c.usageDue) {
		return nil
	}
	usage := c.usage
	c.usage = map[usageKey]time.Duration{}
	return usage
}

// putBack keeps usage that could not be written for the next save.
func (c *Counter) putBack(usage map[usageKey]time.Duration) {
	if len(usage) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.usageDue = time.Time{}
	for u, length := range usage {
		c.usage[u] += length
	}
}
