package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
)

// ask sends a request and returns the response, which must fit openapi.yaml.
func (f *fixture) ask(t *testing.T, as, method, path string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://weir.test"+path, nil)
	r.Header.Set("Authorization", f.credential(as))
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	f.check(t, 0, r, w)
	return w.Code, w.Body.String()
}

func TestWebhookLog(t *testing.T) {
	f := newFixture(t)
	ctx, now := t.Context(), time.Now()
	caller := &weir.Caller{UserID: f.vars["ann.id"], ProjectID: f.vars["ann.project"]}
	newHook := func(name string) weir.Webhook {
		hook, err := weir.WebhookBody{Name: name, URL: "https://example.com/?token=t", Events: []weir.EventName{}, SharedSecret: "planted"}.Webhook(caller, now)
		if err != nil {
			t.Fatal(err)
		}
		return hook
	}
	hook, other := newHook("hook"), newHook("other")
	entry := weir.WebhookLog{
		ID: weir.NewID(), WebhookID: hook.ID, UserID: caller.UserID, ProjectID: caller.ProjectID, EventID: weir.NewID(), Event: weir.AssetReadyEvent,
		CreatedAt: weir.At(now), Duration: 0.25, Success: true,
		Request:  weir.WebhookRequest{URL: hook.URL, Method: "POST", Headers: map[string]string{"user-agent": "weir/v0"}, Body: `{"id":"Asset-7"}`},
		Response: weir.WebhookResponse{Body: "b2s=", Status: 200, StatusText: "OK"},
	}
	failed := entry
	failed.ID, failed.Success, failed.CreatedAt, failed.Request.Body = weir.NewID(), false, weir.At(now.Add(time.Second)), "{}"
	failed.Response = weir.WebhookResponse{Error: "connection refused"}
	if err := f.store.Tx(ctx, func(tx *store.Tx) error {
		for _, h := range []*weir.Webhook{&hook, &other} {
			if err := tx.CreateWebhook(ctx, h); err != nil {
				return err
			}
		}
		for _, l := range []weir.WebhookLog{entry, failed} {
			if err := tx.LogAttempt(ctx, l); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	logs := "/api/webhook/" + hook.ID + "/log"
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", []string{failed.ID, entry.ID}},
		{"?limit=1", []string{failed.ID}},
		{`?filters=[{"id":"success","value":"true"}]`, []string{entry.ID}},
		{`?filters=[{"id":"statusCode","value":"200"}]`, []string{entry.ID}},
		{`?filters=[{"id":"event","value":"asset.ready"}]&order=createdAt-false`, []string{entry.ID, failed.ID}},
		{`?filters=[{"id":"resourceId","value":"asset-7"}]`, []string{entry.ID}},
	} {
		status, body := f.ask(t, "ann", "GET", logs+tt.query)
		var got []struct{ ID string }
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", tt.query, status, body)
		}
		ids := []string{}
		for _, g := range got {
			ids = append(ids, g.ID)
		}
		if diff := cmp.Diff(tt.want, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.query, diff)
		}
	}
	// The owner sees the URL. Without a response, its words are the reason.
	for _, tt := range []struct {
		id, want string
	}{
		{entry.ID, `"request":{"url":"https://example.com/?token=t","method":"POST","headers":{"user-agent":"weir/v0"},"body":"{\"id\":\"Asset-7\"}"},"response":{"body":"b2s=","status":200,"statusText":"OK"}}`},
		{failed.ID, `"response":{"body":"","statusText":"connection refused"}}`},
	} {
		if status, body := f.ask(t, "ann", "GET", logs+"/"+tt.id); status != 200 || !strings.HasSuffix(body, tt.want) {
			t.Errorf("entry: %d %s\nwant it to end in %s", status, body, tt.want)
		}
	}
	if status, body := f.ask(t, "ann", "GET", "/api/webhook/"+hook.ID); status != 200 || !strings.Contains(body, `"lastFailure":{"timestamp":`) || !strings.Contains(body, `"error":"connection refused"`) {
		t.Errorf("webhook: %d %s", status, body)
	}
	for _, tt := range []struct {
		as, method, path string
		status           int
		message          string
	}{
		{"bob", "GET", logs + "/" + entry.ID, 404, "webhook not found"},
		{"ann", "GET", "/api/webhook/none/log/" + entry.ID, 404, "webhook not found"},
		{"ann", "GET", logs + "/none", 404, "webhook log not found"},
		{"ann", "GET", "/api/webhook/" + other.ID + "/log/" + entry.ID, 400, "mismatch between webhook and webhook log"},
		{"bob", "POST", logs + "/" + entry.ID + "/resend", 404, "webhook not found"},
		{"ann", "POST", "/api/webhook/" + other.ID + "/log/" + entry.ID + "/resend", 400, "mismatch between webhook and webhook log"},
	} {
		status, body := f.ask(t, tt.as, tt.method, tt.path)
		if want := `{"errors":["` + tt.message + `"]}`; status != tt.status || body != want {
			t.Errorf("%s %s as %s: %d %s, want %d %s", tt.method, tt.path, tt.as, status, body, tt.status, want)
		}
	}
	for _, path := range []string{"/api/webhook/none/log", "/api/webhook/" + other.ID + "/log"} {
		if status, body := f.ask(t, "ann", "GET", path); status != 200 || body != "[]" {
			t.Errorf("log of another webhook: %d %s", status, body)
		}
	}
	if status, body := f.ask(t, "bob", "GET", logs); status != 200 || body != "[]" {
		t.Errorf("log as another user: %d %s", status, body)
	}
	if status, body := f.ask(t, "root-jwt", "GET", logs); status != 200 || !strings.Contains(body, entry.ID) {
		t.Errorf("log as an admin: %d %s", status, body)
	}

	// Resending is handed over with the webhook as it is now.
	status, body := f.ask(t, "ann", "POST", logs+"/"+failed.ID+"/resend")
	if status != http.StatusOK || strings.Contains(body, failed.ID) || !strings.Contains(body, `"success":true`) {
		t.Errorf("resend: %d %s", status, body)
	}
	if status, _ := f.ask(t, "ann", "DELETE", "/api/webhook/"+hook.ID); status != http.StatusOK {
		t.Fatalf("delete: %d", status)
	}
	if status, body := f.ask(t, "ann", "POST", logs+"/"+failed.ID+"/resend"); status != http.StatusNotFound {
		t.Errorf("resend to a deleted webhook: %d %s", status, body)
	}
	if status, body := f.ask(t, "root-jwt", "POST", logs+"/"+failed.ID+"/resend"); status != http.StatusBadRequest {
		t.Errorf("resend to a deleted webhook as an admin: %d %s", status, body)
	}
}

