// Package webhook sends events to other servers, and asks them whether a viewer may play.
//
// An event reaches a webhook in two steps. The transaction of a change writes the event, a delivery
// for each webhook that wants it, and a job (store.Tx.Emit). The job calls [Sender.Deliver], which
// takes the deliveries of one webhook and one resource in order, sends each once, and writes the
// result in the transaction that takes the next one. So an event may arrive twice after a crash,
// but it is never lost.
//
// A [Sender] also resends an event on request (Resend), and asks a webhook whether a viewer may
// play (Ask). All three build and sign requests in request.go, and every attempt leaves an entry in
// the log of the webhook. retry.go decides which failures are retried, and when.
package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"weir/internal/guard"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// timeout bounds an exchange, with the body of the answer.
	timeout = 30 * time.Second
	// oneTurn is how long a job sends before it goes to the end of the queue: one busy stream must
	// not delay the others.
	oneTurn = 10 * time.Second
	// logTimeout bounds the writing of a log entry after the caller's context has ended.
	logTimeout = 5 * time.Second
)

// Sender sends to webhooks. It is safe for concurrent use.
type Sender struct {
	store     *store.Store
	client    *http.Client
	userAgent string
	log       *slog.Logger
	turn      time.Duration
	// firstBackoff is the pause after the first attempt.
	firstBackoff time.Duration

	delivered, retried, failed, blocked atomic.Int64
}

// New returns a Sender that connects through g. Receivers see the version of weir as User-Agent.
func New(st *store.Store, g *guard.Guard, version string, log *slog.Logger) *Sender {
	client := g.Client(timeout)
	check := client.CheckRedirect
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if err := check(r, via); err != nil {
			return err
		}
		return keepPost(r, via[0])
	}
	return &Sender{store: st, client: client, userAgent: "weir/" + version, log: log, turn: oneTurn, firstBackoff: firstBackoff}
}

// Stats counts attempts since the start, each in exactly one member.
type Stats struct {
	Delivered int64 // answered with 2xx
	Retried   int64 // failed, will be tried again
	Failed    int64 // failed for good
	Blocked   int64 // failed for good, because weir does not connect to the address
}

// Stats returns the counters.
func (s *Sender) Stats() Stats {
	return Stats{s.delivered.Load(), s.retried.Load(), s.failed.Load(), s.blocked.Load()}
}

// Deliver is the store.Handler of store.JobWebhook. It sends the due deliveries of the webhook and
// the resource that the job names, oldest first.
func (s *Sender) Deliver(ctx context.Context, job store.Job) error {
	end := time.Now().Add(s.turn)
	var last *store.Attempt
	for {
		if last != nil && time.Now().After(end) {
			return s.store.YieldDelivery(ctx, job, *last)
		}
		d, ok, err := s.store.NextDelivery(ctx, job, last)
		if err != nil || !ok {
			return err
		}
		attempt, err := s.attempt(ctx, d)
		if err != nil {
			return err
		}
		last = &attempt
	}
}

// attempt sends a delivery once. After an error the result is unknown, and the delivery counts as
// not sent.
func (s *Sender) attempt(ctx context.Context, d store.Delivery) (store.Attempt, error) {
	a := store.Attempt{Delivery: d}
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
		return a, fmt.Errorf("event %s: %w", d.Event.ID, err)
	}
	x := s.exchange(ctx, &d.Webhook, body, now, maxLogged)
	if err := ctx.Err(); err != nil {
		return a, err
	}
	a.Log = x.entry(&d.Webhook, d.Event.Name, d.Event.ID, body)
	a.RetryAt = x.retryAt(d.Attempts, s.firstBackoff)
	s.count(x, a.RetryAt)
	if !x.ok() && a.RetryAt.IsZero() {
		s.log.InfoContext(ctx, "event could not be delivered", "webhook", d.Webhook.ID, "event", d.Event.ID,
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
// new entry, also when it failed. It ignores the end of ctx, because every attempt must have an
// entry.
func (s *Sender) Resend(ctx context.Context, hook weir.Webhook, entry weir.WebhookLog) (weir.WebhookLog, error) {
	if entry.Event == weir.PlaybackAccessControl {
		return weir.WebhookLog{}, weir.Errorf(weir.Refused, "a question about a viewer can't be sent again; only events can")
	}
	var event body
	if err := json.Unmarshal([]byte(entry.Request.Body), &event); err != nil {
		return weir.WebhookLog{}, fmt.Errorf("body of webhook log %s: %w", entry.ID, err)
	}
	now := time.Now()
	event.Timestamp = weir.At(now)
	text, err := json.Marshal(event)
	if err != nil {
		return weir.WebhookLog{}, err
	}
	ctx = context.WithoutCancel(ctx)
	x := s.exchange(ctx, &hook, text, now, maxLogged)
	s.count(x, time.Time{})
	again := x.entry(&hook, entry.Event, entry.EventID, text)
	return again, s.write(ctx, again)
}

// Ask sends a question to a webhook and returns the status and the body of the answer. now is the
// timestamp of the question. The log entry has shown as its body, because the question contains a
// viewer's credential; nil = there is no log entry. An error of kind Upstream says why there was no
// answer.
func (s *Sender) Ask(ctx context.Context, hook weir.Webhook, now time.Time, question, shown []byte) (status int, answer []byte, err error) {
	x := s.exchange(ctx, &hook, question, now, maxAnswer)
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if x.reason == "" && x.cut {
		x.status, x.reason = 0, fmt.Sprintf("the answer is longer than %d KiB", maxAnswer>>10)
	}
	s.count(x, time.Time{})
	if shown != nil {
		if err := s.write(ctx, x.entry(&hook, weir.PlaybackAccessControl, "", shown)); err != nil {
			return 0, nil, err
		}
	}
	if x.status == 0 {
		return 0, nil, weir.Errorf(weir.Upstream, "%s", x.reason)
	}
	return x.status, x.answer, nil
}

// write writes an attempt to the log of its webhook.
func (s *Sender) write(ctx context.Context, entry weir.WebhookLog) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logTimeout)
	defer cancel()
	return s.store.Tx(ctx, func(tx *store.Tx) error { return tx.LogAttempt(ctx, entry) })
}
