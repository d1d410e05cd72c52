package playback

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// signer signs tokens of viewers.
type signer struct {
	fixture *fixture
	key     weir.SigningKey
	private *ecdsa.PrivateKey
}

// newSigner makes a signing key of ann's.
func (h *fixture) newSigner() *signer {
	h.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		h.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		h.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	key := weir.SigningKey{
		ID: weir.NewID(), UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID, CreatedAt: weir.At(time.Now()),
		PublicKey: base64.StdEncoding.EncodeToString(public),
	}
	h.write(func(tx *store.Tx) error { return tx.CreateSigningKey(h.Context(), &key) })
	return &signer{h, key, private}
}

// sign returns a JWT that lets play for an hour.
func (s *signer) sign(playbackID string) string {
	return s.signFor(playbackID, time.Hour, "")
}

func (s *signer) signFor(playbackID string, life time.Duration, who string) string {
	s.fixture.Helper()
	encode := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			s.fixture.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := encode(map[string]string{"alg": "ES256", "typ": "JWT"}) + "." + encode(map[string]any{
		"sub": playbackID, "pub": s.key.PublicKey, "exp": time.Now().Add(life).Unix(), "custom": who,
	})
	sum := sha256.Sum256([]byte(text))
	a, b, err := ecdsa.Sign(rand.Reader, s.private, sum[:])
	if err != nil {
		s.fixture.Fatal(err)
	}
	signature := make([]byte, 64)
	a.FillBytes(signature[:32])
	b.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// everyPath has all kinds of paths that an asset has.
func everyPath() []string {
	return []string{
		"index.m3u8", "ts.m3u8", large + "/index.m3u8", large + "/ts.m3u8", large + "/init.mp4", large + "/0.m4s", large + "/3.m4s", large + "/0.ts",
		large + "/5.ts", small + "/index.m3u8", small + "/1.m4s", "audio0/index.m3u8", "audio0/ts.m3u8", "audio0/init.mp4", "audio0/0.m4s", "audio0/0.ts",
		large + ".mp4", small + ".mp4", "audio0.mp4", "download/video.mp4", "thumbnails/thumbnails.vtt", "thumbnails/keyframes_0.jpg", "poster.jpg",
	}
}

// answers checks the status of every kind of path. A refusal says nothing else: no byte of the
// asset, nothing that may be kept.
func (h *fixture) answers(what string, a weir.Asset, status int, path func(string) string, headers ...string) {
	h.Helper()
	h.answersOf(what, a.PlaybackID, everyPath(), status, path, headers...)
}

// answersOf is answers for other paths.
func (h *fixture) answersOf(what, playbackID string, paths []string, status int, path func(string) string, headers ...string) {
	h.Helper()
	for _, p := range paths {
		for _, method := range []string{"GET", "HEAD"} {
			from := headers
			if status != http.StatusOK {
				from = append(h.from(h.newAddress()), headers...) // an address may send few wrong credentials
			}
			g := h.ask(method, h.under(playbackID, path(p)), from...)
			if g.StatusCode != status {
				h.Errorf("%s: %s %s answers %d, want %d: %.200s", what, method, p, g.StatusCode, status, g.body)
				continue
			}
			caching := g.Header.Get("Cache-Control")
			if status != http.StatusOK {
				// What is deleted is so for all; "Content not found" is what only this viewer is told.
				forAll := status == http.StatusNotFound && caching == "public, max-age=1" && !strings.Contains(g.body, "Content")
				if method == "GET" && !strings.HasPrefix(g.body, `{"errors":["`) || caching != "private, no-store" && !forAll || g.Header.Get("ETag") != "" {
					h.Errorf("%s: %s %s: Cache-Control %q, ETag %q, body %.200s", what, method, p, caching, g.Header.Get("ETag"), g.body)
				}
			} else if strings.Contains(caching, "public") || caching == "" {
				h.Errorf("%s: %s may be kept by others: Cache-Control %q", what, p, caching)
			}
		}
	}
}

// enter lets a viewer with a JWT in.
func (h *fixture) enter(playbackID, jwt string) *request {
	h.Helper()
	req := &request{Request: httptest.NewRequest("GET", "/?jwt="+jwt, nil), server: h.server, id: playbackID}
	if err := h.server.admit(req); err != nil {
		h.Fatal(err)
	}
	return req
}

// expire returns the token that a viewer who is in would have got long ago.
func (h *fixture) expire(req *request) *access.Token {
	return h.server.control.TokenFor(req.title.gated(), req.token, time.Now().Add(-24*time.Hour))
}

// tokenOf returns the token in a master playlist.
func (h *fixture) tokenOf(master string) string {
	h.Helper()
	return h.tokenIn(h.want(master).body)
}

func (h *fixture) tokenIn(playlist string) string {
	h.Helper()
	_, after, ok := strings.Cut(playlist, "\nt/")
	token, _, _ := strings.Cut(after, "/")
	if !ok || token == "" {
		h.Fatal("the master playlist names nothing below a token")
	}
	return token
}

func TestPolicyOnEveryPath(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newSigner()
	policy := &weir.PlaybackPolicy{Type: weir.PolicyJWT}
	a, other := h.newAsset(policy), h.newAsset(policy)
	token := h.tokenOf(h.at(a, "index.m3u8?jwt="+s.sign(a.PlaybackID)))
	plain := func(p string) string { return p }
	with := func(token string) func(string) string {
		return func(p string) string { return "t/" + token + "/" + p }
	}
	query := func(jwt string) func(string) string {
		return func(p string) string { return p + "?jwt=" + jwt }
	}
	expired := h.expire(h.enter(a.PlaybackID, s.sign(a.PlaybackID)))
	tampered := []byte(token)
	tampered[3] ^= 1 // 'A' and '@', '0' and '1' …: another token, or none

	h.answers("no credential", a, http.StatusForbidden, plain)
	h.answers("no token", a, http.StatusForbidden, with("x"))
	h.answers("empty token", a, http.StatusForbidden, with(""))
	h.answers("tampered token", a, http.StatusForbidden, with(string(tampered)))
	h.answers("token of another asset", other, http.StatusForbidden, with(token))
	h.answers("expired token", a, http.StatusForbidden, with(expired.Text))
	h.answers("token inside a token", a, http.StatusNotFound, func(p string) string { return "t/" + token + "/t/" + token + "/" + p })
	h.answers("JWT of another asset", a, http.StatusForbidden, query(s.sign(other.PlaybackID)))
	h.answers("expired JWT", a, http.StatusForbidden, query(s.signFor(a.PlaybackID, -time.Minute, "")))
	h.answers("no JWT", a, http.StatusForbidden, query("x"))
	h.answers("access key", a, http.StatusForbidden, func(p string) string { return p + "?accessKey=x" })
	h.answers("JWT of another key", a, http.StatusForbidden, query((&signer{h, s.key, h.newSigner().private}).sign(a.PlaybackID)))

	h.answers("token", a, http.StatusOK, with(token))
	h.answers("JWT", a, http.StatusOK, query(s.sign(a.PlaybackID)))
	h.answers("JWT in a header", a, http.StatusOK, plain, "Livepeer-Jwt", s.sign(a.PlaybackID))

	if text := h.logged.String(); strings.Contains(text, token) || strings.Contains(text, "eyJ") {
		t.Error("the log has a token in it")
	}
}

// The admission of a viewer can end during playback.
func TestAdmissionEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	h := newFixture(t, newDisk(t))
	change := func(do func(tx *store.Tx, ctx context.Context) error) {
		t.Helper()
		h.write(func(tx *store.Tx) error { return do(tx, t.Context()) })
	}
	var undo func(tx *store.Tx, ctx context.Context) error // if it ends all of ann's
	for _, tt := range []struct {
		name   string
		end    func(a weir.Asset, s *signer)
		status int
	}{
		{"key disabled", func(_ weir.Asset, s *signer) {
			change(func(tx *store.Tx, ctx context.Context) error {
				_, err := tx.UpdateSigningKey(ctx, s.key.ID, func(k *weir.SigningKey) error { k.Disabled = true; return nil })
				return err
			})
		}, http.StatusForbidden},
		{"key deleted", func(_ weir.Asset, s *signer) {
			change(func(tx *store.Tx, ctx context.Context) error {
				_, err := tx.UpdateSigningKey(ctx, s.key.ID, func(k *weir.SigningKey) error { k.Deleted = true; return nil })
				return err
			})
		}, http.StatusForbidden},
		{"asset deleted", func(a weir.Asset, _ *signer) {
			h.changeAsset(a, func(a *weir.Asset) { a.Delete(time.Now()) })
		}, http.StatusNotFound},
		{"asset failed", func(a weir.Asset, _ *signer) {
			h.changeAsset(a, func(a *weir.Asset) { a.Fail("no", time.Now()) })
		}, http.StatusNotFound},
		{"another policy", func(a weir.Asset, _ *signer) {
			h.changeAsset(a, func(a *weir.Asset) { a.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"} })
		}, http.StatusForbidden},
		{"owner suspended", func(weir.Asset, *signer) {
			change(func(tx *store.Tx, ctx context.Context) error {
				_, err := tx.UpdateUser(ctx, h.ann.ID, func(u *weir.User) error { u.Suspended = true; return nil })
				return err
			})
			undo = func(tx *store.Tx, ctx context.Context) error {
				_, err := tx.UpdateUser(ctx, h.ann.ID, func(u *weir.User) error { u.Suspended = false; return nil })
				return err
			}
		}, http.StatusNotFound},
		{"owner deleted", func(weir.Asset, *signer) {
			change(func(tx *store.Tx, ctx context.Context) error {
				_, err := tx.DeleteUser(ctx, h.ann.ID, weir.Base{}, time.Now())
				return err
			})
			undo = func(tx *store.Tx, ctx context.Context) error { return tx.RestoreUser(ctx, h.ann.ID, time.Now()) }
		}, http.StatusNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := h.newSigner()
			a := h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
			public := h.newAsset(nil)
			jwt := s.sign(a.PlaybackID)
			token := h.tokenOf(h.at(a, "index.m3u8?jwt="+jwt))
			h.answers("before", a, http.StatusOK, func(p string) string { return "t/" + token + "/" + p })
			h.want(h.at(public, large+"/0.m4s"))
			tt.end(a, s)
			wait.Until(t, "it has ended", func() bool {
				return h.get(h.at(a, "t/"+token+"/"+large+"/0.m4s")).StatusCode == tt.status
			})
			h.answers("after, with the token", a, tt.status, func(p string) string { return "t/" + token + "/" + p })
			h.answers("after, with the JWT", a, tt.status, func(p string) string { return p + "?jwt=" + jwt })
			ended := func() bool { return h.get(h.at(public, large+"/0.m4s")).StatusCode == http.StatusNotFound }
			if undo != nil { // it ended all of ann's
				wait.Until(t, "public content has ended too", ended)
				change(undo)
				undo = nil
				wait.Until(t, "it plays again", func() bool {
					return h.get(h.at(a, "t/"+token+"/"+large+"/0.m4s")).StatusCode == http.StatusOK
				})
			} else if ended() {
				t.Error("public content has ended too")
			}
		})
	}
}

func TestWebhookPolicy(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	var asked atomic.Int64
	requests := make(chan map[string]any, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, _ := io.ReadAll(r.Body)
		var q map[string]any
		_ = json.Unmarshal(text, &q)
		requests <- q
		if q["accessKey"] != "right" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	hook, err := weir.WebhookBody{Name: "gate", URL: server.URL, Events: []weir.EventName{}}.
		Webhook(&weir.Caller{UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateWebhook(t.Context(), &hook) })
	a := h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: hook.ID})
	plain := func(p string) string { return p }

	h.answers("no access key", a, http.StatusForbidden, plain)
	if n := asked.Load(); n != 0 {
		t.Errorf("the webhook was asked %d times without an access key", n)
	}
	h.answers("wrong access key", a, http.StatusForbidden, func(p string) string { return p + "?accessKey=wrong" })
	before := asked.Load()
	h.answers("access key", a, http.StatusOK, func(p string) string { return p + "?accessKey=right" })
	h.answers("access key in a header", a, http.StatusOK, plain, "Livepeer-Access-Key", "right")
	if n := asked.Load() - before; n != 1 {
		t.Errorf("the webhook was asked %d times about the same viewer, want once", n)
	}
	token := h.tokenOf(h.at(a, "index.m3u8?accessKey=right"))
	h.answers("token", a, http.StatusOK, func(p string) string { return "t/" + token + "/" + p })

	q := <-requests
	for q["accessKey"] != "right" {
		q = <-requests
	}
	headers, _ := q["headers"].(map[string]any)
	playURL, _ := q["playURL"].(string)
	if q["userIP"] != "127.0.0.1" || !strings.HasPrefix(playURL, h.web.URL+"/hls/"+a.PlaybackID) || q["playDomain"] != strings.TrimPrefix(h.web.URL, "http://") || headers["User-Agent"] == "" {
		t.Errorf("the webhook got %v", q)
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newSigner()
	for _, kind := range []string{weir.PolicyPublic, weir.PolicyJWT} {
		a := h.newAsset(&weir.PlaybackPolicy{Type: kind, AllowedOrigins: []string{"https://good.example"}})
		path := func(p string) string { return p }
		if kind == weir.PolicyJWT {
			token := h.tokenOf(h.at(a, "index.m3u8?jwt="+s.sign(a.PlaybackID)))
			path = func(p string) string { return "t/" + token + "/" + p }
		}
		h.answers("no origin", a, http.StatusOK, path)
		h.answers("good origin", a, http.StatusOK, path, "Origin", "https://good.example")
		h.answers("bad origin", a, http.StatusForbidden, path, "Origin", "https://bad.example")
		h.answers("bad page", a, http.StatusForbidden, path, "Referer", "https://bad.example/page")
	}
}

// A request that is not for media, such as that for a clip, is admitted by the token of the viewer's playlists.
func TestMayPlay(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newSigner()
	gated, other, open := h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT}), h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT}), h.newAsset(nil)
	elsewhere := h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyPublic, AllowedOrigins: []string{"https://example.com"}})
	token := func(a weir.Asset) weir.Secret {
		return weir.Secret(h.tokenOf(h.at(a, "index.m3u8?jwt="+s.sign(a.PlaybackID))))
	}
	own := token(gated)
	may := func(a weir.Asset, token weir.Secret, query string) error {
		r := httptest.NewRequest(http.MethodPost, "/api/clip"+query, nil)
		r.Header.Set("Origin", "https://weir.test")
		return h.server.MayPlay(r, a.PlaybackID, token)
	}
	for _, tt := range []struct {
		what  string
		asset weir.Asset
		token weir.Secret
		query string
		kind  weir.Kind // "" = admitted
	}{
		{"public content", open, "", "", ""},
		{"gated content without a token", gated, "", "", weir.Denied},
		{"its token", gated, own, "", ""},
		{"a JWT", gated, "", "?jwt=" + s.sign(gated.PlaybackID), ""},
		{"the token of other content", gated, token(other), "", weir.Denied},
		{"no token at all", gated, "x", "", weir.Denied},
		{"a page of another origin", elsewhere, "", "", weir.Denied},
	} {
		err := may(tt.asset, tt.token, tt.query)
		if tt.kind == "" && err != nil || tt.kind != "" && weir.KindOf(err) != tt.kind {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.kind)
		}
	}
	if err := h.server.MayPlay(httptest.NewRequest(http.MethodPost, "/api/clip", nil), "none", ""); !weir.IsNotFound(err) {
		t.Errorf("content that does not exist: %v", err)
	}
	h.changeAsset(gated, func(a *weir.Asset) { a.Deleted = true })
	wait.Until(t, "the token of a deleted asset is refused", func() bool { return may(gated, own, "") != nil })
}
