package api

import (
	"context"
	"net/http"

	"weir/internal/store"
	"weir/internal/weir"
)

// owned is a resource that belongs to a user.
type owned interface{ Owner() weir.Owner }

// checkOwner returns a NotFound error unless the caller may see the resource: those of others look
// as if they did not exist, and only admins see deleted ones.
func checkOwner(r *request, o weir.Owner) error {
	if o.Deleted && !r.caller.Admin || !r.caller.Owns(o.UserID, o.ProjectID) {
		return weir.ErrNotFound()
	}
	return nil
}

// get returns the resource that find returns for the id, if the caller may see it.
func get[T owned, ID ~string](r *request, find func(context.Context, ID) (T, error), id ID) (T, error) {
	v, err := find(r.Context(), id)
	if err == nil {
		err = checkOwner(r, v.Owner())
	}
	return v, err
}

// getPresent is get for resources that are not deleted.
func getPresent[T owned](r *request, find func(context.Context, string) (T, error), id string) (T, error) {
	v, err := get(r, find, id)
	if err == nil && v.Owner().Deleted {
		err = weir.ErrNotFound()
	}
	return v, err
}

// updater is a method of store.Tx that changes a resource.
type updater[T any] func(tx *store.Tx, ctx context.Context, id string, change func(*T) error) (T, error)

// change changes a resource in one transaction, if the caller may see it.
func change[T owned](s *server, r *request, id string, update updater[T], do func(*store.Tx, *T) error) (changed T, err error) {
	err = s.Store.Tx(r.Context(), func(tx *store.Tx) error {
		changed, err = changeTx(tx, r, id, update, do)
		return err
	})
	return changed, err
}

func changeTx[T owned](tx *store.Tx, r *request, id string, update updater[T], do func(*store.Tx, *T) error) (T, error) {
	return update(tx, r.Context(), id, func(v *T) error {
		if err := checkOwner(r, (*v).Owner()); err != nil {
			return err
		}
		return do(tx, v)
	})
}

// changeAll changes the resources of a body `{"ids": […]}`: all of them, or none.
func changeAll[T owned](s *server, update updater[T], do func(*store.Tx, *T) error) handler {
	return func(w http.ResponseWriter, r *request) error {
		ids, err := decodeIDs(r)
		if err != nil {
			return err
		}
		return noContent(w, s.Store.Tx(r.Context(), func(tx *store.Tx) error {
			for _, id := range ids {
				if _, err := changeTx(tx, r, id, update, do); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// read answers with the resource that the path names.
func read[T owned, A any](s *server, find func(*store.Store, context.Context, string) (T, error), show func(T) A) handler {
	return func(w http.ResponseWriter, r *request) error {
		v, err := find(s.Store, r.Context(), r.PathValue("id"))
		if err == nil {
			err = checkOwner(r, v.Owner())
		}
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, show(v))
	}
}

// list answers with a page of the caller's resources.
func list[T owned, A any](s *server, find func(*store.Store, context.Context, store.Query) (store.Page[T], error), show func(T) A) handler {
	return func(w http.ResponseWriter, r *request) error {
		q, err := query(r)
		if err != nil {
			return err
		}
		page, err := find(s.Store, r.Context(), q)
		if err != nil {
			return err
		}
		return writeOwned(s, w, r, q, page, show)
	}
}

// asIs shows a resource as it is.
func asIs[T any](v T) T { return v }

// withBody passes the decoded body of the request to a handler.
func withBody[B any](handle func(w http.ResponseWriter, r *request, body B) error) handler {
	return func(w http.ResponseWriter, r *request) error {
		var body B
		if err := r.decode(&body); err != nil {
			return err
		}
		return handle(w, r, body)
	}
}

// notFoundAs gives a NotFound error another text.
func notFoundAs(err error, text string) error {
	if weir.IsNotFound(err) {
		return weir.Errorf(weir.NotFound, "%s", text)
	}
	return err
}

// ignoreNotFound returns nil for a NotFound error.
func ignoreNotFound(err error) error {
	if weir.IsNotFound(err) {
		return nil
	}
	return err
}
