package api

import (
	"net/http/httptest"
	"strings"
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

// The gate refuses only so many viewers of a media server. Those that it lets in do not count.
func TestGateIsBounded(t *testing.T) {
	f := newFixture(t)
	f.server.limits.refused.AtOnce, f.server.limits.refused.PerSecond = 3, 0
	ask := func(remote, playbackID string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "http://weir.test/api/access-control/gate", strings.NewReader(`{"type":"jwt","stream":"`+playbackID+`"}`))
		r.RemoteAddr = remote
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		f.check(t, 0, r, w)
		return w
	}
	public := f.vars["stream.playback"]
	for i, tt := range []struct {
		remote, playbackID string
		want               int
	}{
		{"192.0.2.1:1", public, 200},
		{"192.0.2.1:1", public, 200},
		{"192.0.2.1:1", "none", 404},
		{"192.0.2.1:1", "none", 404},
		{"192.0.2.1:2", public, 200},
		{"192.0.2.1:3", "none", 404},
		{"192.0.2.1:4", "none", 429},
		{"192.0.2.1:4", public, 429},
		{"192.0.2.2:1", public, 200},
	} {
		w := ask(tt.remote, tt.playbackID)
		if w.Code != tt.want {
			t.Errorf("request %d: %d %s, want %d", i, w.Code, w.Body, tt.want)
		}
		if w.Code == 429 && (w.Header().Get("Retry-After") == "" || w.Header().Get("Cache-Control") != "") {
			t.Errorf("request %d: Retry-After %q, Cache-Control %q", i, w.Header().Get("Retry-After"), w.Header().Get("Cache-Control"))
		}
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
