package account

import (
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/internal/weir"
)

// How often something may be tried before one must wait. A person mistypes a
// password a few times; behind one address there may be an office.
const (
	freeByAccount = 5
	freeByAddress = 20
	freeSignups   = 5
)

const (
	firstDelay = time.Second
	// Nobody can be locked out for longer than this by others who guess at their
	// account; at this pace a guesser has a few hundred tries a day.
	maxDelay = 5 * time.Minute
	// A key without tries for so long starts anew.
	forgetAfter = time.Hour
	// maxTried bounds the memory; about 150 bytes each.
	maxTried = 20_000
)

// throttle makes those who try again and again wait: after some free tries, twice
// as long each time. A try counts when it begins, so that many at once are many.
type throttle struct {
	mu    sync.Mutex
	tried map[string]tries
}

type tries struct {
	n     int
	last  time.Time
	until time.Time // when the next one may begin
}

func newThrottle() *throttle { return &throttle{tried: map[string]tries{}} }

// attempt begins a try of the key, or returns how long to wait first.
func (t *throttle) attempt(key string, free int, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, known := t.tried[key]
	if now.Sub(e.last) > forgetAfter {
		e = tries{}
	}
	if wait := e.until.Sub(now); wait > 0 {
		err := weir.Errorf(weir.Busy, "too many attempts; try again in %s", inWords(wait))
		err.RetryAfter = wait
		return err
	}
	if !known && len(t.tried) >= maxTried {
		t.makeRoom(now)
	}
	e.n++
	e.last = now
	if over := e.n - free; over >= 0 {
		e.until = now.Add(min(maxDelay, firstDelay<<min(over, 20)))
	}
	t.tried[key] = e
	return nil
}

// succeeded takes back the try that began last: it was right.
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

// forget lets a key start anew.
func (t *throttle) forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.tried, key)
}

// makeRoom drops what is forgotten anyway, and when that is not enough the half
// with the fewest tries: those have the least to lose by starting anew.
func (t *throttle) makeRoom(now time.Time) {
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
		if x.n != y.n {
			return x.n - y.n
		}
		return x.last.Compare(y.last)
	})
	for _, key := range keys[:len(keys)/2] {
		delete(t.tried, key)
	}
}

// addressKey is what tries from an address count against. Whoever has one IPv6
// address has all of its network.
func addressKey(addr netip.Addr) string {
	if addr.Is6() {
		if network, err := addr.WithZone("").Prefix(64); err == nil {
			return "address/" + network.Addr().String()
		}
	}
	return "address/" + addr.String()
}

// accountKey is what tries at an account count against, whether it exists or not.
func accountKey(email string) string { return "account/" + email }

// inWords rounds up to seconds, or to minutes when it is long.
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
