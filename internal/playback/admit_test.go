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
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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
	encode := func(v any) string {
		text, err := json.Marshal(v)
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
			g := h.ask(method, h.under(playbackID, path(p)), headers...)
			if g.StatusCode != status {
				h.Errorf("%s: %s %s answers %d, want %d: %.200s", what, method, p, g.StatusCode, status, g.body)
				continue
			}
			caching := g.Header.Get("Cache-Control")
			if status != http.StatusOK {
				if method == "GET" && !strings.HasPrefix(g.body, `{"errors":["`) || caching != "no-store" || g.Header.Get("ETag") != "" {
					h.Errorf("%s: %s %s: Cache-Control %q, ETag %q, body %.200s", what, method, p, caching, g.Header.Get("ETag"), g.body)
				}
			} else if strings.Contains(caching, "public") || caching == "" {
				h.Errorf("%s: %s may be kept by others: Cache-Control %q", what, p, caching)
			}
		}
	}
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
	title, err := h.server.titles.find(t.Context(), a.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}
	expired := h.server.tokens.issue(title, access.Decision{KeyID: s.key.ID}, "", "somebody", time.Now().Add(-storedLife-rounded))
	tampered := []byte(token)
	tampered[3] ^= 1 // 'A' and '@', '0' and '1' …: another token, or none

	h.answers("no credential", a, http.StatusForbidden, plain)
	h.answers("no token", a, http.StatusForbidden, with("x"))
	h.answers("empty token", a, http.StatusForbidden, with(""))
	h.answers("tampered token", a, http.StatusForbidden, with(string(tampered)))
	h.answers("token of another asset", other, http.StatusForbidden, with(token))
	h.answers("expired token", a, http.StatusForbidden, with(expired.text))
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
				_, err := tx.DeleteUser(ctx, h.ann.ID, "", time.Now())
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
	questions := make(chan map[string]any, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, _ := io.ReadAll(r.Body)
		var q map[string]any
		_ = json.Unmarshal(text, &q)
		questions <- q
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

	q := <-questions
	headers, _ := q["headers"].(map[string]any)
	playURL, _ := q["playURL"].(string)
	if q["userIP"] != "127.0.0.1" || !strings.HasPrefix(playURL, h.web.URL+"/hls/"+a.PlaybackID) || q["playDomain"] != strings.TrimPrefix(h.web.URL, "http://") || headers["User-Agent"] == "" {
		t.Errorf("the webhook got %v", q)
	}
}

// Another answer of the webhook's counts when the interval of the policy is over.
func TestWebhookIsAskedAgain(t *testing.T) {
	t.Parallel()
	all := admissions{till: map[admission]time.Time{}, refused: map[admission]refusal{}}
	a := &content{playbackID: "p", policy: &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"}}
	now := time.Now()
	all.note(admissionOf(a, "key"), now.Add(time.Minute))
	for _, tt := range []struct {
		name string
		one  admission
		at   time.Time
		want bool
	}{
		{"at once", admissionOf(a, "key"), now, true},
		{"before the interval is over", admissionOf(a, "key"), now.Add(59 * time.Second), true},
		{"after", admissionOf(a, "key"), now.Add(time.Minute), false},
		{"another key", admissionOf(a, "other"), now, false},
		{"another asset", admissionOf(&content{playbackID: "q", policy: a.policy}, "key"), now, false},
		{"another webhook", admissionOf(&content{playbackID: "p", policy: &weir.PlaybackPolicy{WebhookID: "v"}}, "key"), now, false},
	} {
		if got, _ := all.find(tt.one, tt.at); got != tt.want {
			t.Errorf("%s: holds = %v, want %v", tt.name, got, tt.want)
		}
	}
	for i := range 2 * maxAdmissions {
		all.note(admissionOf(a, fmt.Sprint(i)), now.Add(time.Minute))
	}
	if len(all.till) > maxAdmissions {
		t.Errorf("%d admissions are remembered", len(all.till))
	}
	no := weir.Errorf(weir.Denied, "no")
	all.refuse(admissionOf(a, "wrong"), no, now.Add(refusalLife))
	for after, want := range map[time.Duration]error{0: no, refusalLife - 1: no, refusalLife: nil} {
		if _, got := all.find(admissionOf(a, "wrong"), now.Add(after)); !errors.Is(got, want) {
			t.Errorf("%s after a refusal: %v, want %v", after, got, want)
		}
	}
	for i := range 2 * maxAdmissions {
		all.refuse(admissionOf(a, fmt.Sprint(i)), no, now.Add(refusalLife))
	}
	if len(all.refused) > maxAdmissions {
		t.Errorf("%d refusals are remembered", len(all.refused))
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

// The same viewer gets the same addresses again, others get others.
func TestTokensAreStable(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newSigner()
	a := h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	title, err := h.server.titles.find(t.Context(), a.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2030, 1, 1, 12, 1, 0, 0, time.UTC)
	by := access.Decision{KeyID: s.key.ID}
	first := h.server.tokens.issue(title, by, "", "ann", now)
	var all []string
	for _, token := range []*token{
		first, h.server.tokens.issue(title, by, "", "bob", now), h.server.tokens.issue(title, access.Decision{}, "", "ann", now),
		h.server.tokens.issue(title, by, "", "ann", now.Add(rounded)),
	} {
		if slices.Contains(all, token.text) {
			t.Error("two tokens are the same")
		}
		all = append(all, token.text)
	}
	if again := h.server.tokens.issue(title, by, "", "ann", now.Add(10*time.Minute)); again.text != first.text {
		t.Error("a viewer who comes back gets another token")
	}
	for after, ok := range map[time.Duration]bool{0: true, storedLife - rounded: true, storedLife: false} {
		token, err := h.server.tokens.open(&title.content, first.text)
		if err != nil || ok == token.over(now.Add(after)) || token.key != s.key.ID || token.viewing != first.viewing {
			t.Errorf("after %s: %+v, %v", after, token, err)
		}
	}
	for _, length := range []time.Duration{0, time.Hour, 3 * time.Hour, 4 * time.Hour, 10 * time.Hour} {
		for minutes := range 60 {
			start := now.Add(time.Duration(minutes) * time.Minute)
			title.length = length
			life := h.server.tokens.issue(title, by, "", "ann", start).ends.Sub(start)
			if life < length || life > max(6*time.Hour, 2*length) {
				t.Errorf("the token of a video of %s is valid for %s", length, life)
			}
		}
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
