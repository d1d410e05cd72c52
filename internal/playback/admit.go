package playback

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/access"
	"weir/internal/weir"
)

// admit checks that the viewer may play. A viewer with a token was admitted before; the reason for
// that must still hold.
func (s *Server) admit(ctx context.Context, v *visit) error {
	c := &v.title.content
	if !c.policy.AllowsOrigin(access.Origin(v.Header)) {
		return weir.Errorf(weir.Denied, "Content is gated and origin not in allowed origins")
	}
	switch {
	case v.token != nil && c.asksAgain():
		return s.askWebhook(ctx, v, v.token.accessKey.Reveal())
	case v.token != nil:
		return s.titles.holds(ctx, c.playbackID, v.token.key)
	case !c.policy.Private():
		return s.titles.holds(ctx, c.playbackID, "")
	}
	jwt, accessKey := credentials(v.Request)
	var by access.Decision
	var err error
	if c.policy.Type == weir.PolicyWebhook {
		err = s.askWebhook(ctx, v, accessKey)
	} else {
		by, err = s.checkJWT(ctx, v, jwt)
	}
	if err != nil {
		return err
	}
	v.token = s.tokens.issue(v.title, by, accessKey, s.viewerOf(v)+jwt+accessKey, time.Now())
	return nil
}

// checkJWT returns an error if the JWT does not admit the viewer.
func (s *Server) checkJWT(ctx context.Context, v *visit, jwt string) (access.Decision, error) {
	return s.Gate.Check(ctx, access.Request{PlaybackID: v.title.playbackID, Token: weir.Secret(jwt), Headers: v.Header})
}

// askWebhook returns nil if the access webhook admits the viewer, or did so within the interval of
// the policy.
func (s *Server) askWebhook(ctx context.Context, v *visit, accessKey string) error {
	c := &v.title.content
	if c.asksAgain() && len(accessKey) > maxAccessKey {
		return weir.Errorf(weir.Denied, "Content is gated and the access key is longer than %d bytes", maxAccessKey)
	}
	pass := admissionOf(c, accessKey)
	if s.admissions.holds(pass, time.Now()) {
		return s.titles.holds(ctx, c.playbackID, "")
	}
	question := access.Request{PlaybackID: c.playbackID, AccessKey: weir.Secret(accessKey), Headers: v.Header, Viewer: s.describe(v)}
	_, err, _ := s.admissions.asking.Do(string(pass[:]), func() (any, error) {
		// Other requests of the viewer wait for the answer too.
		decision, err := s.Gate.Check(context.WithoutCancel(ctx), question)
		if err == nil {
			s.admissions.note(pass, time.Now().Add(decision.RefreshInterval))
		}
		return nil, err
	})
	return err
}

// credentials returns the JWT and the access key of a request.
func credentials(r *http.Request) (jwt, accessKey string) {
	query := r.URL.Query()
	return cmp.Or(query.Get("jwt"), r.Header.Get("Livepeer-Jwt")), cmp.Or(query.Get("accessKey"), r.Header.Get("Livepeer-Access-Key"))
}

// describe returns what an access webhook gets about the viewer.
func (s *Server) describe(v *visit) map[string]json.RawMessage {
	base := weir.RequestBase(v.TLS != nil, v.Host, v.RemoteAddr, v.Header.Get("X-Forwarded-Proto"), v.Header.Get("X-Forwarded-Host"), s.TrustedProxies)
	// The token is left out: anyone who reads the webhook's log could use it.
	address := &url.URL{Path: cmp.Or(v.at, "/hls/"+v.id+"/"+v.path), RawQuery: v.URL.RawQuery}
	headers := map[string]string{"Host": v.Host}
	for name, values := range v.Header {
		headers[name] = strings.Join(values, ", ")
	}
	viewer := map[string]json.RawMessage{}
	for name, value := range map[string]any{
		"userIP": s.address(v), "playDomain": v.Host, "playURL": base + address.RequestURI(), "headers": headers,
	} {
		if text, err := json.Marshal(value); err == nil {
			viewer[name] = text
		}
	}
	return viewer
}

// admissions remembers the viewers that access webhooks have admitted, and until when. Otherwise a
// player that sends its access key with every request would cause a call for every segment.
type admissions struct {
	asking singleflight.Group
	mu     sync.Mutex
	till   map[admission]time.Time
}

// admission is the hash of an access key and the policy that it was checked against.
type admission [sha256.Size]byte

const maxAdmissions = 10_000

func admissionOf(c *content, accessKey string) admission {
	p := c.policy
	return sha256.Sum256([]byte(c.playbackID + "\x00" + p.WebhookID + "\x00" + string(p.WebhookContext) + "\x00" + accessKey))
}

func (a *admissions) holds(one admission, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.till[one])
}

func (a *admissions) note(one admission, till time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.till) >= maxAdmissions {
		clear(a.till) // they are asked again
	}
	a.till[one] = till
}
