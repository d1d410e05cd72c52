package ingest

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"weir/internal/weir"
)

const (
	// tellEvery is how often the log tells of what happens often.
	tellEvery = 10 * time.Second
	// What is told of each stranger by itself: so many lines a second, and at once.
	unauthenticatedLines       = 2
	unauthenticatedLinesAtOnce = 20
	// From one address, so many connections may fail to show a good stream key in a
	// second, and at once.
	failuresPerSecond = 5
	maxFailuresAtOnce = 100
	// maxFailing is of how many addresses failures are kept.
	maxFailing = 4096
)

// strangers are those who have not shown a good stream key. The log tells of them, but
// not as often as they want.
type unauthenticated struct {
	mu    sync.Mutex
	lines *rate.Limiter
	mute  int // of whom nothing was told
}

func newUnauthenticated() *unauthenticated {
	return &unauthenticated{lines: rate.NewLimiter(unauthenticatedLines, unauthenticatedLinesAtOnce)}
}

// tell writes about one to a log, unless there is too much of it.
func (s *unauthenticated) tell(log *slog.Logger, level slog.Level, message, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lines.Allow() {
		s.mute++
		return
	}
	if s.mute > 0 {
		log = log.With("others", s.mute) // before it, like it
		s.mute = 0
	}
	log.Log(context.Background(), level, message, "reason", reason)
}

// slots are the connections that a server may have.
type slots struct {
	log             *slog.Logger
	maxOpen         int
	maxWaiting      int // from one address, without a good stream key
	counters        *Counters
	unauthenticated *unauthenticated

	mu         sync.Mutex
	open       int
	waiting    map[netip.Prefix]int // connections without a good stream key
	failing    weir.Buckets[netip.Prefix]
	turnedAway int // since the log told of it
	told       time.Time
}

func newSlots(maxOpen, maxWaiting int, log *slog.Logger) *slots {
	return &slots{
		log: log, maxOpen: maxOpen, maxWaiting: maxWaiting, counters: &Counters{}, unauthenticated: newUnauthenticated(),
		waiting: map[netip.Prefix]int{}, failing: weir.Buckets[netip.Prefix]{AtOnce: maxFailuresAtOnce, PerSecond: failuresPerSecond, Max: maxFailing},
	}
}

// countBy lets others read how many connections there are.
func (s *slots) countBy(c *Counters) *slots {
	if c != nil {
		s.counters = c
	}
	return s
}

// slot is the place of a connection among those that are allowed.
type slot struct {
	slots   *slots
	from    netip.Prefix
	waiting bool
}

// admit gives a connection a slot, if there is one.
func (s *slots) admit(remote net.Addr) (*slot, bool) {
	from := network(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.maxOpen || s.waiting[from] >= s.maxWaiting || !s.failing.Allows(from, time.Now()) {
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
	return &slot{s, from, true}, true
}

// fail notes that the connection did not show a good stream key: that costs a look into
// the database, and a line in the log.
func (t *slot) fail() { t.slots.failing.Take(t.from, time.Now()) }

// settle says that the connection showed a good stream key.
func (t *slot) settle() {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	if !t.waiting {
		return
	}
	t.waiting = false
	if t.slots.waiting[t.from]--; t.slots.waiting[t.from] == 0 {
		delete(t.slots.waiting, t.from)
	}
}

// leave gives the slot back.
func (t *slot) leave() {
	t.settle()
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.slots.open--
	t.slots.counters.open.Add(-1)
}

// network is weir.Network of whom a connection is with.
func network(a net.Addr) netip.Prefix {
	with, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Prefix{}
	}
	return weir.Network(with.AddrPort().Addr())
}
