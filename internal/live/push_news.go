package live

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// pushNews writes what is to be told of pushes, in order, and again if that fails. No
// push waits for the store.
type pushNews struct {
	hub  *Hub
	wake chan struct{}

	mu      sync.Mutex
	waiting []pushEvent
}

type pushEvent struct {
	stream string
	name   weir.EventName
	wish   store.Push
	at     time.Time
}

func (n *pushNews) add(stream string, name weir.EventName, wish store.Push) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, pushEvent{stream, name, wish, time.Now()})
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run writes events until ctx ends.
func (n *pushNews) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		for n.next(ctx) {
		}
	}
}

// next writes the oldest event, and reports whether there may be more.
func (n *pushNews) next(ctx context.Context) bool {
	n.mu.Lock()
	if len(n.waiting) == 0 {
		n.mu.Unlock()
		return false
	}
	e := n.waiting[0]
	n.mu.Unlock()
	err := n.hub.o.Store.Tx(ctx, func(tx *store.Tx) error { return tx.TellOfPush(ctx, e.name, e.stream, e.wish, e.at) })
	if err != nil && weir.Retriable(err) {
		if ctx.Err() == nil {
			n.hub.o.Log.Warn("an event of a target could not be written; it is tried again", "stream", e.stream, "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
			return true
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = n.waiting[1:]
	return true
}

func sortPushes(all []weir.TargetHealth) {
	slices.SortFunc(all, func(a, b weir.TargetHealth) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Profile, b.Profile))
	})
}
