package work

import (
	"bytes"
	"cmp"
	"context"
	"strings"

	"weir/internal/caption"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// trackAttempts is how often the file of a track is fetched before the track fails.
const trackAttempts = 3

// track handles store.JobTrack: it fetches the file of a track that was added to an asset by URL.
func (w *Work) track(ctx context.Context, job store.Job) error {
	assetID, trackID, _ := strings.Cut(job.Ref, "/")
	asset, err := w.Store.Asset(ctx, assetID)
	if weir.IsNotFound(err) || err == nil && asset.Deleted {
		return nil
	}
	if err != nil {
		return err
	}
	track, err := asset.Track(trackID)
	if err != nil || track.Source.URL == "" {
		return nil // it was deleted, or its file was sent meanwhile
	}
	file, err := w.fetchText(ctx, asset, *track)
	kind := weir.KindOf(err)
	if ctx.Err() != nil || err != nil && (kind == weir.Internal || weir.Retriable(err) && job.Attempt < trackAttempts) {
		return cmp.Or(err, ctx.Err())
	}
	return w.tx(ctx, job, func(tx *store.Tx, events *weir.EventBatch) error {
		changed, txErr := tx.UpdateAsset(ctx, assetID, func(a *weir.Asset) error {
			if err != nil {
				return a.TrackFailed(trackID, message(err), events.Now)
			}
			_, err := a.TrackStored(trackID, file, events.Now)
			return err
		})
		if weir.IsNotFound(txErr) {
			return nil
		}
		events.Asset(weir.AssetUpdated, changed)
		return txErr
	})
}

// fetchText fetches and stores a track of text.
func (w *Work) fetchText(ctx context.Context, a weir.Asset, t weir.AssetTrack) (weir.TrackFile, error) {
	var file textFile
	if _, err := w.fetcher(a.Owner()).Fetch(ctx, t.Source.URL, &file, nil); err != nil {
		return weir.TrackFile{}, err
	}
	cues, err := caption.Read(file.Bytes(), t.Charset)
	if err != nil {
		return weir.TrackFile{}, err
	}
	if err := a.CheckText(t.ID, caption.End(cues)); err != nil {
		return weir.TrackFile{}, err
	}
	return media.SaveText(ctx, w.Media, media.AssetFolder(a.ID), t.ID, cues)
}

// textFile is a file of text in memory. It takes no more than such a file may have.
type textFile struct{ bytes.Buffer }

func (f *textFile) Write(p []byte) (int, error) {
	if f.Len()+len(p) > caption.MaxFile {
		return 0, weir.Errorf(weir.TooLarge, "the file of the text is larger than 10 MiB")
	}
	return f.Buffer.Write(p)
}
