package ingest

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"weir/internal/weir"
)

const (
	// logEvery is the interval of log lines about refused connections.
	logEvery = 10 * time.Second
	// The maximum number of log lines about single unauthenticated clients: per second, and at once.
	unauthenticatedLines       = 2
	unauthenticatedLinesAtOnce = 20
	// How many connections of an address may end without a valid stream key: per second, and at once.
	failuresPerSecond = 5
	maxFailuresAtOnce = 100
	// maxFailing is the number of addresses whose failures are kept.
	maxFailing = 4096
)

// unauthenticatedLog logs clients without a valid stream key, at a limited rate.
type unauthenticatedLog struct {
	mu      sync.Mutex
	lines   *rate.Limiter
	dropped int // lines since the last one
}

func newUnauthenticatedLog() *unauthenticatedLog {
	return &unauthenticatedLog{lines: rate.NewLimiter(unauthenticatedLines, unauthenticatedLinesAtOnce)}
}

// report logs one client, unless the limit is reached.
func (s *unauthenticatedLog) report(log *slog.Logger, level slog.Level, message, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lines.Allow() {
		s.dropped++
		return
	}
	if s.dropped > 0 {
		log = log.With("others", s.dropped)
		s.dropped = 0
	}
	log.Log(context.Background(), level, message, "reason", reason)
}

// slots limits the connections of a server.
type slots struct {
	log             *slog.Logger
	maxOpen         int
	maxWaiting      int // from one address, without a valid stream key
	counters        *Counters
	unauthenticated *unauthenticatedLog

	mu         sync.Mutex
	open       int
	waiting    map[netip.Prefix]int // connections without a valid stream key
	failing    weir.Buckets[netip.Prefix]
	turnedAway int // since the last log line
	logged     time.Time
}

// newSlots returns the slots of a server; 0 = the default of a limit. counters may be nil.
func newSlots(maxOpen, maxWaiting int, counters *Counters, log *slog.Logger) *slots {
	return &slots{
		log: log, maxOpen: cmp.Or(maxOpen, 1000), maxWaiting: cmp.Or(maxWaiting, 32), counters: cmp.Or(counters, &Counters{}),
		unauthenticated: newUnauthenticatedLog(), waiting: map[netip.Prefix]int{},
		failing: weir.Buckets[netip.Prefix]{AtOnce: maxFailuresAtOnce, PerSecond: failuresPerSecond, Max: maxFailing},
	}
}

// slot is the slot of one connection.
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
		if now := time.Now(); now.Sub(s.logged) > logEvery {
			s.log.Warn("too many connections; some were turned away", "count", s.turnedAway, "open", s.open,
				"waiting", s.waiting[from], "remote", remote.String())
			s.turnedAway, s.logged = 0, now
		}
		return nil, false
	}
	s.open++
	s.counters.open.Add(1)
	s.waiting[from]++
	return &slot{s, from, true}, true
}

// fail notes that the connection had no valid stream key: that costs a database query and a log line.
func (t *slot) fail() { t.slots.failing.Take(t.from, time.Now()) }

// settle notes that the connection has a valid stream key.
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

func (t *slot) free() {
	t.settle()
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.slots.open--
	t.slots.counters.open.Add(-1)
}

// network returns weir.Network of an address.
func network(a net.Addr) netip.Prefix {
	with, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Prefix{}
	}
	return weir.Network(with.AddrPort().Addr())
}

// The maximum number of log lines about the media of one connection: per second, and at once.
const (
	mediaLines       = 0.1
	mediaLinesAtOnce = 10
)

// bounded returns a logger for messages that a client can cause as often as it wants. It drops
// those beyond the limit.
func bounded(log *slog.Logger) *slog.Logger {
	return slog.New(boundedHandler{log.Handler(), rate.NewLimiter(mediaLines, mediaLinesAtOnce)})
}

type boundedHandler struct {
	slog.Handler
	lines *rate.Limiter
}

func (h boundedHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.lines.AllowN(r.Time, 1) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h boundedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return boundedHandler{h.Handler.WithAttrs(attrs), h.lines}
}

func (h boundedHandler) WithGroup(name string) slog.Handler {
	return boundedHandler{h.Handler.WithGroup(name), h.lines}
}

// Counters count the connections of all listeners that share them.
type Counters struct{ open, turnedAway atomic.Int64 }

// Stats are the current values of Counters.
type Stats struct {
	Connections int64 // that are open
	TurnedAway  int64 // because there were too many
}

// Stats returns the current values.
func (c *Counters) Stats() Stats { return Stats{c.open.Load(), c.turnedAway.Load()} }
