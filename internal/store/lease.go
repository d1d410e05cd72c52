package store

import (
	"context"
	"sync"
	"time"

	"weir/internal/weir"
)

// A node holds what it does for as long as it reports: its jobs and the claims of its deliveries by
// its heartbeats, a stream by the beats of its session, a pull by those of the pull. Two rules keep
// a node that is well from being taken for dead:
//
//   - All times are those of the database's clock, so the clocks of nodes need not agree.
//   - Silence counts only as long as the node that judges could write to the database itself. After
//     a pause of the database, or of the judge, everybody looks silent.

const (
	heartbeatEvery = 3 * time.Second
	// heartbeatTimeout lets the next heartbeat be sent before this node is lost. A statement over a
	// connection to a slow database, where it is not prepared yet, takes two round trips.
	heartbeatTimeout = 5 * time.Second
	// A node that could not send a heartbeat for so long is lost: it starts no jobs or deliveries …
	aliveFor = 9 * time.Second
	// … before other nodes take it for dead and take over its jobs and deliveries.
	deadAfter = 12 * time.Second
	// contactGap is the longest pause between two heartbeats of a node that counts as no pause. A node
	// that is well sends one within this time and heartbeatTimeout after a pause of the database
	// that is as long, which is less than any lease.
	contactGap = 2 * heartbeatEvery
)

// contact is since when this node has written to the database without a pause, by the database's
// clock.
type contact struct {
	mu          sync.Mutex
	since, last weir.Millis
}

// wrote notes that this node has written to the database at a time.
func (c *contact) wrote(at weir.Millis) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at < c.last || at.Time().Sub(c.last.Time()) > contactGap {
		c.since = at
	}
	c.last = at
}

// covers reports whether this node could write to the database during all of the lease before now,
// so that it may judge others by it.
func (c *contact) covers(lease time.Duration, now weir.Millis) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since > 0 && now.Time().Sub(c.since.Time()) >= lease && now.Time().Sub(c.last.Time()) <= contactGap
}

// onClock returns what the database's clock shows at a time of this machine's clock, and changes the
// times of beats likewise.
func (s *Store) onClock(ctx context.Context, c conn, at time.Time, beats ...*Beat) (time.Time, error) {
	ahead, err := s.engine.ahead(ctx, c)
	if ahead != 0 {
		for _, b := range beats {
			if b.SeenAt > 0 {
				b.SeenAt += weir.Millis(ahead.Milliseconds())
			}
		}
	}
	return at.Add(ahead), err
}

// onClock is Store.onClock in the transaction.
func (tx *Tx) onClock(ctx context.Context, at time.Time, beats ...*Beat) (time.Time, error) {
	return tx.store.onClock(ctx, tx.conn, at, beats...)
}
