package playback

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

const testSecret = "0123456789abcdefghijklmnopqrstuvwxyz"

// A cache that proves itself gets gated content for all; nobody else gets anything that may be kept.
func TestCacheProof(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newSigner()
	a, public := h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT}), h.newAsset(nil)
	plain := func(p string) string { return p }
	proof := []string{cacheHeader, testSecret}

	h.answers("a server without caches", a, http.StatusForbidden, plain, proof...)
	h.server.cacheSecret = newCacheSecret(testSecret)
	h.answers("no proof", a, http.StatusForbidden, plain)
	h.answers("an empty proof", a, http.StatusForbidden, plain, cacheHeader, "")
	h.answers("the proof of another installation", a, http.StatusForbidden, plain, cacheHeader, strings.ToUpper(testSecret))
	h.answers("half a proof", a, http.StatusForbidden, plain, cacheHeader, testSecret[:20])
	h.answers("a wrong proof for public content", public, http.StatusForbidden, plain, cacheHeader, "x")
	token := h.tokenOf(h.at(a, "index.m3u8?jwt="+s.sign(a.PlaybackID)))
	h.answers("a viewer's token behind a cache", a, http.StatusOK, func(p string) string { return "t/" + token + "/" + p }, proof...)
	h.answers("a viewer's JWT behind a cache", a, http.StatusOK, plain, append([]string{"Livepeer-Jwt", s.sign(a.PlaybackID)}, proof...)...)

	for _, path := range everyPath() {
		g, want := h.want(h.at(a, path), proof...), h.want(h.at(public, path))
		if g.body != want.body || g.Header.Get("Cache-Control") != want.Header.Get("Cache-Control") {
			t.Errorf("%s: a cache gets %d bytes with %q, of public content %d with %q", path,
				len(g.body), g.Header.Get("Cache-Control"), len(want.body), want.Header.Get("Cache-Control"))
		}
	}
	if g := h.get(h.at(a, "none/0.m4s"), proof...); g.StatusCode != http.StatusNotFound || g.Header.Get("Cache-Control") != "public, max-age=1" {
		t.Errorf("what is not there is answered to a cache with %d, %q", g.StatusCode, g.Header.Get("Cache-Control"))
	}
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateUser(t.Context(), h.ann.ID, func(u *weir.User) error { u.Suspended = true; return nil })
		return err
	})
	if g := h.get(h.at(h.newAsset(a.PlaybackPolicy), "index.m3u8"), proof...); g.StatusCode != http.StatusNotFound {
		t.Errorf("a cache gets what a suspended account owns: %d", g.StatusCode)
	}
	if strings.Contains(h.logged.String(), testSecret) {
		t.Error("the log has the secret in it")
	}
}

// A cache asks whether its viewer may play, and keeps for a moment that one may.
func TestAdmissionForCaches(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.cacheSecret, h.server.CacheAdmission = newCacheSecret(testSecret), 5*time.Second
	s := h.newSigner()
	gated := &weir.PlaybackPolicy{Type: weir.PolicyJWT}
	a, other := h.newAsset(gated), h.newAsset(gated)
	limited := h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT, AllowedOrigins: []string{"https://a.example"}})
	token := h.tokenOf(h.at(a, "index.m3u8?jwt="+s.sign(a.PlaybackID)))
	ofLimited := h.tokenIn(h.want(h.at(limited, "index.m3u8?jwt="+s.sign(limited.PlaybackID)), "Origin", "https://a.example").body)
	ask := func(what string, a weir.Asset, token string, status int, caching string, headers ...string) {
		t.Helper()
		g := h.get(h.at(a, "t/"+token+"/admission"), headers...)
		if g.StatusCode != status || g.Header.Get("Cache-Control") != caching {
			t.Errorf("%s: %d with %q, want %d with %q", what, g.StatusCode, g.Header.Get("Cache-Control"), status, caching)
		}
	}
	const never = "private, no-store"
	ask("a viewer of a cache", a, token, http.StatusNoContent, "public, max-age=5", cacheHeader, testSecret)
	ask("a viewer", a, token, http.StatusNoContent, never)
	ask("another title", other, token, http.StatusForbidden, never, cacheHeader, testSecret)
	ask("no token", a, "x", http.StatusForbidden, never, cacheHeader, testSecret)
	ask("a forged proof", a, token, http.StatusForbidden, never, cacheHeader, "x")
	ask("a page that may", limited, ofLimited, http.StatusNoContent, never, cacheHeader, testSecret, "Origin", "https://a.example")
	ask("a page that may not", limited, ofLimited, http.StatusForbidden, never, cacheHeader, testSecret, "Origin", "https://b.example")

	h.write(func(tx *store.Tx) error { return revoke(t.Context(), tx, s.key.ID) })
	wait.Until(t, "the key is revoked", func() bool {
		return h.get(h.at(a, "t/"+token+"/admission"), cacheHeader, testSecret).StatusCode == http.StatusForbidden
	})
}

func revoke(ctx context.Context, tx *store.Tx, key string) error {
	_, err := tx.UpdateSigningKey(ctx, key, func(k *weir.SigningKey) error { k.Disabled = true; return nil })
	return err
}

// What a webhook gets about a viewer does not have the secret.
func TestDescribedWithoutProof(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	r := httptest.NewRequest("GET", "/hls/x/index.m3u8", nil)
	r.Header.Set(cacheHeader, testSecret)
	r.Header.Set("User-Agent", "one")
	described := (&request{Request: r, server: h.server, id: "x", path: "index.m3u8"}).Describe()
	if text := string(described["headers"]); strings.Contains(text, testSecret) || !strings.Contains(text, "one") {
		t.Errorf("the headers are %s", text)
	}
}
