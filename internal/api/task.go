package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// taskID is the response of a call that changed a task.
type taskID struct {
	ID string `json:"id"`
}

// changeTask changes a task of the caller and then its asset, and answers with its id. Every
// transaction that changes both a task and an asset locks the task first, so that they can't
// deadlock.
func (s *server) changeTask(w http.ResponseWriter, r *request, change func(tx *store.Tx, t *weir.Task) error, follow func(ctx context.Context, tx *store.Tx, t weir.Task, events *weir.EventBatch) error) error {
	ctx := r.Context()
	var task weir.Task
	err := s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		if task, err = changeTx(tx, r, r.PathValue("id"), (*store.Tx).UpdateTask, change); err != nil {
			return err
		}
		events := weir.NewEventBatch(s.EventBase, time.Now())
		events.Task(weir.TaskUpdated, task)
		if err := follow(ctx, tx, task, events); err != nil {
			return err
		}
		return tx.EmitBatch(ctx, events)
	})
	if err != nil {
		return notFoundAs(err, "task not found")
	}
	return writeJSON(w, http.StatusOK, taskID{task.ID})
}

// retryTask answers POST /task/{id}/retry.
func (s *server) retryTask(w http.ResponseWriter, r *request) error {
	ctx, now := r.Context(), time.Now()
	change := func(tx *store.Tx, t *weir.Task) error {
		if err := checkAssets(ctx, tx, t); err != nil {
			return err
		}
		if err := t.Retry(now); err != nil {
			return err
		}
		return s.checkProof(*t)
	}
	return s.changeTask(w, r, change, afterRetry)
}

// checkAssets checks that the assets of a task still exist.
func checkAssets(ctx context.Context, tx *store.Tx, t *weir.Task) error {
	for _, id := range []string{t.InputAssetID, t.OutputAssetID} {
		if id == "" {
			continue
		}
		a, err := tx.Asset(ctx, id)
		if weir.IsNotFound(err) || err == nil && a.Deleted {
			return &weir.Error{Kind: weir.Refused, Messages: []string{"task is not in a retryable state", "its asset has been deleted"}}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// afterRetry sets the asset of a task that is retried to waiting.
func afterRetry(ctx context.Context, tx *store.Tx, t weir.Task, events *weir.EventBatch) error {
	if t.Type == weir.TaskClip { // clips do not wait to be admitted
		if err := tx.LockAccount(ctx, t.UserID); err != nil {
			return err
		}
		if err := tx.CheckClips(ctx, t.UserID, 0); err != nil {
			return err
		}
		if err := tx.EnqueueClip(ctx, t, time.Time{}); err != nil {
			return err
		}
	}
	id := cmp.Or(t.OutputAssetID, t.InputAssetID)
	if id == "" {
		return nil
	}
	changed := false
	asset, err := tx.UpdateAsset(ctx, id, func(a *weir.Asset) error {
		switch spec := t.IPFSSpec(); {
		case t.OutputAssetID != "" && a.Status.Phase == weir.AssetFailed:
			a.Requeue(events.Now)
			changed = true
		case t.Type == weir.TaskExport && spec != nil && a.Storage != nil && a.Storage.Status != nil && a.Storage.Status.Tasks.Failed == t.ID:
			a.StoreOnIPFS(*spec, t.ID, events.Now)
			changed = true
		}
		return nil
	})
	if err == nil && changed {
		events.Asset(weir.AssetUpdated, asset)
	}
	return err
}

// cancelTask answers POST /task/{id}/cancel.
func (s *server) cancelTask(w http.ResponseWriter, r *request) error {
	change := func(_ *store.Tx, t *weir.Task) error { return t.Cancel(time.Now()) }
	return s.changeTask(w, r, change, func(ctx context.Context, tx *store.Tx, t weir.Task, events *weir.EventBatch) error {
		return tx.FailResult(ctx, t, "cancelled", events)
	})
}
