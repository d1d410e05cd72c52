package access

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weir/internal/weir"
)

// lines let so many requests at once do something for a key. The others wait in a line, in which
// networks take turns: one that sends a thousand requests waits behind those that send one.
type lines struct {
	AtOnce    int // for a key
	OfNetwork int // of these, from one network
	// Waiting is how many may wait for a key; 0 = all. When more come, the network with the most loses its
	// last.
	Waiting int
	Timeout time.Duration // of a wait; 0 = none

	mu    sync.Mutex
	lines map[string]*line
}

// line has the requests for one key.
type line struct {
	running map[netip.Prefix]int // by network
	all     int                  // that run
	waiting map[netip.Prefix][]*waiter
	length  int            // that wait
	turns   []netip.Prefix // the networks of those who wait, the next one first
}

// waiter is a request that waits. Its channel gets true when it is its turn, and false when it has
// lost its place.
type waiter struct{ turn chan bool }

// enter waits for the turn of a request and returns what must be called when it is done. An error of
// kind Busy says that its turn does not come.
func (l *lines) enter(ctx context.Context, key string, from netip.Prefix) (leave func(), err error) {
	me := &waiter{make(chan bool, 1)}
	l.mu.Lock()
	one := l.lines[key]
	if one == nil {
		if l.lines == nil {
			l.lines = map[string]*line{}
		}
		one = &line{running: map[netip.Prefix]int{}, waiting: map[netip.Prefix][]*waiter{}}
		l.lines[key] = one
	}
	one.add(from, me)
	l.next(one)
	if l.Waiting > 0 && one.length > l.Waiting {
		one.dropLast()
	}
	l.mu.Unlock()

	var timeout <-chan time.Time
	if l.Timeout > 0 {
		timeout = time.After(l.Timeout)
	}
	leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		one.end(from)
		l.next(one)
		l.forget(key, one)
	}
	select {
	case mine := <-me.turn:
		if mine {
			return leave, nil
		}
		return nil, errLine()
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout:
		err = errLine()
	}
	l.mu.Lock()
	gone := one.remove(from, me)
	l.forget(key, one)
	l.mu.Unlock()
	if !gone && <-me.turn { // at the same moment
		leave()
	}
	return nil, err
}

func errLine() error {
	return weir.TooMany(5*time.Second, "too many viewers wait for their credentials to be checked; try again in a few seconds")
}

// next gives turns to those who wait. The caller holds the lock, as for all that follows.
func (l *lines) next(one *line) {
	for one.all < l.AtOnce {
		i := slices.IndexFunc(one.turns, func(n netip.Prefix) bool { return one.running[n] < l.OfNetwork })
		if i < 0 {
			return
		}
		from := one.turns[i]
		me := one.waiting[from][0]
		one.remove(from, me)
		if len(one.waiting[from]) > 0 { // behind the others
			one.turns = append(slices.Delete(one.turns, i, i+1), from)
		}
		one.running[from]++
		one.all++
		me.turn <- true
	}
}

// forget drops a line without requests.
func (l *lines) forget(key string, one *line) {
	if one.all == 0 && one.length == 0 && l.lines[key] == one {
		delete(l.lines, key)
	}
}

func (one *line) add(from netip.Prefix, me *waiter) {
	if len(one.waiting[from]) == 0 {
		one.turns = append(one.turns, from)
	}
	one.waiting[from] = append(one.waiting[from], me)
	one.length++
}

func (one *line) end(from netip.Prefix) {
	one.all--
	if one.running[from]--; one.running[from] == 0 {
		delete(one.running, from)
	}
}

// remove reports whether the request has waited until now.
func (one *line) remove(from netip.Prefix, me *waiter) bool {
	i := slices.Index(one.waiting[from], me)
	if i < 0 {
		return false
	}
	one.length--
	one.waiting[from] = slices.Delete(one.waiting[from], i, i+1)
	if len(one.waiting[from]) == 0 {
		delete(one.waiting, from)
		i := slices.Index(one.turns, from)
		one.turns = slices.Delete(one.turns, i, i+1)
	}
	return true
}

// dropLast takes the place of the last request of the network from which most wait.
func (one *line) dropLast() {
	var most netip.Prefix
	for _, from := range one.turns { // in their order, so that of two with as many the later one loses
		if len(one.waiting[from]) >= len(one.waiting[most]) {
			most = from
		}
	}
	last := one.waiting[most][len(one.waiting[most])-1]
	one.remove(most, last)
	last.turn <- false
}
