package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// webhookSecrets has the last answer too: servers like to repeat the URL in it.
type webhookSecrets struct {
	URL          string `json:"url"`
	SharedSecret string `json:"sharedSecret,omitempty"`
	LastAnswer   string `json:"lastAnswer,omitempty"`
}

var webhooks = table[weir.Webhook]{
	name:    "webhook",
	deleted: true,
	project: true,
	order:   "id-false",
	columns: []column[weir.Webhook]{
		{"id", func(_ *queries, w *weir.Webhook) any { return w.ID }},
		{"user_id", func(_ *queries, w *weir.Webhook) any { return w.UserID }},
		{"project_id", func(_ *queries, w *weir.Webhook) any { return w.ProjectID }},
		{"deleted", func(_ *queries, w *weir.Webhook) any { return w.Deleted }},
		{"created_at", func(_ *queries, w *weir.Webhook) any { return int64(w.CreatedAt) }},
		{"name", func(_ *queries, w *weir.Webhook) any { return w.Name }},
		{"url_lookup", func(q *queries, w *weir.Webhook) any { return q.seal.lookup(w.URL.Reveal()) }},
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "url": {"url_lookup", secretField},
		"deleted": {"deleted", boolField}, "createdAt": {"created_at", numberField}, "userId": {"user_id", textField},
		"user.email": {"user_id", emailField}, "projectId": {"project_id", textField},
	},
	secrets: func(w *weir.Webhook) any {
		x := &webhookSecrets{URL: w.URL.Reveal(), SharedSecret: w.SharedSecret.Reveal()}
		if w.Status != nil && w.Status.LastFailure != nil {
			x.LastAnswer = w.Status.LastFailure.Response
		}
		return x
	},
	restore: func(w *weir.Webhook, secrets any) {
		x := secrets.(*webhookSecrets)
		w.URL, w.SharedSecret = weir.Secret(x.URL), weir.Secret(x.SharedSecret)
		if w.Status != nil && w.Status.LastFailure != nil {
			w.Status.LastFailure.Response = x.LastAnswer
		}
	},
	conceal: func(w *weir.Webhook) {
		if w.Status != nil && w.Status.LastFailure != nil {
			status, failure := *w.Status, *w.Status.LastFailure
			failure.Response = ""
			status.LastFailure = &failure
			w.Status = &status
		}
	},
	hidden: func(w *weir.Webhook) any { return &deletedMark{w.Deleted} },
	unhide: func(w *weir.Webhook, hidden any) { w.Deleted = hidden.(*deletedMark).Deleted },
}

// Webhook returns the webhook with the id, also one that was deleted.
func (q *queries) Webhook(ctx context.Context, id string) (weir.Webhook, error) {
	return webhooks.get(ctx, q, id)
}

// Webhooks returns a page of webhooks.
func (q *queries) Webhooks(ctx context.Context, query Query) (Page[weir.Webhook], error) {
	return webhooks.list(ctx, q, query)
}

// CreateWebhook writes a new webhook.
func (tx *Tx) CreateWebhook(ctx context.Context, w *weir.Webhook) error {
	return webhooks.insert(ctx, tx, w)
}

// UpdateWebhook changes a webhook. What was still to be delivered to one that is
// deleted is dropped.
func (tx *Tx) UpdateWebhook(ctx context.Context, id string, change func(*weir.Webhook) error) (weir.Webhook, error) {
	w, err := webhooks.update(ctx, tx, id, change)
	if err == nil && w.Deleted {
		_, err = tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1", id)
	}
	return w, err
}

type logSecrets struct {
	URL    string `json:"url"`
	Answer string `json:"answer"`
}

type logHidden struct {
	ProjectID string `json:"projectId"`
	EventID   string `json:"eventId"`
	Error     string `json:"error,omitempty"`
}

