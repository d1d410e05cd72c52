package store

import (
	"context"

	"weir/internal/weir"
)

type objectStoreHidden struct {
	Deleted   bool   `json:"deleted,omitempty"`
	ProjectID string `json:"projectId,omitempty"`
}

var objectStores = table[weir.ObjectStore]{
	name:    "object_store",
	deleted: true,
	project: true,
	order:   "id-false",
	columns: func(q *queries, o *weir.ObjectStore) []column {
		return []column{
			{"id", o.ID},
			{"user_id", o.UserID},
			{"project_id", o.ProjectID},
			{"deleted", o.Deleted},
			{"created_at", int64(o.CreatedAt)},
			{"name", o.Name},
			{"public_url", o.PublicURL},
			{"disabled", o.Disabled},
			{"url_lookup", q.seal.lookup(o.URL.Reveal())},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "url": {"url_lookup", secretField},
		"publicUrl": {"public_url", textField}, "disabled": {"disabled", boolField}, "createdAt": {"created_at", numberField},
		"userId": {"user_id", textField}, "user.email": {"user_id", emailField}, "projectId": {"project_id", textField},
	},
	secrets: func(o *weir.ObjectStore) any { return &urlSecret{o.URL.Reveal()} },
	restore: func(o *weir.ObjectStore, secrets any) { o.URL = weir.Secret(secrets.(*urlSecret).URL) },
	hidden:  func(o *weir.ObjectStore) any { return &objectStoreHidden{o.Deleted, o.ProjectID} },
	unhide: func(o *weir.ObjectStore, hidden any) {
		h := hidden.(*objectStoreHidden)
		o.Deleted, o.ProjectID = h.Deleted, h.ProjectID
	},
}

// ObjectStore returns the object store with the id, also one that was deleted.
func (q *queries) ObjectStore(ctx context.Context, id string) (weir.ObjectStore, error) {
	return objectStores.get(ctx, q, id)
}

// ObjectStores returns a page of object stores.
func (q *queries) ObjectStores(ctx context.Context, query Query) (Page[weir.ObjectStore], error) {
	return objectStores.list(ctx, q, query)
}

// CreateObjectStore writes a new object store.
func (tx *Tx) CreateObjectStore(ctx context.Context, o *weir.ObjectStore) error {
	return objectStores.insert(ctx, tx, o)
}

// UpdateObjectStore changes an object store.
func (tx *Tx) UpdateObjectStore(ctx context.Context, id string, change func(*weir.ObjectStore) error) (weir.ObjectStore, error) {
	return objectStores.update(ctx, tx, id, change)
}
