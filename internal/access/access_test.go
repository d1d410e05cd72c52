package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/guard"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/webhook"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a store with the content of one account, and the gate before it.
type fixture struct {
	*testing.T
	store *store.Store
	gate  *Gate
	ann   weir.User
}

func storeOptions() store.Options {
	return store.Options{Secret: bytes.Repeat([]byte{3}, 32), Stale: time.Hour}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, storetest.SQLite(t, store.Open, storeOptions()), storeOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	log := slog.New(slog.DiscardHandler)
	g := guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")})
	t.Cleanup(g.Client(0).CloseIdleConnections)
	h := &fixture{T: t, store: st, gate: New(st, webhook.New(st, g, "test", log), log)}
	h.ann = h.newUser("ann")
	return h
}

func (h *fixture) write(do func(*store.Tx) error) {
	h.Helper()
	if err := h.store.Tx(h.Context(), do); err != nil {
		h.Fatal(err)
	}
}

func (h *fixture) newUser(name string) weir.User {
	h.Helper()
	u := weir.User{ID: weir.NewID(), Email: name + "@example.com", CreatedAt: weir.At(time.Now())}
	h.write(func(tx *store.Tx) error { return tx.CreateUser(h.Context(), &u) })
	return u
}

// newStream makes a stream of ann's.
func (h *fixture) newStream(policy *weir.PlaybackPolicy) weir.Stream {
	h.Helper()
	s, err := weir.NewStream{Name: "s", PlaybackPolicy: policy}.Stream(&weir.Caller{UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}, time.Now())
	if err != nil {
		h.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateStream(h.Context(), &s) })
	return s
}

func (h *fixture) newKey(owner weir.User) (weir.SigningKey, *ecdsa.PrivateKey) {
	h.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		h.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		h.Fatal(err)
	}
	k := weir.SigningKey{
		ID: weir.NewID(), UserID: owner.ID, ProjectID: owner.DefaultProjectID, CreatedAt: weir.At(time.Now()),
		PublicKey: base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
	}
	h.write(func(tx *store.Tx) error { return tx.CreateSigningKey(h.Context(), &k) })
	return k, private
}

func contentOf(s weir.Stream) content {
	return content{s.PlaybackID, s.UserID, s.ProjectID, s.PlaybackPolicy}
}

// refused checks that the viewer is refused with the kind and the message.
func (h *fixture) refused(r Request, kind weir.Kind, message string) {
	h.Helper()
	_, err := h.gate.Check(h.Context(), r)
	if err == nil || weir.KindOf(err) != kind || err.Error() != message {
		h.Errorf("Check = %v (%s), want %s (%s)", err, weir.KindOf(err), message, kind)
	}
}

// allowed checks that the viewer may play.
func (h *fixture) allowed(r Request) Decision {
	h.Helper()
	d, err := h.gate.Check(h.Context(), r)
	if err != nil {
		h.Errorf("Check = %v, want it allowed", err)
	}
	return d
}

func TestPublic(t *testing.T) {
	h := newFixture(t)
	s := h.newStream(nil)
	r := Request{PlaybackID: s.PlaybackID}
	if got, want := h.allowed(r), (Decision{UserID: h.ann.ID, ViewerLimit: weir.DefaultViewerLimit}); got != want {
		t.Errorf("Check = %+v, want %+v", got, want)
	}
	h.refused(Request{PlaybackID: "none"}, weir.NotFound, "Content not found")
	h.refused(Request{PlaybackID: s.ID}, weir.NotFound, "Content not found")

	asset := weir.Asset{ID: weir.NewID(), PlaybackID: "assetplaybackid0", UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}
	h.write(func(tx *store.Tx) error { return tx.CreateAsset(t.Context(), &asset) })
	h.allowed(Request{PlaybackID: asset.PlaybackID})
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(t.Context(), asset.ID, func(a *weir.Asset) error {
			a.Deleted = true
			return nil
		})
		return err
	})
	h.refused(Request{PlaybackID: asset.PlaybackID}, weir.NotFound, "Content not found")

	for name, change := range map[string]func(*weir.Stream, bool){
		"deleted":   func(s *weir.Stream, on bool) { s.Deleted = on },
		"suspended": func(s *weir.Stream, on bool) { s.Suspended = on },
	} {
		for _, on := range []bool{true, false} {
			h.write(func(tx *store.Tx) error {
				_, err := tx.UpdateStream(t.Context(), s.ID, func(s *weir.Stream) error {
					change(s, on)
					return nil
				})
				return err
			})
			if on {
				h.refused(r, weir.NotFound, "Content not found")
			} else if _, err := h.gate.Check(t.Context(), r); err != nil {
				t.Errorf("not %s any more: %v", name, err)
			}
		}
	}
	limit := 3
	for _, tt := range []struct {
		change func(*weir.User)
		ok     bool
	}{
		{func(u *weir.User) { u.ViewerLimit = &limit }, true},
		{func(u *weir.User) { u.Suspended = true }, false},
		{func(u *weir.User) { u.Suspended, u.Disabled = false, true }, false},
	} {
		h.write(func(tx *store.Tx) error {
			_, err := tx.UpdateUser(t.Context(), h.ann.ID, func(u *weir.User) error {
				tt.change(u)
				return nil
			})
			return err
		})
		if !tt.ok {
			h.refused(r, weir.NotFound, "Content not found")
		} else if d := h.allowed(r); d.ViewerLimit != limit || d.Unlimited {
			t.Errorf("Check = %+v, want a limit of %d viewers", d, limit)
		}
	}
}

