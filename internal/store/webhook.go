package store

import (
	"context"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// webhookSecrets has the last response too: some servers repeat the URL in it.
type webhookSecrets struct {
	URL          string `json:"url"`
	SharedSecret string `json:"sharedSecret,omitempty"`
	LastResponse string `json:"lastAnswer,omitempty"`
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
			{"timeouts", w.Timeouts()},
			{"paused_until", int64(w.PausedUntil())},
			{"responds", w.Responds},
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
			x.LastResponse = w.Status.LastFailure.Response
		}
		return x
	},
	restore: func(w *weir.Webhook, secrets any) {
		x := secrets.(*webhookSecrets)
		w.URL, w.SharedSecret = weir.Secret(x.URL), weir.Secret(x.SharedSecret)
		if w.Status != nil && w.Status.LastFailure != nil {
			w.Status.LastFailure.Response = x.LastResponse
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
	hidden: func(w *weir.Webhook) any { return &webhookHidden{w.Deleted, w.Responds} },
	unhide: func(w *weir.Webhook, hidden any) {
		h := hidden.(*webhookHidden)
		w.Deleted, w.Responds = h.Deleted, h.Responds
	},
}

type webhookHidden struct {
	Deleted  bool `json:"deleted,omitempty"`
	Responds bool `json:"responds,omitempty"`
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
	w, err := tx.changeWebhook(ctx, id, change)
	if err == nil && w.Deleted {
		_, err = tx.conn.exec(ctx, "DELETE FROM delivery WHERE webhook_id = $1", id)
	}
	if err != nil {
		return w, err
	}
	return w, tx.forget(ctx, id)
}

// changeWebhook changes a webhook, and logs when that pauses or resumes it.
func (tx *Tx) changeWebhook(ctx context.Context, id string, change func(*weir.Webhook) error) (weir.Webhook, error) {
	var before weir.Millis
	w, err := webhooks.update(ctx, tx, id, func(w *weir.Webhook) error {
		before = w.PausedUntil()
		return change(w)
	})
	switch after := w.PausedUntil(); {
	case err != nil || w.Deleted:
	case before == 0 && after > 0:
		tx.store.log.WarnContext(ctx, "webhook paused: its deliveries timed out several times in a row", "webhook", id)
	case before > 0 && after == 0:
		tx.store.log.InfoContext(ctx, "webhook resumed", "webhook", id)
	}
	return w, err
}

type logSecrets struct {
	URL      string `json:"url"`
	Response string `json:"answer"`
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
		l.Request.URL, l.Response.Body = weir.Secret(x.URL), x.Response
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
	_, err := tx.logAttempt(ctx, l)
	return err
}

func (tx *Tx) logAttempt(ctx context.Context, l weir.WebhookLog) (weir.Webhook, error) {
	if err := webhookLogs.insert(ctx, tx, &l); err != nil {
		return weir.Webhook{}, err
	}
	return tx.changeWebhook(ctx, l.WebhookID, func(w *weir.Webhook) error {
		w.Attempted(l)
		return nil
	})
}
