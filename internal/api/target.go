package api

import (
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// createTarget answers POST /multistream/target.
func (s *server) createTarget(w http.ResponseWriter, r *request, body weir.NewTarget) error {
	target, err := body.Target(r.caller.UserID, r.caller.ProjectID, time.Now())
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error { return addTarget(ctx, tx, &target) }); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, target)
}

// listTargets answers GET /multistream/target.
func (s *server) listTargets(w http.ResponseWriter, r *request) error {
	q, err := queryOfUser(r, "users can only access their own multistream targets")
	if err != nil {
		return err
	}
	page, err := s.Store.Targets(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, asIs)
}

// patchTarget answers PATCH /multistream/target/{id}.
func (s *server) patchTarget(w http.ResponseWriter, r *request, patch weir.TargetPatch) error {
	_, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateTarget, func(_ *store.Tx, t *weir.Target) error { return patch.Apply(t) })
	return noContent(w, err)
}

// deleteTarget answers DELETE /multistream/target/{id}.
func (s *server) deleteTarget(w http.ResponseWriter, r *request) error {
	ctx, id := r.Context(), r.PathValue("id")
	return noContent(w, s.Store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := get(r, tx.Target, id); err != nil {
			return err
		}
		return tx.DeleteTarget(ctx, id)
	}))
}
