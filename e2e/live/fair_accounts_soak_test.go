//go:build soak

package live

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/e2e/harness"
)

// fairAccounts lets 12 accounts, one after the other, take all places for deliveries that they can get,
// with webhooks to a server that never answers. The first delivery of others must not be later for it:
// neither that of an account whose receiver has responded before, nor the first one ever of another.
func fairAccounts(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	const accounts, hooks, assets = 12, 4, 10
	w.Start()
	arrived := map[string]chan time.Time{"/known": make(chan time.Time, 10), "/newcomer": make(chan time.Time, 10)}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived[r.URL.Path] <- time.Now() }))
	t.Cleanup(receiver.Close)
	tarpit := newTarpit(t)
	hook := func(c caller, url string) {
		t.Helper()
		if status := c.do("POST", "/api/webhook", hookBody(url), nil); status != http.StatusOK {
			t.Fatalf("a webhook is answered with %d", status)
		}
	}
	known, newcomer := newAccount(w, "known@example.com"), newAccount(w, "newcomer@example.com")
	hook(known, receiver.URL+"/known")
	hook(newcomer, receiver.URL+"/newcomer")
	delay := func(path string, began time.Time) time.Duration {
		t.Helper()
		select {
		case at := <-arrived[path]:
			return at.Sub(began)
		case <-time.After(time.Minute):
			return time.Minute
		}
	}
	began := time.Now()
	known.asset()
	quiet := delay("/known", began)

	var attackers []caller
	for i := range accounts {
		attackers = append(attackers, newAccount(w, fmt.Sprintf("attacker%d@example.com", i)))
		for n := range hooks {
			hook(attackers[i], fmt.Sprintf("%s/%d", tarpit, n))
		}
	}
	for _, attacker := range attackers {
		for range assets { // each is a resource of its own, so that all can be sent at once
			attacker.asset()
		}
	}
	began = time.Now()
	known.asset()
	newcomer.asset()
	attacked, first := delay("/known", began), delay("/newcomer", began)
	row("first delivery of an account that responds", ms(quiet), ms(attacked), "quiet + 2 s", attacked <= quiet+2*time.Second)
	row("first delivery ever of another account", "-", ms(first), "quiet + 2 s", first <= quiet+2*time.Second)
	w.Stop()
}
