package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// webhookResponse is a webhook as its owner sees it.
type webhookResponse struct {
	weir.Webhook
	URL string `json:"url"`
}

func showWebhook(h weir.Webhook) webhookResponse {
	return webhookResponse{Webhook: h, URL: h.URL.Reveal()}
}

// checkWebhookStream checks that a webhook may name its stream, if it has one. had is the id of the
// stream before.
func checkWebhookStream(ctx context.Context, tx *store.Tx, hook *weir.Webhook, had string) error {
	if hook.StreamID == "" {
		return nil
	}
	stream, err := tx.Stream(ctx, hook.StreamID)
	if err == nil && !hook.Owner().MayName(stream.Owner(), had == stream.ID) {
		err = weir.ErrNotFound()
	}
	return notFoundAs(err, "stream not found")
}

// createWebhook answers POST /webhook.
func (s *server) createWebhook(w http.ResponseWriter, r *request, body weir.WebhookBody) error {
	hook, err := body.Webhook(r.caller, time.Now())
	if err != nil {
		return err
	}
	ctx := r.Context()
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := checkWebhookStream(ctx, tx, &hook, ""); err != nil {
			return err
		}
		if err := tx.CheckQuota(ctx, hook.UserID, weir.Webhooks, 1); err != nil {
			return err
		}
		return tx.CreateWebhook(ctx, &hook)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showWebhook(hook))
}

// listSubscribed answers GET /webhook/subscribed/{event}: the webhooks that get the event, of any
// stream or of the one that `streamId` names.
func (s *server) listSubscribed(w http.ResponseWriter, r *request) error {
	event, streamID := weir.EventName(r.PathValue("event")), r.URL.Query().Get("streamId")
	response := []webhookResponse{}
	q := store.Query{UserID: r.caller.UserID, ProjectID: r.caller.ProjectID, Limit: store.MaxLimit}
	for {
		page, err := s.Store.Webhooks(r.Context(), q)
		if err != nil {
			return err
		}
		for _, hook := range page.Items {
			if slices.Contains(hook.Events, event) && (streamID == "" || hook.StreamID == "" || hook.StreamID == streamID) {
				response = append(response, showWebhook(hook))
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return writeJSON(w, http.StatusOK, response)
		}
	}
}

// putWebhook answers PUT /webhook/{id}. It ignores an id in the body.
func (s *server) putWebhook(w http.ResponseWriter, r *request, body weir.WebhookBody) error {
	hook, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateWebhook, func(tx *store.Tx, hook *weir.Webhook) error {
		had := hook.StreamID
		if err := body.Replace(hook); err != nil {
			return err
		}
		return checkWebhookStream(r.Context(), tx, hook, had)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showWebhook(hook))
}

// patchWebhook answers PATCH /webhook/{id}.
func (s *server) patchWebhook(w http.ResponseWriter, r *request, patch weir.WebhookPatch) error {
	id := r.PathValue("id")
	if _, err := get(r, s.Store.Webhook, id); err != nil {
		return notFoundAs(err, "webhook not found") // unlike the stream that the body may name
	}
	_, err := change(s, r, id, (*store.Tx).UpdateWebhook, func(tx *store.Tx, hook *weir.Webhook) error {
		had := hook.StreamID
		if err := patch.Apply(hook); err != nil {
			return err
		}
		if patch.StreamID == nil {
			return nil
		}
		return checkWebhookStream(r.Context(), tx, hook, had)
	})
	return noContent(w, err)
}

// deleteWebhook answers DELETE /webhook/{id} with the webhook as it was.
func (s *server) deleteWebhook(w http.ResponseWriter, r *request) error {
	hook, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateWebhook, markWebhookDeleted)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showWebhook(hook))
}

func markWebhookDeleted(_ *store.Tx, hook *weir.Webhook) error {
	hook.Deleted = true
	return nil
}

// logResponse is an attempt to deliver an event as the owner of the webhook sees it.
type logResponse struct {
	weir.WebhookLog
	Request  logRequest           `json:"request"`
	Response weir.WebhookResponse `json:"response"`
}

type logRequest struct {
	URL string `json:"url"`
	weir.WebhookRequest
}

func showLog(l weir.WebhookLog) logResponse {
	response := logResponse{WebhookLog: l, Request: logRequest{l.Request.URL.Reveal(), l.Request}, Response: l.Response}
	if response.Response.Status == 0 {
		response.Response.StatusText = l.Response.Error
	}
	return response
}

// listWebhookLogs answers GET /webhook/{id}/log. The list is empty if the caller may not see the
// webhook or it does not exist.
func (s *server) listWebhookLogs(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	if r.caller.Admin {
		q.UserID, q.ProjectID = "", ""
	}
	q.Where = append(q.Where, store.Filter{ID: "webhookId", Value: r.PathValue("id")})
	page, err := s.Store.WebhookLogs(r.Context(), q)
	if err != nil {
		return err
	}
	return writePage(s, w, r, q, page, showLog)
}

// webhookLog returns the webhook and the entry of its log that the path names.
func (s *server) webhookLog(r *request) (weir.Webhook, weir.WebhookLog, error) {
	hook, err := get(r, s.Store.Webhook, r.PathValue("id"))
	if err != nil {
		return hook, weir.WebhookLog{}, notFoundAs(err, "webhook not found")
	}
	entry, err := get(r, s.Store.WebhookLog, r.PathValue("logId"))
	if err != nil {
		return hook, entry, notFoundAs(err, "webhook log not found")
	}
	if entry.WebhookID != hook.ID {
		err = weir.Errorf(weir.Refused, "mismatch between webhook and webhook log")
	}
	return hook, entry, err
}

// getWebhookLog answers GET /webhook/{id}/log/{logId}.
func (s *server) getWebhookLog(w http.ResponseWriter, r *request) error {
	_, entry, err := s.webhookLog(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showLog(entry))
}

// resendWebhook answers POST /webhook/{id}/log/{logId}/resend with the entry of
// the new attempt, also when that failed.
func (s *server) resendWebhook(w http.ResponseWriter, r *request) error {
	hook, entry, err := s.webhookLog(r)
	if err != nil {
		return err
	}
	if hook.Deleted { // admins see it
		return weir.Errorf(weir.Refused, "webhook is deleted")
	}
	again, err := s.Resend(r.Context(), hook, entry)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showLog(again))
}

// testBody is the body that asks for a test event.
type testBody struct {
	Event weir.EventName `json:"event"` // "" = the first of the webhook
}

// testWebhook answers POST /webhook/{id}/test with the entry of the attempt in the log, also when it
// failed.
func (s *server) testWebhook(w http.ResponseWriter, r *request, body testBody) error {
	hook, err := getPresent(r, s.Store.Webhook, r.PathValue("id"))
	if err != nil {
		return notFoundAs(err, "webhook not found")
	}
	event, err := hook.SampleEvent(body.Event, s.EventBase, time.Now())
	if err != nil {
		return err
	}
	entry, err := s.TestWebhook(r.Context(), hook, event)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showLog(entry))
}
