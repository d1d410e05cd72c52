package store

import (
	"context"
	"strings"
	"sync"
	"time"
)

// The topics that can be watched.
const (
	TopicEvent = "event" // an event was written
	TopicAuth  = "auth"  // an account, a project or an API key changed
	TopicTask  = "task"  // a task waits to be admitted, or has ended
	TopicLive  = "live"  // a session must end, or was taken over by another node; multistream targets changed
	TopicPull  = "pull"  // a pull has started, stopped, plays or has failed
)

const pollEvery = 250 * time.Millisecond

// watchers wait for topics.
type watchers struct {
	mu       sync.Mutex
	waiting  map[string]map[chan struct{}]bool
	versions map[string]int64
}

// Watch returns a channel that receives after the topic changed: at once for changes by this
// process, within a second for those by another. Changes that come faster than they are received
// count once. stop ends it.
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

// changed notifies the watchers of a topic.
func (s *Store) changed(topic string) {
	if id, ok := strings.CutPrefix(topic, forgetTopic); ok {
		s.forgets.forget(id)
		return
	}
	if topic == TopicAuth {
		s.auth.clear()
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for ch := range s.watch.waiting[topic] {
		select {
		case ch <- struct{}{}:
		default: // it has not received the last one yet
		}
	}
}

// bump increments the counter of a topic; watchers are notified after the commit. The row of the
// counter is locked until then.
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

// bumpLater is bump at the end of the transaction, where its lock can't cause a deadlock.
func (tx *Tx) bumpLater(topic string) {
	if tx.later == nil {
		tx.later = map[string]bool{}
	}
	tx.later[topic] = true
}

// poll finds changes by other processes.
func (s *Store) poll(ctx context.Context) error {
	maybe, err := s.engine.changedSince(ctx)
	if err != nil || !maybe {
		return err
	}
	s.shown.clear()
	s.engine.wake(ctx, nil)
	now := map[string]int64{}
	if _, err := many(ctx, s.conn, func(r rows) (n int64, err error) {
		var name string
		err = r.Scan(&name, &n)
		now[name] = n
		return n, err
	}, "SELECT name, value FROM counter"); err != nil {
		return err
	}
	s.watch.mu.Lock()
	before := s.watch.versions
	s.watch.versions = now
	s.watch.mu.Unlock()
	for name, value := range now {
		if before[name] != value {
			s.changed(name)
		}
	}
	return nil
}

// listen receives changes by other processes at once, if the engine can notify of them.
func (s *Store) listen(ctx context.Context) {
	if err := s.engine.listen(ctx, s.changed); err != nil {
		s.log.WarnContext(ctx, "database sends no notifications; changes of other processes are polled", "err", err)
	}
}