// Only an administrator's account has no limit of viewers if none was set.
func TestViewerLimit(t *testing.T) {
	h := newFixture(t)
	of := h.newStream(nil)
	h.ann = weir.User{ID: weir.NewID(), Email: "root@example.com", CreatedAt: weir.At(time.Now()), Admin: true}
	h.write(func(tx *store.Tx) error { return tx.CreateUser(t.Context(), &h.ann) })
	ofAdmin := h.newStream(nil)
	for name, tt := range map[string]struct {
		stream weir.Stream
		want   Decision
	}{
		"an account": {of, Decision{UserID: of.UserID, ViewerLimit: weir.DefaultViewerLimit}},
		"an admin":   {ofAdmin, Decision{UserID: ofAdmin.UserID, ViewerLimit: weir.DefaultViewerLimit, Unlimited: true}},
	} {
		if d, err := h.gate.recheck(t.Context(), contentOf(tt.stream), ""); err != nil || d != tt.want {
			t.Errorf("%s: recheck = %+v, %v, want %+v", name, d, err, tt.want)
		}
	}
}

func TestOrigins(t *testing.T) {
	h := newFixture(t)
	some := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyPublic, AllowedOrigins: []string{"https://a.example", "http://localhost:3000"}})
	all := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyPublic, AllowedOrigins: []string{"*"}})
	none := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyPublic, AllowedOrigins: []string{}})
	for _, tt := range []struct {
		origin, referer string
		ok              bool
	}{
		{"", "", true}, // not a browser
		{"https://a.example", "", true},
		{"https://a.example/", "", true},
		{"http://localhost:3000", "", true},
		{"http://localhost", "", false},
		{"http://a.example", "", false},
		{"https://b.example", "https://a.example/", false},
		{"null", "", false},
		{"null", "https://a.example/page?q=1", true},
		{"", "https://a.example", true},
		{"", "https://b.example/https://a.example", false},
		{"", "https://a.example@b.example/", false},
		{"https://a.example.b.example", "", false},
		{"a.example", "", false},
	} {
		headers := http.Header{}
		headers.Set("Origin", tt.origin)
		headers.Set("Referer", tt.referer)
		r := Request{PlaybackID: some.PlaybackID, Headers: headers}
		if tt.ok {
			h.allowed(r)
		} else {
			h.refused(r, weir.Denied, "Content is gated and origin not in allowed origins")
		}
		for _, s := range []weir.Stream{all, none} {
			r.PlaybackID = s.PlaybackID
			h.allowed(r)
		}
	}
}

