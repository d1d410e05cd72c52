package account

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/weir"
)

// How many attempts are free before one must wait. A person mistypes a password a few times; an
// office may share one address.
const (
	freeByAccount = 5
	freeByAddress = 20
	freeSignups   = 5
)

const (
	firstDelay = time.Second
	// maxDelay bounds how long guesses of others lock out the owner of an account. It still allows
	// only a few hundred guesses a day.
	maxDelay = 5 * time.Minute
	// forgetAfter is how long after its last attempt a key is reset.
	forgetAfter = time.Hour
	// maxTried bounds the memory; about 150 bytes each.
	maxTried = 20_000
)

// throttle delays repeated attempts: after some free ones, each delay is twice the one before. An
// attempt counts when it begins, so that concurrent ones count too.
type throttle struct {
	mu    sync.Mutex
	tried map[string]tries
}

type tries struct {
	n     int
	last  time.Time
	until time.Time // when the next attempt may begin
}

func newThrottle() *throttle { return &throttle{tried: map[string]tries{}} }

// attempt begins an attempt of the key, or returns an error with the time to wait.
func (t *throttle) attempt(key string, free int, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, known := t.tried[key]
	if now.Sub(e.last) > forgetAfter {
		e = tries{}
	}
	if wait := e.until.Sub(now); wait > 0 {
		return weir.TooMany(wait, "too many attempts; try again in %s", inWords(wait))
	}
	if !known && len(t.tried) >= maxTried {
		t.evict(now)
	}
	e.n++
	e.last = now
	if over := e.n - free; over >= 0 {
		e.until = now.Add(min(maxDelay, firstDelay<<min(over, 20)))
	}
	t.tried[key] = e
	return nil
}

// succeeded uncounts the last attempt.
func (t *throttle) succeeded(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.tried[key]
	if !ok {
		return
	}
	e.n--
	e.until = time.Time{}
	if e.n <= 0 {
		delete(t.tried, key)
		return
	}
	t.tried[key] = e
}

// forget resets a key.
func (t *throttle) forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.tried, key)
}

// evict drops old keys, and if that is not enough, the half with the fewest attempts.
func (t *throttle) evict(now time.Time) {
	keys := make([]string, 0, len(t.tried))
	for key, e := range t.tried {
		if now.Sub(e.last) > forgetAfter {
			delete(t.tried, key)
			continue
		}
		keys = append(keys, key)
	}
	if len(t.tried) < maxTried/2 {
		return
	}
	slices.SortFunc(keys, func(a, b string) int {
		x, y := t.tried[a], t.tried[b]
		return cmp.Or(x.n-y.n, x.last.Compare(y.last))
	})
	for _, key := range keys[:len(keys)/2] {
		delete(t.tried, key)
	}
}

// addressKey returns the key for attempts from an address.
func addressKey(addr netip.Addr) string { return "address/" + weir.Network(addr).Addr().String() }

// accountKey returns the key for attempts at an account, which need not exist.
func accountKey(email string) string { return "account/" + email }

// inWords rounds up to seconds, or to minutes if it is long.
func inWords(d time.Duration) string {
	unit, name := time.Second, "second"
	if d > 2*time.Minute {
		unit, name = time.Minute, "minute"
	}
	n := int((d + unit - 1) / unit)
	if n == 1 {
		return "1 " + name
	}
	return strconv.Itoa(n) + " " + name + "s"
}
