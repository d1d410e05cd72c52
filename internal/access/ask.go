package access

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// The log of an access webhook gets so many requests at once, and then so many a second: anybody can
// cause a request, and a line is kept for weeks.
const (
	logAtOnce    = 100
	logPerSecond = 1
	maxLogging   = 10_000 // webhooks
)

const (
	// So many questions to the access webhooks of an account are sent at once, and of these so many for
	// viewers of one network. They are fewer than the requests that webhook.Sender sends, so that some
	// are left for the owner's tests.
	asksAtOnce    = 24
	asksOfNetwork = 8
	// maxAsking is how many viewers may wait to be asked about, and askingTimeout how long.
	maxAsking     = 2000
	askingTimeout = 20 * time.Second
)

// askWebhook returns nil if the owner's own server allows the viewer to play, or did so within the
// interval of the policy. A viewer whom it has just refused is refused without a question. About the
// viewers of the owner's media servers it is always asked: they remember what it says themselves.
func (g *Gate) askWebhook(ctx context.Context, c content, r Request) error {
	if r.AccessKey == "" {
		return weir.Errorf(weir.Denied, "Content is gated and requires an access key")
	}
	if c.isServer(r) {
		return g.inTurn(ctx, c, r, func() error {
			return g.guesses.try(c, r, func() error { return g.ask(ctx, c, r) })
		})
	}
	pass := admissionOf(c, r.AccessKey.Reveal())
	unlessKnown := func(ask func() error) error {
		if ok, err := g.admissions.find(c.userID, pass, time.Now()); ok || err != nil {
			return err
		}
		return ask()
	}
	return unlessKnown(func() error {
		return g.inTurn(ctx, c, r, func() error {
			return unlessKnown(func() error { // because of another request with the same key
				return g.guesses.try(c, r, func() error { return g.askOnce(ctx, c, r, pass) })
			})
		})
	})
}

// inTurn calls ask when it is the turn of a request. One that would be refused does not wait.
func (g *Gate) inTurn(ctx context.Context, c content, r Request, ask func() error) error {
	if !r.known && !g.guesses.of(c, r).Allows(r.From, time.Now()) {
		return g.guesses.refuse()
	}
	leave, err := g.asking.enter(ctx, c.userID, r.From)
	if err != nil {
		return err
	}
	defer leave()
	return ask()
}

// askOnce asks the access webhook, once for all requests with the same key at the same time, and
// remembers what it says.
func (g *Gate) askOnce(ctx context.Context, c content, r Request, pass admission) error {
	_, err, _ := g.admissions.calls.Do(string(pass[:]), func() (any, error) {
		err := g.ask(context.WithoutCancel(ctx), c, r)
		switch {
		case err == nil:
			g.admissions.note(c.userID, pass, time.Now().Add(c.refreshInterval()))
		case weir.KindOf(err) == weir.Denied:
			g.admissions.refuse(c.userID, pass, err, time.Now().Add(refusalLife))
		}
		return nil, err
	})
	return err
}

// ask asks the access webhook.
func (g *Gate) ask(ctx context.Context, c content, r Request) error {
	hook, err := g.webhooks.Get(ctx, c.policy.WebhookID, time.Now(), func(ctx context.Context) (weir.Webhook, error) {
		return g.store.Webhook(ctx, c.policy.WebhookID)
	})
	if weir.IsNotFound(err) || err == nil && (hook.Deleted || hook.UserID != c.userID) {
		return weir.Errorf(weir.Denied, "Content is gated and corresponding webhook not found")
	}
	if err != nil {
		return err
	}
	now := time.Now()
	body, shown, err := webhookBodies(c, r, now)
	if err != nil {
		return err
	}
	if g.store.Away() != nil || !g.logging.Take(hook.ID, now) {
		shown = nil
		g.unlogged.Add(1)
	}
	status, response, err := g.hooks.Ask(ctx, hook, now, body, shown)
	const failed = "Content is gated and corresponding webhook failed"
	switch {
	case weir.KindOf(err) == weir.Upstream:
		g.log.InfoContext(ctx, "access webhook did not respond", "webhook", hook.ID, "reason", err)
		return weir.Errorf(weir.Upstream, failed)
	case err != nil:
		return err
	case status < 200 || status > 299 || refuses(response):
		return weir.Errorf(weir.Denied, failed)
	}
	return nil
}

// webhookBodies returns the body of the request, and the part of it that the log of the webhook may
// show: the viewer's headers and query can have credentials in them.
func webhookBodies(c content, r Request, now time.Time) (body, shown []byte, err error) {
	all, some := map[string]any{}, map[string]any{}
	for name, value := range r.Viewer {
		all[name] = value
	}
	for _, name := range []string{"userIP", "playDomain"} {
		if value, ok := all[name]; ok {
			some[name] = value
		}
	}
	var played string
	if json.Unmarshal(r.Viewer["playURL"], &played) == nil {
		some["playURL"], _, _ = strings.Cut(played, "?")
	}
	delete(all, "context")
	if len(c.policy.WebhookContext) > 0 {
		all["context"], some["context"] = c.policy.WebhookContext, c.policy.WebhookContext
	}
	all["timestamp"], some["timestamp"] = weir.At(now), weir.At(now)
	all["accessKey"], some["accessKey"] = r.AccessKey.Reveal(), r.AccessKey // the second is logged as stars
	if body, err = json.Marshal(all); err != nil {
		return nil, nil, err
	}
	shown, err = json.Marshal(some)
	return body, shown, err
}

// refuses reports whether the body of a response with a status of success refuses the viewer, by a
// JSON member `ret` that is neither 0 nor a status of success.
func refuses(response []byte) bool {
	var body struct {
		Ret any `json:"ret"`
	}
	if json.Unmarshal(response, &body) != nil {
		return false // not JSON, or not an object: only the status counts
	}
	var ret float64
	switch v := body.Ret.(type) {
	case nil:
		return false
	case float64:
		ret = v
	case string:
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return true
		}
		ret = n
	default:
		return body.Ret != false
	}
	return ret != 0 && !(ret >= 200 && ret <= 299)
}
