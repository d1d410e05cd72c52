package ingest

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// tellEvery is how often the log tells of what happens often.
const tellEvery = 10 * time.Second

// seats are the connections that a server may have.
type seats struct {
	log         *slog.Logger
	mostOpen    int
	mostWaiting int // from one address, without a good stream key
	counters    *Counters

	mu         sync.Mutex
	open       int
	waiting    map[netip.Prefix]int // connections without a good stream key
	turnedAway int                  // since the log told of it
	told       time.Time
}

func newSeats(mostOpen, mostWaiting int, log *slog.Logger) *seats {
	return &seats{log: log, mostOpen: mostOpen, mostWaiting: mostWaiting, counters: &Counters{}, waiting: map[netip.Prefix]int{}}
}

// countBy lets others read how many connections there are.
func (s *seats) countBy(c *Counters) *seats {
	if c != nil {
		s.counters = c
	}
	return s
}

// seat is the place of a connection among those that are allowed.
type seat struct {
	seats   *seats
	from    netip.Prefix
	waiting bool
}

// admit gives a connection a seat, if there is one.
func (s *seats) admit(remote net.Addr) (*seat, bool) {
	from := network(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.mostOpen || s.waiting[from] >= s.mostWaiting {
		s.turnedAway++
		s.counters.turnedAway.Add(1)
		if now := time.Now(); now.Sub(s.told) > tellEvery {
			s.log.Warn("too many connections; some were turned away", "count", s.turnedAway, "open", s.open,
				"waiting", s.waiting[from], "remote", remote.String())
			s.turnedAway, s.told = 0, now
		}
		return nil, false
	}
	s.open++
	s.counters.open.Add(1)
	s.waiting[from]++
	return &seat{s, from, true}, true
}

// settle says that the connection showed a good stream key.
func (t *seat) settle() {
	t.seats.mu.Lock()
	defer t.seats.mu.Unlock()
	if !t.waiting {
		return
	}
	t.waiting = false
	if t.seats.waiting[t.from]--; t.seats.waiting[t.from] == 0 {
		delete(t.seats.waiting, t.from)
	}
}

// leave gives the seat back.
func (t *seat) leave() {
	t.settle()
	t.seats.mu.Lock()
	defer t.seats.mu.Unlock()
	t.seats.open--
	t.seats.counters.open.Add(-1)
}

// network returns what counts as one address: with IPv6, everybody has many.
func network(a net.Addr) netip.Prefix {
	with, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Prefix{}
	}
	addr, bits := with.AddrPort().Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}
