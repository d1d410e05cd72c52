package work

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/store"
	"weir/internal/weir"
)

// assetCopy is the copy of an asset on IPFS that a task makes: its file, and the metadata for
// marketplaces. Nil = the task makes none.
type assetCopy struct {
	weir.IPFSCopy
	spec    weir.IPFSSpec
	task    weir.Task
	uploads []*upload
	bases   []string // of the uploads
}

// copyAsset makes the copy of an asset.
func (w *Work) copyAsset(ctx context.Context, t weir.Task, state store.TaskState, a weir.Asset, spec weir.IPFSSpec) (*assetCopy, error) {
	size, open, err := w.exported(ctx, a)
	if err != nil {
		return nil, err
	}
	c := &assetCopy{spec: spec, task: t}
	c.Served = w.IPFS.Kind == weir.IPFSLocal
	if c.CID, err = c.uploadFile(ctx, w, state, partVideo, size, open); err != nil {
		c.close()
		return nil, notSaved(err)
	}
	metadata, err := weir.NFTMetadataFile(a, spec, c.CID, w.Base)
	if err == nil {
		c.MetadataCID, err = c.uploadFile(ctx, w, state, partMetadata, int64(len(metadata)), func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(metadata)), nil
		})
	}
	if err != nil {
		c.close()
		return nil, notSaved(err)
	}
	return c, nil
}

// uploadFile uploads a file and returns its CID.
func (c *assetCopy) uploadFile(ctx context.Context, w *Work, state store.TaskState, part string, size int64, open func(context.Context) (io.ReadCloser, error)) (string, error) {
	u, err := w.openUpload(ctx, state, c.task, part)
	if err != nil {
		return "", err
	}
	c.uploads = append(c.uploads, u)
	const name = "file"
	staged, err := u.Stat(ctx, name)
	if err != nil && !weir.IsNotFound(err) {
		return "", err
	}
	if err != nil || staged.Size != size {
		body, err := open(ctx)
		if err != nil {
			return "", err
		}
		err = u.Put(ctx, name, body, size, blob.PutOptions{})
		_ = body.Close()
		if err != nil {
			return "", err
		}
	}
	base, err := u.Seal(ctx)
	c.bases = append(c.bases, base)
	return strings.TrimPrefix(base, weir.IPFSScheme), err
}

// complete makes the copy known, in the transaction that completes its task.
func (c *assetCopy) complete(ctx context.Context, tx *store.Tx, now time.Time) error {
	if c == nil {
		return nil
	}
	for i, u := range c.uploads {
		if err := u.complete(ctx, tx, c.bases[i], now); err != nil {
			return err
		}
	}
	return nil
}

// record writes the copy to its asset.
func (c *assetCopy) record(a *weir.Asset, now time.Time) {
	if c != nil {
		a.StoredOnIPFS(c.IPFSCopy, c.spec, c.task.ID, now)
	}
}

func (c *assetCopy) count() {
	if c != nil {
		for _, u := range c.uploads {
			u.count()
		}
	}
}

func (c *assetCopy) close() {
	if c != nil {
		for _, u := range c.uploads {
			_ = u.Close()
		}
	}
}

// copyAtCreation makes the copy that the request for an asset asked for.
func (p *publication) copyAtCreation(ctx context.Context, a weir.Asset) (*assetCopy, error) {
	if a.Storage == nil || a.Storage.IPFS == nil || a.Storage.IPFS.Spec == nil {
		return nil, nil
	}
	return p.copyAsset(ctx, p.task, p.state, a, *a.Storage.IPFS.Spec)
}

// exportToIPFS makes a copy of an asset that exists.
func (w *Work) exportToIPFS(ctx context.Context, job store.Job, t weir.Task, state store.TaskState, a weir.Asset) error {
	made, err := w.copyAsset(ctx, t, state, a, *t.IPFSSpec())
	if err != nil {
		return err
	}
	defer made.close()
	err = w.tx(ctx, job, func(tx *store.Tx, events *weir.EventBatch) error {
		output := &weir.TaskOutput{Export: &weir.ExportOutput{IPFS: made.Output(w.Base)}}
		if err := complete(ctx, tx, events, t.ID, output, nil); err != nil {
			return err
		}
		if err := made.complete(ctx, tx, events.Now); err != nil {
			return err
		}
		asset, err := tx.UpdateAsset(ctx, a.ID, func(a *weir.Asset) error {
			if a.Deleted { // it may be purged already; the next attempt fails
				return weir.Errorf(weir.Gone, messageDeleted)
			}
			made.record(a, events.Now)
			return nil
		})
		if err == nil {
			events.Asset(weir.AssetUpdated, asset)
		}
		return err
	})
	if err == nil {
		made.count()
	}
	return w.ended(ctx, t, err)
}

// processStorage shows on an asset that a task copies it.
func processStorage(ctx context.Context, tx *store.Tx, events *weir.EventBatch, t weir.Task, emits bool) error {
	if t.Type != weir.TaskExport || t.IPFSSpec() == nil {
		return nil
	}
	a, err := tx.UpdateAsset(ctx, t.InputAssetID, func(a *weir.Asset) error {
		a.ProcessStorage(t.ID, *t.Status.Progress)
		return nil
	})
	if weir.IsNotFound(err) {
		return nil
	}
	if err == nil && emits && !a.Deleted {
		events.Asset(weir.AssetUpdated, a)
	}
	return err
}
