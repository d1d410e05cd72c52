package access

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// A token holds for as long as it is used, and a while longer.
func TestLiveTokenIsRenewed(t *testing.T) {
	h := newFixture(t)
	here := h.openControl()
	s := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT, RefreshInterval: 60})
	of := streamTitle(s)
	now := time.Date(2030, 1, 1, 12, 0, 30, 0, time.UTC)
	admitted := func(c *Control, token *Token, id string, after time.Duration) bool {
		t.Helper()
		v := viewer("192.0.2.1", "")
		v.Client = client{id: id}
		err := c.renew(t.Context(), of, v, token, now.Add(after))
		if err != nil && weir.KindOf(err) != weir.Denied {
			t.Fatal(err)
		}
		return err == nil
	}
	used, idle := here.tokens.issue(&of, Decision{}, "", "ann", now), here.tokens.issue(&of, Decision{}, "", "bob", now)
	for _, tt := range []struct {
		token *Token
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
		if got := admitted(here, tt.token, "x", tt.after); got != tt.want {
			t.Errorf("after %s: holds = %v, want %v", tt.after, got, tt.want)
		}
	}

	// Another node, or this one after a restart, knows it from the views in the store, however many
	// there are.
	var seen []weir.View
	for i := range 12_000 {
		seen = append(seen, weir.View{
			ID: weir.NewID(), UserID: s.UserID, PlaybackID: s.PlaybackID, ViewerID: fmt.Sprint("client ", i), LastSeen: weir.At(now.Add(27 * time.Minute)),
		})
	}
	seen[5000].ViewerID = "ann's client"
	h.write(func(tx *store.Tx) error { return tx.SaveViews(t.Context(), seen...) })
	another := h.openControl()
	for _, tt := range []struct {
		id    string
		after time.Duration
		want  bool
	}{
		{"bob's client", 30 * time.Minute, false},
		{"ann's client", 30 * time.Minute, true},
		{"bob's client", 31 * time.Minute, true}, // it is in use again, whoever uses it
		{"ann's client", 42 * time.Minute, false},
	} {
		if got := admitted(another, used, tt.id, tt.after); got != tt.want {
			t.Errorf("on another node after %s: holds = %v for %s, want %v", tt.after, got, tt.id, tt.want)
		}
	}
	for i := range maxRenewals + 10 {
		another.renewals.note(&Token{mac: tokenMAC(fmt.Appendf(nil, "%16d", i))}, now)
	}
	if n := len(another.renewals.used); n > maxRenewals {
		t.Errorf("%d renewals are remembered", n)
	}
}

// A token that was made from a JWT ends with it, unless a newer JWT is shown.
func TestLiveTokenEndsWithJWT(t *testing.T) {
	h := newFixture(t)
	c, signer := h.openControl(), h.newSigner()
	of := streamTitle(h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT}))
	now := time.Now()
	jwt := func(life time.Duration) string { return signer.sign(of.PlaybackID, life) }
	token, err := c.Admit(t.Context(), of, viewer("192.0.2.1", "", "Livepeer-Jwt", jwt(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
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
		{"with a JWT of another stream", 61 * time.Minute, "?jwt=" + signer.sign("another", time.Hour), false},
		{"with a newer JWT", 61 * time.Minute, "?jwt=" + jwt(2*time.Hour), true},
		{"after it was shown", 119 * time.Minute, "", true},
		{"with an older JWT", 119 * time.Minute, "?jwt=" + jwt(90*time.Minute), true},
		{"after the end of the newer JWT", 121 * time.Minute, "", false},
	} {
		err := c.renew(t.Context(), of, viewer("192.0.2.1", tt.query), token, now.Add(tt.after))
		if (err == nil) != tt.want || err != nil && weir.KindOf(err) != weir.Denied {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for i := range maxRenewals + 10 {
		c.renewals.noteJWT(&Token{mac: tokenMAC(fmt.Appendf(nil, "%16d", i))}, shownJWT{ends: now.Add(time.Hour)}, now)
	}
	if n := len(c.renewals.jwts); n > maxRenewals {
		t.Errorf("%d JWTs are remembered", n)
	}
}
