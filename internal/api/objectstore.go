package api

import (
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// ownObjectStore turns an object store that the caller may not see into one that
// does not exist.
func ownObjectStore(r *request, o weir.ObjectStore, err error) (weir.ObjectStore, error) {
	if err == nil && (o.Deleted || !r.caller.Owns(o.UserID, "")) {
		err = weir.ErrNotFound()
	}
	return o, err
}

// createObjectStore answers POST /object-store.
func (s *server) createObjectStore(w http.ResponseWriter, r *request) error {
	var body weir.NewObjectStore
	if err := r.decode(&body); err != nil {
		return err
	}
	o, err := body.ObjectStore(r.caller.UserID, time.Now())
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := s.Store.Tx(ctx, func(tx *store.Tx) error { return tx.CreateObjectStore(ctx, &o) }); err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, o)
}

// listObjectStores answers GET /object-store.
func (s *server) listObjectStores(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	if user := r.URL.Query().Get("userId"); user != "" {
		if user != r.caller.UserID && !r.caller.Admin {
			return weir.Errorf(weir.Denied, "user can only request information on their own user object")
		}
		q.UserID = user
	}
	page, err := s.Store.ObjectStores(r.Context(), q)
	if err != nil {
		return err
	}
	show := func(o weir.ObjectStore) weir.ObjectStore { return o }
	owner := func(o weir.ObjectStore) (string, bool) { return o.UserID, o.Deleted }
	return writeOwned(s, w, r, q, page, show, owner)
}

// getObjectStore answers GET /object-store/{id}.
func (s *server) getObjectStore(w http.ResponseWriter, r *request) error {
	o, err := s.Store.ObjectStore(r.Context(), r.PathValue("id"))
	if o, err = ownObjectStore(r, o, err); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, o)
}

// patchObjectStore answers PATCH /object-store/{id}.
func (s *server) patchObjectStore(w http.ResponseWriter, r *request) error {
	var patch weir.ObjectStorePatch
	if err := r.decode(&patch); err != nil {
		return err
	}
	return s.changeObjectStore(w, r, patch.Apply)
}

// deleteObjectStore answers DELETE /object-store/{id}.
func (s *server) deleteObjectStore(w http.ResponseWriter, r *request) error {
	return s.changeObjectStore(w, r, func(o *weir.ObjectStore) error {
		o.Deleted = true
		return nil
	})
}

func (s *server) changeObjectStore(w http.ResponseWriter, r *request, change func(*weir.ObjectStore) error) error {
	ctx := r.Context()
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateObjectStore(ctx, r.PathValue("id"), func(o *weir.ObjectStore) error {
			if _, err := ownObjectStore(r, *o, nil); err != nil {
				return err
			}
			return change(o)
		})
		return err
	})
	if err != nil {
		return err
	}
	return noContent(w)
}
