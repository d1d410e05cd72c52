package playback

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/store"
	"weir/internal/weir"
)

// A token holds for as long as it is used, and a while longer.
func TestLiveTokenIsRenewed(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT, RefreshInterval: 60})
	title, err := h.server.titles.find(t.Context(), s.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2030, 1, 1, 12, 0, 30, 0, time.UTC)
	request := func(agent string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User-Agent", agent)
		return r
	}
	holds := func(server *Server, token *token, agent string, after time.Duration) bool {
		t.Helper()
		err := server.renew(&visit{Request: request(agent), id: s.PlaybackID, title: title, token: token}, now.Add(after))
		if err != nil && weir.KindOf(err) != weir.Denied {
			t.Fatal(err)
		}
		return err == nil
	}
	used, idle := h.server.tokens.issue(title, access.Decision{}, "", "ann", now), h.server.tokens.issue(title, access.Decision{}, "", "bob", now)
	for _, tt := range []struct {
		token *token
		after time.Duration
		want  bool
	}{
		{used, 0, true},
		{idle, 9 * time.Minute, true},
		{used, 9 * time.Minute, true},
		{used, 18 * time.Minute, true},
		{idle, 20 * time.Minute, false},
		{used, 27 * time.Minute, true},
		{used, 37 * time.Minute, true},
		{used, 47*time.Minute + time.Second, false},
	} {
		if got := holds(h.server, tt.token, "x", tt.after); got != tt.want {
			t.Errorf("after %s: holds = %v, want %v", tt.after, got, tt.want)
		}
	}

	// Another node, or this one after a restart, knows it from the store.
	v := &visit{Request: request("ann's Firefox/1"), id: s.PlaybackID, title: title}
	seen := weir.View{ID: weir.NewID(), PlaybackID: s.PlaybackID, ViewerID: h.server.viewerID(h.server.viewer(v)), LastSeen: weir.At(now.Add(27 * time.Minute))}
	h.write(func(tx *store.Tx) error { return tx.SaveView(t.Context(), seen) })
	another, err := New(t.Context(), h.server.Options)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		agent string
		after time.Duration
		want  bool
	}{
		{"bob's Chrome/1", 30 * time.Minute, false},
		{"ann's Firefox/2", 30 * time.Minute, true},
		{"bob's Chrome/1", 31 * time.Minute, true}, // it is in use again, whoever uses it
		{"ann's Firefox/2", 42 * time.Minute, false},
	} {
		if got := holds(another, used, tt.agent, tt.after); got != tt.want {
			t.Errorf("on another node after %s: holds = %v for %s, want %v", tt.after, got, tt.agent, tt.want)
		}
	}
	for i := range maxRenewals + 10 {
		another.renewals.note(&token{mac: tokenMAC(fmt.Appendf(nil, "%16d", i))}, now)
	}
	if n := len(another.renewals.used); n > maxRenewals {
		t.Errorf("%d renewals are remembered", n)
	}
}

// A token that was made from a JWT ends with it, unless a newer JWT is shown.
func TestLiveTokenEndsWithJWT(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	signer := h.newSigner()
	s := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	now := time.Now()
	jwt := func(life time.Duration) string { return signer.signFor(s.PlaybackID, life, "") }
	enter := func(jwt string) *visit {
		t.Helper()
		r := httptest.NewRequest("GET", "/hls/"+s.PlaybackID+"/index.m3u8", nil)
		r.Header.Set("Livepeer-Jwt", jwt)
		v := &visit{Request: r, id: s.PlaybackID}
		if err := h.server.enter(v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := enter(jwt(time.Hour))
	for _, tt := range []struct {
		name  string
		after time.Duration
		query string
		want  bool
	}{
		{"before the end", 59 * time.Minute, "", true},
		{"after the end", 61 * time.Minute, "", false},
		{"with an expired JWT", 61 * time.Minute, "?jwt=" + jwt(-time.Minute), false},
		{"with something else", 61 * time.Minute, "?jwt=x", false},
		{"with a JWT of another stream", 61 * time.Minute, "?jwt=" + signer.sign("another"), false},
		{"with a newer JWT", 61 * time.Minute, "?jwt=" + jwt(2*time.Hour), true},
		{"after it was shown", 119 * time.Minute, "", true},
		{"with an older JWT", 119 * time.Minute, "?jwt=" + jwt(90*time.Minute), true},
		{"after the end of the newer JWT", 121 * time.Minute, "", false},
	} {
		again := &visit{Request: httptest.NewRequest("GET", "/"+tt.query, nil), id: s.PlaybackID, title: v.title, token: v.token}
		err := h.server.renew(again, now.Add(tt.after))
		if (err == nil) != tt.want || err != nil && weir.KindOf(err) != weir.Denied {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for i := range maxRenewals + 10 {
		h.server.renewals.noteJWT(&token{mac: tokenMAC(fmt.Appendf(nil, "%16d", i))}, shownJWT{ends: now.Add(time.Hour)}, now)
	}
	if n := len(h.server.renewals.jwts); n > maxRenewals {
		t.Errorf("%d JWTs are remembered", n)
	}
}
