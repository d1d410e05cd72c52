package playback

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/internal/access"
	"weir/internal/weir"
)

// admit lets the viewer in, or says why not. Who comes with a token of ours was let
// in before; what that was by must still hold.
func (s *Server) admit(ctx context.Context, v *visit) error {
	asset := &v.title.asset
	policy := asset.PlaybackPolicy
	if !policy.AllowsOrigin(access.Origin(v.Header)) {
		return weir.Errorf(weir.Denied, "Content is gated and origin not in allowed origins")
	}
	if v.token != nil {
		return s.titles.holds(ctx, asset.PlaybackID, v.token.key)
	}
	if !policy.Private() {
		return s.titles.holds(ctx, asset.PlaybackID, "")
	}
	jwt, accessKey := credentials(v.Request)
	now := time.Now()
	pass := admissionOf(asset, accessKey)
	if policy.Type == weir.PolicyWebhook && s.admissions.holds(pass, now) {
		v.token = s.tokens.issue(v.title, "", s.viewerOf(v)+jwt+accessKey, now)
		return s.titles.holds(ctx, asset.PlaybackID, "")
	}
	decision, err := s.Gate.Check(ctx, access.Request{
		PlaybackID: asset.PlaybackID, Token: weir.Secret(jwt), AccessKey: weir.Secret(accessKey), Headers: v.Header, Viewer: s.describe(v),
	})
	if err != nil {
		return err
	}
	if policy.Type == weir.PolicyWebhook {
		s.admissions.note(pass, now.Add(decision.RefreshInterval))
	}
	v.token = s.tokens.issue(v.title, decision.KeyID, s.viewerOf(v)+jwt+accessKey, now)
	return nil
}

// credentials returns what a viewer showed.
func credentials(r *http.Request) (jwt, accessKey string) {
	query := r.URL.Query()
	if jwt = query.Get("jwt"); jwt == "" {
		jwt = r.Header.Get("Livepeer-Jwt")
	}
	if accessKey = query.Get("accessKey"); accessKey == "" {
		accessKey = r.Header.Get("Livepeer-Access-Key")
	}
	return jwt, accessKey
}

// describe is what an access webhook is told of the viewer.
func (s *Server) describe(v *visit) map[string]json.RawMessage {
	base := weir.RequestBase(v.TLS != nil, v.Host, v.RemoteAddr, v.Header.Get("X-Forwarded-Proto"), v.Header.Get("X-Forwarded-Host"), s.TrustedProxies)
	headers := map[string]string{"Host": v.Host}
	for name, values := range v.Header {
		headers[name] = strings.Join(values, ", ")
	}
	viewer := map[string]json.RawMessage{}
	for name, value := range map[string]any{
		"userIP": s.address(v), "playDomain": v.Host, "playURL": base + v.URL.RequestURI(), "headers": headers,
	} {
		if text, err := json.Marshal(value); err == nil {
			viewer[name] = text
		}
	}
	return viewer
}

// admissions remembers whom access webhooks let in, and for how long they need not be
// asked again: a player that shows its access key with every request would have them
// asked for every segment.
type admissions struct {
	mu   sync.Mutex
	till map[admission]time.Time
}

// admission is a viewer with an access key and the policy that was asked about it.
type admission [sha256.Size]byte

const maxAdmissions = 10_000

func (a *admissions) init() { a.till = map[admission]time.Time{} }

func admissionOf(asset *weir.Asset, accessKey string) admission {
	p := asset.PlaybackPolicy
	return sha256.Sum256([]byte(asset.PlaybackID + "\x00" + p.WebhookID + "\x00" + string(p.WebhookContext) + "\x00" + accessKey))
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
