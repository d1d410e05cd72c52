package api

import (
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// createObjectStore answers POST /object-store.
func (s *server) createObjectStore(w http.ResponseWriter, r *request, body weir.NewObjectStore) error {
	o, err := body.ObjectStore(r.caller.UserID, r.caller.ProjectID, time.Now())
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CheckQuota(ctx, o.UserID, weir.ObjectStores, 1); err != nil {
			return err
		}
		return tx.CreateObjectStore(ctx, &o)
	}); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, o)
}

// listObjectStores answers GET /object-store.
func (s *server) listObjectStores(w http.ResponseWriter, r *request) error {
	q, err := queryOfUser(r, "user can only request information on their own user object")
	if err != nil {
		return err
	}
	page, err := s.Store.ObjectStores(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, asIs)
}

// getObjectStore answers GET /object-store/{id}.
func (s *server) getObjectStore(w http.ResponseWriter, r *request) error {
	o, err := getPresent(r, s.Store.ObjectStore, r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, o)
}

// patchObjectStore answers PATCH /object-store/{id}.
func (s *server) patchObjectStore(w http.ResponseWriter, r *request, patch weir.ObjectStorePatch) error {
	return s.changeObjectStore(w, r, patch.Apply)
}

// deleteObjectStore answers DELETE /object-store/{id}.
func (s *server) deleteObjectStore(w http.ResponseWriter, r *request) error {
	return s.changeObjectStore(w, r, func(o *weir.ObjectStore) error {
		o.Deleted = true
		return nil
	})
}

func (s *server) changeObjectStore(w http.ResponseWriter, r *request, do func(*weir.ObjectStore) error) error {
	_, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateObjectStore, func(_ *store.Tx, o *weir.ObjectStore) error {
		if o.Deleted {
			return weir.ErrNotFound()
		}
		return do(o)
	})
	return noContent(w, err)
}