func TestJWT(t *testing.T) {
	h := newFixture(t)
	key, private := h.newKey(h.ann)
	foreign, foreignPrivate := h.newKey(h.newUser("bob"))
	elsewhere, elsewherePrivate := h.newKey(weir.User{ID: h.ann.ID, DefaultProjectID: weir.NewID()})
	s := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	now := time.Now()
	good := jwt.MapClaims{"sub": s.PlaybackID, "pub": key.PublicKey, "exp": now.Add(time.Hour).Unix(), "iss": "ann", "action": "pull", "video": "none"}
	with := func(name string, value any) jwt.MapClaims {
		claims := maps.Clone(good)
		claims[name] = value
		if value == nil {
			delete(claims, name)
		}
		return claims
	}
	sign := func(claims jwt.MapClaims, method jwt.SigningMethod, key any) Request {
		t.Helper()
		text, err := jwt.NewWithClaims(method, claims).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return Request{PlaybackID: s.PlaybackID, JWT: weir.Secret(text)}
	}
	es256 := func(claims jwt.MapClaims) Request { return sign(claims, jwt.SigningMethodES256, private) }

	if d := h.allowed(es256(good)); d.RefreshInterval != defaultRefresh {
		t.Errorf("RefreshInterval = %s", d.RefreshInterval)
	}
	h.allowed(es256(with("exp", now.Add(7*24*time.Hour-time.Minute).Unix())))
	h.allowed(Request{PlaybackID: s.PlaybackID, PublicKey: key.PublicKey}) // checked by a media server

	const bad = "Content is gated and the token is not valid: "
	for _, tt := range []struct {
		name    string
		request Request
		message string
	}{
		{"nothing", Request{PlaybackID: s.PlaybackID}, "Content is gated and requires a public key"},
		{"only an access key", Request{PlaybackID: s.PlaybackID, AccessKey: "k"}, "Content is gated and requires a public key"},
		{"no pub", es256(with("pub", nil)), "Content is gated and requires a public key"},
		{"unknown pub", es256(with("pub", "x")), "Content is gated and corresponding public key not found"},
		{"other content", es256(with("sub", "other")), bad + "its sub is not this playback id"},
		{"no content", es256(with("sub", nil)), bad + "its sub is not this playback id"},
		{"no exp", es256(with("exp", nil)), bad + "it has no exp"},
		{"expired", es256(with("exp", now.Add(-time.Second).Unix())), bad + "it has expired"},
		{"too long", es256(with("exp", now.Add(7*24*time.Hour+time.Minute).Unix())), bad + "its exp is more than 7 days ahead"},
		{"not yet", es256(with("nbf", now.Add(time.Hour).Unix())), bad + "it is not valid yet"},
		{"signed by another", sign(good, jwt.SigningMethodES256, foreignPrivate), bad + "its signature is wrong"},
		{"signed with the public key", sign(good, jwt.SigningMethodHS256, []byte(key.PublicKey)), bad + "its signature is wrong"},
		{"not signed", sign(good, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), bad + "its signature is wrong"},
		{"not a JWT", Request{PlaybackID: s.PlaybackID, JWT: "a.b.c"}, bad + "it is malformed"},
		{"a number for a text", es256(with("sub", 7)), bad + "it is malformed"},
		{"endless", Request{PlaybackID: s.PlaybackID, JWT: weir.Secret(strings.Repeat("a", maxJWT+1))}, bad + "it is too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sub := *h
			sub.T = t
			sub.refused(tt.request, weir.Denied, tt.message)
		})
	}
	h.refused(sign(with("pub", foreign.PublicKey), jwt.SigningMethodES256, foreignPrivate), weir.NotFound, "Content not found")
	// A key of another project of the account is a foreign one.
	h.refused(sign(with("pub", elsewhere.PublicKey), jwt.SigningMethodES256, elsewherePrivate), weir.NotFound, "Content not found")
	h.refused(Request{PlaybackID: s.PlaybackID, PublicKey: elsewhere.PublicKey}, weir.NotFound, "Content not found")
	if _, err := h.gate.recheck(t.Context(), contentOf(s), elsewhere.ID); weir.KindOf(err) != weir.Denied {
		t.Errorf("recheck with a key of another project = %v, want it refused", err)
	}
	if _, err := h.gate.recheck(t.Context(), contentOf(s), key.ID); err != nil {
		t.Errorf("recheck = %v, want it allowed", err)
	}

	change := func(do func(*weir.SigningKey)) {
		t.Helper()
		h.write(func(tx *store.Tx) error {
			_, err := tx.UpdateSigningKey(t.Context(), key.ID, func(k *weir.SigningKey) error {
				do(k)
				return nil
			})
			return err
		})
		h.gate.keys.Forget(h.ann.ID) // a moment later
	}
	change(func(k *weir.SigningKey) { k.Disabled = true })
	h.refused(es256(good), weir.Denied, "The public key is disabled or deleted")
	change(func(k *weir.SigningKey) { k.Disabled, k.Deleted = false, true })
	h.refused(es256(good), weir.Denied, "The public key is disabled or deleted")
	change(func(k *weir.SigningKey) { k.Deleted = false })
	twin := key
	twin.ID = weir.NewID()
	h.write(func(tx *store.Tx) error { return tx.CreateSigningKey(t.Context(), &twin) })
	h.gate.keys.Forget(h.ann.ID)
	h.refused(es256(good), weir.Refused, "Multiple signing keys found for the same public key.")
}

