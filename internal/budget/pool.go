package budget

import (
	"container/list"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weir/internal/weir"
)

// Why a pool has no place for a new member.
var (
	// ErrFull means that all places are taken by busy members.
	ErrFull = errors.New("all places are taken")
	// ErrAddress means that the address has as many members as one address may have.
	ErrAddress = errors.New("this address has reached its limit")

	errTooEarly = errors.New("the member to evict has just begun")
)

// Limits are the limits of a pool.
type Limits struct {
	Members    int // in total
	PerAddress int // of one address; 0 = as many as there are places
	Waiting    int // of one address that are not busy: more are refused; 0 = any number
	Busy       int // busy ones: more stay active; 0 = any number

	// Grace is how long a member that is not idle keeps its place: a new one waits for it. It is for members
	// that come faster than they can be served.
	Grace time.Duration

	// Exempt are networks whose addresses stand for many clients: each connection counts as an
	// address of its own.
	Exempt []netip.Prefix
}

// Pool bounds its members, such as connections, in total and per address. If all places are taken,
// a new member takes the place of another one: of the address that has most idle members, the one
// that has been idle for longest. If none is idle, it takes that of one that has done nothing yet.
// Only if all are busy, the new member is refused.
type Pool struct {
	limits Limits

	mu               sync.Mutex
	members, busy    int
	addresses        map[client]*share
	refused, evicted int64
}

// client is an address as a pool counts it. The port is that of an exempt address.
type client struct {
	network netip.Prefix
	port    uint16
}

// state is what a member does. The order is that in which members are evicted.
type state int

const (
	idle   state = iota // nothing at the moment: it has what it came for
	fresh               // nothing yet
	active              // it works on something that does not protect it
	busy                // it can't be evicted
)

// share is what one address has of a pool.
type share struct {
	members   int
	evictable [busy]list.List // of *Place that can be evicted, the oldest first, by state
}

// Place is the place of a member. A nil Place is none.
type Place struct {
	pool    *Pool
	from    client
	end     func()
	state   state
	since   time.Time     // when the state began
	element *list.Element // in the list of the share; nil = busy
	left    bool
}

// NewPool returns an empty pool.
func NewPool(l Limits) *Pool {
	if l.PerAddress == 0 {
		l.PerAddress = l.Members
	}
	if l.Busy == 0 {
		l.Busy = l.Members
	}
	return &Pool{limits: l, addresses: map[client]*share{}}
}

// Enter takes a place for a new member, which does nothing yet. end is called when the member is evicted.
// Without end it can't be: it is busy until it leaves.
func (p *Pool) Enter(from netip.AddrPort, end func()) (*Place, error) {
	for {
		place, err := p.try(from, end, p.limits.Grace)
		if err != errTooEarly {
			return place, err
		}
		time.Sleep(time.Millisecond)
	}
}

// try is Enter without waiting: if the member to evict is in its grace period, it returns errTooEarly.
func (p *Pool) try(from netip.AddrPort, end func(), grace time.Duration) (*Place, error) {
	who, exempt := p.client(from)
	p.mu.Lock()
	place, victim, err := p.enter(who, exempt, end, grace)
	p.mu.Unlock()
	if victim != nil {
		victim.end()
	}
	return place, err
}

func (p *Pool) client(from netip.AddrPort) (who client, exempt bool) {
	addr := from.Addr().Unmap()
	if slices.ContainsFunc(p.limits.Exempt, func(n netip.Prefix) bool { return n.Contains(addr) }) {
		return client{weir.Network(addr), from.Port()}, true
	}
	return client{weir.Network(addr), 0}, false
}

func (p *Pool) enter(who client, exempt bool, end func(), grace time.Duration) (place, victim *Place, err error) {
	mine := p.addresses[who]
	if mine == nil {
		mine = &share{}
	}
	switch {
	case p.limits.Waiting > 0 && mine.waiting() >= p.limits.Waiting:
		err = ErrAddress
	case !exempt && mine.members >= p.limits.PerAddress:
		if victim = mine.oldest(); victim == nil || end == nil {
			err = ErrAddress
		}
	case p.members >= p.limits.Members:
		if victim = p.oldest(); victim == nil || end == nil {
			err = ErrFull
		}
	}
	switch {
	case err != nil:
		p.refused++
		return nil, nil, err
	case victim != nil && victim.state != idle && time.Since(victim.since) < grace:
		return nil, nil, errTooEarly
	case victim != nil:
		p.evicted++
		victim.remove()
	}
	p.members++
	mine.members++
	p.addresses[who] = mine // which may have been removed with the victim
	place = &Place{pool: p, from: who, end: end, state: busy}
	if end != nil {
		place.markEvictable(fresh)
	}
	return place, victim, nil
}

// waiting returns the number of members that are not busy.
func (s *share) waiting() (n int) {
	for i := range s.evictable {
		n += s.evictable[i].Len()
	}
	return n
}

// oldest returns the member of the share to evict; nil = there is none.
func (s *share) oldest() *Place {
	for i := range s.evictable {
		if first := s.evictable[i].Front(); first != nil {
			return first.Value.(*Place)
		}
	}
	return nil
}

// oldest returns the member to evict; nil = there is none.
func (p *Pool) oldest() *Place {
	for i := range busy {
		var found *list.List
		for _, s := range p.addresses {
			all := &s.evictable[i]
			if all.Len() == 0 || found != nil && all.Len() < found.Len() {
				continue
			}
			if found == nil || all.Len() > found.Len() || first(all).since.Before(first(found).since) {
				found = all
			}
		}
		if found != nil {
			return first(found)
		}
	}
	return nil
}

func first(l *list.List) *Place { return l.Front().Value.(*Place) }

// Idle notes that the member does nothing from now on.
func (t *Place) Idle() { t.set(idle) }

// Active notes that the member works on something that does not protect it: it can be evicted, after
// those that are idle.
func (t *Place) Active() { t.set(active) }

// Busy notes that the member can't be evicted. If there are too many busy members, it can.
func (t *Place) Busy() { t.set(busy) }

func (t *Place) set(to state) {
	if t == nil {
		return
	}
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case t.left || t.end == nil || to == busy && t.state == busy:
		return
	case to == busy && p.busy >= p.limits.Busy:
		to = active
	}
	t.markProtected()
	if to == busy {
		t.state = busy
		p.busy++
		return
	}
	if t.state == busy {
		p.busy--
	}
	t.markEvictable(to)
}

// markEvictable makes the member one that can be evicted.
func (t *Place) markEvictable(to state) {
	t.state, t.since = to, time.Now()
	t.element = t.pool.addresses[t.from].evictable[to].PushBack(t)
}

// markProtected makes the member one that can't be evicted.
func (t *Place) markProtected() {
	if t.element != nil {
		t.pool.addresses[t.from].evictable[t.state].Remove(t.element)
		t.element = nil
	}
}

// Leave gives the place back. Only the first call counts.
func (t *Place) Leave() {
	if t == nil {
		return
	}
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	if !t.left {
		t.remove()
	}
}

func (t *Place) remove() {
	p := t.pool
	t.left = true
	t.markProtected()
	if t.state == busy && t.end != nil {
		p.busy--
	}
	p.members--
	mine := p.addresses[t.from]
	if mine.members--; mine.members == 0 {
		delete(p.addresses, t.from)
	}
}

// PoolStats are the numbers of a pool since its start.
type PoolStats struct {
	Members int64 // now
	Refused int64 // because there was no place
	Evicted int64 // for a new member
}

// Stats returns the current numbers.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{int64(p.members), p.refused, p.evicted}
}
