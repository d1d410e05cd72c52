package work

import (
	"cmp"
	"context"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/ipfs"
	"weir/internal/store"
	"weir/internal/weir"
)

// IPFS is where outputs of tasks and copies of assets go on IPFS.
type IPFS struct {
	Kind string // weir.IPFSLocal, weir.IPFSKubo or weir.IPFSUCAN
	// Open returns the space for which a task that was created then has a proof. Without a proof it is
	// that of this service.
	Open func(proof string, created time.Time) (Space, error)
	// Source finds files at ipfs:// addresses, among the uploads that an owner may read and elsewhere; nil =
	// they are read from gateways.
	Source func(weir.Owner) func(ctx context.Context, cid, path string) (blob.Content, error)
	// Unpin removes the pin of a root on the IPFS node; nil = there is no node.
	Unpin func(ctx context.Context, root string) error
}

// Space is the owner of uploads.
type Space struct {
	DID    string
	Remote func(uploadID string) (ipfs.Remote, error) // takes the CAR files of an upload
}

// fetcher returns the reader of the source of a task.
func (w *Work) fetcher(o weir.Owner) *blob.Fetcher {
	f := *w.Fetcher
	if w.IPFS.Source != nil {
		f.IPFS = w.IPFS.Source(o)
	}
	return &f
}

// The parts of the result of a task that are uploads of their own.
const (
	partOutputs  = ""
	partVideo    = "video"    // the file of an asset
	partMetadata = "metadata" // what describes it to marketplaces
)

// upload is an upload to IPFS that is being made. Its files are staged in weir's own storage, in a folder that
// is deleted with the run of the task.
type upload struct {
	blob.Dest
	work   *Work
	row    weir.IPFSUpload
	task   weir.Task
	prefix string // of the staged files
	// saved is called when all files are staged.
	saved func(ctx context.Context) error
}

// openUpload returns the upload of a part of a task's result.
func (w *Work) openUpload(ctx context.Context, state store.TaskState, t weir.Task, part string) (*upload, error) {
	if w.IPFS.Open == nil {
		return nil, weir.Errorf(weir.Unavailable, "this server has no IPFS node or upload service (--ipfs)")
	}
	space, err := w.IPFS.Open(t.Secrets.Proof, t.CreatedAt.Time())
	if err != nil {
		return nil, err
	}
	dir, err := w.dir(state)
	if err != nil {
		return nil, err
	}
	now := weir.At(time.Now())
	u := &upload{work: w, task: t, prefix: store.TaskDir(t.ID, state.Run) + "/ipfs" + part, row: weir.IPFSUpload{
		ID: weir.NewID(), UserID: t.UserID, ProjectID: t.ProjectID, TaskID: t.ID, AssetID: cmp.Or(t.OutputAssetID, t.InputAssetID),
		Space: space.DID, Remote: w.IPFS.Kind, Run: state.Run, Part: part, CreatedAt: now, UpdatedAt: now,
	}}
	if err := w.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		u.row, err = tx.OpenIPFSUpload(ctx, u.row)
		return err
	}); err != nil {
		return nil, ownError{err}
	}
	remote, err := space.Remote(u.row.ID)
	if err != nil {
		return nil, err
	}
	u.Dest = ipfs.NewDest(ipfs.DestOptions{
		Staging: w.Media, Prefix: u.prefix, Scratch: dir, Remote: sizedRemote{remote, u}, Single: part != partOutputs,
		Progress: func(share float64) {
			w.progress.note(t.ID, func(p *taskProgress) {
				p.step = stepUploading
				if part == partVideo && t.Type == weir.TaskExport {
					p.fetched, p.prepared, p.published = 1, 1, share
				}
			})
		},
	})
	return u, nil
}

