package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/weir"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(10, 25)
		send := func(n int, key, account string) {
			t.Helper()
			for i := range n {
				if err := l.allow(key, account); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
		}
		refuse := func(key, account string) {
			t.Helper()
			if err := l.allow(key, account); weir.KindOf(err) != weir.Busy {
				t.Errorf("%s of %q: %v, want busy", key, account, err)
			}
		}
		send(10, "k", "ann")
		refuse("k", "ann")
		send(10, "other", "ann")
		send(5, "third", "ann")
		refuse("third", "ann") // the key may send more, the account not
		send(5, "bob's", "bob")
		send(10, "address", "")
		refuse("address", "")
		time.Sleep(time.Second)
		send(10, "k", "ann")
	})
}

func TestWrongGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(0, 0)
		for range wrongAtOnce {
			if err := l.checkWrongKeys("192.0.2.1"); err != nil {
				t.Fatal(err)
			}
			l.countWrongKey("192.0.2.1")
		}
		if err := l.checkWrongKeys("192.0.2.1"); weir.KindOf(err) != weir.Busy {
			t.Errorf("after %d wrong guesses: %v, want busy", wrongAtOnce, err)
		}
		if err := l.checkWrongKeys("192.0.2.2"); err != nil {
			t.Errorf("another address: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := l.checkWrongKeys("192.0.2.1"); err != nil {
			t.Errorf("two seconds later: %v", err)
		}
	})
}

// Whoever asks the gate without an API key of the owner causes as few requests to an access webhook as
// one viewer. A media server of the owner may ask for many viewers.
func TestGateIsBounded(t *testing.T) {
	f := newFixture(t)
	var asked atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var q struct{ AccessKey string }
		if json.NewDecoder(r.Body).Decode(&q) != nil || !strings.HasPrefix(q.AccessKey, "right") {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(receiver.Close)
	hook := f.call(t, "POST", "/api/webhook", `{"name":"gate","url":"`+receiver.URL+`","events":[]}`, http.StatusOK)
	policy := fmt.Sprintf(`{"playbackPolicy":{"type":"webhook","webhookId":%q}}`, hook["id"])
	f.call(t, "PATCH", "/api/stream/"+f.vars["stream"], policy, http.StatusNoContent)
	ask := func(remote, as, key string) int {
		r := httptest.NewRequest("POST", "http://weir.test/api/access-control/gate",
			strings.NewReader(fmt.Sprintf(`{"type":"accessKey","stream":%q,"accessKey":%q}`, f.vars["stream.playback"], key)))
		r.RemoteAddr = remote + ":1"
		r.Header.Set("Authorization", f.credential(as))
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		f.check(t, 0, r, w)
		if w.Code == http.StatusTooManyRequests && (w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "") {
			t.Errorf("Retry-After %q, Cache-Control %q", w.Header().Get("Retry-After"), w.Header().Get("Cache-Control"))
		}
		return w.Code
	}
	const guesses = 300
	for _, tt := range []struct {
		name, remote, as string
		least, most      int64 // requests to the owner
	}{
		{"without a key", "192.0.2.1", "anon", 100, guesses - 1},
		{"with a key of another account", "192.0.2.2", "bob", 100, guesses - 1},
		{"a media server of the owner", "192.0.2.3", "ann", guesses, guesses},
	} {
		before, codes := asked.Load(), map[int]int64{}
		for i := range guesses {
			codes[ask(tt.remote, tt.as, fmt.Sprint(tt.as, i))]++
		}
		n := asked.Load() - before
		if n < tt.least || n > tt.most || codes[http.StatusForbidden] != n || codes[http.StatusTooManyRequests] != guesses-n {
			t.Errorf("%s: %d requests to the owner, responses %v", tt.name, n, codes)
		}
	}
	// Others get in, once for all requests with their key; those whom the owner knows also from there.
	before := asked.Load()
	for range 3 {
		for _, remote := range []string{"192.0.2.9", "192.0.2.1"} {
			if code := ask(remote, "anon", "right"); code != http.StatusOK {
				t.Errorf("the right key from %s: %d", remote, code)
			}
		}
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("%d requests to the owner about the right key, want 1", n)
	}
}

func TestLongCreatorID(t *testing.T) {
	f := newFixture(t)
	for length, want := range map[int]int{512: 201, 513: 422} {
		r := httptest.NewRequest("POST", "http://weir.test/api/stream", strings.NewReader(`{"name":"s","creatorId":"`+strings.Repeat("x", length)+`"}`))
		r.Header.Set("Authorization", f.credential("ann"))
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		f.check(t, 0, r, w)
		if w.Code != want {
			t.Errorf("a creatorId of %d characters: %d %s, want %d", length, w.Code, w.Body, want)
		}
	}
}
