package api

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"weir/internal/endpoint"
	"weir/internal/weir"
)

// limiter bounds the rate of requests of a key, or of an address without a key, that of all keys of
// an account together, the rate of wrong keys of an address, and that of the clips of viewers.
type limiter struct {
	ofKey, ofAccount      int // requests a second; 0 = no limit
	keys, accounts, wrong weir.Buckets[string]
	clips                 weir.Buckets[string] // of viewers, by network
}

const (
	// An address may send so many wrong keys at once, and then so many a second.
	wrongAtOnce    = 100
	wrongPerSecond = 10
	// Viewers at one address may make so many clips at once, and then one in clipEvery.
	clipsAtOnce = 5
	clipEvery   = 10 * time.Second
	// maxCounted is the maximum number of keys, or addresses, that are counted at once.
	maxCounted = 100_000
)

func newLimiter(ofKey, ofAccount int) *limiter {
	return &limiter{
		ofKey: ofKey, ofAccount: ofAccount,
		keys:     weir.Buckets[string]{AtOnce: ofKey, PerSecond: float64(ofKey), Max: maxCounted},
		accounts: weir.Buckets[string]{AtOnce: ofAccount, PerSecond: float64(ofAccount), Max: maxCounted},
		wrong:    weir.Buckets[string]{AtOnce: wrongAtOnce, PerSecond: wrongPerSecond, Max: maxCounted},
		clips:    weir.Buckets[string]{AtOnce: clipsAtOnce, PerSecond: 1 / clipEvery.Seconds(), Max: maxCounted},
	}
}

// allow returns an error when the key or its account sends too many requests. account is "" for a
// request without a credential.
func (l *limiter) allow(key, account string) error {
	now := time.Now()
	if l.ofKey > 0 && !l.keys.Take(key, now) {
		return weir.TooMany(time.Second, "too many requests: a key, or an address without a key, may send %d a second", l.ofKey)
	}
	if l.ofAccount > 0 && account != "" && !l.accounts.Take(account, now) {
		return weir.TooMany(time.Second, "too many requests: all keys of this account together may send %d a second", l.ofAccount)
	}
	return nil
}

// checkWrongKeys returns an error when the address has sent too many wrong keys lately.
func (l *limiter) checkWrongKeys(address string) error {
	if l.wrong.Allows(address, time.Now()) {
		return nil
	}
	return weir.TooMany(time.Second, "too many wrong credentials from this address")
}

// countWrongKey counts a wrong key of the address.
func (l *limiter) countWrongKey(address string) { l.wrong.Take(address, time.Now()) }

// slots bound how many requests of each key run at once.
type slots struct {
	mu   sync.Mutex
	used map[string]int
}

// acquire takes one of the slots of a key; ok is false when all are in use.
func (s *slots) acquire(key string, limit int) (release func(), ok bool) {
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
		return "address/" + s.network(r)
	case r.caller.Person():
		return "user/" + r.caller.UserID
	}
	return r.caller.TokenID
}

// clientAddr returns the address of the client, behind trusted proxies.
func (s *server) clientAddr(r *http.Request) netip.Addr {
	return endpoint.ClientAddr(r, s.TrustedProxies)
}

// network returns the network that counts as one client.
func (s *server) network(r *request) string { return weir.Network(s.clientAddr(r.Request)).String() }

// base returns the URL at which the caller reached this server, without a slash at its end.
func (s *server) base(r *http.Request) string {
	if s.PublicURL != "" {
		return s.PublicURL
	}
	return endpoint.RequestBase(r, s.TrustedProxies)
}

// addresses returns what the addresses in the response to a request begin with.
func (s *server) addresses(r *http.Request) weir.Base {
	return weir.Base{URL: s.base(r), IPFS: s.IPFS.URL}
}
