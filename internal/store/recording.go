package store

import (
	"context"
	"slices"

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

// adoptRecording lets this node make the recording of a session whose node is gone, if it
// can: to the one that is, it may be long.
func (tx *Tx) adoptRecording(b *broadcast) {
	if tx.store.adopt && b.session.Recorded() && b.air.Node != tx.store.node.id {
		b.session.Move(&b.air)
		b.air.Node = tx.store.node.id
	}
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
	if slices.ContainsFunc(session.Earlier, func(l weir.Period) bool { return l.Lost }) {
		return true, nil // the asset does not have all that was recorded
	}
	asset, exists, err := found(q.Asset(ctx, sessionID))
	if err != nil || !exists {
		return true, err
	}
	return asset.Status.Phase == weir.AssetWaiting || asset.Status.Phase == weir.AssetFailed, nil
}
