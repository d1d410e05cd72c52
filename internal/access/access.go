// Package access decides whether a viewer may play something, and under which token.
//
// Streams and assets have a playback policy; without one they are public. A [Gate] checks a viewer
// against it: [Gate.Check] is what the API offers to other media servers. A policy can require a JWT
// that the owner of the content signed with one of the signing keys of its project (jwt.go), or an
// access key, which the owner's own server checks: weir asks it by a webhook (ask.go), for one network
// after the other (line.go), and remembers what it has said for as long as it is valid
// (admission.go). The rules of all policies are in this file: content that is deleted or suspended,
// or whose owner is, looks as if it did not exist, and pages of other origins are refused. A network
// that shows too many wrong credentials must wait (guess.go).
//
// A [Control] admits the viewers of weir itself. [Control.Admit] is called once for every request
// (control.go). It asks the gate when a viewer comes. A viewer of something that is not public gets a
// token for the addresses of all further requests (token.go). A token of a stream has a short life,
// which each use or a newer JWT extends (renew.go).
package access

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"sync/atomic"
	"time"

	"weir/internal/store"
	"weir/internal/webhook"
	"weir/internal/weir"
)

// Gate decides who may play. It is safe for concurrent use.
type Gate struct {
	store *store.Store
	hooks *webhook.Sender
	log   *slog.Logger

	guesses    guesses
	owners     store.Recent[Decision]        // terms of accounts
	keys       store.Recent[accountKeys]     // signing keys of accounts
	others     store.Recent[weir.SigningKey] // signing keys that are not among those, by id
	webhooks   store.Recent[weir.Webhook]    // access webhooks by id
	verifying  lines                         // JWTs
	admissions admissions
	asking     lines                // requests to access webhooks, by the account that they are of
	logging    weir.Buckets[string] // lines in the logs of access webhooks, by webhook
	unlogged   atomic.Int64
}

// Stats are the counts of a Gate.
type Stats struct {
	Unlogged  int64 // requests that were left out of the log of their access webhook
	Throttled int64 // viewers refused because of wrong credentials from their network
}

// Stats returns the current counts.
func (g *Gate) Stats() Stats {
	return Stats{Unlogged: g.unlogged.Load(), Throttled: g.guesses.throttled.Load()}
}

// New returns a Gate that asks access webhooks through hooks.
func New(st *store.Store, hooks *webhook.Sender, log *slog.Logger) *Gate {
	return &Gate{
		store: st, hooks: hooks, log: log,
		guesses: newGuesses(), admissions: newAdmissions(),
		owners:    store.Recent[Decision]{Store: st, Max: maxOwners},
		keys:      store.Recent[accountKeys]{Store: st, Max: maxOwners},
		others:    store.Recent[weir.SigningKey]{Store: st, Max: maxOwners},
		webhooks:  store.Recent[weir.Webhook]{Store: st, Max: maxOwners},
		verifying: lines{AtOnce: runtime.GOMAXPROCS(0), OfNetwork: verifiedOfNetwork},
		asking:    lines{AtOnce: asksAtOnce, OfNetwork: asksOfNetwork, Waiting: maxAsking, Timeout: askingTimeout},
		logging:   weir.Buckets[string]{AtOnce: logAtOnce, PerSecond: logPerSecond, Max: maxLogging},
	}
}

// Request is the request of a viewer to play.
type Request struct {
	PlaybackID string
	// From is the network of the sender of the request: a viewer, or a media server for its viewers.
	From netip.Prefix
	// ServerOf is the account whose API key a media server has sent; "" = none. To the content of
	// others it is a viewer.
	ServerOf string
	// JWT is that of the viewer, which Check verifies.
	JWT weir.Secret
	// PublicKey is the `pub` of a JWT that a media server has verified already. It is ignored if
	// there is a JWT.
	PublicKey string
	AccessKey weir.Secret
	// Headers are those of the viewer's request, of which Origin and Referer are used.
	Headers http.Header
	// Viewer has further members of the body that is sent to an access webhook.
	Viewer map[string]json.RawMessage

	known bool // the viewer has a token, so the credential was right before
}

// Decision has the terms on which a viewer may play.
type Decision struct {
	UserID          string    // who owns the content
	KeyID           string    // the signing key of the viewer's JWT; "" = there was none
	Expires         time.Time // when the viewer's JWT does; zero = there was none
	ViewerLimit     int       // how many may watch the owner's content at once
	Unlimited       bool      // more than ViewerLimit may watch
	RefreshInterval time.Duration
}

const (
	// defaultRefresh is the RefreshInterval of a policy that has none.
	defaultRefresh = 10 * time.Minute
	// maxRefresh is practically unlimited.
	maxRefresh = 10 * 365 * 24 * time.Hour
)

