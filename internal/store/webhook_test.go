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

// next calls NextDelivery and checks which event it gives; nil = none.
func next(t *testing.T, st *Store, job heldJob, last *Attempt, want *weir.Event) Delivery {
	t.Helper()
	d, ok, err := st.NextDelivery(t.Context(), job.Job, last)
	switch {
	case err != nil:
		t.Fatal(err)
	case want == nil && ok:
		t.Errorf("took event %d, want none", d.Event.Seq)
	case want != nil && !ok:
		t.Fatalf("took no event, want %d", want.Seq)
	case want != nil && (d.Event.ID != want.ID || d.Event.Seq != want.Seq):
		t.Errorf("took event %d, want %d", d.Event.Seq, want.Seq)
	}
	return d
}

// sent is an attempt that succeeded, or is to be repeated at the time.
func sent(d Delivery, again time.Time) *Attempt {
	return &Attempt{Delivery: d, RetryAt: again, Log: weir.WebhookLog{
		ID: weir.NewID(), WebhookID: d.Webhook.ID, UserID: "u1", ProjectID: "p1", EventID: d.Event.ID, Event: d.Event.Name,
		CreatedAt: weir.At(time.Now()), Success: again.IsZero(), Response: weir.WebhookResponse{Status: 200},
	}}
}

var over time.Time // no retry

// takeJobs returns the next n jobs, by the order in which they were asked for.
func takeJobs(jobs <-chan heldJob, n int) []heldJob {
	all := make([]heldJob, n)
	for i := range all {
		all[i] = <-jobs
		for j := i; j > 0 && all[j].ID < all[j-1].ID; j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	return all
}

func TestDeliveriesInOrder(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 8, JobWebhook)
		hook := createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}, SharedSecret: "s"})
		e1, e2, other := emit(t, st, "asset/1"), emit(t, st, "asset/1"), emit(t, st, "asset/2")
		held := takeJobs(jobs, 3)
		if held[0].Ref != hook.ID+"/asset/1" || held[2].Ref != hook.ID+"/asset/2" {
			t.Errorf("refs = %q, %q", held[0].Ref, held[2].Ref)
		}
		// One resource is sent by one job, oldest first; another resource by another.
		d1 := next(t, st, held[0], nil, &e1)
		next(t, st, held[1], nil, nil)
		d3 := next(t, st, held[2], nil, &other)
		if d1.Webhook.URL != hook.URL || d1.Webhook.SharedSecret != "s" || d1.Attempts != 0 {
			t.Errorf("delivery = %+v", d1)
		}
		held[1].end <- nil
		// What comes meanwhile is taken by the job that is at it.
		e4 := emit(t, st, "asset/1")
		late := <-jobs
		next(t, st, late, nil, nil)
		late.end <- nil
		d2 := next(t, st, held[0], sent(d1, over), &e2)
		d4 := next(t, st, held[0], sent(d2, over), &e4)
		next(t, st, held[0], sent(d4, over), nil)
		held[0].end <- nil
		if n := pending(t, st); n != 1 {
			t.Errorf("%d deliveries left, want that of the other resource", n)
		}
		next(t, st, held[2], sent(d3, over), nil)
		held[2].end <- nil
		if n := logged(t, st, hook); n != 4 || pending(t, st) != 0 {
			t.Errorf("%d attempts logged, %d deliveries left; want 4 and none", n, pending(t, st))
		}
	})
}

func TestRetriesLetOthersPass(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobWebhook)
		createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		e1 := emit(t, st, "asset/1")
		job := <-jobs
		d := next(t, st, job, nil, &e1)
		next(t, st, job, sent(d, time.Now().Add(time.Hour)), nil)
		stats, err := st.JobStats(t.Context())
		if err != nil || stats[[2]string{queueWebhook, "scheduled"}] != 1 {
			t.Errorf("jobs = %v, %v; want one for the retry", stats, err)
		}
		job.end <- nil
		e2 := emit(t, st, "asset/1")
		job = <-jobs
		d = next(t, st, job, nil, &e2)
		if n := pending(t, st); n != 2 {
			t.Errorf("%d deliveries are left, want 2", n)
		}
		// One that is due again comes before newer ones, and knows how often it was tried.
		e3 := emit(t, st, "asset/1")
		for attempts := range 3 {
			if d.Attempts != attempts {
				t.Errorf("%d attempts, want %d", d.Attempts, attempts)
			}
			d = next(t, st, job, sent(d, time.Now().Add(-time.Second)), &e2)
		}
		d = next(t, st, job, sent(d, over), &e3)
		next(t, st, job, sent(d, over), nil)
		job.end <- nil
		for range 4 { // the job of e3, and one for each retry that was due at once
			(<-jobs).end <- nil
		}
	})
}

