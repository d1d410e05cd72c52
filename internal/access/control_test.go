package access

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

func (h *fixture) openControl() *Control {
	h.Helper()
	c, err := OpenControl(h.Context(), h.gate)
	if err != nil {
		h.Fatal(err)
	}
	return c
}

// newAsset makes an asset of ann's.
func (h *fixture) newAsset(policy *weir.PlaybackPolicy) weir.Asset {
	h.Helper()
	id := weir.NewID()
	a := weir.Asset{
		ID: id, PlaybackID: weir.NewPlaybackID(id), UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID, PlaybackPolicy: policy,
	}
	h.write(func(tx *store.Tx) error { return tx.CreateAsset(h.Context(), &a) })
	return a
}

func assetTitle(a weir.Asset) Title {
	return Title{PlaybackID: a.PlaybackID, UserID: a.UserID, ProjectID: a.ProjectID, Policy: a.PlaybackPolicy, Length: time.Minute}
}

func streamTitle(s weir.Stream) Title {
	return Title{PlaybackID: s.PlaybackID, UserID: s.UserID, ProjectID: s.ProjectID, Policy: s.PlaybackPolicy, Stream: true}
}

// signer signs JWTs of viewers.
type signer struct {
	h       *fixture
	key     weir.SigningKey
	private *ecdsa.PrivateKey
}

// newSigner makes a signing key of ann's.
func (h *fixture) newSigner() *signer {
	h.Helper()
	key, private := h.newKey(h.ann)
	return &signer{h, key, private}
}

func (s *signer) sign(playbackID string, life time.Duration) string {
	s.h.Helper()
	claims := jwt.MapClaims{"sub": playbackID, "pub": s.key.PublicKey, "exp": time.Now().Add(life).Unix()}
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, claims).SignedString(s.private)
	if err != nil {
		s.h.Fatal(err)
	}
	return text
}

// client is the sender of a request.
type client struct {
	address netip.Addr
	id      string
}

func (c client) Address() netip.Addr { return c.address }
func (c client) ID() string          { return c.id }
func (c client) Describe() map[string]json.RawMessage {
	return map[string]json.RawMessage{"userIP": json.RawMessage(`"` + c.address.String() + `"`)}
}

