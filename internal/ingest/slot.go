package ingest

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"weir/internal/budget"
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

// Admission admits the encoders of all listeners that share it: it limits invalid stream keys per
// address. The budget limits the connections.
type Admission struct {
	budget  *budget.Budget // nil = no limits
	log     *slog.Logger
	failing weir.Buckets[netip.Prefix]

	open, turnedAway atomic.Int64

	mu       sync.Mutex
	reported int64 // turned away up to the last log line
	logged   time.Time
}

// NewAdmission returns an admission. b may be nil: there are no limits of connections then.
func NewAdmission(b *budget.Budget, log *slog.Logger) *Admission {
	return &Admission{
		budget: b, log: log,
		failing: weir.Buckets[netip.Prefix]{AtOnce: maxFailuresAtOnce, PerSecond: failuresPerSecond, Max: maxFailing},
	}
}

// Stats are the current numbers of an Admission.
type Stats struct {
	Connections int64 // that are open
	TurnedAway  int64 // because of invalid stream keys, or because there were too many streams
}

// Stats returns the current numbers.
func (a *Admission) Stats() Stats { return Stats{a.open.Load(), a.turnedAway.Load()} }

// CheckKeys returns an error if an address has shown too many invalid stream keys lately.
func (a *Admission) CheckKeys(from netip.Addr) error {
	if a.failing.Allows(weir.Network(from), time.Now()) {
		return nil
	}
	return weir.TooMany(time.Second, "too many wrong stream keys from this address; wait a few seconds")
}

// slot is what an admission knows of one connection.
type slot struct {
	admission *Admission
	from      netip.Addr
	release   func() // of the files of its stream; nil = it is not on air
}

// admit admits a connection, which has not shown its stream key yet, unless its address has shown
// too many invalid ones.
func (a *Admission) admit(from netip.Addr) (*slot, error) {
	if err := a.CheckKeys(from); err != nil {
		a.turnAway(from, err)
		return nil, err
	}
	a.open.Add(1)
	return &slot{admission: a, from: from}, nil
}

func (a *Admission) turnAway(from netip.Addr, why error) {
	count := a.turnedAway.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.logged) > logEvery {
		a.log.Warn("encoders were refused", "count", count-a.reported, "open", a.open.Load(), "remote", from.String(), "reason", why.Error())
		a.reported, a.logged = count, now
	}
}

// fail notes that the connection had no valid stream key: that costs a database query and a log line.
func (t *slot) fail() { t.admission.failing.Take(weir.Network(t.from), time.Now()) }

// goOnAir takes the open files of the stream of a publisher. If there are none, it closes the publisher.
func (t *slot) goOnAir(p publisher) error {
	release, err := t.admission.budget.Stream(p.Files())
	if err != nil {
		p.Close(false)
		t.admission.turnAway(t.from, err)
		return err
	}
	t.release = release
	return nil
}

// free notes that the connection has ended.
func (t *slot) free() {
	if t.release != nil {
		t.release()
	}
	t.admission.open.Add(-1)
}

// addressOf returns the IP address of a client.
func addressOf(a net.Addr) netip.Addr {
	with, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return with.AddrPort().Addr()
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