// Check returns nil when the viewer may play, or an error for the viewer.
func (g *Gate) Check(ctx context.Context, r Request) (Decision, error) {
	c, err := g.content(ctx, r.PlaybackID)
	if err != nil {
		return Decision{}, err
	}
	owner, err := g.owner(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	d := terms(owner)
	if !c.policy.AllowsOrigin(Origin(r.Headers)) {
		return Decision{}, weir.Errorf(weir.Denied, "Content is gated and origin not in allowed origins")
	}
	if !c.policy.Private() {
		return d, nil
	}
	d.RefreshInterval = c.refreshInterval()
	err = g.checkCredential(ctx, c, r, &d)
	return d, err
}

// checkCredential returns nil when the credential of a viewer admits to content that is not public. It
// adds to the decision what it depends on.
func (g *Gate) checkCredential(ctx context.Context, c content, r Request, d *Decision) (err error) {
	switch c.policy.Type {
	case weir.PolicyJWT:
		d.KeyID, d.Expires, err = g.checkJWT(ctx, c, r)
	case weir.PolicyWebhook:
		err = g.askWebhook(ctx, c, r)
	default:
		err = weir.Errorf(weir.Refused, "unknown playbackPolicy type: %s", c.policy.Type)
	}
	return err
}

// terms returns the terms of an account for all viewers. An administrator's account has a limit of
// viewers only if it was given one.
func terms(owner weir.User) Decision {
	if owner.ViewerLimit != nil {
		return Decision{UserID: owner.ID, ViewerLimit: *owner.ViewerLimit}
	}
	return Decision{UserID: owner.ID, ViewerLimit: weir.DefaultViewerLimit, Unlimited: owner.Admin}
}

// recheck returns nil while an earlier decision is still valid: neither the owner of the content, nor
// the signing key of the viewer's JWT has been blocked since. The decision has the terms that do not
// depend on the policy. What it reads is remembered for a moment.
func (g *Gate) recheck(ctx context.Context, c content, keyID string) (Decision, error) {
	d, err := g.owners.Get(ctx, c.userID, time.Now(), func(ctx context.Context) (Decision, error) {
		owner, err := g.owner(ctx, c)
		return terms(owner), err
	})
	if err != nil || keyID == "" {
		return d, err
	}
	key, err := g.keyByID(ctx, c.userID, keyID)
	if weir.IsNotFound(err) || err == nil && (key.Disabled || key.Deleted || !c.owns(key)) {
		err = badJWT("its signing key was revoked")
	}
	return d, err
}

// content is the stream or the asset that is played.
type content struct {
	playbackID string
	userID     string
	projectID  string
	policy     *weir.PlaybackPolicy
}

// refreshInterval returns after what time an access webhook is asked again.
func (c content) refreshInterval() time.Duration {
	if seconds := c.policy.RefreshInterval; seconds > 0 {
		return time.Duration(min(seconds, maxRefresh.Seconds()) * float64(time.Second))
	}
	return defaultRefresh
}

// isServer reports whether a request is of a media server of the owner of the content.
func (c content) isServer(r Request) bool { return r.ServerOf != "" && r.ServerOf == c.userID }

// owns reports whether a signing key is of the project of the content.
func (c content) owns(key weir.SigningKey) bool {
	return key.UserID == c.userID && key.ProjectID == c.projectID
}

// content returns the content with the playback id.
func (g *Gate) content(ctx context.Context, playbackID string) (content, error) {
	stream, err := g.store.StreamByPlaybackID(ctx, playbackID)
	c, blocked := content{playbackID, stream.UserID, stream.ProjectID, stream.PlaybackPolicy}, stream.Deleted || stream.Suspended
	if weir.IsNotFound(err) {
		var asset weir.Asset
		asset, err = g.store.AssetByPlaybackID(ctx, playbackID)
		c, blocked = content{playbackID, asset.UserID, asset.ProjectID, asset.PlaybackPolicy}, asset.Deleted
	}
	if weir.IsNotFound(err) || err == nil && blocked {
		err = errNoContent()
	}
	return c, err
}

// owner returns the owner of content, unless the account is blocked.
func (g *Gate) owner(ctx context.Context, c content) (weir.User, error) {
	owner, err := g.store.User(ctx, c.userID)
	if weir.IsNotFound(err) || err == nil && (owner.Suspended || owner.Disabled) {
		err = errNoContent()
	}
	return owner, err
}

// errNoContent is the response for content that does not exist or that the viewer must not know of.
func errNoContent() *weir.Error { return weir.Errorf(weir.NotFound, "Content not found") }

// Origin returns the origin of the viewer's page, "" if the viewer is not a browser. If a browser
// hides the origin, the Referer counts; if it hides both, the origin is "null", which no policy can
// name.
func Origin(h http.Header) string {
	value := h.Get("Origin")
	if value != "" && value != "null" {
		return originOf(value)
	}
	if referer := h.Get("Referer"); referer != "" {
		return originOf(referer)
	}
	return value
}

// originOf returns the origin of a URL.
func originOf(value string) string {
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return value
	}
	return u.Scheme + "://" + u.Host
}