func TestDeletedWebhook(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobWebhook)
		hook := createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		e := emit(t, st, "asset/1")
		emit(t, st, "asset/1")
		job := <-jobs
		d := next(t, st, job, nil, &e)
		updateWebhook(t, st, hook.ID, func(w *weir.Webhook) { w.Deleted = true })
		if n := pending(t, st); n != 0 {
			t.Errorf("%d deliveries wait after the deletion", n)
		}
		next(t, st, job, sent(d, time.Now().Add(time.Hour)), nil)
		job.end <- nil
		(<-jobs).end <- nil
		stats, err := st.JobStats(t.Context())
		if err != nil || stats[[2]string{queueWebhook, "scheduled"}] != 0 {
			t.Errorf("jobs = %v, %v; want no retry", stats, err)
		}
		if n := logged(t, st, hook); n != 1 {
			t.Errorf("%d attempts logged, want the one that was made", n)
		}
		emit(t, st, "asset/1")
		if n := pending(t, st); n != 0 {
			t.Errorf("%d deliveries to a deleted webhook", n)
		}
	})
}

func TestDroppedDelivery(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobWebhook)
		hook := createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		e := emit(t, st, "asset/1")
		job := <-jobs
		d := next(t, st, job, nil, &e)
		next(t, st, job, &Attempt{Delivery: d}, nil)
		job.end <- nil
		if pending(t, st) != 0 || logged(t, st, hook) != 0 {
			t.Errorf("%d deliveries left, %d logged; want none", pending(t, st), logged(t, st, hook))
		}
	})
}

func TestYieldDelivery(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobWebhook)
		createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		e1 := emit(t, st, "asset/1")
		first := <-jobs
		d := next(t, st, first, nil, &e1)
		e2 := emit(t, st, "asset/1")
		if err := st.YieldDelivery(t.Context(), first.Job, *sent(d, over)); err != nil {
			t.Fatal(err)
		}
		if err := st.YieldDelivery(t.Context(), Job{ID: first.ID, Attempt: 9, Kind: first.Kind, Ref: first.Ref}, *sent(d, over)); !errors.Is(err, errLostJob) {
			t.Errorf("YieldDelivery of another attempt = %v", err)
		}
		first.end <- nil
		second := <-jobs // that of e2
		d = next(t, st, second, nil, &e2)
		next(t, st, second, sent(d, over), nil)
		second.end <- nil
		third := <-jobs // that of the yield
		if third.Ref != first.Ref || third.ID == first.ID {
			t.Errorf("job after the yield = %+v", third.Job)
		}
		next(t, st, third, nil, nil)
		third.end <- nil
	})
}

// TestClaimOfLostJob shows that a delivery whose job came to an early end is
// made by the next, whichever that is.
func TestClaimOfLostJob(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 2, JobWebhook)
		createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		e1 := emit(t, st, "asset/1")
		job := <-jobs
		d := next(t, st, job, nil, &e1)
		job.end <- errors.New("cut off")
		again := <-jobs
		if again.ID != job.ID || again.Attempt != 2 {
			t.Fatalf("second attempt = %+v", again.Job)
		}
		if _, _, err := st.NextDelivery(t.Context(), job.Job, sent(d, over)); !errors.Is(err, errLostJob) {
			t.Errorf("NextDelivery of the first attempt = %v", err)
		}
		next(t, st, again, nil, &e1)
		// Now it is lost: its node is dead, its job has another id.
		if err := st.Tx(t.Context(), func(tx *Tx) error {
			n, err := tx.requeue(t.Context(), "node-a", "")
			if n != 1 {
				t.Errorf("%d jobs were taken over, want 1", n)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		other := <-jobs
		if other.ID == job.ID || other.Ref != job.Ref {
			t.Fatalf("job after the take-over = %+v", other.Job)
		}
		d = next(t, st, other, nil, &e1)
		if _, _, err := st.NextDelivery(t.Context(), again.Job, nil); !errors.Is(err, errLostJob) {
			t.Errorf("NextDelivery of the job that was taken over = %v", err)
		}
		again.end <- nil
		next(t, st, other, sent(d, over), nil)
		other.end <- nil
	})
}

// TestPrunedEvent checks that a delivery whose event was pruned does
// not hold up others.
func TestPrunedEvent(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		emit(t, st, "asset/1")
		if err := st.prune(t.Context(), Retention{Events: -time.Hour, Credentials: time.Hour}); err != nil {
			t.Fatal(err)
		}
		e := emit(t, st, "asset/1")
		jobs, _ := work(t, st, 1, JobWebhook)
		job := <-jobs
		d := next(t, st, job, nil, &e)
		next(t, st, job, sent(d, over), nil)
		job.end <- nil
		(<-jobs).end <- nil
		if n := pending(t, st); n != 0 {
			t.Errorf("%d deliveries left", n)
		}
	})
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
