// Package webhook sends events to other servers, and asks them whether a viewer may play.
//
// An event reaches a webhook in two steps. The transaction of a change writes the event and a
// delivery for each webhook that wants it (store.Tx.Emit). [Sender.Run] claims deliveries, of one
// webhook and one resource in order, sends them and writes the results. An event may arrive twice
// after a crash, but it is never lost. dispatch.go does that, turns.go decides whose delivery is
// next.
//
// A [Sender] also resends an event on request (Resend), sends one as a test (Test), and asks a
// webhook whether a viewer may play, which is an access check (Ask). All build and sign requests in
// request.go, and every attempt leaves an entry in the log of the webhook. retry.go decides which
// failures are retried, and when.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/guard"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// maxDirect is how many access checks, resends and tests of one account may wait for a response.
	maxDirect = 32
	// An account may send so many test events at once, and then one in testEvery.
	testsAtOnce = 10
	testEvery   = 6 * time.Second
	// maxTested is the maximum number of accounts whose test events are counted at once.
	maxTested = 10_000
	// logTimeout bounds the writing of a log entry after the caller's context has ended.
	logTimeout = 5 * time.Second
)

// timeouts returns how long an exchange may take, with the body of the response: the first one
// usually, the next ones with a webhook that has timed out once, twice and more in a row.
func timeouts() []time.Duration {
	return []time.Duration{30 * time.Second, 10 * time.Second, 5 * time.Second}
}

// Sender sends to webhooks. It is safe for concurrent use.
type Sender struct {
	// Drain is how long exchanges may continue when Run ends.
	Drain time.Duration

	store     *store.Store
	client    *http.Client
	userAgent string
	log       *slog.Logger
	slots     int
	timeouts  []time.Duration
	// firstBackoff is the pause after the first attempt.
	firstBackoff time.Duration
	direct       direct
	tests        weir.Buckets[string] // by account

	delivered, retried, failed, blocked, busy, inFlight atomic.Int64
}

// direct counts the exchanges that callers wait for, by account.
type direct struct {
	mu    sync.Mutex
	count map[string]int
}

// start counts an exchange, unless the account has too many.
func (d *direct) start(userID string) (end func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count[userID] >= maxDirect {
		return nil, false
	}
	if d.count == nil {
		d.count = map[string]int{}
	}
	d.count[userID]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.count[userID]--; d.count[userID] == 0 {
			delete(d.count, userID)
		}
	}, true
}

// New returns a Sender that connects through g. Receivers see the version of weir as User-Agent.
func New(st *store.Store, g *guard.Guard, version string, log *slog.Logger) *Sender {
	client := g.Client(0) // each exchange has its own timeout
	check := client.CheckRedirect
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if err := check(r, via); err != nil {
			return err
		}
		return keepPost(r, via[0])
	}
	return &Sender{
		store: st, client: client, userAgent: userAgent(version), log: log,
		slots: slots, timeouts: timeouts(), firstBackoff: firstBackoff,
		tests: weir.Buckets[string]{AtOnce: testsAtOnce, PerSecond: 1 / testEvery.Seconds(), Max: maxTested},
	}
}

// Stats counts attempts since the start, each in one of the first four members.
type Stats struct {
	Delivered int64 // the response was 2xx
	Retried   int64 // failed, will be tried again
	Failed    int64 // failed for good
	Blocked   int64 // failed for good, because weir does not connect to the address
	Busy      int64 // access checks, resends and tests not sent, because too many of the account wait
	InFlight  int64 // deliveries that this node sends now
}

// Stats returns the counters.
func (s *Sender) Stats() Stats {
	return Stats{s.delivered.Load(), s.retried.Load(), s.failed.Load(), s.blocked.Load(), s.busy.Load(), s.inFlight.Load()}
}

// attempt sends a delivery once. After an error the result is unknown, and the delivery counts as
// not sent.
func (s *Sender) attempt(ctx context.Context, d store.Delivery) (store.Attempt, error) {
	a := store.Attempt{Delivery: d}
	if d.Event.ID == "" {
		return a, nil // it was pruned
	}
	owner, err := s.store.User(ctx, d.Webhook.UserID)
	if weir.IsNotFound(err) || err == nil && owner.Suspended {
		return a, nil // dropped without a log entry
	}
	if err != nil {
		return a, err
	}
	now := time.Now()
	body, err := json.Marshal(eventBody(d.Event, d.Webhook.ID, now))
	if err != nil {
		return a, fmt.Errorf("encode event %s: %w", d.Event.ID, err)
	}
	timeout := s.timeouts[min(d.Webhook.Timeouts(), len(s.timeouts)-1)]
	x := s.exchange(ctx, timeout, &d.Webhook, body, now, maxLogged)
	if err := ctx.Err(); err != nil {
		return a, err
	}
	a.Log = x.entry(&d.Webhook, d.Event.Name, d.Event.ID, body)
	a.RetryAt = x.retryAt(d.Attempts, s.firstBackoff)
	s.count(x, a.RetryAt)
	if !x.ok() && a.RetryAt.IsZero() {
		s.log.InfoContext(ctx, "webhook delivery failed for good", "webhook", d.Webhook.ID, "event", d.Event.ID,
			"attempts", d.Attempts+1, "status", x.status, "reason", x.reason)
	}
	return a, nil
}