func TestJWTForPublicContent(t *testing.T) {
	h := newFixture(t)
	// Public content plays with an invalid JWT too.
	h.allowed(Request{PlaybackID: h.newStream(nil).PlaybackID, JWT: "nonsense"})
}

func TestUnknownPolicy(t *testing.T) {
	h := newFixture(t)
	s := h.newStream(&weir.PlaybackPolicy{Type: "lit_signing_condition"})
	h.refused(Request{PlaybackID: s.PlaybackID}, weir.Refused, "unknown playbackPolicy type: lit_signing_condition")
}

func TestWebhook(t *testing.T) {
	h := newFixture(t)
	status, response := 200, ""
	type hookRequest struct {
		header http.Header
		body   map[string]any
	}
	requests := make(chan hookRequest, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := hookRequest{header: r.Header}
		text, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(text, &q.body) != nil {
			t.Errorf("request %q: %v", text, err)
		}
		requests <- q
		w.WriteHeader(status)
		_, _ = io.WriteString(w, response)
	}))
	t.Cleanup(server.Close)
	hook, err := weir.WebhookBody{Name: "gate", URL: server.URL, Events: []weir.EventName{}, SharedSecret: "s"}.
		Webhook(&weir.Caller{UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateWebhook(t.Context(), &hook) })
	policy := weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: hook.ID, WebhookContext: json.RawMessage(`{"movie":7}`), RefreshInterval: 1.5}
	s := h.newStream(&policy)
	// About the viewers of the owner's media server, it is asked each time.
	r := Request{PlaybackID: s.PlaybackID, ServerOf: h.ann.ID, AccessKey: "planted-key", Viewer: map[string]json.RawMessage{
		"userIP": json.RawMessage(`"192.0.2.7"`), "playURL": json.RawMessage(`"https://x.example/hls?accessKey=planted-key"`),
		"headers": json.RawMessage(`{"Cookie":"planted-cookie"}`), "context": json.RawMessage(`"forged"`), "accessKey": json.RawMessage(`"forged"`), "n": json.RawMessage(`12345678901234567890`),
	}}

	if d := h.allowed(r); d.RefreshInterval != 1500*time.Millisecond {
		t.Errorf("RefreshInterval = %s", d.RefreshInterval)
	}
	q := <-requests
	if at, ok := q.body["timestamp"].(float64); !ok || !strings.HasPrefix(q.header.Get("Livepeer-Signature"), fmt.Sprintf("t=%.0f,v1=", at)) {
		t.Errorf("request = %+v", q)
	}
	delete(q.body, "timestamp")
	want := map[string]any{
		"context": map[string]any{"movie": 7.0}, "accessKey": "planted-key", "userIP": "192.0.2.7", "n": 12345678901234567890.0,
		"playURL": "https://x.example/hls?accessKey=planted-key", "headers": map[string]any{"Cookie": "planted-cookie"},
	}
	if diff := cmp.Diff(want, q.body); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	// The log of the webhook has it, without the viewer's credentials.
	page, err := h.store.WebhookLogs(t.Context(), store.Query{})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%d entries in the log, %v", len(page.Items), err)
	}
	logged := page.Items[0].Request.Body
	for _, text := range []string{`"accessKey":"***"`, `"playURL":"https://x.example/hls"`, `"userIP":"192.0.2.7"`, `"movie":7`} {
		if !strings.Contains(logged, text) {
			t.Errorf("log does not have %s: %s", text, logged)
		}
	}
	if strings.Contains(logged, "planted") {
		t.Errorf("log has a credential in it: %s", logged)
	}

	const failed = "Content is gated and corresponding webhook failed"
	for _, tt := range []struct {
		status   int
		response string
		ok       bool
	}{
		{204, "", true},
		{299, "", true},
		{302, "", false},
		{403, `{"ret":0}`, false},
		{500, "", false},
		{200, "yes", true},
		{200, `{"ret":0}`, true},
		{200, `{"ret":null}`, true},
		{200, `{"ret":false}`, true},
		{200, `{"ret":200}`, true},
		{200, `{"ret":"204"}`, true},
		{200, `{"ret":403}`, false},
		{200, `{"ret":300}`, false},
		{200, `{"ret":1}`, false},
		{200, `{"ret":"no"}`, false},
		{200, `{"ret":true}`, false},
		{200, `{"ret":{}}`, false},
		{200, `[{"ret":403}]`, true},
	} {
		status, response = tt.status, tt.response
		if tt.ok {
			h.allowed(r)
		} else {
			h.refused(r, weir.Denied, failed)
		}
	}
	h.refused(Request{PlaybackID: s.PlaybackID, PublicKey: "p"}, weir.Denied, "Content is gated and requires an access key")

	server.Close()
	h.refused(r, weir.Upstream, failed)

	bob := h.newUser("bob")
	for _, change := range []func(*weir.Webhook){
		func(w *weir.Webhook) { w.UserID = bob.ID },
		func(w *weir.Webhook) { w.UserID, w.Deleted = h.ann.ID, true },
	} {
		h.write(func(tx *store.Tx) error {
			_, err := tx.UpdateWebhook(t.Context(), hook.ID, func(w *weir.Webhook) error {
				change(w)
				return nil
			})
			return err
		})
		h.refused(r, weir.Denied, "Content is gated and corresponding webhook not found")
	}
}