// viewer returns somebody at an address, whose request has a query and pairs of headers.
func viewer(address, query string, headers ...string) Viewer {
	r := httptest.NewRequest("GET", "/x"+query, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return Viewer{Request: r, Client: client{netip.MustParseAddr(address), "the client at " + address}}
}

func (v Viewer) with(token string) Viewer {
	v.Token, v.HasToken = token, true
	return v
}

func TestAdmit(t *testing.T) {
	h := newFixture(t)
	c, s := h.openControl(), h.newSigner()
	policy := &weir.PlaybackPolicy{Type: weir.PolicyJWT, AllowedOrigins: []string{"https://good.example"}}
	open, gated, other := assetTitle(h.newAsset(nil)), assetTitle(h.newAsset(policy)), assetTitle(h.newAsset(policy))
	const address = "192.0.2.1"
	right := viewer(address, "?jwt="+s.sign(gated.PlaybackID, time.Hour))
	token, err := c.Admit(t.Context(), gated, right)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := c.Admit(t.Context(), other, viewer(address, "?jwt="+s.sign(other.PlaybackID, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	longAgo := time.Now().Add(-storedLife - rounded)
	expired := c.TokenFor(gated, token, longAgo).Text
	const invalid = "the URL is not valid; load the master playlist"
	for _, tt := range []struct {
		name    string
		title   Title
		viewer  Viewer
		token   string // "" = none
		kind    weir.Kind
		message string
	}{
		{"public", open, viewer(address, ""), "", "", ""},
		{"public, with a JWT", open, viewer(address, "?jwt=x"), "", "", ""},
		{"public, with a token", open, viewer(address, "").with(token.Text), "", weir.Denied, invalid},
		{"public, with an empty token", open, viewer(address, "").with(""), "", weir.Denied, invalid},
		{"nothing", gated, viewer(address, ""), "", weir.Denied, "Content is gated and requires a public key"},
		{"a JWT", gated, right, token.Text, "", ""},
		{"a JWT in a header", gated, viewer(address, "", "Livepeer-Jwt", right.Request.URL.Query().Get("jwt")), token.Text, "", ""},
		{"a JWT for something else", gated, viewer(address, "?jwt="+s.sign(other.PlaybackID, time.Hour)), "", weir.Denied, "Content is gated and the token is not valid: its sub is not this playback id"},
		{"an access key", gated, viewer(address, "?accessKey=x"), "", weir.Denied, "Content is gated and requires a public key"},
		{"a token", gated, viewer(address, "").with(token.Text), token.Text, "", ""},
		{"a token of somebody else", gated, viewer("192.0.2.2", "").with(token.Text), token.Text, "", ""},
		{"a token for something else", gated, viewer(address, "").with(theirs.Text), "", weir.Denied, invalid},
		{"no token, and a JWT", gated, right.with("x"), "", weir.Denied, invalid},
		{"an expired token", gated, viewer(address, "").with(expired), "", weir.Denied, "the URL has expired; load the master playlist again"},
		{"a page of the policy", gated, viewer(address, "", "Origin", "https://good.example").with(token.Text), token.Text, "", ""},
		{"a page of another origin", gated, viewer(address, "", "Origin", "https://bad.example").with(token.Text), "", weir.Denied, "Content is gated and origin not in allowed origins"},
	} {
		got, err := c.Admit(t.Context(), tt.title, tt.viewer)
		switch {
		case tt.message != "":
			if err == nil || weir.KindOf(err) != tt.kind || err.Error() != tt.message {
				t.Errorf("%s: %v (%s), want %s (%s)", tt.name, err, weir.KindOf(err), tt.message, tt.kind)
			}
		case err != nil || (got == nil) != (tt.token == "") || got != nil && got.Text != tt.token:
			t.Errorf("%s: token %+v, error %v, want token %q", tt.name, got, err, tt.token)
		}
	}

	// The reason why a viewer has a token must still hold; it is looked at again after a moment.
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateSigningKey(t.Context(), s.key.ID, func(k *weir.SigningKey) error { k.Disabled = true; return nil })
		return err
	})
	if _, err := h.openControl().Admit(t.Context(), gated, viewer(address, "").with(token.Text)); weir.KindOf(err) != weir.Denied || !strings.Contains(err.Error(), "its signing key was revoked") {
		t.Errorf("a token whose key is disabled: %v", err)
	}
	if d, err := c.Terms(t.Context(), open); err != nil || d.UserID != h.ann.ID || d.ViewerLimit != weir.DefaultViewerLimit {
		t.Errorf("Terms = %+v, %v", d, err)
	}
	if h.gate.owners.Max != maxOwners || c.renewals.seen.Max != maxAudiences {
		t.Errorf("%d owners and %d audiences are remembered", h.gate.owners.Max, c.renewals.seen.Max)
	}
}

// Tokens of one node are good on another.
func TestAdmitOnAnotherNode(t *testing.T) {
	h := newFixture(t)
	s := h.newSigner()
	of := streamTitle(h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT}))
	here, there := h.openControl(), h.openControl()
	token, err := here.Admit(t.Context(), of, viewer("192.0.2.1", "?jwt="+s.sign(of.PlaybackID, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := there.Admit(t.Context(), of, viewer("192.0.2.1", "").with(token.Text)); err != nil || again.Viewer != token.Viewer {
		t.Errorf("%+v, %v", again, err)
	}
	if a, b := here.ViewerID("a", "b"), there.ViewerID("a", "b"); a != b || a == here.ViewerID("ab", "") {
		t.Errorf("ids %q and %q", a, b)
	}
}

// accessHook makes an access webhook of ann's that admits the right key, and counts its requests.
func (h *fixture) accessHook() (*weir.PlaybackPolicy, *atomic.Int64) {
	h.Helper()
	var asked atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, _ := io.ReadAll(r.Body)
		var q struct{ AccessKey string }
		if json.Unmarshal(text, &q) != nil || q.AccessKey != "right" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	h.Cleanup(receiver.Close)
	return h.hookAt(receiver.URL), &asked
}

// hookAt makes an access webhook of ann's, and returns a policy that names it.
func (h *fixture) hookAt(url string) *weir.PlaybackPolicy {
	h.Helper()
	hook, err := weir.WebhookBody{Name: "gate", URL: url, Events: []weir.EventName{}}.
		Webhook(&weir.Caller{UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}, time.Now())
	if err != nil {
		h.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateWebhook(h.Context(), &hook) })
	return &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: hook.ID}
}

// An address that guesses access keys causes few requests.
func TestWrongAccessKeys(t *testing.T) {
	h := newFixture(t)
	c := h.openControl()
	h.gate.guesses.viewers.PerSecond = 0
	policy, asked := h.accessHook()
	of := assetTitle(h.newAsset(policy))
	const guesser, other = "192.0.2.2", "192.0.2.3"
	for range 5 {
		if _, err := c.Admit(t.Context(), of, viewer(other, "?accessKey=wrong")); weir.KindOf(err) != weir.Denied {
			t.Errorf("a wrong key: %v", err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the webhook was asked %d times about the same key, want once", n)
	}

	const guesses = 600
	var refused, throttled atomic.Int64
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			for k := range guesses / 10 {
				_, err := c.Admit(t.Context(), of, viewer(guesser, fmt.Sprintf("?accessKey=%d-%d", i, k)))
				switch {
				case weir.KindOf(err) == weir.Denied:
					refused.Add(1)
				case weir.KindOf(err) == weir.Busy:
					throttled.Add(1)
				default:
					t.Errorf("a guess: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := asked.Load() - 1; n != wrongAtOnce || refused.Load() != n || throttled.Load() != guesses-n || h.gate.Stats().Throttled != guesses-n {
		t.Errorf("%d requests, %d refused, %d throttled, %+v", n, refused.Load(), throttled.Load(), h.gate.Stats())
	}
	page, err := h.store.WebhookLogs(t.Context(), store.Query{Limit: store.MaxLimit})
	if err != nil || len(page.Items) > wrongAtOnce+10 {
		t.Errorf("%d entries in the log, %v", len(page.Items), err)
	}

	// Others are admitted, also from a throttled address if they were admitted before.
	token, err := c.Admit(t.Context(), of, viewer(other, "?accessKey=right"))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]Viewer{"the access key": viewer(guesser, "?accessKey=right"), "the token": viewer(guesser, "").with(token.Text)} {
		if _, err := c.Admit(t.Context(), of, v); err != nil {
			t.Errorf("%s from a throttled address: %v", name, err)
		}
	}
}

// An address that guesses JWTs is throttled. Right ones from there are admitted.
func TestWrongJWTs(t *testing.T) {
	h := newFixture(t)
	c, s, foreign := h.openControl(), h.newSigner(), h.newSigner()
	h.gate.guesses.viewers.PerSecond = 0
	foreign.key = s.key // the signature does not fit
	of := assetTitle(h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT}))
	right := "?jwt=" + s.sign(of.PlaybackID, time.Hour)
	const guesser, other = "192.0.2.2", "192.0.2.3"
	admit := func(address, query string) error {
		_, err := c.Admit(t.Context(), of, viewer(address, query))
		return err
	}
	for range wrongAtOnce + 10 {
		if err := admit(guesser, right); err != nil {
			t.Fatal(err)
		}
		if err := admit(guesser, ""); weir.KindOf(err) != weir.Denied {
			t.Fatalf("without a JWT: %v", err)
		}
	}
	wrong := []string{"x", foreign.sign(of.PlaybackID, time.Hour), s.sign("other", time.Hour), strings.Repeat("x", maxJWT+1)}
	foreign.key.PublicKey = "unknown"
	wrong = append(wrong, foreign.sign(of.PlaybackID, time.Hour))
	for i := range wrongAtOnce + 10 {
		want := weir.Denied
		if i >= wrongAtOnce {
			want = weir.Busy
		}
		if err := admit(guesser, "?jwt="+wrong[i%len(wrong)]); weir.KindOf(err) != want {
			t.Fatalf("wrong JWT %d: %v, want %s", i, err, want)
		}
	}
	var all sync.WaitGroup
	for i := range 4 * wrongAtOnce { // at once, beside wrong ones
		all.Go(func() {
			if err := admit(guesser, right); err != nil {
				t.Errorf("a right JWT from a throttled address: %v", err)
			}
		})
		all.Go(func() {
			if err := admit(guesser, "?jwt="+wrong[i%len(wrong)]); weir.KindOf(err) != weir.Busy {
				t.Errorf("a wrong JWT from a throttled address: %v", err)
			}
		})
	}
	all.Wait()
	if err := admit(other, "?jwt=x"); weir.KindOf(err) != weir.Denied {
		t.Errorf("a wrong JWT from another address: %v", err)
	}
}

// A signing key counts as soon as it is there, and not for long when it is gone.
func TestKnownKeys(t *testing.T) {
	h := newFixture(t)
	c, first := h.openControl(), h.newSigner()
	of := assetTitle(h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT}))
	admit := func(s *signer) error {
		_, err := c.Admit(t.Context(), of, viewer("192.0.2.2", "?jwt="+s.sign(of.PlaybackID, time.Hour)))
		return err
	}
	if err := admit(first); err != nil {
		t.Fatal(err)
	}
	second := h.newSigner()
	if err := admit(second); err != nil {
		t.Errorf("with a key that was made after the others were read: %v", err)
	}
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateSigningKey(t.Context(), first.key.ID, func(k *weir.SigningKey) error { k.Deleted = true; return nil })
		return err
	})
	wait.Until(t, "the deleted key is refused", func() bool { return weir.KindOf(admit(first)) == weir.Denied })
	if h.gate.keys.Max != maxOwners {
		t.Errorf("the keys of %d accounts are cached", h.gate.keys.Max)
	}
}