// TestPausedWebhook shows a webhook that is paused, which a change by its owner ends.
func TestPausedWebhook(t *testing.T) {
	f := newFixture(t)
	hook := f.call(t, "POST", "/api/webhook", `{"name":"slow","url":"https://example.com","events":["asset.created"]}`, 200)
	path := "/api/webhook/" + hook["id"].(string)
	for _, change := range []struct{ method, body string }{
		{"PATCH", `{"name":"slow"}`},
		{"PUT", `{"name":"slow","url":"https://example.com","events":["asset.created"]}`},
	} {
		if err := f.store.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.UpdateWebhook(t.Context(), hook["id"].(string), func(w *weir.Webhook) error {
				w.Status = &weir.WebhookStatus{
					LastTriggeredAt: 4, ConsecutiveTimeouts: 10,
					Paused: &weir.WebhookPause{Since: 5, Until: weir.At(time.Now().Add(time.Hour)), Reason: "10 deliveries in a row timed out"},
				}
				return nil
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if status, body := f.ask(t, "ann", "GET", path); status != 200 ||
			!strings.Contains(body, `"consecutiveTimeouts":10,"paused":{"since":5,"until":`) || !strings.Contains(body, `"reason":"10 deliveries in a row timed out"`) {
			t.Errorf("paused: %d %s", status, body)
		}
		f.call(t, change.method, path, change.body, map[string]int{"PATCH": 204, "PUT": 200}[change.method])
		if status, body := f.ask(t, "ann", "GET", path); status != 200 || !strings.Contains(body, `"status":{"lastTriggeredAt":4}`) {
			t.Errorf("after %s: %d %s", change.method, status, body)
		}
	}
}