// Seal checks that there is room for the upload, and sends it.
func (u *upload) Seal(ctx context.Context) (string, error) {
	if u.saved != nil {
		if err := u.saved(ctx); err != nil {
			return "", err
		}
	}
	if u.row.Remote == weir.IPFSLocal {
		if err := u.reserve(ctx); err != nil {
			return "", err
		}
	}
	return u.Dest.Seal(ctx)
}

// reserve counts the bytes of the upload, which weir is about to store.
func (u *upload) reserve(ctx context.Context) error {
	var staged int64
	for info, err := range u.work.Media.List(ctx, u.prefix) {
		if err != nil {
			return err
		}
		staged += info.Size
	}
	if err := blob.FreeSpace(ctx, u.work.Media, u.work.MinFree, staged); err != nil {
		return err
	}
	err := u.work.Store.Tx(ctx, func(tx *store.Tx) error { return tx.ReserveIPFSUpload(ctx, u.row.ID, staged) })
	if err != nil && weir.KindOf(err) != weir.Denied {
		return ownError{err}
	}
	return err
}

// sizedRemote records the size of an upload.
type sizedRemote struct {
	ipfs.Remote
	upload *upload
}

func (r sizedRemote) Finish(ctx context.Context, root string, shards []ipfs.Shard) error {
	if err := r.Remote.Finish(ctx, root, shards); err != nil {
		return err
	}
	err := r.upload.work.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateIPFSUpload(ctx, r.upload.row.ID, func(u *weir.IPFSUpload) error {
			u.Size, u.Shards = 0, len(shards)
			for _, s := range shards {
				u.Size += s.Size
			}
			return nil
		})
		return err
	})
	if err != nil {
		return ownError{err}
	}
	return nil
}

// complete makes the upload known, in the transaction that completes its task. base is the result of
// Seal.
func (u *upload) complete(ctx context.Context, tx *store.Tx, base string, now time.Time) error {
	done, err := tx.CompleteIPFSUpload(ctx, u.row.ID, strings.TrimPrefix(base, weir.IPFSScheme), now)
	u.row = done
	return err
}

// count counts a completed upload.
func (u *upload) count() {
	u.work.uploads.Add(1)
	u.work.uploadedBytes.Add(u.row.Size)
}

// purgeUpload removes an upload that was deleted.
func (w *Work) purgeUpload(ctx context.Context, job store.Job, id string) error {
	u, err := w.Store.IPFSUpload(ctx, id)
	if weir.IsNotFound(err) || err == nil && !u.Deleted {
		return nil
	}
	if err != nil {
		return err
	}
	return w.removeUpload(ctx, job, u)
}

// removeUpload removes an upload with its bytes. What an upload service has stays in the caller's space.
func (w *Work) removeUpload(ctx context.Context, job store.Job, u weir.IPFSUpload) error {
	if err := w.Media.DeletePrefix(ctx, ipfs.Folder(u.ID)); err != nil {
		return err
	}
	if u.Remote == weir.IPFSKubo && u.Complete {
		if err := w.retryOrLog(ctx, job, w.unpin(ctx, u)); err != nil {
			return err
		}
	}
	return w.Store.ForgetIPFSUpload(ctx, u.ID)
}

// unpin removes the pin of an upload on the IPFS node, unless another one has the same content.
func (w *Work) unpin(ctx context.Context, u weir.IPFSUpload) error {
	pinned, err := w.Store.Pinned(ctx, u.Root, u.ID)
	if err != nil || pinned {
		return err
	}
	if w.IPFS.Unpin == nil {
		return weir.Errorf(weir.Unavailable, "%s can't be unpinned: this server has no IPFS node any more (--ipfs)", u.Root)
	}
	return w.IPFS.Unpin(ctx, u.Root)
}

// removeUploads removes uploads.
func (w *Work) removeUploads(ctx context.Context, job store.Job, uploads []weir.IPFSUpload, err error) error {
	for _, u := range uploads {
		if err == nil {
			err = w.removeUpload(ctx, job, u)
		}
	}
	return err
}
