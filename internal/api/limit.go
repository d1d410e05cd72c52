package api

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"weir/internal/weir"
)

// limiter bounds the rate of requests of a key, or of an address without a key, the rate of wrong
// keys of an address, and that of viewers whom the gate refuses.
type limiter struct {
	perSecond   int
	asks, wrong weir.Buckets[string]
	refused     weir.Buckets[netip.Prefix]
}

const (
	// An address may send so many wrong keys at once, and then so many a second.
	wrongAtOnce    = 100
	wrongPerSecond = 10
	// The gate may refuse so many viewers at once, and then so many a second, of one network: it is
	// a media server that asks for all of its viewers.
	refusedAtOnce    = 1000
	refusedPerSecond = 50
	// maxCounted is the maximum number of keys, or addresses, that are counted at once.
	maxCounted = 100_000
)

func newLimiter(perSecond int) *limiter {
	return &limiter{
		perSecond: perSecond,
		asks:      weir.Buckets[string]{AtOnce: perSecond, PerSecond: float64(perSecond), Max: maxCounted},
		wrong:     weir.Buckets[string]{AtOnce: wrongAtOnce, PerSecond: wrongPerSecond, Max: maxCounted},
		refused:   weir.Buckets[netip.Prefix]{AtOnce: refusedAtOnce, PerSecond: refusedPerSecond, Max: maxCounted},
	}
}

// allow returns an error when the key sends too many requests.
func (l *limiter) allow(key string) error {
	if l.perSecond == 0 || l.asks.Take(key, time.Now()) {
		return nil
	}
	return weir.TooMany(time.Second, "too many requests: this key may send %d a second", l.perSecond)
}

// guess returns an error when the address has sent too many wrong keys lately.
func (l *limiter) guess(address string) error {
	if l.wrong.Allows(address, time.Now()) {
		return nil
	}
	return weir.TooMany(time.Second, "too many wrong credentials from this address")
}

// wrongGuess counts a wrong key of the address.
func (l *limiter) wrongGuess(address string) { l.wrong.Take(address, time.Now()) }

// slots bound how many requests of each key run at once.
type slots struct {
	mu   sync.Mutex
	used map[string]int
}

// take takes one of the slots of a key; ok is false when all are in use.
func (s *slots) take(key string, limit int) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key] >= limit {
		return nil, false
	}
	if s.used == nil {
		s.used = map[string]int{}
	}
	s.used[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.used[key]--; s.used[key] == 0 {
			delete(s.used, key)
		}
	}, true
}

// limitKey returns the key whose limits a request counts against.
func (s *server) limitKey(r *request) string {
	switch {
	case r.caller == nil:
		return "address/" + s.clientAddr(r.Request).String()
	case r.caller.Person():
		return "user/" + r.caller.UserID
	}
	return r.caller.TokenID
}

// clientAddr returns the address of the client, behind trusted proxies.
func (s *server) clientAddr(r *http.Request) netip.Addr {
	return weir.ClientAddr(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), s.TrustedProxies)
}

// base returns the URL at which the caller reached this server, without a slash at its end.
func (s *server) base(r *http.Request) string {
	if s.PublicURL != "" {
		return s.PublicURL
	}
	return weir.RequestBase(r.TLS != nil, r.Host, r.RemoteAddr, r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-Host"), s.TrustedProxies)
}
