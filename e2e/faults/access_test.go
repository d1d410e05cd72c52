package faults

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/e2e/harness"
)

// access are films that not everybody may play, and what those got who may not.
type access struct {
	open, gated        string // playback ids
	deleted, suspended string // of a film that was, and of one whose account is
	key                signer
	revoked            map[string]time.Duration // how long nodes went on playing what may not be, with everything well

	mu     sync.Mutex
	life   time.Time // when the JWT expires that is used during the fault; zero = there is none yet
	jwt    string
	played bool // it has opened the film somewhere
	during bool // the fault lasts
	bad    map[string]int
}

// signer is a key of viewers, as weir made it.
type signer struct {
	id, public string
	private    *ecdsa.PrivateKey
}

func newSigner(r *rig, n *node) signer {
	r.t.Helper()
	var key struct{ ID, PublicKey, PrivateKey string }
	n.Must("POST", "/api/access-control/signing-key", map[string]any{"name": "of viewers"}, &key)
	text, err := base64.StdEncoding.DecodeString(key.PrivateKey)
	if err != nil {
		r.t.Fatal(err)
	}
	private, err := jwt.ParseECPrivateKeyFromPEM(text)
	if err != nil {
		r.t.Fatal(err)
	}
	return signer{key.ID, key.PublicKey, private}
}

// expires is how long the JWT is good that is used during the fault.
const expires = 6 * time.Second

// newAccess makes the films and lets every node see them before two of them, and a key, are taken away.
func newAccess(r *rig) *access {
	r.t.Helper()
	a := &access{bad: map[string]int{}, revoked: map[string]time.Duration{}}
	first := r.nodes[0]
	a.key = newSigner(r, first)
	first.Run("user", "create", "bob@example.com")
	bob := *first.Weir
	bob.Key = harness.Match(r.t, first.Run("key", "create", "bob's", "--user", "bob@example.com"), `API key +(\S+)`)
	origin := harness.NewOrigin(r.t, harness.TinyClip(r.t))
	film := func(w *harness.Weir, name string, more map[string]any) (asset, playback string) {
		body := map[string]any{"name": name, "url": origin.URL + "/" + name}
		for k, v := range more {
			body[k] = v
		}
		var made struct {
			Asset struct{ ID, PlaybackID string }
			Task  struct{ ID string }
		}
		w.Must("POST", "/api/asset/upload/url", body, &made)
		w.Completed(made.Task.ID)
		return made.Asset.ID, made.Asset.PlaybackID
	}
	_, a.open = film(first.Weir, "open.mp4", nil)
	_, a.gated = film(first.Weir, "gated.mp4", map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}})
	gone, goneID := film(first.Weir, "deleted.mp4", nil)
	_, a.suspended = film(&bob, "suspended.mp4", nil)
	a.deleted = goneID
	revoked := newSigner(r, first)
	for _, n := range r.nodes {
		for _, id := range []string{a.open, a.deleted, a.suspended} {
			plays(r, n, id, nil, http.StatusOK)
		}
		plays(r, n, a.gated, &revoked, http.StatusOK)
	}
	var me struct{ ID string }
	bob.Must("GET", "/api/user/me", nil, &me)
	admin := logIn(r, first)
	took := func(what, playback string, key *signer) {
		began := time.Now()
		for _, n := range r.nodes {
			plays(r, n, playback, key, 0)
		}
		a.revoked[what] = time.Since(began)
	}
	first.Must("DELETE", "/api/asset/"+gone, nil, nil)
	took("deleted", a.deleted, nil)
	send(r, first, "PATCH", "/api/user/"+me.ID+"/suspended", admin, `{"suspended":true}`)
	took("suspended", a.suspended, nil)
	first.Must("DELETE", "/api/access-control/signing-key/"+revoked.id, nil, nil)
	took("permitted by a key that was revoked", a.gated, &revoked)
	return a
}

