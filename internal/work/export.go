package work

import (
	"context"
	"io"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// export sends the file of an asset to a URL of its owner or to IPFS.
func (w *Work) export(ctx context.Context, job store.Job, t weir.Task, state store.TaskState) error {
	if t.Params.Export == nil {
		return weir.Errorf(weir.Invalid, "the task has no destination")
	}
	asset, err := w.Store.Asset(ctx, t.InputAssetID)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return ownError{err}
	}
	if err != nil || asset.Deleted {
		return weir.Errorf(weir.Gone, messageDeleted)
	}
	if t.Params.Export.Custom == nil {
		return w.exportToIPFS(ctx, job, t, state, asset)
	}
	if t.Secrets.ExportURL == "" {
		return weir.Errorf(weir.Invalid, "the credentials of the task are deleted, because it ended long ago; send the request again")
	}
	size, open, err := w.exported(ctx, asset)
	if err != nil {
		return err
	}
	if err := blob.Send(ctx, blob.Delivery{
		URL: t.Secrets.ExportURL, Method: t.Params.Export.Custom.Method, Headers: t.Secrets.ExportHeaders, Size: size,
		Body: func(ctx context.Context) (io.ReadCloser, error) {
			body, err := open(ctx)
			return &sending{ReadCloser: body, size: size, note: func(share float64) {
				w.progress.note(t.ID, func(p *taskProgress) { p.step, p.fetched, p.prepared, p.published = stepSending, 1, 1, share })
			}}, err
		},
	}, w.Caller); err != nil {
		return err
	}
	return w.ended(ctx, t, w.tx(ctx, job, func(tx *store.Tx, events *weir.EventBatch) error {
		return complete(ctx, tx, events, t.ID, &weir.TaskOutput{Export: &weir.ExportOutput{}}, nil)
	}))
}

// exported returns the file of an asset: its source, or for a recording or a clip an MP4 file made of
// its segments.
func (w *Work) exported(ctx context.Context, a weir.Asset) (size int64, open func(context.Context) (io.ReadCloser, error), err error) {
	if a.Segmented() {
		file, err := media.RecordingFile(ctx, w.Media, media.AssetFolder(a.ID))
		if err != nil {
			return 0, nil, err
		}
		return file.Size(), func(ctx context.Context) (io.ReadCloser, error) { return file.Reader(ctx), nil }, nil
	}
	info, err := w.Media.Stat(ctx, sourceKey(a.ID))
	if weir.KindOf(err) == weir.NotFound {
		return 0, nil, weir.Errorf(weir.Invalid, "weir does not keep the source file of an encrypted asset; download one of its renditions")
	}
	if err != nil {
		return 0, nil, err
	}
	return info.Size, func(ctx context.Context) (io.ReadCloser, error) {
		body, _, err := w.Media.Get(ctx, info.Key, 0, -1)
		return body, err
	}, nil
}

// sending reports how much of a file was sent.
type sending struct {
	io.ReadCloser
	done, size int64
	note       func(share float64)
}

func (s *sending) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.done += int64(n); s.size > 0 {
		s.note(min(float64(s.done)/float64(s.size), 1))
	}
	return n, err
}