// A crowd gets in at once: those beyond what the webhook is asked at once wait for their turn.
func TestCrowdAtAccessWebhook(t *testing.T) {
	h := newFixture(t)
	c := h.openControl()
	var now, most atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(5 * time.Millisecond) // as long as a server takes
	}))
	t.Cleanup(receiver.Close)
	of := assetTitle(h.newAsset(h.hookAt(receiver.URL)))
	var all sync.WaitGroup
	for i := range 1000 {
		address := fmt.Sprintf("192.0.%d.%d", 2+i/250, i%250)
		if i%4 == 0 {
			address = "192.0.2.254" // many are behind one
		}
		all.Go(func() {
			if _, err := c.Admit(t.Context(), of, viewer(address, fmt.Sprint("?accessKey=", i))); err != nil {
				t.Errorf("viewer %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > asksAtOnce {
		t.Errorf("the webhook was asked about %d viewers at once", n)
	}
}

// While the store errs, viewers are admitted by what is known: owners, signing keys and access webhooks.
// What is not known is an outage, and what is wrong is refused.
func TestAdmitWithoutStore(t *testing.T) {
	h := newFixture(t)
	c, s := h.openControl(), h.newSigner()
	policy, _ := h.accessHook()
	unseen, _ := h.accessHook()
	jwts := &weir.PlaybackPolicy{Type: weir.PolicyJWT}
	public, gated, onAir := assetTitle(h.newAsset(nil)), assetTitle(h.newAsset(jwts)), streamTitle(h.newStream(jwts))
	hooked, other := streamTitle(h.newStream(policy)), streamTitle(h.newStream(unseen))
	bob := h.newUser("bob")
	ofBob := public
	ofBob.UserID = bob.ID
	admit := func(of Title, v Viewer) (*Token, error) { return c.Admit(t.Context(), of, v) }
	jwt := func(of Title, life time.Duration) string { return "?jwt=" + s.sign(of.PlaybackID, life) }
	for _, of := range []struct {
		title Title
		query string
	}{{public, ""}, {gated, jwt(gated, time.Hour)}, {hooked, "?accessKey=right"}} {
		if _, err := admit(of.title, viewer("192.0.2.1", of.query)); err != nil {
			t.Fatal(err)
		}
	}
	brief, err := admit(onAir, viewer("192.0.2.1", jwt(onAir, 2*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	h.store.Close() // from now on it errs
	h.gate.owners.Expire(h.ann.ID)
	h.gate.keys.Expire(h.ann.ID)
	h.gate.webhooks.Expire(policy.WebhookID)
	for name, tt := range map[string]struct {
		title Title
		query string
		kind  weir.Kind // "" = admitted
	}{
		"public":                      {public, "", ""},
		"a new JWT":                   {gated, jwt(gated, 2*time.Hour), ""},
		"a new JWT for a stream":      {onAir, jwt(onAir, 2*time.Hour), ""},
		"a wrong JWT":                 {gated, "?jwt=x", weir.Denied},
		"an expired JWT":              {gated, jwt(gated, -time.Minute), weir.Denied},
		"an access key":               {hooked, "?accessKey=right", ""},
		"a wrong access key":          {hooked, "?accessKey=wrong", weir.Denied},
		"a webhook that is not known": {other, "?accessKey=right", weir.Outage},
		"an owner who is not known":   {ofBob, "", weir.Outage},
	} {
		token, err := admit(tt.title, viewer("192.0.2.2", tt.query))
		if err != nil && weir.KindOf(err) != tt.kind || err == nil && tt.kind != "" {
			t.Errorf("%s: %v, want %q", name, err, tt.kind)
		}
		if token != nil {
			if _, err := admit(tt.title, viewer("192.0.2.2", "").with(token.Text)); err != nil {
				t.Errorf("%s, with the token: %v", name, err)
			}
		}
	}
	wait.Until(t, "the JWT has expired", func() bool {
		_, err := admit(onAir, viewer("192.0.2.1", "").with(brief.Text))
		return weir.KindOf(err) == weir.Denied
	})
}
