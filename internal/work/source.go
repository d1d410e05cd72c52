package work

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/weir"
)

// origin is a source file on this machine.
type origin struct {
	File   string `json:"-"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // of the caller's file, which may be encrypted
	Kept   bool   `json:"kept"`   // it stays in the asset's folder

	Manifest *publish.SourceManifest `json:"manifest,omitempty"` // of a signed source, if the outputs are signed
}

// storedBytes returns how many bytes of an asset are in weir's storage.
func storedBytes(ctx context.Context, in blob.Store, assetID string) (total int64, err error) {
	for info, err := range in.List(ctx, media.AssetFolder(assetID)) {
		if err != nil {
			return 0, err
		}
		total += info.Size
	}
	return total, nil
}

// sourceKey is the storage key of the source of an asset.
func sourceKey(assetID string) string { return media.AssetFolder(assetID) + "/video" }

// uploadFolder is the storage prefix of the parts of an upload.
func uploadFolder(assetID string) string { return "upload/" + assetID }

const spoolName = "source"

// fetch fetches the source of a task to this machine, unless an earlier attempt has.
func (w *Work) fetch(ctx context.Context, t weir.Task, state store.TaskState) (origin, error) {
	dir, err := w.dir(state)
	if err != nil {
		return origin{}, err
	}
	var o origin
	if state.Source != nil && json.Unmarshal(state.Source, &o) == nil {
		if o.File = w.present(t, o, dir); o.File != "" {
			return o, nil
		}
	}
	if err := errors.Join(blob.FreeSpaceAt(dir, w.MinFree, 0), blob.FreeSpace(ctx, w.Media, w.MinFree, 0)); err != nil {
		return origin{}, err
	}
	w.progress.note(t.ID, func(p *taskProgress) { p.step = stepFetching })
	spool := filepath.Join(dir, spoolName)
	switch {
	case t.Type == weir.TaskTranscode:
		return w.download(ctx, t, t.InputURL(), spool, nil)
	case t.Secrets.EncryptedKey != "":
		return w.fetchEncrypted(ctx, t, spool)
	case t.Params.Upload.URL != "":
		return w.fetchAsset(ctx, t, spool)
	}
	return w.collectUpload(ctx, t, spool)
}

// present returns the file of a source that was fetched before, or "".
func (w *Work) present(t weir.Task, o origin, dir string) string {
	file := filepath.Join(dir, spoolName)
	if o.Kept {
		if kept, ok := w.Media.Path(sourceKey(t.OutputAssetID)); ok {
			file = kept
		}
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 || o.Kept && info.Size() != o.Size {
		return ""
	}
	return file
}

// spaceStep is after how many bytes of a download the free space is checked again: others take some
// of it meanwhile.
const spaceStep = 16 << 20

// download fetches a URL to a file. With a key, it is decrypted.
func (w *Work) download(ctx context.Context, t weir.Task, url, spool string, key []byte) (origin, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	note := w.fetching(t.ID)
	var checked atomic.Int64 // bytes
	progress := func(done, total int64) {
		note(done, total)
		if last := checked.Load(); done-last < spaceStep || !checked.CompareAndSwap(last, done) {
			return
		}
		if err := blob.FreeSpaceAt(filepath.Dir(spool), w.MinFree, 0); err != nil {
			cancel(err)
		}
	}
	return writeSource(spool, key, func(to io.Writer) (origin, error) {
		got, err := w.fetcher(t.Owner()).Fetch(ctx, url, to, progress)
		if cause := context.Cause(ctx); err != nil && weir.KindOf(cause) == weir.Full {
			err = cause
		}
		return origin{Size: got.Size, SHA256: got.SHA256}, err
	})
}

// writeSource lets write fill a file, which is removed after an error. With a key, it is decrypted.
func writeSource(spool string, key []byte, write func(to io.Writer) (origin, error)) (_ origin, err error) {
	defer func() {
		if err != nil {
			_ = os.Remove(spool)
		}
	}()
	file, err := os.OpenFile(spool, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return origin{}, diskErr(err)
	}
	defer func() { _ = file.Close() }()
	var to io.WriteCloser = file
	if key != nil {
		if to, err = blob.Decrypt(file, key); err != nil {
			return origin{}, err
		}
	}
	o, err := write(to)
	if err == nil && key != nil {
		err = to.Close()
	}
	if err != nil {
		return origin{}, diskErr(err)
	}
	o.File = spool
	return o, diskErr(file.Close())
}

// fetching returns a function that notes the progress of a fetch.
func (w *Work) fetching(taskID string) func(done, total int64) {
	return func(done, total int64) {
		w.progress.note(taskID, func(p *taskProgress) {
			p.step = stepFetching
			if total > 0 {
				p.fetched = min(float64(done)/float64(total), 1)
			}
		})
	}
}

// fetchEncrypted fetches and decrypts a source. It is not kept: the caller does not want it to be
// stored unencrypted.
func (w *Work) fetchEncrypted(ctx context.Context, t weir.Task, spool string) (origin, error) {
	if w.Decrypt == nil {
		return origin{}, weir.Errorf(weir.Unavailable, "this server can't decrypt files")
	}
	key, err := w.Decrypt(t.Secrets.EncryptedKey)
	if err != nil {
		return origin{}, err
	}
	if t.Params.Upload.URL != "" {
		return w.download(ctx, t, t.InputURL(), spool, key)
	}
	parts, size, err := w.parts(ctx, t.OutputAssetID)
	if err != nil {
		return origin{}, err
	}
	return writeSource(spool, key, func(to io.Writer) (origin, error) { return w.copyHashed(ctx, t, to, parts, size) })
}

// copyHashed copies objects, which have a total size, and hashes them.
func (w *Work) copyHashed(ctx context.Context, t weir.Task, to io.Writer, objects []blob.Info, size int64) (origin, error) {
	sum := sha256.New()
	r := w.reading(ctx, t.ID, objects, size)
	defer func() { _ = r.Close() }()
	_, err := io.Copy(to, io.TeeReader(r, sum))
	return origin{Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
}

// fetchAsset fetches the source of an asset from a URL and keeps it in the asset's folder.
func (w *Work) fetchAsset(ctx context.Context, t weir.Task, spool string) (origin, error) {
	o, err := w.download(ctx, t, t.InputURL(), spool, nil)
	if err != nil {
		return origin{}, err
	}
	o.Kept = true
	o.File, err = blob.Adopt(ctx, w.Media, sourceKey(t.OutputAssetID), spool, blob.PutOptions{})
	return o, err
}

// collectUpload joins the parts of an upload, unless an earlier attempt has.
func (w *Work) collectUpload(ctx context.Context, t weir.Task, spool string) (origin, error) {
	key := sourceKey(t.OutputAssetID)
	// Before the parts: if it exists, all parts are in it, and some may be deleted already.
	info, err := w.Media.Stat(ctx, key)
	if err == nil {
		return w.joined(ctx, t, key, spool, info.Size)
	}
	if weir.KindOf(err) != weir.NotFound {
		return origin{}, err
	}
	parts, size, err := w.parts(ctx, t.OutputAssetID)
	if weir.KindOf(err) == weir.NotFound {
		return origin{}, weir.Errorf(weir.Invalid, "the uploaded file is no longer stored; request a new upload")
	}
	if err != nil {
		return origin{}, err
	}
	if len(parts) == 1 {
		err = w.Media.Copy(ctx, parts[0].Key, key)
	} else {
		r := w.reading(ctx, t.ID, parts, size)
		err = w.Media.Put(ctx, key, r, size, blob.PutOptions{})
		_ = r.Close()
	}
	if err != nil {
		return origin{}, err
	}
	return w.joined(ctx, t, key, spool, size)
}

// joined returns the source of an asset whose parts have been joined, and deletes them.
func (w *Work) joined(ctx context.Context, t weir.Task, key, spool string, size int64) (origin, error) {
	o, err := w.keptSource(ctx, t, key, spool, size)
	if err != nil {
		return origin{}, err
	}
	return o, w.Media.DeletePrefix(ctx, uploadFolder(t.OutputAssetID))
}

// keptSource hashes the source of an asset and copies it to this machine, unless it is there.
func (w *Work) keptSource(ctx context.Context, t weir.Task, key, spool string, size int64) (origin, error) {
	source := []blob.Info{{Key: key, Size: size}}
	var o origin
	var err error
	if file, ok := w.Media.Path(key); ok {
		o, err = w.copyHashed(ctx, t, io.Discard, source, size)
		o.File = file
	} else {
		o, err = writeSource(spool, nil, func(to io.Writer) (origin, error) { return w.copyHashed(ctx, t, to, source, size) })
	}
	o.Kept = true
	return o, err
}

// parts returns the parts of an upload in their order, or a NotFound error.
func (w *Work) parts(ctx context.Context, assetID string) (parts []blob.Info, size int64, err error) {
	for info, err := range w.Media.List(ctx, uploadFolder(assetID)) {
		if err != nil {
			return nil, 0, err
		}
		if _, err := strconv.ParseInt(path.Base(info.Key), 10, 64); err == nil {
			parts = append(parts, info)
		}
	}
	if len(parts) == 0 {
		return nil, 0, weir.ErrNotFound()
	}
	slices.SortFunc(parts, func(a, b blob.Info) int { return strings.Compare(a.Key, b.Key) })
	for _, p := range parts {
		if offset, _ := strconv.ParseInt(path.Base(p.Key), 10, 64); offset != size {
			return nil, 0, fmt.Errorf("upload of %s has a gap: the part at offset %d follows %d bytes", assetID, offset, size)
		}
		size += p.Size
	}
	return parts, size, nil
}

// reading returns a reader of several objects that notes the progress.
func (w *Work) reading(ctx context.Context, taskID string, objects []blob.Info, size int64) io.ReadCloser {
	return &objectReader{
		open: func(key string) (io.ReadCloser, error) {
			body, _, err := w.Media.Get(ctx, key, 0, -1)
			return body, err
		},
		objects: objects, size: size, progress: w.fetching(taskID),
	}
}

type objectReader struct {
	open     func(key string) (io.ReadCloser, error)
	objects  []blob.Info
	body     io.ReadCloser
	done     int64
	size     int64
	progress func(done, total int64)
}

func (r *objectReader) Read(p []byte) (int, error) {
	for {
		if r.body == nil {
			if len(r.objects) == 0 {
				return 0, io.EOF
			}
			body, err := r.open(r.objects[0].Key)
			if err != nil {
				return 0, err
			}
			r.body, r.objects = body, r.objects[1:]
		}
		n, err := r.body.Read(p)
		if n > 0 {
			r.done += int64(n)
			r.progress(r.done, r.size)
			return n, nil
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		if err := r.Close(); err != nil {
			return 0, err
		}
	}
}

func (r *objectReader) Close() error {
	if r.body == nil {
		return nil
	}
	body := r.body
	r.body = nil
	return body.Close()
}

// diskErr returns an error of kind Full if the disk is full.
func diskErr(err error) error {
	if err != nil && strings.Contains(err.Error(), "no space left on device") {
		return weir.Wrap(weir.Full, err, "there is not enough disk space")
	}
	return err
}
