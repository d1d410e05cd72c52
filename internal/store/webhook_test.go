package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func createWebhook(t *testing.T, st *Store, body weir.WebhookBody) weir.Webhook {
	t.Helper()
	if body.URL == "" {
		body.URL = "https://example.com/?token=planted"
	}
	w, err := body.Webhook(&weir.Caller{UserID: "u1", ProjectID: "p1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.CreateWebhook(t.Context(), &w) }); err != nil {
		t.Fatal(err)
	}
	return w
}

func updateWebhook(t *testing.T, st *Store, id string, change func(*weir.Webhook)) {
	t.Helper()
	if err := st.Tx(t.Context(), func(tx *Tx) error {
		_, err := tx.UpdateWebhook(t.Context(), id, func(w *weir.Webhook) error {
			change(w)
			return nil
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// emit writes an event of a resource and returns it with its number.
func emit(t *testing.T, st *Store, resource string) weir.Event {
	t.Helper()
	return emitEvent(t, st, weir.Event{Name: weir.AssetCreated, UserID: "u1", ProjectID: "p1", Resource: resource})
}

func emitEvent(t *testing.T, st *Store, e weir.Event) weir.Event {
	t.Helper()
	e.ID, e.CreatedAt = weir.NewID(), weir.At(time.Now())
	if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.Emit(t.Context(), e) }); err != nil {
		t.Fatal(err)
	}
	last, _, err := st.EventBounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.Seq = last
	return e
}

func pending(t *testing.T, st *Store) int64 {
	t.Helper()
	n, err := st.PendingDeliveries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// logged counts the attempts in the log of a webhook.
func logged(t *testing.T, st *Store, hook weir.Webhook) int {
	t.Helper()
	page, err := st.WebhookLogs(t.Context(), Query{Where: []Filter{{"webhookId", hook.ID}}, Limit: MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Items)
}

func TestWebhooksOfEvent(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		all := []weir.EventName{weir.StreamStarted, weir.AssetCreated}
		createWebhook(t, st, weir.WebhookBody{Name: "all", Events: all})
		createWebhook(t, st, weir.WebhookBody{Name: "of one stream", Events: all, StreamID: "s1"})
		createWebhook(t, st, weir.WebhookBody{Name: "none", Events: []weir.EventName{}})
		deleted := createWebhook(t, st, weir.WebhookBody{Name: "deleted", Events: all})
		updateWebhook(t, st, deleted.ID, func(w *weir.Webhook) { w.Deleted = true })
		for _, tt := range []struct {
			event weir.Event
			want  int64
		}{
			{weir.Event{Name: weir.StreamStarted, UserID: "u1", ProjectID: "p1", Resource: "stream/s1", StreamID: "s1"}, 2},
			{weir.Event{Name: weir.StreamStarted, UserID: "u1", ProjectID: "p1", Resource: "stream/s2", StreamID: "s2"}, 1},
			{weir.Event{Name: weir.AssetCreated, UserID: "u1", ProjectID: "p1", Resource: "asset/1"}, 1},
			{weir.Event{Name: weir.StreamIdle, UserID: "u1", ProjectID: "p1", Resource: "stream/s1", StreamID: "s1"}, 0},
			{weir.Event{Name: weir.AssetCreated, UserID: "u1", ProjectID: "p2", Resource: "asset/1"}, 0},
			{weir.Event{Name: weir.AssetCreated, UserID: "u2", ProjectID: "p1", Resource: "asset/1"}, 0},
		} {
			before := pending(t, st)
			emitEvent(t, st, tt.event)
			if got := pending(t, st) - before; got != tt.want {
				t.Errorf("%s of %s/%s, stream %q: %d webhooks get it, want %d", tt.event.Name, tt.event.UserID, tt.event.ProjectID, tt.event.StreamID, got, tt.want)
			}
		}
	})
}

func TestWebhook(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		hook := createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}, SharedSecret: "planted", StreamID: "s1"})
		got, err := st.Webhook(ctx, hook.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(hook, got); diff != "" {
			t.Errorf("webhook differs (-want +got):\n%s", diff)
		}
		if got.URL.Reveal() != "https://example.com/?token=planted" || got.SharedSecret.Reveal() != "planted" {
			t.Error("the secrets are not what was given")
		}
		page, err := st.Webhooks(ctx, Query{UserID: "u1", Filters: []Filter{{"url", "https://example.com/?token=planted"}}})
		if err != nil || len(page.Items) != 1 {
			t.Errorf("by its URL: %d webhooks, %v", len(page.Items), err)
		}
		entry := weir.WebhookLog{
			ID: weir.NewID(), WebhookID: hook.ID, UserID: "u1", ProjectID: "p1", EventID: "e", Event: weir.AssetCreated, CreatedAt: 5, Duration: 0.5,
			Request:  weir.WebhookRequest{URL: hook.URL, Method: "POST", Headers: map[string]string{"a": "b"}, Body: `{"id":"X"}`},
			Response: weir.WebhookResponse{Body: "eA==", Error: "timeout"},
		}
		later := entry
		later.ID, later.CreatedAt, later.Success, later.Response = weir.NewID(), 7, true, weir.WebhookResponse{Status: 200, StatusText: "OK"}
		if err := st.Tx(ctx, func(tx *Tx) error {
			return errors.Join(tx.LogAttempt(ctx, entry), tx.LogAttempt(ctx, later))
		}); err != nil {
			t.Fatal(err)
		}
		back, err := st.WebhookLog(ctx, entry.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(entry, back); diff != "" {
			t.Errorf("entry differs (-want +got):\n%s", diff)
		}
		if got, err = st.Webhook(ctx, hook.ID); err != nil {
			t.Fatal(err)
		}
		want := &weir.WebhookStatus{LastTriggeredAt: 7, LastFailure: &weir.WebhookFailure{Timestamp: 5, Error: "timeout", Response: "eA=="}}
		if diff := cmp.Diff(want, got.Status); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		for _, table := range []string{"webhook", "webhook_log"} {
			texts, err := many(ctx, st.conn, func(r rows) ([]byte, error) {
				var doc, sealed []byte
				err := r.Scan(&doc, &sealed)
				return append(doc, sealed...), err
			}, fmt.Sprintf("SELECT doc, sealed FROM %s", table))
			if err != nil || len(texts) == 0 {
				t.Fatalf("%s: %v", table, err)
			}
			for _, text := range texts {
				if bytes.Contains(text, []byte("planted")) {
					t.Errorf("%s has a secret in the clear: %s", table, text)
				}
			}
		}
	})
}

// A webhook is known to respond after a response, until it times out or is changed.
func TestWebhookResponds(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		hook := hookOfAssets(t, st)
		attempt := func(when string, want bool, result func(Delivery) *Attempt) {
			t.Helper()
			e := emit(t, st, "asset/1")
			if all := due(t, st); len(all) != 1 || all[0].Responds != want {
				t.Errorf("%s: due is %+v, want that it responds: %v", when, all, want)
			}
			a := result(take(t, st, hook, &e))
			a.Log.Request.URL, a.RetryAt = hook.URL, time.Time{}
			if s := settle(t, st, a, false); s.Responds != (a.Log.Response.Status != 0) {
				t.Errorf("after %+v it responds: %v", a.Log.Response, s.Responds)
			}
		}
		answered := func(d Delivery) *Attempt {
			a := sent(d, time.Time{})
			a.Log.Success, a.Log.Response.Status = false, 500
			return a
		}
		attempt("at first", false, answered)
		attempt("after a response", true, timedOut)
		attempt("after a time-out", false, answered)
		attempt("after another response", true, answered)
		if err := st.Tx(t.Context(), func(tx *Tx) error {
			_, err := tx.UpdateWebhook(t.Context(), hook.ID, func(w *weir.Webhook) error {
				return weir.WebhookPatch{Name: new("changed")}.Apply(w)
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		attempt("after a change", false, answered)
	})
}