// logIn sets the password of the first account and logs in. It returns an Authorization header.
func logIn(r *rig, n *node) string {
	r.t.Helper()
	token := harness.Match(r.t, n.Output.String(), `token=(\S+)`)
	send(r, n, "POST", "/api/user/password/reset", "", `{"resetToken":"`+token+`","email":"ann@example.com","password":"correct horse battery"}`)
	var in struct{ Token string }
	if err := json.Unmarshal(send(r, n, "POST", "/api/user/token", "", `{"email":"ann@example.com","password":"correct horse battery"}`), &in); err != nil {
		r.t.Fatal(err)
	}
	return "JWT " + in.Token
}

// send sends a request that must succeed.
func send(r *rig, n *node, method, path, authorization, body string) []byte {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, n.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		r.t.Fatalf("%s %s: %d %s, %v", method, path, response.StatusCode, text, err)
	}
	return text
}

// plays waits until a node answers with a status to who wants to play something, with a new JWT of a key if
// there is one; 0 = any but 200.
func plays(r *rig, n *node, playback string, key *signer, status int) {
	r.t.Helper()
	harness.Eventually(r.t, func() error {
		address := n.URL + "/hls/" + playback + "/index.m3u8"
		if key != nil {
			address += "?jwt=" + url.QueryEscape(key.permit(playback, time.Hour))
		}
		g := fetch(r.t.Context(), http.DefaultClient, address)
		if g.status == status || status == 0 && g.err == nil && g.status != http.StatusOK {
			return nil
		}
		return fmt.Errorf("node %s answers with %d %v %.200s, want %d", n.name, g.status, g.err, g.body, status)
	})
}

// permit signs that somebody may play the gated film.
func (a *access) permit(life time.Duration) string { return a.key.permit(a.gated, life) }

// permit signs that somebody may play something.
func (s *signer) permit(playback string, life time.Duration) string {
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"sub": playback, "pub": s.public, "exp": time.Now().Add(life).Unix(), "jti": rand.Text(),
	}).SignedString(s.private)
	if err != nil {
		panic(err) // the key is weir's own
	}
	return text
}

// begin and end say that the fault does.
func (a *access) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.jwt, a.life, a.played, a.during = a.permit(expires), time.Now().Add(expires), false, true
}

func (a *access) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.during = false
}

func (a *access) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bad[fmt.Sprintf(format, args...)]++
}

// wrong returns what somebody got who should not, and forgets it.
func (a *access) wrong() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for what, n := range a.bad {
		list = append(list, fmt.Sprintf("%d×%s", n, what))
	}
	if a.jwt != "" && !a.played {
		list = append(list, "a new JWT plays nowhere")
	}
	clear(a.bad)
	slices.Sort(list)
	return list
}

// ask wants to play what may not be played, again and again.
func (a *access) ask(ctx context.Context, n *node) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for ctx.Err() == nil {
		for what, id := range map[string]string{"a deleted film": a.deleted, "a film of a suspended account": a.suspended} {
			if g := fetch(ctx, client, n.URL+"/hls/"+id+"/index.m3u8"); g.status == http.StatusOK {
				a.note("%s plays at %s", what, n.name)
			}
		}
		a.mu.Lock()
		token, life := a.jwt, a.life
		a.mu.Unlock()
		if token != "" {
			asked := time.Now()
			g := fetch(ctx, client, n.URL+"/hls/"+a.gated+"/index.m3u8?jwt="+url.QueryEscape(token))
			if asked.After(life.Add(time.Second)) && g.status == http.StatusOK {
				a.note("a JWT plays after it has expired at %s", n.name)
			}
			a.mu.Lock()
			a.played = a.played || g.status == http.StatusOK && token == a.jwt
			a.mu.Unlock()
		}
		a.mu.Lock()
		before := a.during
		a.mu.Unlock()
		g := fetch(ctx, client, n.URL+"/hls/"+fmt.Sprintf("%016x", time.Now().UnixNano()&0xffffffff)+"/index.m3u8")
		a.mu.Lock()
		away := before || a.during // it may have ended while the request waited
		a.mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case g.status == http.StatusNotFound:
		case away && g.status == http.StatusServiceUnavailable && g.header.Get("Retry-After") != "":
		case away:
			a.note("an unknown title: %d %q at %s", g.status, g.header.Get("Retry-After"), n.name)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
