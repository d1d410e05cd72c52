package store

import (
	"context"
	"maps"
	"sync"
	"time"
)

// The topics that can be watched.
const (
	TopicEvent = "event" // an event was written
	TopicAuth  = "auth"  // an account, a project or an API key changed
	TopicTask  = "task"  // a task waits to be admitted, or has ended
	TopicLive  = "live"  // a session must end, or was taken over by another node; multistream targets changed
	TopicPull  = "pull"  // a pull is wanted, is not any more, plays or has failed
)

const pollEvery = 250 * time.Millisecond

// watchers wait for topics.
type watchers struct {
	mu       sync.Mutex
	waiting  map[string]map[chan struct{}]bool
	versions map[string]int64
}

// Watch returns a channel that is sent to after the topic changed, wherever
// that was: in this process at once, in another within a second. Changes that come
// faster than they are received are told of once. stop ends it.
func (s *Store) Watch(topic string) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[string]map[chan struct{}]bool{}
	}
	if w.waiting[topic] == nil {
		w.waiting[topic] = map[chan struct{}]bool{}
	}
	w.waiting[topic][ch] = true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting[topic], ch)
	}
}

// changed tells the watchers of a topic.
func (s *Store) changed(topic string) {
	if topic == TopicAuth {
		s.auth.clear()
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for ch := range s.watch.waiting[topic] {
		select {
		case ch <- struct{}{}:
		default: // it has not looked at the last one yet
		}
	}
}

// bump counts a topic up; whoever watches it is told after the commit. The
// counter's row is locked until then.
func (tx *Tx) bump(ctx context.Context, topic string) (int64, error) {
	if tx.bumped == nil {
		tx.bumped = map[string]bool{}
	}
	first := !tx.bumped[topic]
	tx.bumped[topic] = true
	n, err := one(ctx, tx.conn, scanInt, "UPDATE counter SET value = value + 1 WHERE name = $1 RETURNING value", topic)
	if err != nil || !first {
		return n, err
	}
	return n, tx.tx.notify(ctx, topic)
}

// bumpLater is bump at the end of the transaction, where its lock keeps nobody
// waiting who holds another.
func (tx *Tx) bumpLater(topic string) {
	if tx.later == nil {
		tx.later = map[string]bool{}
	}
	tx.later[topic] = true
}

// poll finds what other processes changed.
func (s *Store) poll(ctx context.Context) error {
	maybe, err := s.engine.changedSince(ctx)
	if err != nil || !maybe {
		return err
	}
	s.shown.clear()
	s.engine.wake(ctx, nil)
	type counter struct {
		name  string
		value int64
	}
	all, err := many(ctx, s.conn, func(r rows) (c counter, err error) { return c, r.Scan(&c.name, &c.value) }, "SELECT name, value FROM counter")
	if err != nil {
		return err
	}
	now := map[string]int64{}
	for _, c := range all {
		now[c.name] = c.value
	}
	s.watch.mu.Lock()
	before := s.watch.versions
	s.watch.versions = now
	s.watch.mu.Unlock()
	if maps.Equal(before, now) {
		return nil
	}
	for name, value := range now {
		if before[name] != value {
			s.changed(name)
		}
	}
	return nil
}

// listen hears of changes at once where the engine can tell.
func (s *Store) listen(ctx context.Context) {
	if err := s.engine.listen(ctx, s.changed); err != nil {
		s.log.WarnContext(ctx, "store could not listen for changes", "err", err)
	}
}
