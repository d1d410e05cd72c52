package api

import (
	"context"
	"net/http"
	"time"

	"weir/internal/blob"
	"weir/internal/store"
	"weir/internal/weir"
)

// showAsset returns a function that shows assets: with their tracks only if the request has
// `details`.
func (s *server) showAsset(r *request) func(weir.Asset) weir.Asset {
	base, details := s.addresses(r.Request), r.URL.Query().Get("details") != ""
	return func(a weir.Asset) weir.Asset {
		if !details {
			a = a.WithoutTracks()
		}
		return a.WithBase(base)
	}
}

// getAsset answers GET /asset/{id}.
func (s *server) getAsset(w http.ResponseWriter, r *request) error {
	asset, err := get(r, s.Store.Asset, r.PathValue("id"))
	if err != nil {
		return notFoundAs(err, "Asset not found")
	}
	return writeJSON(w, http.StatusOK, s.showAsset(r)(asset))
}

// listAssets answers GET /asset.
func (s *server) listAssets(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	q.Filters = append(q.Filters, equals(r.URL.Query(), "playbackId", "sourceUrl", "phase", "cid")...)
	for i, f := range q.Filters {
		if source, ok := f.Value.(string); ok && f.ID == "sourceUrl" {
			q.Filters[i].Value = weir.MaskURL(source) // as it is stored
		}
	}
	if r.URL.Query().Get("phase") == string(weir.AssetDeleting) {
		q.Deleted = true // only deleted assets are in this phase, and their owner may restore them
	}
	page, err := s.Store.Assets(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, s.showAsset(r))
}

// patchAsset answers PATCH /asset/{id}.
func (s *server) patchAsset(w http.ResponseWriter, r *request, patch weir.AssetPatch) error {
	ctx, events := r.Context(), weir.NewEventBatch(s.EventBase, time.Now())
	var asset weir.Asset
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		var export *weir.Task
		changed, err := changeTx(tx, r, r.PathValue("id"), (*store.Tx).UpdateAsset, func(_ *store.Tx, a *weir.Asset) error {
			if a.Deleted {
				return weir.ErrNotFound()
			}
			had := a.PlaybackPolicy
			if err := patch.Apply(a, events.Now); err != nil {
				return err
			}
			if patch.PlaybackPolicy.Set {
				if err := checkPolicyWebhook(ctx, tx, a.Owner(), had, a.PlaybackPolicy); err != nil {
					return err
				}
			}
			if patch.Storage == nil || !a.WantsOnIPFS(patch.Storage.IPFS) {
				return nil
			}
			if err := s.checkCopy(ctx, tx, "storage.ipfs", *a); err != nil {
				return err
			}
			if err := s.checkPending(ctx, tx, r.caller.UserID); err != nil {
				return err
			}
			spec := *patch.Storage.IPFS
			params := weir.IPFSExport{NFTMetadataTemplate: spec.NFTMetadataTemplate, NFTMetadata: spec.NFTMetadata}
			export = new(weir.NewExport(weir.ExportParams{IPFS: &params}, *a, r.caller, events.Now))
			a.StoreOnIPFS(spec, export.ID, events.Now)
			return nil
		})
		if err != nil {
			return err
		}
		asset = changed
		if export != nil {
			if err := tx.CreateTask(ctx, export); err != nil {
				return err
			}
			events.Task(weir.TaskSpawned, *export)
		}
		events.Asset(weir.AssetUpdated, asset)
		return tx.EmitBatch(ctx, events)
	})
	if err != nil {
		return notFoundAs(err, "asset not found")
	}
	return writeJSON(w, http.StatusOK, s.showAsset(r)(asset))
}

// deleteAsset answers DELETE /asset/{id}. The bytes are deleted later; until then it can be
// restored.
func (s *server) deleteAsset(w http.ResponseWriter, r *request) error {
	ctx, id, events := r.Context(), r.PathValue("id"), weir.NewEventBatch(s.EventBase, time.Now())
	check := func(a weir.Asset) error {
		if !r.caller.Owns(a.UserID, a.ProjectID) {
			return weir.ErrNotFound()
		}
		if a.Deleted {
			return weir.Errorf(weir.Refused, "asset is already deleted")
		}
		return nil
	}
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		before, err := tx.Asset(ctx, id)
		if err != nil {
			return err
		}
		if err := check(before); err != nil {
			return err
		}
		if err := endTasks(ctx, tx, id, events); err != nil {
			return err
		}
		if _, err := tx.UpdateAsset(ctx, id, func(a *weir.Asset) error {
			if err := check(*a); err != nil {
				return err
			}
			before = *a
			a.Delete(events.Now)
			return nil
		}); err != nil {
			return err
		}
		events.Asset(weir.AssetDeletedEvent, before)
		return tx.EmitBatch(ctx, events)
	})
	return noContent(w, notFoundAs(err, "Asset not found"))
}

