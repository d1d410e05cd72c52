package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// setTargets sets the multistream targets of a stream, which had others before. It creates the
// targets that references describe, but only if all references are valid.
func setTargets(ctx context.Context, tx *store.Tx, stream *weir.Stream, had, refs []weir.TargetRef, now time.Time) error {
	var failed error
	known := func(id string) bool {
		t, err := tx.Target(ctx, id)
		failed = errors.Join(failed, ignoreNotFound(err))
		return err == nil && stream.Owner().MayName(t.Owner(), slices.ContainsFunc(had, func(ref weir.TargetRef) bool { return ref.ID == id }))
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
		t, err := weir.NewTarget{Name: ref.Spec.Name, URL: ref.Spec.URL}.Target(stream.UserID, stream.ProjectID, now)
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
		had := stream.Multistream.Targets
		if err := setTargets(ctx, tx, stream, had, append(slices.Clone(had), ref), time.Now()); err != nil {
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

// checkPolicyWebhook checks that content may name the webhook of its playback policy. had is the
// policy before.
func checkPolicyWebhook(ctx context.Context, tx *store.Tx, owner weir.Owner, had, policy *weir.PlaybackPolicy) error {
	if policy == nil || policy.Type != weir.PolicyWebhook {
		return nil
	}
	hook, err := tx.Webhook(ctx, policy.WebhookID)
	if weir.IsNotFound(err) || err == nil && !owner.MayName(hook.Owner(), had != nil && had.WebhookID == hook.ID) {
		return weir.Errorf(weir.Refused, "webhook %s not found", policy.WebhookID)
	}
	return err
}

// checkObjectStore returns refusal unless content may name the object store and it is enabled. had
// is the one it named before.
func checkObjectStore(ctx context.Context, tx *store.Tx, owner weir.Owner, had, id string, refusal error) error {
	if id == "" {
		return nil
	}
	o, err := tx.ObjectStore(ctx, id)
	if weir.IsNotFound(err) || err == nil && (o.Disabled || !owner.MayName(o.Owner(), had == id)) {
		return refusal
	}
	return err
}
