package work

import (
	"context"
	"errors"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// purgeAccount removes a deleted account and everything that it has. It deletes bytes before the
// rows that name them, each with its row, so that it can be interrupted and repeated on any node.
// Nodes remove the files of sessions and tasks that they have themselves when the rows are gone.
func (w *Work) purgeAccount(ctx context.Context, job store.Job, id string) error {
	purging, err := w.Store.Purging(ctx, id)
	if err != nil || !purging {
		return err
	}
	open, err := w.Store.OpenSessionsOf(ctx, id)
	if err != nil {
		return err
	}
	if open > 0 { // its node closes it, or another one if that is gone
		return weir.Errorf(weir.Busy, "a session of the deleted account is still open")
	}
	failed := errors.Join(
		// Sessions first: that of an asset says whether there may be a recording without an asset.
		forEach(ctx, id, w.Store.Sessions, func(s weir.Session) error {
			if s.Recorded() {
				if err := w.Media.DeletePrefix(ctx, media.AssetFolder(s.ID)); err != nil {
					return err
				}
			}
			return w.Store.Tx(ctx, func(tx *store.Tx) error { return tx.ForgetSession(ctx, s.ID) })
		}),
		forEach(ctx, id, w.Store.Tasks, func(t weir.Task) error {
			if err := w.Media.DeletePrefix(ctx, "work/"+t.ID); err != nil {
				return err
			}
			return w.Store.Tx(ctx, func(tx *store.Tx) error { return tx.ForgetTask(ctx, t.ID) })
		}),
		forEach(ctx, id, w.Store.IPFSUploads, func(u weir.IPFSUpload) error { return w.removeUpload(ctx, job, u) }),
		forEach(ctx, id, w.Store.Assets, func(a weir.Asset) error {
			if err := w.purgeFiles(ctx, job, a); err != nil {
				return err
			}
			return w.Store.Tx(ctx, func(tx *store.Tx) error { return tx.ForgetAsset(ctx, a.ID) })
		}),
	)
	if failed != nil {
		return failed
	}
	if err := w.Store.ForgetUser(ctx, id); err != nil {
		return err
	}
	w.Log.InfoContext(ctx, "deleted account purged with its content", "user", id)
	return nil
}

// forEach calls do for all rows of a user. An error does not keep it from the other rows: storage of
// the user that is down must not keep weir from emptying its own.
func forEach[T any](ctx context.Context, userID string, list func(context.Context, store.Query) (store.Page[T], error), do func(T) error) error {
	var failed error
	q := store.Query{UserID: userID, Deleted: true, Order: "id-false", Limit: purgeLimit}
	for {
		page, err := list(ctx, q)
		if err != nil {
			return err
		}
		for _, row := range page.Items {
			if err := do(row); err != nil && failed == nil {
				failed = err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return failed
		}
	}
}