// The log of an access webhook does not grow with every request.
func TestWebhookLogIsBounded(t *testing.T) {
	h := newFixture(t)
	h.gate.logging.PerSecond = 0
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(server.Close)
	s := h.newStream(h.hookAt(server.URL))
	for i := range logAtOnce + 20 {
		h.allowed(Request{PlaybackID: s.PlaybackID, AccessKey: weir.Secret(fmt.Sprint(i))})
	}
	page, err := h.store.WebhookLogs(t.Context(), store.Query{Limit: 1000})
	if err != nil || len(page.Items) != logAtOnce || asked.Load() != logAtOnce+20 || h.gate.Stats().Unlogged != 20 {
		t.Errorf("%d entries in the log, %d requests, %+v, %v", len(page.Items), asked.Load(), h.gate.Stats(), err)
	}
}

func TestHugeRefreshInterval(t *testing.T) {
	h := newFixture(t)
	key, _ := h.newKey(h.ann)
	s := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT, RefreshInterval: 1e300})
	if d := h.allowed(Request{PlaybackID: s.PlaybackID, PublicKey: key.PublicKey}); d.RefreshInterval != maxRefresh {
		t.Errorf("RefreshInterval = %s, want %s", d.RefreshInterval, maxRefresh)
	}
}

func TestEncryptionKey(t *testing.T) {
	h := newFixture(t)
	pair, err := OpenEncryption(t.Context(), h.store)
	if err != nil {
		t.Fatal(err)
	}
	public := pair.PublicKey()
	if again, err := OpenEncryption(t.Context(), h.store); err != nil || again.PublicKey() != public {
		t.Errorf("the key is another the second time (%v)", err)
	}
	// As a caller does it …
	body, err := base64.StdEncoding.DecodeString(public)
	if err != nil {
		t.Fatal(err)
	}
	der, err := base64.StdEncoding.DecodeString(string(body))
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte{7}, 32)
	sealed, err := rsa.EncryptOAEP(sha256.New(), rand.Reader, key.(*rsa.PublicKey), want, nil)
	if err != nil {
		t.Fatal(err)
	}
	// … and as weir does.
	if plain, err := pair.Decrypt(base64.StdEncoding.EncodeToString(sealed)); err != nil || !bytes.Equal(plain, want) {
		t.Errorf("opened %x, %v", plain, err)
	}
	for _, bad := range []string{"", "%", "AAAA", base64.StdEncoding.EncodeToString(sealed[:len(sealed)-1])} {
		if _, err := pair.Decrypt(bad); weir.KindOf(err) != weir.Invalid {
			t.Errorf("Decrypt(%q) = %v, want an invalid key", bad, err)
		}
	}
}

func FuzzJWT(f *testing.F) {
	for _, seed := range []string{"", "a.b.c", "eyJhbGciOiJFUzI1NiJ9.eyJwdWIiOiIifQ.AAAA", "eyJhbGciOiJub25lIn0.e30."} {
		f.Add(seed)
	}
	st, err := store.Open(f.Context(), storetest.SQLite(f, store.Open, storeOptions()), storeOptions())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(st.Close)
	gate := New(st, nil, slog.New(slog.DiscardHandler))
	gate.guesses.viewers.AtOnce = math.MaxInt
	f.Fuzz(func(t *testing.T, text string) {
		// There is no signing key at all, so none can be good.
		_, _, err := gate.checkJWT(t.Context(), content{playbackID: "p"}, Request{JWT: weir.Secret(text)})
		if err == nil || weir.KindOf(err) != weir.Denied {
			t.Errorf("checkJWT(%q) = %v", text, err)
		}
	})
}
