package api

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"weir/internal/weir"
)

// limiter bounds how often one key, or one address without a key, may ask, and
// how often an address may be wrong about a key.
type limiter struct {
	perSecond int
	mu        sync.Mutex
	buckets   map[string]*bucket
	swept     time.Time
}

type bucket struct {
	*rate.Limiter
	used time.Time
}

const (
	// An address may be wrong about a key so often at once, and then so often a second.
	wrongAtOnce    = 100
	wrongPerSecond = 10
	// Buckets that nobody used for so long are full again and can go.
	bucketIdle = time.Minute
)

func newLimiter(perSecond int) *limiter {
	return &limiter{perSecond: perSecond, buckets: map[string]*bucket{}}
}

// allow returns an error when the key has used up its share.
func (l *limiter) allow(key string) error {
	if l.perSecond == 0 || l.bucket(key, rate.Limit(l.perSecond), l.perSecond).Allow() {
		return nil
	}
	return tooMany("too many requests: this key may send %d a second", l.perSecond)
}

// guess returns an error when the address was wrong too often lately.
func (l *limiter) guess(address string) error {
	if l.bucket("wrong/"+address, wrongPerSecond, wrongAtOnce).Tokens() >= 1 {
		return nil
	}
	return tooMany("too many wrong credentials from this address")
}

// wrongGuess notes that the address was wrong.
func (l *limiter) wrongGuess(address string) {
	l.bucket("wrong/"+address, wrongPerSecond, wrongAtOnce).Allow()
}

func tooMany(format string, args ...any) error {
	e := weir.Errorf(weir.Busy, format, args...)
	e.RetryAfter = time.Second
	return e
}

func (l *limiter) bucket(key string, limit rate.Limit, burst int) *bucket {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		if now.Sub(l.swept) > bucketIdle {
			l.swept = now
			for k, old := range l.buckets {
				if now.Sub(old.used) > bucketIdle {
					delete(l.buckets, k)
				}
			}
		}
		b = &bucket{Limiter: rate.NewLimiter(limit, burst)}
		l.buckets[key] = b
	}
	b.used = now
	return b
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
