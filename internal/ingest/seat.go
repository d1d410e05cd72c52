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
	strangerLines       = 2
	strangerLinesAtOnce = 20
	// From one address, so many connections may fail to show a good stream key in a
	// second, and at once.
	failuresPerSecond = 5
	maxFailuresAtOnce = 100
	// maxFailing is of how many addresses failures are kept.
	maxFailing = 4096
)

// strangers are those who have not shown a good stream key. The log tells of them, but
// not as often as they want.
type strangers struct {
	mu    sync.Mutex
	lines *rate.Limiter
	mute  int // of whom nothing was told
}

func newStrangers() *strangers {
	return &strangers{lines: rate.NewLimiter(strangerLines, strangerLinesAtOnce)}
}

// tell writes about one to a log, unless there is too much of it.
func (s *strangers) tell(log *slog.Logger, level slog.Level, message, reason string) {
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

// seats are the connections that a server may have.
type seats struct {
	log        *slog.Logger
	maxOpen    int
	maxWaiting int // from one address, without a good stream key
	counters   *Counters
	strangers  *strangers

	mu         sync.Mutex
	open       int
	waiting    map[netip.Prefix]int // connections without a good stream key
	failing    weir.Buckets[netip.Prefix]
	turnedAway int // since the log told of it
	told       time.Time
}

func newSeats(maxOpen, maxWaiting int, log *slog.Logger) *seats {
	return &seats{
		log: log, maxOpen: maxOpen, maxWaiting: maxWaiting, counters: &Counters{}, strangers: newStrangers(),
		waiting: map[netip.Prefix]int{}, failing: weir.Buckets[netip.Prefix]{AtOnce: maxFailuresAtOnce, PerSecond: failuresPerSecond, Max: maxFailing},
	}
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
	return &seat{s, from, true}, true
}

// fail notes that the connection did not show a good stream key: that costs a look into
// the database, and a line in the log.
func (t *seat) fail() { t.seats.failing.Take(t.from, time.Now()) }

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

// network is weir.Network of whom a connection is with.
func network(a net.Addr) netip.Prefix {
	with, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Prefix{}
	}
	return weir.Network(with.AddrPort().Addr())
}
