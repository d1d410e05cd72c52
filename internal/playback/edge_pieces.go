package playback

import (
	"container/list"
	"sync"
	"time"
)

// pieces remembers what was fetched from other nodes, up to so many bytes. What was not
// asked for longest goes first.
type pieces struct {
	mu    sync.Mutex
	max   int64
	size  int64
	items map[string]*list.Element
	order list.List // of *keptPiece; the newest first
}

// keptPiece is something that was fetched.
type keptPiece struct {
	address string
	*fetched
	till time.Time // zero = for good
}

// weight is about what it takes in memory.
func (p *keptPiece) weight() int64 { return int64(len(p.body)+len(p.address)) + 256 }

func (c *pieces) init(limit int64) { c.max, c.items = limit, map[string]*list.Element{} }

func (c *pieces) get(address string, now time.Time) (*fetched, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[address]
	if !ok {
		return nil, false
	}
	p := e.Value.(*keptPiece)
	if !p.till.IsZero() && now.After(p.till) {
		c.remove(e)
		return nil, false
	}
	c.order.MoveToFront(e)
	return p.fetched, true
}

func (c *pieces) put(address string, f *fetched, till time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[address]; ok {
		c.remove(e)
	}
	p := &keptPiece{address, f, till}
	if p.weight() > c.max/4 {
		return // it would drive out too much else
	}
	c.items[address] = c.order.PushFront(p)
	for c.size += p.weight(); c.size > c.max; {
		c.remove(c.order.Back())
	}
}

func (c *pieces) remove(e *list.Element) {
	p := c.order.Remove(e).(*keptPiece)
	delete(c.items, p.address)
	c.size -= p.weight()
}
