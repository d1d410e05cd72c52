package account

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"weir/internal/weir"
)

// sessionToken asks for an access token as a script of our pages does; change may alter the request.
func (b *browser) sessionToken(t *testing.T, change func(*http.Request)) (*http.Response, sessionToken) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.base+"/session/token", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Origin", b.base)
	if change != nil {
		change(r)
	}
	resp := b.do(t, r)
	var response sessionToken
	if err := json.Unmarshal([]byte(b.last), &response); err != nil {
		t.Fatalf("%s is no JSON: %v\n%s", resp.Status, err, b.last)
	}
	return resp, response
}

func TestSessionToken(t *testing.T) {
	f := newFixture(t, Options{})
	ann := f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	if resp, _ := b.sessionToken(t, nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %s, want 401", resp.Status)
	}
	b.logIn(t, ann.Email)
	start := now()
	resp, got := b.sessionToken(t, nil)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Cache-Control") != "private, no-store" {
		t.Fatalf("%s %v\n%s", resp.Status, resp.Header, b.last)
	}
	if id, err := f.Verify(t.Context(), got.Token, now()); err != nil || id != ann.ID {
		t.Errorf("the token is %q's (%v), want %q", id, err, ann.ID)
	}
	end := got.ExpiresAt.Time()
	if end.Before(start.Add(sessionTokenLife-time.Second)) || end.After(now().Add(sessionTokenLife+time.Second)) {
		t.Errorf("the token is valid until %v, want ten minutes from %v", end, start)
	}
	_, err := f.Verify(t.Context(), got.Token, end.Add(time.Second))
	wantError(t, err, weir.Unauthenticated, "access token expired")

	for name, change := range map[string]func(*http.Request){
		"another site":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a subdomain":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an address bar":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") },
		"an older browser": func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") },
		"a sandbox":        func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") },
		"nobody knows":     func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Del("Origin") },
	} {
		if resp, got := b.sessionToken(t, change); resp.StatusCode != http.StatusForbidden || got.Token != "" {
			t.Errorf("from %s: %s with %q, want 403", name, resp.Status, got.Token)
		}
	}
	if resp, _ := b.sessionToken(t, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }); resp.StatusCode != http.StatusOK {
		t.Errorf("from an older browser, of our origin: %s", resp.Status)
	}
	if resp := b.get(t, "/session/token"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("GET: %s, want 404", resp.Status)
	}
}

// What ends a session ends its access tokens too.
func TestSessionTokenEnds(t *testing.T) {
	f := newFixture(t, Options{})
	ann := f.addUser(t, "ann@example.com")
	b := newBrowser(t, f, "")
	token := func() string {
		t.Helper()
		b.logIn(t, ann.Email)
		_, got := b.sessionToken(t, nil)
		if _, err := f.Verify(t.Context(), got.Token, now()); err != nil {
			t.Fatal(err)
		}
		return got.Token
	}

	out := token()
	other := b.fresh(t)
	other.logIn(t, ann.Email)
	_, stays := other.sessionToken(t, nil)
	b.get(t, "/account")
	b.post(t, "/logout")
	_, err := f.Verify(t.Context(), out, now())
	wantError(t, err, weir.Unauthenticated, "the browser that this access token was made for has logged out. please log in again")
	if _, err := f.Verify(t.Context(), stays.Token, now()); err != nil {
		t.Errorf("the token of another browser ended too: %v", err)
	}

	old := token()
	link, err := f.NewLink(t.Context(), ann.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetPassword(t.Context(), link, ann.Email, "another good one"); err != nil {
		t.Fatal(err)
	}
	_, err = f.Verify(t.Context(), old, now())
	wantError(t, err, weir.Unauthenticated, "the password was changed after this access token was made. please log in again")

	// The API refuses the tokens of suspended users, and they get no new ones.
	b.wantPage(t, b.post(t, "/login", "email", ann.Email, "password", "another good one"), http.StatusOK, "/account", "")
	f.suspend(t, ann.ID)
	if resp, _ := b.sessionToken(t, nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("suspended: %s, want 401", resp.Status)
	}
}