var webhookLogs = table[weir.WebhookLog]{
	name:    "webhook_log",
	project: true,
	order:   "createdAt-true",
	columns: []column[weir.WebhookLog]{
		{"id", func(_ *queries, l *weir.WebhookLog) any { return l.ID }},
		{"webhook_id", func(_ *queries, l *weir.WebhookLog) any { return l.WebhookID }},
		{"user_id", func(_ *queries, l *weir.WebhookLog) any { return l.UserID }},
		{"project_id", func(_ *queries, l *weir.WebhookLog) any { return l.ProjectID }},
		{"created_at", func(_ *queries, l *weir.WebhookLog) any { return int64(l.CreatedAt) }},
		{"event", func(_ *queries, l *weir.WebhookLog) any { return string(l.Event) }},
		{"success", func(_ *queries, l *weir.WebhookLog) any { return strconv.FormatBool(l.Success) }},
		{"status_code", func(_ *queries, l *weir.WebhookLog) any { return strconv.Itoa(l.Response.Status) }},
		{"body_lower", func(_ *queries, l *weir.WebhookLog) any { return strings.ToLower(l.Request.Body) }},
	},
	fields: map[string]field{
		"id": {"id", textField}, "createdAt": {"created_at", numberField}, "userId": {"user_id", textField},
		"event": {"event", textField}, "statusCode": {"status_code", textField}, "success": {"success", textField},
		"resourceId": {"body_lower", searchField}, "webhookId": {"webhook_id", textField},
	},
	secrets: func(l *weir.WebhookLog) any { return &logSecrets{l.Request.URL.Reveal(), l.Response.Body} },
	restore: func(l *weir.WebhookLog, secrets any) {
		x := secrets.(*logSecrets)
		l.Request.URL, l.Response.Body = weir.Secret(x.URL), x.Answer
	},
	conceal: func(l *weir.WebhookLog) { l.Response.Body = "" },
	hidden:  func(l *weir.WebhookLog) any { return &logHidden{l.ProjectID, l.EventID, l.Response.Error} },
	unhide: func(l *weir.WebhookLog, hidden any) {
		h := hidden.(*logHidden)
		l.ProjectID, l.EventID, l.Response.Error = h.ProjectID, h.EventID, h.Error
	},
}

// WebhookLog returns one attempt to deliver an event.
func (q *queries) WebhookLog(ctx context.Context, id string) (weir.WebhookLog, error) {
	return webhookLogs.get(ctx, q, id)
}

// WebhookLogs returns a page of attempts.
func (q *queries) WebhookLogs(ctx context.Context, query Query) (Page[weir.WebhookLog], error) {
	return webhookLogs.list(ctx, q, query)
}

// LogAttempt writes an attempt to deliver an event and what it says of the
// webhook's health.
func (tx *Tx) LogAttempt(ctx context.Context, l weir.WebhookLog) error {
	if err := webhookLogs.insert(ctx, tx, &l); err != nil {
		return err
	}
	_, err := webhooks.update(ctx, tx, l.WebhookID, func(w *weir.Webhook) error {
		w.Status = w.Status.After(l)
		return nil
	})
	return err
}

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Webhook  weir.Webhook
	Event    weir.Event
	Attempts int // before this one
}

// Attempt is how sending a delivery went. A zero RetryAt means that it is over,
// one way or the other; a Log without an id, that it was dropped and not sent.
type Attempt struct {
	Delivery Delivery
	Log      weir.WebhookLog
	RetryAt  time.Time
}

// NextDelivery notes how the last one went, if there was one, and takes the
// oldest that is due of the job's webhook and resource. ok is false when there is
// none, or when another job is sending one of them: that job will take the others.
func (s *Store) NextDelivery(ctx context.Context, job Job, last *Attempt) (d Delivery, ok bool, err error) {
	webhookID, resource, _ := strings.Cut(job.Ref, "/")
	err = s.JobTx(ctx, job, func(tx *Tx) error {
		d, ok = Delivery{}, false
		if last != nil {
			if err := tx.settle(ctx, job, last); err != nil {
				return err
			}
		}
		d, ok, err = tx.claimDelivery(ctx, job.ID, webhookID, resource)
		return err
	})
	return d, ok, err
}

// YieldDelivery notes how the last one went and leaves the rest of the job's
// webhook and resource to a new job at the end of the queue.
func (s *Store) YieldDelivery(ctx context.Context, job Job, last Attempt) error {
	return s.JobTx(ctx, job, func(tx *Tx) error {
		if err := tx.settle(ctx, job, &last); err != nil {
			return err
		}
		return tx.Enqueue(ctx, job.Kind, job.Ref)
	})
}

func (tx *Tx) settle(ctx context.Context, job Job, a *Attempt) error {
	hook, seq := a.Delivery.Webhook.ID, a.Delivery.Event.Seq
	// The webhook's row is locked before those of its deliveries, as everywhere.
	_, err := one(ctx, tx.conn, scanText, "SELECT id FROM webhook WHERE id = $1"+tx.store.engine.forUpdate(), hook)
	if err == nil && a.Log.ID != "" {
		err = tx.LogAttempt(ctx, a.Log)
	}
	if ignoreNotFound(err) != nil {
		return err
	}
	if a.RetryAt.IsZero() {
		_, err := tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1 AND event_seq = $2", hook, seq)
		return err
	}
	n, err := tx.conn.exec(ctx, "UPDATE delivery SET claimed_by = 0, attempts = attempts + 1, due_at = $3 WHERE webhook_id = $1 AND event_seq = $2",
		hook, seq, a.RetryAt.UnixMilli())
	if err != nil || n == 0 { // 0: the webhook was deleted meanwhile
		return err
	}
	return tx.enqueueAt(ctx, JobWebhook, job.Ref, a.RetryAt)
}

