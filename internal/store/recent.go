package store

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/weir"
)

// Fresh is how long Recent returns what it has read without reading it again.
const Fresh = time.Second

// Recent remembers results of queries, by a key. While the database responds, a result is used for as
// long as it is fresh. While it does not, a result is used for as long as Options.Stale allows, and a
// reader waits for the database at most for patience: see absence.
//
// What does not exist is remembered apart, so that requests for it displace nothing that does.
// Concurrent readers of the same key share one query.
type Recent[V any] struct {
	Store *Store
	Max   int // number of results, and of keys that have none

	loading singleflight.Group
	known   sync.Once // the store knows it
	mu      sync.Mutex
	found   latest[V]
	missing latest[V]
	forgot  int64 // counts calls of Forget
}

// result is what was read, or an error that another attempt would have too.
type result[V any] struct {
	value   V
	err     error
	read    time.Time
	expired bool // it is to be read again
}

func (r *result[V]) fresh(now time.Time) bool { return !r.expired && now.Sub(r.read) < Fresh }

// Get returns a remembered result, or that of load. An error that another attempt may not have is not
// remembered. load does not end with ctx: others may wait for it too.
func (c *Recent[V]) Get(ctx context.Context, key string, now time.Time, load func(context.Context) (V, error)) (V, error) {
	known, ok := c.find(key)
	if ok && known.fresh(now) {
		return known.value, known.err
	}
	o := c.Store.away
	instead := func(err error) (V, error) {
		if ok && now.Sub(known.read) < o.stale {
			return known.value, known.err
		}
		var none V
		return none, err
	}
	if err := o.err(); err != nil {
		if o.reads() {
			c.read(ctx, key, now, load)
		}
		return instead(err)
	}
	late, stop := o.patience()
	defer stop()
	select {
	case r := <-c.read(ctx, key, now, load):
		if r.Err != nil && weir.Retriable(r.Err) {
			return instead(r.Err)
		}
		return r.Val.(V), r.Err
	case <-late:
		o.begin(errSilent)
		return instead(outage(errSilent)) // the outage may be over in this moment
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

// GetNow is Get, but while the database responds it reads the result in any case.
func (c *Recent[V]) GetNow(ctx context.Context, key string, load func(context.Context) (V, error)) (V, error) {
	c.Expire(key)
	return c.Get(ctx, key, time.Now(), load)
}

// read calls load, unless another reader of the key has done so and still waits.
func (c *Recent[V]) read(ctx context.Context, key string, now time.Time, load func(context.Context) (V, error)) <-chan singleflight.Result {
	c.known.Do(func() { c.Store.forgets.add(c.Forget) })
	return c.loading.DoChan(key, func() (any, error) {
		c.mu.Lock()
		forgot := c.forgot
		c.mu.Unlock()
		var value V
		err := c.Store.away.read(ctx, func(ctx context.Context) (err error) {
			value, err = load(ctx)
			return err
		})
		if err != nil && weir.Retriable(err) {
			return value, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.forgot == forgot {
			c.remember(key, result[V]{value: value, err: err, read: now})
		}
		return value, err
	})
}

func (c *Recent[V]) find(key string) (result[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.found.get(key); ok {
		return r, true
	}
	return c.missing.get(key)
}

func (c *Recent[V]) remember(key string, r result[V]) {
	to, other := &c.found, &c.missing
	if r.err != nil {
		to, other = other, to
	}
	other.drop(key)
	to.put(key, r, c.Max)
}

// Expire makes the next reader of a key read it again. What is known is kept for the case that the
// database does not respond.
func (c *Recent[V]) Expire(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range []*latest[V]{&c.found, &c.missing} {
		if r, ok := all.get(key); ok {
			r.expired = true
			all.put(key, r, c.Max)
		}
	}
}

// Forget drops the result of a key, which has changed. The store calls it when something with that id
// was deleted or blocked, by this process or another: so an outage that begins later does not bring it
// back.
func (c *Recent[V]) Forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgot++
	c.found.drop(key)
	c.missing.drop(key)
}

// latest keeps the results that were used last.
type latest[V any] struct {
	items map[string]*list.Element
	order *list.List // of *kept[V]; the one that was used last is the first
}

type kept[V any] struct {
	key string
	result[V]
}

func (l *latest[V]) get(key string) (r result[V], ok bool) {
	e, ok := l.items[key]
	if !ok {
		return r, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*kept[V]).result, true
}

func (l *latest[V]) put(key string, r result[V], limit int) {
	if e, ok := l.items[key]; ok {
		e.Value.(*kept[V]).result = r
		l.order.MoveToFront(e)
		return
	}
	if l.items == nil {
		l.items, l.order = map[string]*list.Element{}, list.New()
	}
	l.items[key] = l.order.PushFront(&kept[V]{key, r})
	if len(l.items) > limit {
		l.drop(l.order.Back().Value.(*kept[V]).key)
	}
}

func (l *latest[V]) drop(key string) {
	if e, ok := l.items[key]; ok {
		l.order.Remove(e)
		delete(l.items, key)
	}
}

// forgets are the functions that forget what has changed, by its id.
type forgets struct {
	mu  sync.Mutex
	all []func(id string)
}

func (f *forgets) add(forget func(id string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, forget)
}

func (f *forgets) forget(id string) {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	for _, forget := range all {
		forget(id)
	}
}

// forgetTopic begins the topics that say what is to be forgotten. They have no counters: a process that
// is not notified reads again what is not fresh.
const forgetTopic = "forget "

// forget makes all processes forget what they remember under an id, after the commit.
func (tx *Tx) forget(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		tx.outdated = append(tx.outdated, id)
		if err := tx.tx.notify(ctx, forgetTopic+id); err != nil {
			return err
		}
	}
	return nil
}
