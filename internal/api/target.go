package api

import (
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// ownTarget turns a target that the caller may not see into one that does not exist.
func ownTarget(r *request, t weir.Target, err error) (weir.Target, error) {
	if err == nil && !r.caller.Owns(t.UserID, "") {
		err = weir.ErrNotFound()
	}
	return t, err
}

// createTarget answers POST /multistream/target.
func (s *server) createTarget(w http.ResponseWriter, r *request) error {
	var body weir.NewTarget
	if err := r.decode(&body); err != nil {
		return err
	}
	target, err := body.Target(r.caller.UserID, time.Now())
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error { return tx.CreateTarget(ctx, &target) }); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, target)
}

// listTargets answers GET /multistream/target.
func (s *server) listTargets(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	if user := r.URL.Query().Get("userId"); user != "" {
		if user != r.caller.UserID && !r.caller.Admin {
			return weir.Errorf(weir.Denied, "users can only access their own multistream targets")
		}
		q.UserID = user
	}
	page, err := s.Store.Targets(r.Context(), q)
	if err != nil {
		return err
	}
	show := func(t weir.Target) weir.Target { return t }
	owner := func(t weir.Target) (string, bool) { return t.UserID, false }
	return writeOwned(s, w, r, q, page, show, owner)
}

// getTarget answers GET /multistream/target/{id}.
func (s *server) getTarget(w http.ResponseWriter, r *request) error {
	target, err := s.Store.Target(r.Context(), r.PathValue("id"))
	if target, err = ownTarget(r, target, err); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, target)
}

// patchTarget answers PATCH /multistream/target/{id}.
func (s *server) patchTarget(w http.ResponseWriter, r *request) error {
	var patch weir.TargetPatch
	if err := r.decode(&patch); err != nil {
		return err
	}
	ctx := r.Context()
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateTarget(ctx, r.PathValue("id"), func(t *weir.Target) error {
			if _, err := ownTarget(r, *t, nil); err != nil {
				return err
			}
			return patch.Apply(t)
		})
		return err
	})
	if err != nil {
		return err
	}
	return noContent(w)
}

// deleteTarget answers DELETE /multistream/target/{id}.
func (s *server) deleteTarget(w http.ResponseWriter, r *request) error {
	ctx, id := r.Context(), r.PathValue("id")
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		t, err := tx.Target(ctx, id)
		if _, err = ownTarget(r, t, err); err != nil {
			return err
		}
		return tx.DeleteTarget(ctx, id)
	})
	if err != nil {
		return err
	}
	return noContent(w)
}
