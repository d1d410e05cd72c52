package store

import (
	"context"

	"weir/internal/weir"
)

// keepRecording asks the node that has the files of a session that has ended to make its
// asset of them.
func (tx *Tx) keepRecording(ctx context.Context, b *broadcast) error {
	if !b.session.Recorded() {
		return nil
	}
	return tx.Enqueue(ctx, JobRecording, b.session.ID+"/"+b.air.Node)
}

// NeedsFiles reports whether the files that a node has of a session may still be needed:
// the session is open, or its asset is still to be made of them, or could not be.
func (q *queries) NeedsFiles(ctx context.Context, sessionID string) (bool, error) {
	session, exists, err := found(q.Session(ctx, sessionID))
	if err != nil || !exists {
		return false, err
	}
	open, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM live WHERE session_id = $1", sessionID)
	if err != nil || open > 0 {
		return true, err
	}
	if !session.Recorded() {
		return false, nil
	}
	if session.Moved {
		return true, nil // the asset has only what the last node recorded; nothing joins the parts yet
	}
	asset, exists, err := found(q.Asset(ctx, sessionID))
	if err != nil || !exists {
		return true, err
	}
	return asset.Status.Phase == weir.AssetWaiting || asset.Status.Phase == weir.AssetFailed, nil
}
