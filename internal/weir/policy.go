package weir

import (
	"encoding/json"
	"net/url"
	"slices"
)

// PlaybackPolicy says who may play a stream or an asset.
type PlaybackPolicy struct {
	Type            string          `json:"type"` // public, jwt or webhook
	WebhookID       string          `json:"webhookId,omitempty"`
	WebhookContext  json.RawMessage `json:"webhookContext,omitempty"`
	RefreshInterval float64         `json:"refreshInterval,omitempty"` // seconds until a viewer is checked again
	AllowedOrigins  []string        `json:"allowedOrigins,omitempty"`
}

// The types of playback policies.
const (
	PolicyPublic  = "public"
	PolicyJWT     = "jwt"
	PolicyWebhook = "webhook"
)

// Private reports whether a viewer needs a credential.
func (p *PlaybackPolicy) Private() bool { return p != nil && p.Type != PolicyPublic }

// validate checks a policy as far as that is possible without the store. The caller must check that
// its webhook exists.
func (p *PlaybackPolicy) validate() error {
	if p == nil {
		return nil
	}
	for _, origin := range p.AllowedOrigins {
		if origin == "*" && len(p.AllowedOrigins) == 1 {
			continue
		}
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return Errorf(Refused, `allowedOrigins: %q is not an origin; write <scheme>://<host>[:port], or exactly ["*"]`, origin)
		}
	}
	return nil
}

// AllowsOrigin reports whether a page of the given origin may play. No origin means that the viewer
// is not a browser.
func (p *PlaybackPolicy) AllowsOrigin(origin string) bool {
	return p == nil || origin == "" || len(p.AllowedOrigins) == 0 ||
		slices.Contains(p.AllowedOrigins, "*") || slices.Contains(p.AllowedOrigins, origin)
}
