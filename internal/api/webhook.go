package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// webhookAnswer is a webhook as its owner sees it.
type webhookAnswer struct {
	weir.Webhook
	URL string `json:"url"`
}

func showWebhook(h weir.Webhook) webhookAnswer {
	return webhookAnswer{Webhook: h, URL: h.URL.Reveal()}
}

func webhookOwner(h weir.Webhook) (string, bool) { return h.UserID, h.Deleted }

// ownWebhook turns what the caller may not see into what does not exist.
func ownWebhook(r *request) func(weir.Webhook, error) (weir.Webhook, error) {
	return func(h weir.Webhook, err error) (weir.Webhook, error) {
		if err == nil && (h.Deleted && !r.caller.Admin || !r.caller.Owns(h.UserID, h.ProjectID)) {
			err = weir.ErrNotFound()
		}
		return h, err
	}
}

// changeWebhook changes a webhook of the caller's in one transaction.
func (s *server) changeWebhook(r *request, id string, change func(tx *store.Tx, hook *weir.Webhook) error) (weir.Webhook, error) {
	var changed weir.Webhook
	ctx := r.Context()
	err := s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		changed, err = changeWebhookTx(ctx, tx, r, id, change)
		return err
	})
	return changed, err
}

func changeWebhookTx(ctx context.Context, tx *store.Tx, r *request, id string, change func(tx *store.Tx, hook *weir.Webhook) error) (weir.Webhook, error) {
	return tx.UpdateWebhook(ctx, id, func(hook *weir.Webhook) error {
		if _, err := ownWebhook(r)(*hook, nil); err != nil {
			return err
		}
		return change(tx, hook)
	})
}

// checkWebhookStream checks that the stream that a webhook is limited to is the
// caller's.
func checkWebhookStream(tx *store.Tx, r *request, id string) error {
	if id == "" {
		return nil
	}
	_, err := ownStream(r)(tx.Stream(r.Context(), id))
	return notFoundAs(err, "stream not found")
}

// notFoundAs gives an error of the kind NotFound another text.
func notFoundAs(err error, text string) error {
	if isNotFound(err) {
		return weir.Errorf(weir.NotFound, "%s", text)
	}
	return err
}

// createWebhook answers POST /webhook.
func (s *server) createWebhook(w http.ResponseWriter, r *request) error {
	var body weir.WebhookBody
	if err := r.decode(&body); err != nil {
		return err
	}
	hook, err := body.Webhook(r.caller, time.Now())
	if err != nil {
		return err
	}
	ctx := r.Context()
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := checkWebhookStream(tx, r, hook.StreamID); err != nil {
			return err
		}
		return tx.CreateWebhook(ctx, &hook)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showWebhook(hook))
}

// listWebhooks answers GET /webhook.
func (s *server) listWebhooks(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	page, err := s.Store.Webhooks(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, showWebhook, webhookOwner)
}

// listSubscribed answers GET /webhook/subscribed/{event}: who would be told of the
// event, of any stream or of the one that `streamId` names.
func (s *server) listSubscribed(w http.ResponseWriter, r *request) error {
	event, streamID := weir.EventName(r.PathValue("event")), r.URL.Query().Get("streamId")
	answer := []webhookAnswer{}
	q := store.Query{UserID: r.caller.UserID, ProjectID: r.caller.ProjectID, Limit: store.MaxLimit}
	for {
		page, err := s.Store.Webhooks(r.Context(), q)
		if err != nil {
			return err
		}
		for _, hook := range page.Items {
			if slices.Contains(hook.Events, event) && (streamID == "" || hook.StreamID == "" || hook.StreamID == streamID) {
				answer = append(answer, showWebhook(hook))
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return writeJSON(w, http.StatusOK, answer)
		}
	}
}

// getWebhook answers GET /webhook/{id}.
func (s *server) getWebhook(w http.ResponseWriter, r *request) error {
	hook, err := ownWebhook(r)(s.Store.Webhook(r.Context(), r.PathValue("id")))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showWebhook(hook))
}

// putWebhook answers PUT /webhook/{id}. The id is that of the path, whatever the
// body says.
func (s *server) putWebhook(w http.ResponseWriter, r *request) error {
	var body weir.WebhookBody
	if err := r.decode(&body); err != nil {
		return err
	}
	hook, err := s.changeWebhook(r, r.PathValue("id"), func(tx *store.Tx, hook *weir.Webhook) error {
		if err := body.Replace(hook); err != nil {
			return err
		}
		return checkWebhookStream(tx, r, hook.StreamID)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showWebhook(hook))
}

// patchWebhook answers PATCH /webhook/{id}.
func (s *server) patchWebhook(w http.ResponseWriter, r *request) error {
	var patch weir.WebhookPatch
	if err := r.decode(&patch); err != nil {
		return err
	}
	id := r.PathValue("id")
	if _, err := ownWebhook(r)(s.Store.Webhook(r.Context(), id)); err != nil {
		return notFoundAs(err, "webhook not found") // unlike the stream that the body may name
	}
	if _, err := s.changeWebhook(r, id, func(tx *store.Tx, hook *weir.Webhook) error {
		if err := patch.Apply(hook); err != nil {
			return err
		}
		if patch.StreamID == nil {
			return nil
		}
		return checkWebhookStream(tx, r, hook.StreamID)
	}); err != nil {
		return err
	}
	return noContent(w)
}

// deleteWebhook answers DELETE /webhook/{id} with the webhook as it was.
func (s *server) deleteWebhook(w http.ResponseWriter, r *request) error {
	hook, err := s.changeWebhook(r, r.PathValue("id"), markWebhookDeleted)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showWebhook(hook))
}

func markWebhookDeleted(_ *store.Tx, hook *weir.Webhook) error {
	hook.Deleted = true
	return nil
}

// deleteWebhooks answers DELETE /webhook: all of the ids, or none.
func (s *server) deleteWebhooks(w http.ResponseWriter, r *request) error {
	ids, err := decodeIDs(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		for _, id := range ids {
			if _, err := changeWebhookTx(ctx, tx, r, id, markWebhookDeleted); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return noContent(w)
}

// logAnswer is an attempt to deliver an event as the owner of the webhook sees it.
type logAnswer struct {
	weir.WebhookLog
	Request  logRequest           `json:"request"`
	Response weir.WebhookResponse `json:"response"`
}

type logRequest struct {
	URL string `json:"url"`
	weir.WebhookRequest
}

func showLog(l weir.WebhookLog) logAnswer {
	answer := logAnswer{WebhookLog: l, Request: logRequest{l.Request.URL.Reveal(), l.Request}, Response: l.Response}
	if answer.Response.Status == 0 {
		answer.Response.StatusText = l.Response.Error // there are no other words
	}
	return answer
}

// listWebhookLogs answers GET /webhook/{id}/log. What the caller may not see is
// an empty list, as is what does not exist.
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
	ctx := r.Context()
	hook, err := ownWebhook(r)(s.Store.Webhook(ctx, r.PathValue("id")))
	if err != nil {
		return hook, weir.WebhookLog{}, notFoundAs(err, "webhook not found")
	}
	entry, err := s.Store.WebhookLog(ctx, r.PathValue("logId"))
	if err == nil && !r.caller.Owns(entry.UserID, entry.ProjectID) {
		err = weir.ErrNotFound()
	}
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
	if hook.Deleted { // an admin sees it still
		return weir.Errorf(weir.Refused, "webhook is deleted")
	}
	again, err := s.Resend(r.Context(), hook, entry)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, showLog(again))
}
