package store

import (
	"context"

	"weir/internal/weir"
)

var signingKeys = table[weir.SigningKey]{
	name:    "signing_key",
	deleted: true,
	project: true,
	order:   "createdAt-true",
	columns: func(_ *queries, k *weir.SigningKey) []column {
		return []column{
			{"id", k.ID},
			{"user_id", k.UserID},
			{"project_id", k.ProjectID},
			{"deleted", k.Deleted},
			{"created_at", int64(k.CreatedAt)},
			{"last_seen", int64(k.LastSeen)},
			{"name", k.Name},
			{"public_key", k.PublicKey},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "deleted": {"deleted", boolField},
		"createdAt": {"created_at", numberField}, "projectId": {"project_id", textField}, "userId": {"user_id", textField},
	},
	hidden: func(k *weir.SigningKey) any { return &deletedMark{k.Deleted} },
	unhide: func(k *weir.SigningKey, hidden any) { k.Deleted = hidden.(*deletedMark).Deleted },
}

// SigningKey returns the signing key with the id.
func (q *queries) SigningKey(ctx context.Context, id string) (weir.SigningKey, error) {
	return signingKeys.get(ctx, q, id)
}

// SigningKeys returns a page of signing keys.
func (q *queries) SigningKeys(ctx context.Context, query Query) (Page[weir.SigningKey], error) {
	return signingKeys.list(ctx, q, query)
}

// SigningKeysByPublicKey returns the keys with that public key, also deleted ones.
func (q *queries) SigningKeysByPublicKey(ctx context.Context, publicKey string) ([]weir.SigningKey, error) {
	return signingKeys.where(ctx, q, "public_key = $1 ORDER BY created_at", publicKey)
}

// LockSigningKeys keeps others from adding signing keys of a user until the transaction ends, so
// that they can be counted.
func (tx *Tx) LockSigningKeys(ctx context.Context, userID string) error {
	_, err := one(ctx, tx.conn, scanText, "SELECT id FROM account WHERE id = $1"+tx.store.engine.forUpdate(), userID)
	return err
}

// CreateSigningKey writes a new signing key.
func (tx *Tx) CreateSigningKey(ctx context.Context, k *weir.SigningKey) error {
	if err := signingKeys.insert(ctx, tx, k); err != nil {
		return err
	}
	return tx.forget(ctx, k.UserID)
}

// UpdateSigningKey changes a signing key.
func (tx *Tx) UpdateSigningKey(ctx context.Context, id string, change func(*weir.SigningKey) error) (weir.SigningKey, error) {
	k, err := signingKeys.update(ctx, tx, id, change)
	if err != nil {
		return k, err
	}
	return k, tx.forget(ctx, k.UserID, id)
}
