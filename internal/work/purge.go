package work

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// sourceTrack is the folder of the source's video below its prefix.
const sourceTrack = "source"

// purgeAttempts is the maximum number of attempts to delete files in a caller's storage.
const purgeAttempts = 10

// purge handles store.JobPurge: it deletes the files of a deleted or failed asset, the working files
// of a task, a deleted account, or an upload to IPFS.
func (w *Work) purge(ctx context.Context, job store.Job) error {
	p, err := store.PurgeRef(job.Ref)
	switch {
	case err != nil:
		return err
	case p.AssetID != "":
		return w.purgeAsset(ctx, job, p.AssetID)
	case p.UserID != "":
		return w.purgeAccount(ctx, job, p.UserID)
	case p.UploadID != "":
		return w.purgeUpload(ctx, job, p.UploadID)
	}
	return w.purgeTask(ctx, job, p.TaskID, p.Run)
}

func (w *Work) purgeAsset(ctx context.Context, job store.Job, id string) error {
	asset, err := w.Store.Asset(ctx, id)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return err
	}
	deleted := err != nil || asset.Status.Phase == weir.AssetDeleted
	if !deleted && asset.Status.Phase != weir.AssetFailed { // failed: it was never uploaded
		return nil
	}
	asset.ID = id
	return w.purgeFiles(ctx, job, asset)
}

// purgeFiles deletes all files of an asset.
func (w *Work) purgeFiles(ctx context.Context, job store.Job, a weir.Asset) error {
	for _, folder := range []string{uploadFolder(a.ID), media.AssetFolder(a.ID)} {
		if err := w.Media.DeletePrefix(ctx, folder); err != nil {
			return err
		}
	}
	copies, err := w.Store.IPFSUploadsOfAsset(ctx, a.ID)
	if err := w.removeUploads(ctx, job, copies, err); err != nil {
		return err
	}
	if a.ObjectStoreID == "" {
		return nil
	}
	return w.retryOrLog(ctx, job, w.purgeElsewhere(ctx, a))
}

// purgeElsewhere deletes the files of an asset in the object store of its owner.
func (w *Work) purgeElsewhere(ctx context.Context, a weir.Asset) error {
	o, err := w.Store.ObjectStore(ctx, a.ObjectStoreID)
	if o.Deleted || weir.KindOf(err) == weir.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	dest, err := blob.Open(o.URL.Reveal(), w.Caller)
	if err != nil {
		return err
	}
	defer func() { _ = dest.Close() }()
	return dest.DeletePrefix(ctx, a.PlaybackID)
}

// purgeTask deletes the working files of a run of a task, and unfinished outputs in other storage.
func (w *Work) purgeTask(ctx context.Context, job store.Job, id string, run int) error {
	t, err := w.Store.Task(ctx, id)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return err
	}
	known := err == nil
	// weir's own storage first: it must not wait for another one, which may be down for long.
	if err := w.Media.DeletePrefix(ctx, store.TaskDir(id, run)); err != nil {
		return err
	}
	unfinished, err := w.Store.IPFSUploadsOfTask(ctx, id, run)
	if err := w.removeUploads(ctx, job, unfinished, err); err != nil {
		return err
	}
	state, err := w.Store.TaskState(ctx, id)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return err
	}
	if known && err == nil && state.Run == run && t.Status.Phase != weir.TaskCompleted {
		if err := w.retryOrLog(ctx, job, w.abort(ctx, t, state)); err != nil {
			return err
		}
	}
	if known && t.Status.Phase == weir.TaskCompleted && t.OutputAssetID != "" {
		if err := w.dropUnplayed(ctx, t, state, run); err != nil {
			return err
		}
	}
	return w.Store.Tx(ctx, func(tx *store.Tx) error { return tx.ClearTaskState(ctx, id, run) })
}

