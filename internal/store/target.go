package store

import (
	"context"

	"weir/internal/weir"
)

type urlSecret struct {
	URL string `json:"url"`
}

type targetHidden struct {
	ProjectID string `json:"projectId,omitempty"`
}

var targets = table[weir.Target]{
	name:    "target",
	project: true,
	order:   "id-false",
	columns: func(q *queries, t *weir.Target) []column {
		return []column{
			{"id", t.ID},
			{"user_id", t.UserID},
			{"project_id", t.ProjectID},
			{"created_at", int64(t.CreatedAt)},
			{"name", t.Name},
			{"disabled", t.Disabled},
			{"url_lookup", q.seal.lookup(t.URL.Reveal())},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "url": {"url_lookup", secretField},
		"disabled": {"disabled", boolField}, "createdAt": {"created_at", numberField}, "userId": {"user_id", textField},
		"user.email": {"user_id", emailField}, "projectId": {"project_id", textField},
	},
	secrets: func(t *weir.Target) any { return &urlSecret{t.URL.Reveal()} },
	restore: func(t *weir.Target, secrets any) { t.URL = weir.Secret(secrets.(*urlSecret).URL) },
	hidden:  func(t *weir.Target) any { return &targetHidden{t.ProjectID} },
	unhide:  func(t *weir.Target, hidden any) { t.ProjectID = hidden.(*targetHidden).ProjectID },
}

// Target returns the target with the id.
func (q *queries) Target(ctx context.Context, id string) (weir.Target, error) {
	return targets.get(ctx, q, id)
}

// Targets returns a page of targets.
func (q *queries) Targets(ctx context.Context, query Query) (Page[weir.Target], error) {
	return targets.list(ctx, q, query)
}

// CreateTarget writes a new target.
func (tx *Tx) CreateTarget(ctx context.Context, t *weir.Target) error {
	return targets.insert(ctx, tx, t)
}

// UpdateTarget changes a target, and notifies the nodes that push to it.
func (tx *Tx) UpdateTarget(ctx context.Context, id string, change func(*weir.Target) error) (weir.Target, error) {
	tx.bumpLater(TopicLive)
	return targets.update(ctx, tx, id, change)
}

// DeleteTarget deletes a target, and every stream's reference to it.
func (tx *Tx) DeleteTarget(ctx context.Context, id string) error {
	streams, err := many(ctx, tx.conn, scanText, "SELECT stream_id FROM stream_target WHERE target_id = $1", id)
	if err != nil {
		return err
	}
	for _, streamID := range streams {
		if _, err := tx.UpdateStream(ctx, streamID, func(s *weir.Stream) error {
			s.RemoveTarget(id)
			return nil
		}); err != nil {
			return err
		}
	}
	return targets.remove(ctx, tx, id)
}
