package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// webhookSecrets has the last answer too: some servers repeat the URL in it.
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
	columns: func(q *queries, w *weir.Webhook) []column {
		return []column{
			{"id", w.ID},
			{"user_id", w.UserID},
			{"project_id", w.ProjectID},
			{"deleted", w.Deleted},
			{"created_at", int64(w.CreatedAt)},
			{"name", w.Name},
			{"url_lookup", q.seal.lookup(w.URL.Reveal())},
		}
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

// UpdateWebhook changes a webhook. It drops the pending deliveries of a deleted one.
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
	columns: func(_ *queries, l *weir.WebhookLog) []column {
		return []column{
			{"id", l.ID},
			{"webhook_id", l.WebhookID},
			{"user_id", l.UserID},
			{"project_id", l.ProjectID},
			{"created_at", int64(l.CreatedAt)},
			{"event", string(l.Event)},
			{"success", strconv.FormatBool(l.Success)},
			{"status_code", strconv.Itoa(l.Response.Status)},
			{"body_lower", strings.ToLower(l.Request.Body)},
		}
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

// LogAttempt writes an attempt to deliver an event, and the webhook's status after it.
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

// Attempt is the result of sending a delivery. With a zero RetryAt there is no further attempt. A
// Log without an id means that the delivery was dropped and not sent.
type Attempt struct {
	Delivery Delivery
	Log      weir.WebhookLog
	RetryAt  time.Time
}

// NextDelivery writes the result of the last attempt, if there was one, and takes the oldest due
// delivery of the job's webhook and resource. ok is false when there is none, or when another job
// is sending one of them: that job will take the others.
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

// YieldDelivery writes the result of the last attempt, and leaves the other deliveries of the job's
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
	// The webhook's row is always locked before those of its deliveries.
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
	// The row of the webhook is locked first, so that two jobs can't take the same delivery, or two
	// of one resource at once.
	hook, exists, err := found(webhooks.lock(ctx, tx, webhookID))
	if err != nil {
		return d, false, err
	}
	if !exists || hook.Deleted {
		_, err := tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1", webhookID)
		return d, false, err
	}
	// Only a running job keeps its claim: one that was aborted or taken over has lost it. Claims of
	// this job are those of a former attempt.
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
		if weir.IsNotFound(err) { // pruned before it could be delivered
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
	// clockSkew is how far apart the clocks of two nodes may be. A new delivery is due so much
	// earlier, so that it is due on every node.
	clockSkew = time.Minute
	// overdueAfter is how long a delivery must have been due, without being sent, to get another
	// job.
	overdueAfter = 5 * time.Minute
	reviveEvery  = time.Minute
	// reviveAtOnce bounds how long the transaction takes.
	reviveAtOnce = 200
)

// reviveDeliveries gives another job to deliveries whose job has ended without sending them. That
// can happen when the clocks of nodes differ: the job of a retry can find that it is not due yet. A
// delivery that still has a job gets one too many, which will find nothing to do.
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
			// So that the next call does not find it again.
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

// PendingDeliveries counts the deliveries that are not sent yet.
func (q *queries) PendingDeliveries(ctx context.Context) (int64, error) {
	return one(ctx, q.conn, scanInt, "SELECT count(*) FROM delivery")
}
