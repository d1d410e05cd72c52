package api

import (
	"net/http"
	"net/netip"
	"time"

	"weir/internal/weir"
)

// limiter bounds how often one key, or one address without a key, may ask, and
// how often an address may be wrong about a key.
type limiter struct {
	perSecond   int
	asks, wrong weir.Buckets[string]
}

const (
	// An address may be wrong about a key so often at once, and then so often a second.
	wrongAtOnce    = 100
	wrongPerSecond = 10
	// maxCounted is of how many keys, or addresses, that is counted at once.
	maxCounted = 100_000
)

func newLimiter(perSecond int) *limiter {
	return &limiter{
		perSecond: perSecond,
		asks:      weir.Buckets[string]{AtOnce: perSecond, PerSecond: float64(perSecond), Max: maxCounted},
		wrong:     weir.Buckets[string]{AtOnce: wrongAtOnce, PerSecond: wrongPerSecond, Max: maxCounted},
	}
}

// allow returns an error when the key has used up its share.
func (l *limiter) allow(key string) error {
	if l.perSecond == 0 || l.asks.Take(key, time.Now()) {
		return nil
	}
	return tooMany("too many requests: this key may send %d a second", l.perSecond)
}

// guess returns an error when the address was wrong too often lately.
func (l *limiter) guess(address string) error {
	if l.wrong.Allows(address, time.Now()) {
		return nil
	}
	return tooMany("too many wrong credentials from this address")
}

// wrongGuess notes that the address was wrong.
func (l *limiter) wrongGuess(address string) { l.wrong.Take(address, time.Now()) }

func tooMany(format string, args ...any) error {
	e := weir.Errorf(weir.Busy, format, args...)
	e.RetryAfter = time.Second
	return e
}

// limitKey is what a request counts against.
func (s *server) limitKey(r *request) string {
	switch {
	case r.caller == nil:
		return "address/" + s.clientAddr(r.Request).String()
	case r.caller.Person():
		return "user/" + r.caller.UserID
	}
	return r.caller.TokenID
}

// clientAddr is who sent the request, seen through the proxies that are trusted.
func (s *server) clientAddr(r *http.Request) netip.Addr {
	return weir.ClientAddr(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), s.TrustedProxies)
}

// base is how the caller reaches this server, without a slash at its end.
func (s *server) base(r *http.Request) string {
	if s.PublicURL != "" {
		return s.PublicURL
	}
	return weir.RequestBase(r.TLS != nil, r.Host, r.RemoteAddr, r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-Host"), s.TrustedProxies)
}