func (s *Sender) count(x exchange, retryAt time.Time) {
	switch {
	case x.ok():
		s.delivered.Add(1)
	case x.blocked:
		s.blocked.Add(1)
	case retryAt.IsZero():
		s.failed.Add(1)
	default:
		s.retried.Add(1)
	}
}

// Resend sends the event of a log entry once more, to the webhook's current URL, and returns the
// new entry, also when it failed.
func (s *Sender) Resend(ctx context.Context, hook weir.Webhook, entry weir.WebhookLog) (weir.WebhookLog, error) {
	if entry.Event == weir.PlaybackAccessControl {
		return weir.WebhookLog{}, weir.Errorf(weir.Refused, "this entry is an access check of a viewer, which can't be resent; resend an event")
	}
	var event body
	if err := json.Unmarshal([]byte(entry.Request.Body), &event); err != nil {
		return weir.WebhookLog{}, fmt.Errorf("decode body of webhook log %s: %w", entry.ID, err)
	}
	now := time.Now()
	event.Timestamp = weir.At(now)
	text, err := json.Marshal(event)
	if err != nil {
		return weir.WebhookLog{}, err
	}
	return s.sendNow(ctx, hook, entry.Event, entry.EventID, text, now)
}

// Test sends an event that is not in the store, once, and returns the entry in the log of the
// webhook, also when it failed.
func (s *Sender) Test(ctx context.Context, hook weir.Webhook, event weir.Event) (weir.WebhookLog, error) {
	now := time.Now()
	if !s.tests.Take(hook.UserID, now) {
		return weir.WebhookLog{}, weir.TooMany(testEvery, "too many tests: an account may send %d at once, and then one every %d seconds", testsAtOnce, int(testEvery.Seconds()))
	}
	text, err := json.Marshal(eventBody(event, hook.ID, now))
	if err != nil {
		return weir.WebhookLog{}, err
	}
	return s.sendNow(ctx, hook, event.Name, event.ID, text, now)
}

// sendNow sends a body for a caller who waits for the outcome. It ignores the end of ctx, because
// every attempt must have an entry.
func (s *Sender) sendNow(ctx context.Context, hook weir.Webhook, event weir.EventName, eventID string, text []byte, now time.Time) (weir.WebhookLog, error) {
	end, err := s.startDirect(hook.UserID)
	if err != nil {
		return weir.WebhookLog{}, err
	}
	defer end()
	ctx = context.WithoutCancel(ctx)
	x := s.exchange(ctx, s.timeouts[0], &hook, text, now, maxLogged)
	s.count(x, time.Time{})
	entry := x.entry(&hook, event, eventID, text)
	return entry, s.write(ctx, entry)
}

// Ask sends an access check to a webhook and returns the status and the body of the response. now is
// the timestamp in the body of the check. The log entry has shown as its body, because that of the
// check contains a viewer's credential; nil = there is no log entry. An error of kind Upstream says
// why there was no response; one of kind Busy that the check was not sent, because too many of the
// account wait for a response.
func (s *Sender) Ask(ctx context.Context, hook weir.Webhook, now time.Time, check, shown []byte) (status int, response []byte, err error) {
	end, err := s.startDirect(hook.UserID)
	if err != nil {
		return 0, nil, err
	}
	defer end()
	x := s.exchange(ctx, s.timeouts[0], &hook, check, now, maxResponse)
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if x.reason == "" && x.cut {
		x.status, x.reason = 0, fmt.Sprintf("the response is longer than %d KiB", maxResponse>>10)
	}
	s.count(x, time.Time{})
	if shown != nil {
		if err := s.write(ctx, x.entry(&hook, weir.PlaybackAccessControl, "", shown)); err != nil {
			// A viewer needs the response of the webhook, not its log.
			s.log.WarnContext(ctx, "access check could not be written to the log of its webhook", "webhook", hook.ID, "err", err)
		}
	}
	if x.status == 0 {
		return 0, nil, weir.Errorf(weir.Upstream, "%s", x.reason)
	}
	return x.status, x.response, nil
}

// startDirect counts an exchange that a caller waits for.
func (s *Sender) startDirect(userID string) (end func(), err error) {
	end, ok := s.direct.start(userID)
	if !ok {
		s.busy.Add(1)
		return nil, weir.TooMany(s.timeouts[0], "%d requests to webhooks of this account wait for a response; try again later", maxDirect)
	}
	return end, nil
}

// write writes an attempt to the log of its webhook.
func (s *Sender) write(ctx context.Context, entry weir.WebhookLog) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logTimeout)
	defer cancel()
	return s.store.Tx(ctx, func(tx *store.Tx) error { return tx.LogAttempt(ctx, entry) })
}
