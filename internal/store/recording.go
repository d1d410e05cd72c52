package store

import (
	"context"
	"slices"

	"weir/internal/weir"
)

// keepRecording enqueues the job that makes the asset of a session that has ended, on the node that
// has the files.
func (tx *Tx) keepRecording(ctx context.Context, b *broadcast) error {
	if !b.session.Recorded() {
		return nil
	}
	return tx.Enqueue(ctx, JobRecording, b.session.ID+"/"+b.air.Node)
}

// adoptRecording lets this node make the recording of a session whose node is dead, if it can: that
// node may not come back for a long time.
func (tx *Tx) adoptRecording(b *broadcast) {
	if tx.store.adopt && b.session.Recorded() && b.air.Node != tx.store.node.id {
		b.session.Move(&b.air)
		b.air.Node = tx.store.node.id
	}
}

// NeedsFiles reports whether the files of a session may still be needed: the session is open, or
// its asset is not made of them yet, or could not be made.
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
	if slices.ContainsFunc(session.Earlier, func(p weir.Period) bool { return p.Lost }) {
		return true, nil // the asset does not have the whole recording
	}
	asset, exists, err := found(q.Asset(ctx, sessionID))
	if err != nil || !exists {
		return true, err
	}
	return asset.Status.Phase == weir.AssetWaiting || asset.Status.Phase == weir.AssetFailed, nil
}
