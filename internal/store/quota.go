package store

import (
	"context"
	"fmt"

	"weir/internal/weir"
)

// used has the SQL for how much an account has of each resource.
var used = map[weir.Resource]string{
	weir.Storage: `SELECT CAST(COALESCE(sum(n), 0) AS BIGINT) FROM (
			SELECT stored AS n FROM asset WHERE user_id = $1 AND stored > 0
			UNION ALL SELECT recorded_bytes FROM session WHERE user_id = $1 AND recorded_bytes > 0
			UNION ALL SELECT size FROM ipfs_upload WHERE user_id = $1 AND remote = 'local'
		) AS parts`,
	weir.Streams:      "SELECT count(*) FROM stream WHERE user_id = $1 AND NOT deleted",
	weir.Assets:       "SELECT count(*) FROM asset WHERE user_id = $1 AND NOT deleted",
	weir.Webhooks:     "SELECT count(*) FROM webhook WHERE user_id = $1 AND NOT deleted",
	weir.Targets:      "SELECT count(*) FROM target WHERE user_id = $1",
	weir.ObjectStores: "SELECT count(*) FROM object_store WHERE user_id = $1 AND NOT deleted",
	weir.Projects:     "SELECT count(*) FROM project WHERE user_id = $1 AND NOT deleted",
	weir.Keys:         "SELECT count(*) FROM api_token WHERE user_id = $1",
}

// Used returns how much an account has of a resource.
func (q *queries) Used(ctx context.Context, userID string, r weir.Resource) (int64, error) {
	sql, ok := used[r]
	if !ok {
		return 0, fmt.Errorf("unknown resource of a quota: %q", r)
	}
	return one(ctx, q.conn, scanInt, sql, userID)
}

// CheckQuota returns an error if an account may not have more of a resource. It locks the account,
// so that of several requests at once only those pass for which there is room.
func (tx *Tx) CheckQuota(ctx context.Context, userID string, r weir.Resource, more int64) error {
	u, err := tx.User(ctx, userID)
	if err != nil {
		return err
	}
	if _, limited := u.Limit(r); !limited {
		return nil
	}
	if u, err = accounts.lock(ctx, tx, userID); err != nil {
		return err
	}
	n, err := tx.Used(ctx, userID, r)
	if err != nil {
		return err
	}
	return u.CheckQuota(r, n, more)
}

// clipsInProgress returns the clips of an account that are not finished. There are few.
func (q *queries) clipsInProgress(ctx context.Context, userID string) ([]weir.Task, error) {
	return tasks.where(ctx, q, "user_id = $1 AND type = 'clip' AND phase IN ('pending', 'waiting', 'running')", userID)
}

// CheckClips returns an error if an account may not have more clips in progress. Those of viewers are not
// counted.
func (q *queries) CheckClips(ctx context.Context, userID string, more int) error {
	clips, err := q.clipsInProgress(ctx, userID)
	if err != nil {
		return err
	}
	for _, t := range clips {
		if t.Secrets.Viewer == "" {
			more++
		}
	}
	return weir.CheckClips(more)
}

// CheckClipsOfViewers returns an error if viewers, or those of one network, may not have more clips of the
// content with the playback id in progress.
func (q *queries) CheckClipsOfViewers(ctx context.Context, userID, playbackID, network string, more int) error {
	clips, err := q.clipsInProgress(ctx, userID)
	if err != nil {
		return err
	}
	all, own := more, more
	for _, t := range clips {
		if t.Secrets.Viewer == "" || t.Params.Clip == nil || t.Params.Clip.ClipStrategy == nil || t.Params.Clip.ClipStrategy.PlaybackID != playbackID {
			continue
		}
		all++
		if t.Secrets.Viewer == network {
			own++
		}
	}
	return weir.CheckClipsOfViewers(all, own)
}

// LockAccount keeps others from changing an account, and from counting what it has before they add more, until
// the transaction ends.
func (tx *Tx) LockAccount(ctx context.Context, userID string) error {
	_, err := accounts.lock(ctx, tx, userID)
	return err
}

// CheckStorage returns an error if an account has used up its quota of storage, with so many bytes
// that the store does not know of yet.
func (q *queries) CheckStorage(ctx context.Context, userID string, unknown int64) error {
	u, err := q.User(ctx, userID)
	if err != nil {
		return err
	}
	if _, limited := u.Limit(weir.Storage); !limited {
		return nil
	}
	n, err := q.Used(ctx, userID, weir.Storage)
	if err != nil {
		return err
	}
	return u.CheckQuota(weir.Storage, n+unknown, 1)
}

// ReserveStorage counts bytes that are about to be stored for an asset, if its account may have
// them.
func (tx *Tx) ReserveStorage(ctx context.Context, assetID string, bytes int64) error {
	a, err := tx.Asset(ctx, assetID)
	if err != nil {
		return err
	}
	if err := tx.CheckQuota(ctx, a.UserID, weir.Storage, bytes-a.Stored); err != nil {
		return err
	}
	_, err = tx.UpdateAsset(ctx, assetID, func(a *weir.Asset) error {
		a.Stored = bytes
		return nil
	})
	return err
}
