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
		return s.titles.holds(ctx, c.PlaybackID, v.token.key)
	case !c.policy.Private():
		return s.titles.holds(ctx, c.PlaybackID, "")
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
	v.token = s.tokens.issue(v.title, by, accessKey, s.viewerID(s.viewer(v))+jwt+accessKey, time.Now())
	return nil
}

// checkJWT returns an error if the JWT does not admit the viewer.
func (s *Server) checkJWT(ctx context.Context, v *visit, jwt string) (access.Decision, error) {
	return s.guess(ctx, v, access.Request{PlaybackID: v.title.PlaybackID, JWT: weir.Secret(jwt), Headers: v.Header})
}

// guess asks the gate about the credential that a viewer has shown, if there is one. An address may send only so many
// wrong ones: each costs a signature check or a question to an access webhook.
func (s *Server) guess(ctx context.Context, v *visit, r access.Request) (access.Decision, error) {
	if r.JWT == "" && r.AccessKey == "" {
		return s.Gate.Check(ctx, r)
	}
	// It is counted before it is known to be wrong, so that many at once count too.
	from := weir.Network(s.address(v))
	if !s.wrong.Take(from, time.Now()) {
		s.throttled.Add(1)
		return access.Decision{}, weir.TooMany(time.Second, "too many wrong credentials from this address; try again in a second")
	}
	d, err := s.Gate.Check(ctx, r)
	if err == nil || weir.KindOf(err) == weir.Internal {
		s.wrong.Return(from)
	}
	return d, err
}

// askWebhook returns nil if the access webhook admits the viewer, or did so within the interval of
// the policy. A viewer that it has just refused is refused without a question.
func (s *Server) askWebhook(ctx context.Context, v *visit, accessKey string) error {
	c := &v.title.content
	if c.asksAgain() && len(accessKey) > maxAccessKey {
		return weir.Errorf(weir.Denied, "Content is gated and the access key is longer than %d bytes", maxAccessKey)
	}
	pass := admissionOf(c, accessKey)
	switch holds, refused := s.admissions.find(pass, time.Now()); {
	case holds:
		return s.titles.holds(ctx, c.PlaybackID, "")
	case refused != nil:
		return refused
	}
	question := access.Request{PlaybackID: c.PlaybackID, AccessKey: weir.Secret(accessKey), Headers: v.Header, Viewer: s.describe(v)}
	_, err, _ := s.admissions.asking.Do(string(pass[:]), func() (any, error) {
		// Other requests of the viewer wait for the answer too. A viewer with a token was admitted with
		// this access key before.
		ctx := context.WithoutCancel(ctx)
		var decision access.Decision
		var err error
		if v.token != nil {
			decision, err = s.Gate.Check(ctx, question)
		} else {
			decision, err = s.guess(ctx, v, question)
		}
		switch {
		case err == nil:
			s.admissions.note(pass, time.Now().Add(decision.RefreshInterval))
		case weir.KindOf(err) == weir.Denied:
			s.admissions.refuse(pass, err, time.Now().Add(refusalLife))
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
	base := weir.RequestBase(v.Request, s.TrustedProxies)
	// The token is left out: anyone who reads the webhook's log could use it.
	address := &url.URL{Path: cmp.Or(v.at, "/hls/"+v.id+"/"+v.path), RawQuery: v.URL.RawQuery}
	headers := map[string]string{"Host": v.Host}
	for name, values := range v.Header {
		headers[name] = strings.Join(values, ", ")
	}
	viewer := map[string]json.RawMessage{}
	for name, value := range map[string]any{
		"userIP": s.address(v).String(), "playDomain": v.Host, "playURL": base + address.RequestURI(), "headers": headers,
	} {
		if text, err := json.Marshal(value); err == nil {
			viewer[name] = text
		}
	}
	return viewer
}

// admissions remembers the viewers that access webhooks have admitted, and until when. Otherwise a
// player that sends its access key with every request would cause a call for every segment. Those
// that were refused are remembered for a moment, because players try again.
type admissions struct {
	asking  singleflight.Group
	mu      sync.Mutex
	till    map[admission]time.Time
	refused map[admission]refusal
}

type refusal struct {
	err  error
	till time.Time
}

// admission is the hash of an access key and the policy that it was checked against.
type admission [sha256.Size]byte

const (
	maxAdmissions = 10_000 // and as many refusals
	refusalLife   = 10 * time.Second
)

const (
	// A network may send so many wrong credentials at once, and then so many a second.
	wrongAtOnce    = 100
	wrongPerSecond = 1
	// maxNetworks is the maximum number of networks that are counted at once.
	maxNetworks = 100_000
)

func admissionOf(c *content, accessKey string) admission {
	p := c.policy
	return sha256.Sum256([]byte(c.PlaybackID + "\x00" + p.WebhookID + "\x00" + string(p.WebhookContext) + "\x00" + accessKey))
}

// find reports whether an admission is valid, and returns the error if it was refused.
func (a *admissions) find(one admission, now time.Time) (holds bool, refused error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.refused[one]; now.Before(r.till) {
		return false, r.err
	}
	return now.Before(a.till[one]), nil
}

func (a *admissions) note(one admission, till time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.till) >= maxAdmissions {
		clear(a.till) // they are asked again
	}
	a.till[one] = till
	delete(a.refused, one)
}

func (a *admissions) refuse(one admission, err error, till time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.refused) >= maxAdmissions {
		clear(a.refused)
	}
	a.refused[one] = refusal{err, till}
}

// MayPlay returns nil if the request, which is not one for media, is of a viewer who may play the content. token
// is the one in the addresses of the viewer's playlists; "" = the request has none.
func (s *Server) MayPlay(r *http.Request, playbackID string, token weir.Secret) error {
	return s.enter(&visit{Request: r, id: playbackID, at: r.URL.Path, text: token.Reveal(), inPath: token != ""})
}