// dropUnplayed deletes files of an asset that are not played, and counts what is left.
func (w *Work) dropUnplayed(ctx context.Context, t weir.Task, state store.TaskState, run int) error {
	if err := w.dropSource(ctx, t, state, run); err != nil {
		return err
	}
	stored, err := storedBytes(ctx, w.Media, t.OutputAssetID)
	if err != nil {
		return err
	}
	return w.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(ctx, t.OutputAssetID, func(a *weir.Asset) error {
			if a.Status.Phase != weir.AssetDeleted {
				a.Stored = stored
			}
			return nil
		})
		if weir.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// dropSource deletes the tracks of the source of an asset, and an encrypted upload, which is not
// kept.
func (w *Work) dropSource(ctx context.Context, t weir.Task, state store.TaskState, run int) error {
	if err := w.Media.DeletePrefix(ctx, uploadFolder(t.OutputAssetID)); err != nil {
		return err
	}
	var plan vod.Plan
	if state.Run != run || state.Plan == nil || json.Unmarshal(state.Plan, &plan) != nil {
		return nil
	}
	for _, audio := range plan.Source.Audio {
		remove := w.Media.Delete
		if audio.AsTrack {
			remove = w.Media.DeletePrefix
		}
		if err := remove(ctx, plan.Source.Prefix+"/"+audio.Dir); err != nil {
			return err
		}
	}
	if passesThrough(plan) {
		return nil
	}
	return w.Media.DeletePrefix(ctx, plan.Source.Prefix+"/"+sourceTrack)
}

// abort deletes unfinished outputs of a task.
func (w *Work) abort(ctx context.Context, t weir.Task, state store.TaskState) error {
	var done published
	if state.Publication == nil || json.Unmarshal(state.Publication, &done) != nil || done.Files == nil || t.OnIPFS() {
		return nil
	}
	var o weir.ObjectStore
	var a weir.Asset
	if t.OutputAssetID != "" {
		var err error
		if a, err = w.Store.Asset(ctx, t.OutputAssetID); err == nil && a.ObjectStoreID != "" {
			o, err = w.Store.ObjectStore(ctx, a.ObjectStoreID)
		}
		if err != nil {
			return err
		}
	}
	outputs, closeDest, err := w.outputs(ctx, state, t, o)
	if err != nil {
		return err
	}
	defer closeDest()
	if t.OutputAssetID != "" {
		outputs.Formats = assetFormats(a, true)
	}
	return outputs.Abort(ctx, done.Files)
}

// retryOrLog returns an error of a caller's storage for another attempt, or logs it after the last
// one: it must not block the purge forever.
func (w *Work) retryOrLog(ctx context.Context, job store.Job, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if weir.Retriable(err) && job.Attempt < purgeAttempts {
		return err
	}
	w.Log.WarnContext(ctx, "files in a caller's storage could not be deleted; they stay there", "ref", job.Ref, "err", err)
	return nil
}

const (
	// foldersEvery is the interval of checks of the folders of tasks.
	foldersEvery = 10 * time.Second
	// purgeEvery is the interval of purgeOld, purgeLimit the maximum number of items at once.
	purgeEvery = time.Minute
	purgeLimit = 100
	// A task without a job for this time starts again.
	stalledAfter = 2 * time.Minute
)

// cleanUp deletes folders and expires assets and uploads until ctx ends.
func (w *Work) cleanUp(ctx context.Context) {
	tick := time.NewTicker(foldersEvery)
	defer tick.Stop()
	var purged time.Time
	for {
		if err := w.deleteEndedFolders(ctx); err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "folders of ended tasks could not be deleted", "err", err)
		}
		if time.Since(purged) >= purgeEvery {
			purged = time.Now()
			if err := w.purgeOld(ctx); err != nil && ctx.Err() == nil {
				w.Log.WarnContext(ctx, "deleted content and expired uploads could not be purged; retrying in a minute", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// deleteEndedFolders deletes the folders of tasks that have ended, maybe while this node was down.
func (w *Work) deleteEndedFolders(ctx context.Context) error {
	folders, err := os.ReadDir(w.Dir)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		t, err := w.Store.Task(ctx, folder.Name())
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return err
		}
		if err == nil && !t.Done() {
			continue
		}
		w.local.unlessBusy(folder.Name(), func() { err = os.RemoveAll(filepath.Join(w.Dir, folder.Name())) })
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return err
		}
	}
	return nil
}

// purgeOld purges assets and accounts that were deleted long ago, expires uploads, and restarts
// stalled tasks.
func (w *Work) purgeOld(ctx context.Context) error {
	now := time.Now()
	if err := w.Store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := tx.PurgeDeletedAssets(ctx, now.Add(-w.DeleteGrace), now, purgeLimit); err != nil {
			return err
		}
		_, err := tx.PurgeDeletedAccounts(ctx, now.Add(-w.DeleteGrace), purgeLimit)
		return err
	}); err != nil {
		return err
	}
	expired, err := w.Store.ExpiredUploads(ctx, now.Add(-w.UploadExpiry), purgeLimit)
	if err != nil {
		return err
	}
	for _, a := range expired {
		if err := w.expire(ctx, a.ID); err != nil {
			return err
		}
	}
	stalled, err := w.Store.StalledTasks(ctx, weir.At(now.Add(-stalledAfter)))
	if err != nil {
		return err
	}
	for _, id := range stalled {
		w.Log.WarnContext(ctx, "task had no job and is restarted", "task", id)
		if err := w.Store.Tx(ctx, func(tx *store.Tx) error { return tx.RestartTask(ctx, id) }); err != nil {
			return err
		}
	}
	return nil
}

// expire fails an asset that was not uploaded in time.
func (w *Work) expire(ctx context.Context, assetID string) error {
	text := "the file was not uploaded within " + w.UploadExpiry.String() + "; request a new upload"
	return w.Store.Tx(ctx, func(tx *store.Tx) error {
		events := weir.NewEventBatch(w.Base, time.Now())
		t, err := tx.TaskOfAsset(ctx, assetID)
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return err
		}
		if err == nil {
			changed := false
			if t, err = tx.UpdateTask(ctx, t.ID, func(t *weir.Task) error {
				if changed = t.Status.Phase == weir.TaskPending; changed {
					t.Fail(text, events.Now)
				}
				return nil
			}); err != nil {
				return err
			}
			if !changed {
				return nil // it was uploaded meanwhile
			}
			events.Task(weir.TaskUpdated, t)
			events.Task(weir.TaskFailedEvent, t)
		}
		a, err := tx.UpdateAsset(ctx, assetID, func(a *weir.Asset) error {
			if a.Status.Phase == weir.AssetUploading {
				a.Fail(text, events.Now)
				a.Stored = 0
			}
			return nil
		})
		if err != nil {
			return err
		}
		if a.Status.Phase == weir.AssetFailed {
			events.Asset(weir.AssetUpdated, a)
			events.Asset(weir.AssetFailedEvent, a)
			if err := tx.PurgeUpload(ctx, assetID); err != nil {
				return err
			}
		}
		return tx.EmitBatch(ctx, events)
	})
}
