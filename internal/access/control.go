package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"weir/internal/weir"
)

// Control admits the viewers of a node. A player sends many requests, so Control remembers what the
// Gate has decided, and gives viewers of titles that are not public a token for the requests that
// follow. It is safe for concurrent use.
type Control struct {
	gate     *Gate
	tokens   tokens
	renewals renewals
}

// Title is an asset or a stream that somebody wants to play.
type Title struct {
	PlaybackID string
	UserID     string // of its owner
	ProjectID  string
	Policy     *weir.PlaybackPolicy
	Stream     bool          // it is a stream, not an asset
	Length     time.Duration // of an asset, as far as it is known
}

func (t *Title) content() content { return content{t.PlaybackID, t.UserID, t.ProjectID, t.Policy} }

// asksAgain reports whether the access webhook checks viewers with a token again, after the
// interval of the policy.
func (t *Title) asksAgain() bool {
	return t.Stream && t.Policy != nil && t.Policy.Type == weir.PolicyWebhook
}

// endsWithJWT reports whether a viewer's admission to a stream ends with the JWT. A policy with a
// refresh interval checks the signing key again instead.
func (t *Title) endsWithJWT() bool {
	return t.Stream && t.Policy != nil && t.Policy.Type == weir.PolicyJWT && t.Policy.RefreshInterval <= 0
}

// Viewer is who wants to play a title, as the request shows it.
type Viewer struct {
	Request  *http.Request // its headers and its query can have credentials
	Token    string        // the token in the address of the request, if HasToken
	HasToken bool
	Cache    bool // it is a proven cache, which checks its viewers; there is no token
	Client   Client
}

// Client is the sender of a request. Few requests need what it knows, so it works that out when it
// is called.
type Client interface {
	// Address returns the address of the client.
	Address() netip.Addr
	// ID returns what Control.ViewerID makes of the client.
	ID() string
	// Describe returns what an access webhook gets about the client.
	Describe() map[string]json.RawMessage
}

// OpenControl returns a Control that asks the gate. The first one makes the secret of the tokens,
// which all nodes have.
func OpenControl(ctx context.Context, gate *Gate) (*Control, error) {
	secret, err := gate.store.NamedSecret(ctx, "playback", func() ([]byte, error) {
		secret := make([]byte, 32)
		_, err := rand.Read(secret)
		return secret, err
	})
	if err != nil {
		return nil, err
	}
	c := &Control{gate: gate, renewals: newRenewals(gate.store)}
	return c, c.tokens.use(secret)
}

// Admit returns an error for the viewer unless the viewer may play the title now. The token is that
// of the request, or a new one for the requests that follow; nil = the title needs none.
func (c *Control) Admit(ctx context.Context, t Title, v Viewer) (*Token, error) {
	var token *Token
	if v.HasToken {
		var err error
		if token, err = c.tokens.open(&t, v.Token); err != nil {
			return nil, err
		}
		if err := c.renew(ctx, t, v, token, time.Now()); err != nil {
			return nil, err
		}
	}
	return c.admit(ctx, t, v, token)
}

// admit is Admit for a viewer whose token is valid, or who has none. A viewer with a token was
// admitted before; the reason for that must still hold.
func (c *Control) admit(ctx context.Context, t Title, v Viewer, token *Token) (*Token, error) {
	if v.Cache {
		return nil, c.stillAdmitted(ctx, t, "")
	}
	if !t.Policy.AllowsOrigin(Origin(v.Request.Header)) {
		return nil, weir.Errorf(weir.Denied, "Content is gated and origin not in allowed origins")
	}
	switch {
	case token != nil && t.asksAgain():
		return token, c.askWebhook(ctx, t, v, token, token.accessKey.Reveal())
	case token != nil:
		return token, c.stillAdmitted(ctx, t, token.key)
	case !t.Policy.Private():
		return nil, c.stillAdmitted(ctx, t, "")
	}
	jwt, accessKey := credentials(v.Request)
	var by Decision
	var err error
	if t.Policy.Type == weir.PolicyWebhook {
		err = c.askWebhook(ctx, t, v, nil, accessKey)
	} else {
		by, err = c.checkJWT(ctx, t, v, jwt)
	}
	if err != nil {
		return nil, err
	}
	return c.tokens.issue(&t, by, accessKey, v.Client.ID()+jwt+accessKey, time.Now()), nil
}

// credentials returns the JWT and the access key of a request.
func credentials(r *http.Request) (jwt, accessKey string) {
	query := r.URL.Query()
	return cmp.Or(query.Get("jwt"), r.Header.Get("Livepeer-Jwt")), cmp.Or(query.Get("accessKey"), r.Header.Get("Livepeer-Access-Key"))
}

// HasCredential reports whether a request has a JWT or an access key.
func HasCredential(r *http.Request) bool {
	jwt, accessKey := credentials(r)
	return jwt != "" || accessKey != ""
}

// checkJWT returns an error if the JWT does not admit the viewer.
func (c *Control) checkJWT(ctx context.Context, t Title, v Viewer, jwt string) (Decision, error) {
	return c.check(ctx, t, Request{JWT: weir.Secret(jwt)}, v)
}

// askWebhook returns an error if the access webhook does not admit the viewer.
func (c *Control) askWebhook(ctx context.Context, t Title, v Viewer, token *Token, accessKey string) error {
	if t.asksAgain() && len(accessKey) > maxAccessKey {
		return weir.Errorf(weir.Denied, "Content is gated and the access key is longer than %d bytes", maxAccessKey)
	}
	// A viewer with a token was admitted with this access key before.
	_, err := c.check(ctx, t, Request{AccessKey: weir.Secret(accessKey), Headers: v.Request.Header, Viewer: v.Client.Describe(), known: token != nil}, v)
	return err
}

// check returns an error if the credential in a request does not admit the viewer. It reads nothing of the
// title that Control knows.
func (c *Control) check(ctx context.Context, t Title, r Request, v Viewer) (Decision, error) {
	d, err := c.Terms(ctx, t)
	if err != nil {
		return Decision{}, err
	}
	r.PlaybackID, r.From = t.PlaybackID, weir.Network(v.Client.Address())
	err = c.gate.checkCredential(ctx, t.content(), r, &d)
	return d, err
}

// stillAdmitted returns nil while the admission of a viewer is valid: the owner is not suspended, the
// signing key not revoked.
func (c *Control) stillAdmitted(ctx context.Context, t Title, keyID string) error {
	_, err := c.gate.recheck(ctx, t.content(), keyID)
	return err
}

// Terms returns the terms that the owner of a title has for all viewers.
func (c *Control) Terms(ctx context.Context, t Title) (Decision, error) {
	return c.gate.recheck(ctx, t.content(), "")
}
