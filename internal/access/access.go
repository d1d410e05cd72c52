// Package access decides whether a viewer may play something.
//
// Everything that plays has a playback policy (none is public). [Gate.Check] is the
// one function that holds a viewer against it; whoever serves media, and the
// gate of the API that other media servers ask, both call it. Who may play is not
// written down anywhere: the answer holds for the Decision's RefreshInterval and is
// then asked for again.
//
// A policy can ask for a token that the owner of the content signed with one of the
// account's signing keys (jwt.go), or for an access key, which the owner's own
// server judges: weir asks it by a webhook (ask.go). The rules that hold for every
// policy are in this file: content that is deleted or suspended, or whose owner is,
// looks as if it did not exist, and pages of other origins are refused.
package access

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
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
}

// New returns a Gate that asks access webhooks through hooks.
func New(st *store.Store, hooks *webhook.Sender, log *slog.Logger) *Gate {
	return &Gate{store: st, hooks: hooks, log: log}
}

// Request is a viewer who wants to play.
type Request struct {
	PlaybackID string
	// Token is what the viewer showed: a JWT, which is checked here.
	Token weir.Secret
	// PublicKey is the `pub` of a token that a media server has checked already;
	// it is not looked at when there is a Token.
	PublicKey string
	AccessKey weir.Secret
	// Headers are those of the viewer's request; Origin and Referer count.
	Headers http.Header
	// Viewer is what an access webhook is told besides: the members of an object.
	Viewer map[string]json.RawMessage
}

// Decision says on what terms a viewer may play.
type Decision struct {
	UserID          string // who owns the content
	KeyID           string // the signing key of the viewer's token; "" = there was none
	ViewerLimit     int    // how many may watch the owner's content at once
	RefreshInterval time.Duration
}

const (
	// defaultRefresh is how long a decision about content that is not public holds
	// when its policy says nothing.
	defaultRefresh = 10 * time.Minute
	// maxRefresh is as good as for ever.
	maxRefresh = 10 * 365 * 24 * time.Hour
)

// Check returns nil when the viewer may play, or the error that tells the viewer
// why not.
func (g *Gate) Check(ctx context.Context, r Request) (Decision, error) {
	c, err := g.content(ctx, r.PlaybackID)
	if err != nil {
		return Decision{}, err
	}
	owner, err := g.store.User(ctx, c.userID)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return Decision{}, err
	}
	if err != nil || owner.Suspended || owner.Disabled {
		return Decision{}, errNoContent()
	}
	d := Decision{UserID: owner.ID, ViewerLimit: weir.DefaultViewerLimit}
	if owner.ViewerLimit != nil {
		d.ViewerLimit = *owner.ViewerLimit
	}
	if !c.policy.AllowsOrigin(Origin(r.Headers)) {
		return Decision{}, weir.Errorf(weir.Denied, "Content is gated and origin not in allowed origins")
	}
	if !c.policy.Private() {
		return d, nil
	}
	d.RefreshInterval = defaultRefresh
	if seconds := c.policy.RefreshInterval; seconds > 0 {
		d.RefreshInterval = time.Duration(min(seconds, maxRefresh.Seconds()) * float64(time.Second))
	}
	switch c.policy.Type {
	case weir.PolicyJWT:
		d.KeyID, err = g.checkToken(ctx, c, r)
	case weir.PolicyWebhook:
		err = g.askWebhook(ctx, c, r)
	default:
		err = weir.Errorf(weir.Refused, "unknown playbackPolicy type: %s", c.policy.Type)
	}
	return d, err
}

// Holds returns nil while a decision of before can still be relied on: the content,
// its owner and the key that the viewer's token was signed with are as they were.
func (g *Gate) Holds(ctx context.Context, playbackID, keyID string) error {
	c, err := g.content(ctx, playbackID)
	if err != nil {
		return err
	}
	owner, err := g.store.User(ctx, c.userID)
	if err == nil && (owner.Suspended || owner.Disabled) {
		err = errNoContent()
	}
	if err != nil || keyID == "" {
		return err
	}
	key, err := g.store.SigningKey(ctx, keyID)
	if err == nil && (key.Disabled || key.Deleted) || err != nil && weir.KindOf(err) == weir.NotFound {
		err = badToken("its signing key was revoked")
	}
	return err
}

// content is what is to be played.
type content struct {
	playbackID string
	userID     string
	policy     *weir.PlaybackPolicy
}

// content finds what is played under an id.
func (g *Gate) content(ctx context.Context, playbackID string) (content, error) {
	stream, err := g.store.StreamByPlaybackID(ctx, playbackID)
	if err == nil {
		if stream.Deleted || stream.Suspended {
			return content{}, errNoContent()
		}
		return content{playbackID, stream.UserID, stream.PlaybackPolicy}, nil
	}
	if weir.KindOf(err) != weir.NotFound {
		return content{}, err
	}
	asset, err := g.store.AssetByPlaybackID(ctx, playbackID)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return content{}, err
	}
	if err != nil || asset.Deleted {
		return content{}, errNoContent()
	}
	return content{playbackID, asset.UserID, asset.PlaybackPolicy}, nil
}

// errNoContent is the answer for everything whose existence is not the viewer's
// business.
func errNoContent() *weir.Error { return weir.Errorf(weir.NotFound, "Content not found") }

// Origin returns the origin of the page that the viewer is on, "" when it is not a
// browser. Where a browser hides the origin its Referer counts; one that hides both
// has the origin "null", which no policy allows by name.
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

// originOf cuts a URL down to its origin.
func originOf(value string) string {
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return value
	}
	return u.Scheme + "://" + u.Host
}
