package api

import (
	"net/http"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// TestOldReferencesStay checks that references which cross projects, from a time when they were
// allowed, stay where they are: only new ones are refused.
func TestOldReferencesStay(t *testing.T) {
	f := newFixture(t)
	newPuller(t, f)
	ctx, now := t.Context(), time.Now()
	here := &weir.Caller{UserID: f.vars["ann.id"], ProjectID: f.vars["ann.project"]}
	there := &weir.Caller{UserID: here.UserID, ProjectID: weir.NewID()}
	newTarget := func() weir.Target {
		target, err := weir.NewTarget{URL: "rtmp://example.com/app/key"}.Target(there.UserID, there.ProjectID, now)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	newHook := func() weir.Webhook {
		hook, err := weir.WebhookBody{Name: "a", URL: "https://example.com/", Events: []weir.EventName{}}.Webhook(there, now)
		if err != nil {
			t.Fatal(err)
		}
		return hook
	}
	newBucket := func() weir.ObjectStore {
		o, err := weir.NewObjectStore{URL: "s3://key:secret@region/bucket"}.ObjectStore(there.UserID, there.ProjectID, now)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	newStream := func(of *weir.Caller) weir.Stream {
		s, err := weir.NewStream{Name: "a", Pull: &weir.Pull{Source: "https://example.com/" + weir.NewID()}}.Stream(of, now)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	old, another := newTarget(), newTarget()
	oldHook, anotherHook := newHook(), newHook()
	oldBucket, anotherBucket := newBucket(), newBucket()
	stream, oldStream, anotherStream := newStream(here), newStream(there), newStream(there)
	stream.Multistream.Targets = []weir.TargetRef{{ID: old.ID, Profile: weir.SourceProfile}}
	stream.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: oldHook.ID}
	stream.ObjectStoreID = oldBucket.ID
	asset := seededAsset(here, now, weir.NewID(), "a", weir.AssetSource{Type: weir.SourceURL, URL: "https://example.com/a.mp4"})
	asset.PlaybackPolicy = stream.PlaybackPolicy
	hook := newHook()
	hook.ProjectID, hook.StreamID = here.ProjectID, oldStream.ID
	if err := f.store.Tx(ctx, func(tx *store.Tx) error {
		for _, x := range []weir.Target{old, another} {
			if err := tx.CreateTarget(ctx, &x); err != nil {
				return err
			}
		}
		for _, x := range []weir.Webhook{oldHook, anotherHook, hook} {
			if err := tx.CreateWebhook(ctx, &x); err != nil {
				return err
			}
		}
		for _, x := range []weir.ObjectStore{oldBucket, anotherBucket} {
			if err := tx.CreateObjectStore(ctx, &x); err != nil {
				return err
			}
		}
		for _, x := range []weir.Stream{stream, oldStream, anotherStream} {
			if err := tx.CreateStream(ctx, &x); err != nil {
				return err
			}
		}
		return tx.CreateAsset(ctx, &asset)
	}); err != nil {
		t.Fatal(err)
	}
	targets := func(id string) string {
		return `"multistream":{"targets":[{"profile":"source","id":"` + id + `"},{"profile":"240p0","id":"` + id + `"}]}`
	}
	policy := func(id string) string { return `"playbackPolicy":{"type":"webhook","webhookId":"` + id + `"}` }
	pull := func(more string) string {
		return `{"name":"b","pull":{"source":"` + stream.Pull.Source + `"},` + more + `}`
	}
	at := "/api/stream/" + stream.ID
	f.call(t, "PATCH", at, `{"name":"b",`+targets(old.ID)+`,`+policy(oldHook.ID)+`}`, http.StatusNoContent)
	f.call(t, "PATCH", at, `{`+targets(another.ID)+`}`, http.StatusBadRequest)
	f.call(t, "PATCH", at, `{`+policy(anotherHook.ID)+`}`, http.StatusBadRequest)
	f.call(t, "POST", at+"/create-multistream-target", `{"profile":"360p0","spec":{"url":"rtmp://example.com/app/key"}}`, http.StatusOK)
	f.call(t, "POST", at+"/create-multistream-target", `{"profile":"480p0","id":"`+another.ID+`"}`, http.StatusBadRequest)
	f.call(t, "PUT", "/api/stream/pull", pull(targets(old.ID)+`,`+policy(oldHook.ID)+`,"objectStoreId":"`+oldBucket.ID+`"`), http.StatusOK)
	f.call(t, "PUT", "/api/stream/pull", pull(targets(another.ID)), http.StatusBadRequest)
	f.call(t, "PUT", "/api/stream/pull", pull(policy(anotherHook.ID)), http.StatusBadRequest)
	f.call(t, "PUT", "/api/stream/pull", pull(`"objectStoreId":"`+anotherBucket.ID+`"`), http.StatusBadRequest)

	f.call(t, "PATCH", "/api/asset/"+asset.ID, `{`+policy(oldHook.ID)+`}`, http.StatusOK)
	f.call(t, "PATCH", "/api/asset/"+asset.ID, `{`+policy(anotherHook.ID)+`}`, http.StatusBadRequest)

	f.call(t, "PATCH", "/api/webhook/"+hook.ID, `{"name":"b","streamId":"`+oldStream.ID+`"}`, http.StatusNoContent)
	f.call(t, "PATCH", "/api/webhook/"+hook.ID, `{"streamId":"`+anotherStream.ID+`"}`, http.StatusNotFound)

	kept, err := f.store.Stream(ctx, stream.ID)
	if err != nil || len(kept.Multistream.Targets) != 2 || kept.Multistream.Targets[0].ID != old.ID || kept.PlaybackPolicy.WebhookID != oldHook.ID || kept.ObjectStoreID != oldBucket.ID {
		t.Errorf("the stream has lost references: %+v, %v", kept, err)
	}
	// Gone is gone: it can't be named again.
	f.call(t, "PATCH", at, `{"multistream":{"targets":[]}}`, http.StatusNoContent)
	f.call(t, "PATCH", at, `{`+targets(old.ID)+`}`, http.StatusBadRequest)
}
