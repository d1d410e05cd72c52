package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// setTargets sets the multistream targets of a stream. It creates the targets that references
// describe, but only if all references are valid.
func setTargets(ctx context.Context, tx *store.Tx, stream *weir.Stream, refs []weir.TargetRef, now time.Time) error {
	var failed error
	known := func(id string) bool {
		t, err := tx.Target(ctx, id)
		failed = errors.Join(failed, ignoreNotFound(err))
		return err == nil && t.UserID == stream.UserID
	}
	if err := stream.CheckTargets(refs, known); err != nil {
		if failed != nil {
			return failed
		}
		return err
	}
	for i, ref := range refs {
		if ref.Spec == nil {
			continue
		}
		t, err := weir.NewTarget{Name: ref.Spec.Name, URL: ref.Spec.URL}.Target(stream.UserID, now)
		if err != nil {
			return err
		}
		if err := addTarget(ctx, tx, &t); err != nil {
			return err
		}
		refs[i].ID, refs[i].Spec = t.ID, nil
	}
	stream.Multistream.Targets = append([]weir.TargetRef{}, refs...)
	return nil
}

// addTarget creates a target, if its account may have another one.
func addTarget(ctx context.Context, tx *store.Tx, t *weir.Target) error {
	if err := tx.CheckQuota(ctx, t.UserID, weir.Targets, 1); err != nil {
		return err
	}
	return tx.CreateTarget(ctx, t)
}

// addStreamTarget answers POST /stream/{id}/create-multistream-target.
func (s *server) addStreamTarget(w http.ResponseWriter, r *request, ref weir.TargetRef) error {
	ctx := r.Context()
	var target weir.Target
	_, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateStream, func(tx *store.Tx, stream *weir.Stream) error {
		refs := append(append([]weir.TargetRef{}, stream.Multistream.Targets...), ref)
		if err := setTargets(ctx, tx, stream, refs, time.Now()); err != nil {
			return err
		}
		var err error
		target, err = tx.Target(ctx, stream.Multistream.Targets[len(stream.Multistream.Targets)-1].ID)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, target)
}

// removeStreamTarget answers DELETE /stream/{id}/multistream/{targetId}.
func (s *server) removeStreamTarget(w http.ResponseWriter, r *request) error {
	return s.changeStream(w, r, func(_ *store.Tx, stream *weir.Stream) error {
		stream.RemoveTarget(r.PathValue("targetId"))
		return nil
	})
}

// checkPolicyWebhook checks that the webhook of a playback policy belongs to the caller.
func checkPolicyWebhook(ctx context.Context, tx *store.Tx, caller *weir.Caller, policy *weir.PlaybackPolicy) error {
	if policy == nil || policy.Type != weir.PolicyWebhook {
		return nil
	}
	hook, err := tx.Webhook(ctx, policy.WebhookID)
	if weir.IsNotFound(err) || err == nil && (hook.Deleted || !caller.Owns(hook.UserID, hook.ProjectID)) {
		return weir.Errorf(weir.Refused, "webhook %s not found", policy.WebhookID)
	}
	return err
}

// checkObjectStore returns refusal unless an object store belongs to the caller and is enabled.
func checkObjectStore(ctx context.Context, tx *store.Tx, caller *weir.Caller, id string, refusal error) error {
	if id == "" {
		return nil
	}
	o, err := tx.ObjectStore(ctx, id)
	if weir.IsNotFound(err) || err == nil && (o.Deleted || o.Disabled || !caller.Owns(o.UserID, "")) {
		return refusal
	}
	return err
}