// endTasks ends the tasks that make an asset which is being deleted.
func endTasks(ctx context.Context, tx *store.Tx, assetID string, events *weir.EventBatch) error {
	tasks, err := tx.Tasks(ctx, store.Query{Where: []store.Filter{{ID: "outputAssetId", Value: assetID}}, Limit: store.MaxLimit})
	if err != nil {
		return err
	}
	for _, task := range tasks.Items {
		ended := false
		t, err := tx.UpdateTask(ctx, task.ID, func(t *weir.Task) error {
			if ended = !t.Done(); ended {
				t.Fail("task cancelled, asset has been deleted", events.Now)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !ended {
			continue
		}
		if err := tx.CancelJobs(ctx, t.ID); err != nil {
			return err
		}
		events.Task(weir.TaskUpdated, t)
		events.Task(weir.TaskFailedEvent, t)
	}
	return nil
}

// restoreAsset answers POST /asset/{id}/restore.
func (s *server) restoreAsset(w http.ResponseWriter, r *request) error {
	ctx, events := r.Context(), weir.NewEventBatch(s.EventBase, time.Now())
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		asset, err := tx.UpdateAsset(ctx, r.PathValue("id"), func(a *weir.Asset) error {
			if !r.caller.Owns(a.UserID, a.ProjectID) {
				return weir.ErrNotFound()
			}
			return a.Restore(events.Now)
		})
		if err != nil {
			return err
		}
		events.Asset(weir.AssetUpdated, asset)
		return tx.EmitBatch(ctx, events)
	})
	return noContent(w, notFoundAs(err, "Asset not found"))
}

// exportAsset answers POST /asset/{id}/export.
func (s *server) exportAsset(w http.ResponseWriter, r *request, body weir.ExportParams) error {
	if to := body.Custom; to != nil {
		if err := s.CheckExport(blob.Delivery{URL: to.URL, Method: to.Method, Headers: to.Headers}); err != nil {
			return err
		}
	} else if body.IPFS.Pinata != nil {
		return weir.Errorf(weir.Invalid, "ipfs.pinata: this server does not write to Pinata; leave it out to store the copy where this server stores its uploads")
	}
	ctx, id, events := r.Context(), r.PathValue("id"), weir.NewEventBatch(s.EventBase, time.Now())
	var task weir.Task
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		asset, err := getPresent(r, tx.Asset, id)
		if err != nil {
			return err
		}
		if asset.Status.Phase != weir.AssetReady {
			return weir.Errorf(weir.NotReady, "asset is not ready to be exported")
		}
		if body.IPFS != nil {
			if err := s.checkCopy(ctx, tx, "ipfs", asset); err != nil {
				return err
			}
		}
		if err := s.checkPending(ctx, tx, r.caller.UserID); err != nil {
			return err
		}
		task = weir.NewExport(body, asset, r.caller, events.Now)
		if err := tx.CreateTask(ctx, &task); err != nil {
			return err
		}
		events.Task(weir.TaskSpawned, task)
		// The copy counts as the asset's own, as if `storage` had been changed.
		if body.IPFS != nil {
			asset, err := tx.UpdateAsset(ctx, id, func(a *weir.Asset) error {
				a.StoreOnIPFS(*task.IPFSSpec(), task.ID, events.Now)
				return nil
			})
			if err != nil {
				return err
			}
			events.Asset(weir.AssetUpdated, asset)
		}
		return tx.EmitBatch(ctx, events)
	})
	if err != nil {
		return notFoundAs(err, "Asset not found with id "+weir.Shorten(id, 100))
	}
	return writeJSON(w, http.StatusCreated, map[string]weir.Task{"task": task})
}

// retryAsset answers POST /asset/{id}/retry.
func (s *server) retryAsset(w http.ResponseWriter, r *request) error {
	ctx, id, events := r.Context(), r.PathValue("id"), weir.NewEventBatch(s.EventBase, time.Now())
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		asset, err := getPresent(r, tx.Asset, id)
		if err != nil {
			return err
		}
		if asset.Status.Phase != weir.AssetFailed {
			return weir.Errorf(weir.Refused, "Asset is not failed")
		}
		task, err := tx.TaskOfAsset(ctx, id)
		if weir.IsNotFound(err) {
			return weir.Errorf(weir.Refused, "task is not in a retryable state")
		}
		if err != nil {
			return err
		}
		task, err = tx.UpdateTask(ctx, task.ID, func(t *weir.Task) error { return t.Retry(events.Now) })
		if err != nil {
			return err
		}
		events.Task(weir.TaskUpdated, task)
		if err := afterRetry(ctx, tx, task, events); err != nil {
			return err
		}
		return tx.EmitBatch(ctx, events)
	})
	return noContent(w, notFoundAs(err, "Asset not found"))
}