func (tx *Tx) claimDelivery(ctx context.Context, jobID int64, webhookID, resource string) (d Delivery, ok bool, err error) {
	// The row of the webhook is locked first, so that two jobs can't take the
	// same delivery, nor two of one resource at once.
	hook, err := one(ctx, tx.conn, webhooks.scan(&tx.queries), "SELECT "+webhooks.selected()+" FROM webhook WHERE id = $1"+tx.store.engine.forUpdate(), webhookID)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return d, false, err
	}
	if err != nil || hook.Deleted {
		_, err := tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1", webhookID)
		return d, false, err
	}
	// Only a running job holds its claim: one that was cut off or taken over has
	// lost it, and what this one still holds it took in a former attempt.
	busy, err := one(ctx, tx.conn, scanInt, `SELECT count(*) FROM delivery d JOIN river_job j ON j.id = d.claimed_by
		WHERE d.webhook_id = $1 AND d.resource = $2 AND d.claimed_by > 0 AND d.claimed_by <> $3 AND j.state = 'running'`, webhookID, resource, jobID)
	if err != nil || busy > 0 {
		return d, false, err
	}
	for {
		type due struct{ seq, attempts int64 }
		next, found, err := found(one(ctx, tx.conn, func(r rows) (x due, err error) { return x, r.Scan(&x.seq, &x.attempts) },
			"SELECT event_seq, attempts FROM delivery WHERE webhook_id = $1 AND resource = $2 AND due_at <= $3 ORDER BY event_seq LIMIT 1",
			webhookID, resource, time.Now().UnixMilli()))
		if err != nil || !found {
			return d, false, err
		}
		event, err := one(ctx, tx.conn, scanEvent, "SELECT "+eventColumns+" FROM event WHERE seq = $1", next.seq)
		if weir.KindOf(err) == weir.NotFound && err != nil { // forgotten before it could be delivered
			if _, err := tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1 AND event_seq = $2", webhookID, next.seq); err != nil {
				return d, false, err
			}
			continue
		}
		if err != nil {
			return d, false, err
		}
		_, err = tx.conn.exec(ctx, "UPDATE delivery SET claimed_by = $3 WHERE webhook_id = $1 AND event_seq = $2", webhookID, next.seq, jobID)
		return Delivery{Webhook: hook, Event: event, Attempts: int(next.attempts)}, err == nil, err
	}
}

const (
	// clockSkew is how far apart the clocks of two nodes may be. A new delivery is
	// due so much earlier, so that it is due wherever its job runs.
	clockSkew = time.Minute
	// A delivery that has been due for so long, and is not being sent, gets another job.
	overdueAfter = 5 * time.Minute
	reviveEvery  = time.Minute
	// reviveAtOnce bounds how long others wait for the writer.
	reviveAtOnce = 200
)

// reviveDeliveries gives another job to deliveries whose job is gone. That does not
// happen as long as the clocks of all nodes agree; where they don't, the job of a
// retry can find that it is not due yet. A delivery that only waits for its turn
// gets one job too many, which finds nothing to do.
func (s *Store) reviveDeliveries(ctx context.Context) error {
	type line struct{ webhookID, resource string }
	now := time.Now()
	before := now.Add(-overdueAfter).UnixMilli()
	lines, err := many(ctx, s.conn, func(r rows) (l line, err error) { return l, r.Scan(&l.webhookID, &l.resource) },
		"SELECT DISTINCT webhook_id, resource FROM delivery WHERE due_at < $1 LIMIT $2", before, reviveAtOnce)
	if err != nil || len(lines) == 0 {
		return err
	}
	return s.Tx(ctx, func(tx *Tx) error {
		for _, l := range lines {
			// Not again at the next look.
			if _, err := tx.conn.exec(ctx, "UPDATE delivery SET due_at = $4 WHERE webhook_id = $1 AND resource = $2 AND due_at < $3",
				l.webhookID, l.resource, before, now.Add(-clockSkew).UnixMilli()); err != nil {
				return err
			}
			if err := tx.Enqueue(ctx, JobWebhook, l.webhookID+"/"+l.resource); err != nil {
				return err
			}
		}
		return nil
	})
}

// PendingDeliveries counts the deliveries that are still to be made.
func (q *queries) PendingDeliveries(ctx context.Context) (int64, error) {
	return one(ctx, q.conn, scanInt, "SELECT count(*) FROM delivery")
}
