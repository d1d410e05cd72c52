package store

import "context"

// CrossReference is a stream or an asset that names something of another project of its account.
// Such references are from a time when targets and object stores had no project; new ones are
// refused.
type CrossReference struct {
	From, FromID string // what has the reference: stream or asset
	To, ToID     string // what it names: target, object store or webhook
}

// CrossReferences returns the references that cross projects, at most limit of them. It reads whole
// tables: it is for `weir doctor`.
func (q *queries) CrossReferences(ctx context.Context, limit int) ([]CrossReference, error) {
	// The ids of some references are only in documents: a pattern finds them on both engines.
	return many(ctx, q.conn, func(r rows) (c CrossReference, err error) { return c, r.Scan(&c.From, &c.FromID, &c.To, &c.ToID) },
		`SELECT 'stream' AS kind, s.id AS id, 'target' AS named, t.id AS named_id
			FROM stream_target r JOIN stream s ON s.id = r.stream_id JOIN target t ON t.id = r.target_id
			WHERE NOT s.deleted AND s.project_id <> t.project_id
		UNION ALL SELECT 'asset', a.id, 'object store', o.id
			FROM object_store o JOIN asset a ON a.object_store_id = o.id
			WHERE NOT a.deleted AND NOT o.deleted AND a.project_id <> o.project_id
		UNION ALL SELECT 'stream', s.id, 'object store', o.id
			FROM object_store o JOIN stream s ON s.user_id = o.user_id AND s.project_id <> o.project_id
			WHERE NOT s.deleted AND NOT o.deleted AND s.hidden LIKE '%"objectStoreId":"' || o.id || '"%'
		UNION ALL SELECT 'stream', s.id, 'webhook', w.id
			FROM webhook w JOIN stream s ON s.user_id = w.user_id AND s.project_id <> w.project_id
			WHERE NOT s.deleted AND NOT w.deleted AND s.doc LIKE '%"webhookId":"' || w.id || '"%'
		UNION ALL SELECT 'asset', a.id, 'webhook', w.id
			FROM webhook w JOIN asset a ON a.user_id = w.user_id AND a.project_id <> w.project_id
			WHERE NOT a.deleted AND NOT w.deleted AND a.doc LIKE '%"webhookId":"' || w.id || '"%'
		ORDER BY 1, 2, 3, 4 LIMIT $1`, limit)
}
