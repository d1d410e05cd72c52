package playback

import (
	"container/list"
	"sync"
	"time"
)

// fileCache is an LRU cache of files from other nodes, with a limit in bytes.
type fileCache struct {
	mu    sync.Mutex
	max   int64
	size  int64
	items map[string]*list.Element
	order *list.List // of *cachedFile; the most recently used first
}

type cachedFile struct {
	address string
	*fetched
	till time.Time // zero = for good
}

// memory returns the approximate size in memory.
func (p *cachedFile) memory() int64 { return p.size() + int64(len(p.address)) + 256 }

func newFileCache(limit int64) fileCache {
	return fileCache{max: limit, items: map[string]*list.Element{}, order: list.New()}
}

func (c *fileCache) get(address string, now time.Time) (*fetched, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[address]
	if !ok {
		return nil, false
	}
	p := e.Value.(*cachedFile)
	if !p.till.IsZero() && now.After(p.till) {
		c.remove(e)
		return nil, false
	}
	c.order.MoveToFront(e)
	return p.fetched, true
}

func (c *fileCache) put(address string, f *fetched, till time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[address]; ok {
		c.remove(e)
	}
	p := &cachedFile{address, f, till}
	if p.memory() > c.max/4 {
		return // it would displace too many others
	}
	c.items[address] = c.order.PushFront(p)
	for c.size += p.memory(); c.size > c.max; {
		c.remove(c.order.Back())
	}
}

// drop removes a file that is of no use, unless another one is there by now.
func (c *fileCache) drop(address string, f *fetched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[address]; ok && e.Value.(*cachedFile).fetched == f {
		c.remove(e)
	}
}

// used returns the size of what is in the cache.
func (c *fileCache) used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

func (c *fileCache) remove(e *list.Element) {
	p := c.order.Remove(e).(*cachedFile)
	delete(c.items, p.address)
	c.size -= p.memory()
}
