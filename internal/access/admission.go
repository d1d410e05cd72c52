package access

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/weir"
)

// admissions remembers the viewers that access webhooks have admitted, and until when. Otherwise a
// player that sends its access key with every request would cause a call for every segment. Those
// that were refused are remembered for a moment, because players try again.
type admissions struct {
	calls   singleflight.Group
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

func newAdmissions() admissions {
	return admissions{till: map[admission]time.Time{}, refused: map[admission]refusal{}}
}

// askWebhook returns nil if the access webhook admits the viewer, or did so within the interval of
// the policy. A viewer that it has just refused is refused without a request.
func (c *Control) askWebhook(ctx context.Context, t Title, v Viewer, token *Token, accessKey string) error {
	if t.asksAgain() && len(accessKey) > maxAccessKey {
		return weir.Errorf(weir.Denied, "Content is gated and the access key is longer than %d bytes", maxAccessKey)
	}
	pass := admissionOf(&t, accessKey)
	switch admitted, refused := c.admissions.find(pass, time.Now()); {
	case admitted:
		return c.stillAdmitted(ctx, t.PlaybackID, "")
	case refused != nil:
		return refused
	}
	request := Request{PlaybackID: t.PlaybackID, AccessKey: weir.Secret(accessKey), Headers: v.Request.Header, Viewer: v.Client.Describe()}
	_, err, _ := c.admissions.calls.Do(string(pass[:]), func() (any, error) {
		// Other requests of the viewer wait for the response too. A viewer with a token was admitted
		// with this access key before.
		ctx := context.WithoutCancel(ctx)
		var decision Decision
		var err error
		if token != nil {
			decision, err = c.gate.Check(ctx, request)
		} else {
			decision, err = c.checkCredential(ctx, v, request)
		}
		switch {
		case err == nil:
			c.admissions.note(pass, time.Now().Add(decision.RefreshInterval))
		case weir.KindOf(err) == weir.Denied:
			c.admissions.refuse(pass, err, time.Now().Add(refusalLife))
		}
		return nil, err
	})
	return err
}

func admissionOf(t *Title, accessKey string) admission {
	p := t.Policy
	return sha256.Sum256([]byte(t.PlaybackID + "\x00" + p.WebhookID + "\x00" + string(p.WebhookContext) + "\x00" + accessKey))
}

// find reports whether an admission is valid, and returns the error if it was refused.
func (a *admissions) find(one admission, now time.Time) (admitted bool, refused error) {
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
