package api

import (
	"context"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// ownTask turns a task that the caller may not see into one that does not exist.
func ownTask(r *request, t weir.Task, err error) (weir.Task, error) {
	if err == nil && !r.caller.Owns(t.UserID, t.ProjectID) {
		err = weir.ErrNotFound()
	}
	return t, err
}

// taskID is the answer of a call that changed a task.
type taskID struct {
	ID string `json:"id"`
}

// getTask answers GET /task/{id}.
func (s *server) getTask(w http.ResponseWriter, r *request) error {
	task, err := s.Store.Task(r.Context(), r.PathValue("id"))
	if task, err = ownTask(r, task, err); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, task)
}

// listTasks answers GET /task.
func (s *server) listTasks(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	page, err := s.Store.Tasks(r.Context(), q)
	if err != nil {
		return err
	}
	show := func(t weir.Task) weir.Task { return t }
	owner := func(t weir.Task) (string, bool) { return t.UserID, false }
	return writeOwned(s, w, r, q, page, show, owner)
}

// changeTask changes a task of the caller's and then what depends on it, and answers
// with its id. Every transaction that changes both a task and an asset takes the
// task first, so that no two of them wait for one another.
func (s *server) changeTask(w http.ResponseWriter, r *request, change func(tx *store.Tx, t *weir.Task) error, follow func(ctx context.Context, tx *store.Tx, t weir.Task, events *weir.EventBatch) error) error {
	ctx := r.Context()
	var task weir.Task
	err := s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		task, err = tx.UpdateTask(ctx, r.PathValue("id"), func(t *weir.Task) error {
			if _, err := ownTask(r, *t, nil); err != nil {
				return err
			}
			return change(tx, t)
		})
		if err != nil {
			return err
		}
		events := weir.NewEventBatch(s.EventBase, time.Now())
		events.Task(weir.TaskUpdated, task)
		if err := follow(ctx, tx, task, events); err != nil {
			return err
		}
		return tx.EmitBatch(ctx, events)
	})
	if isNotFound(err) {
		return weir.Errorf(weir.NotFound, "task not found")
	}
	if err != nil {
		return err
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
		return t.Retry(now)
	}
	return s.changeTask(w, r, change, afterRetry)
}

// checkAssets checks that what a task works on and what it makes is still there.
func checkAssets(ctx context.Context, tx *store.Tx, t *weir.Task) error {
	for _, id := range []string{t.InputAssetID, t.OutputAssetID} {
		if id == "" {
			continue
		}
		a, err := tx.Asset(ctx, id)
		if isNotFound(err) || err == nil && a.Deleted {
			return &weir.Error{Kind: weir.Refused, Messages: []string{"task is not in a retryable state", "its asset has been deleted"}}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// afterRetry makes the asset of a task that waits again wait with it.
func afterRetry(ctx context.Context, tx *store.Tx, t weir.Task, events *weir.EventBatch) error {
	id := t.OutputAssetID
	if id == "" {
		id = t.InputAssetID
	}
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
		return afterFailure(ctx, tx, t, "cancelled", events)
	})
}

// afterFailure ends what a task was to make.
func afterFailure(ctx context.Context, tx *store.Tx, t weir.Task, message string, events *weir.EventBatch) error {
	if t.OutputAssetID == "" {
		return failStorage(ctx, tx, t, message, events)
	}
	return tx.FailAsset(ctx, t.OutputAssetID, message, events)
}

// failStorage notes on an asset that the task which was to copy it did not.
func failStorage(ctx context.Context, tx *store.Tx, t weir.Task, message string, events *weir.EventBatch) error {
	if t.Type != weir.TaskExport {
		return nil
	}
	pending := false
	asset, err := tx.UpdateAsset(ctx, t.InputAssetID, func(a *weir.Asset) error {
		if pending = a.Storage != nil && a.Storage.Status != nil && a.Storage.Status.Tasks.Pending == t.ID; !pending {
			return nil
		}
		var earlier *weir.IPFSSpec
		if last := a.Storage.Status.Tasks.Last; last != "" {
			done, err := tx.Task(ctx, last)
			if orGone(err) != nil {
				return err
			}
			earlier = done.IPFSSpec()
		}
		a.FailStorage(t.ID, message, earlier, events.Now)
		return nil
	})
	if err == nil && pending {
		events.Asset(weir.AssetUpdated, asset)
	}
	return orGone(err)
}

// orGone passes over what is not there any more.
func orGone(err error) error {
	if isNotFound(err) {
		return nil
	}
	return err
}
