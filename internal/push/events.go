package push

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// maxEvents bounds the events that wait for a store that is away.
const maxEvents = 10_000

// eventQueue writes the events of pushes to the store, in order, and again when that fails. No push
// waits for the store.
type eventQueue struct {
	store *store.Store
	log   *slog.Logger
	wake  chan struct{}

	mu      sync.Mutex
	waiting []event
	dropped bool // the last event was, because too many wait
}

type event struct {
	stream string
	name   weir.EventName
	push   store.Push
	at     time.Time
}

func newEventQueue(s *store.Store, log *slog.Logger) *eventQueue {
	return &eventQueue{store: s, log: log, wake: make(chan struct{}, 1)}
}

func (q *eventQueue) add(stream string, name weir.EventName, p store.Push) {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := len(q.waiting) >= maxEvents
	if full && !q.dropped {
		q.log.Warn("events of targets are dropped: too many wait to be saved", "stream", stream)
	}
	if q.dropped = full; full {
		return
	}
	q.waiting = append(q.waiting, event{stream, name, p, time.Now()})
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *eventQueue) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.wake:
		}
		for q.next(ctx) {
		}
	}
}

// next writes the oldest event, and reports whether there may be more.
func (q *eventQueue) next(ctx context.Context) bool {
	q.mu.Lock()
	if len(q.waiting) == 0 {
		q.mu.Unlock()
		return false
	}
	e := q.waiting[0]
	q.mu.Unlock()
	err := q.store.Tx(ctx, func(tx *store.Tx) error {
		return tx.EmitPush(ctx, e.name, e.stream, e.push, e.at)
	})
	if err != nil && weir.Retriable(err) {
		if ctx.Err() == nil {
			q.log.Warn("the event of a target could not be saved and will be retried", "stream", e.stream, "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
			return true
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = q.waiting[1:]
	return true
}
