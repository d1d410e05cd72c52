package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"weir/internal/caption"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// listAssetTracks answers GET /asset/{id}/track.
func (s *server) listAssetTracks(w http.ResponseWriter, r *request) error {
	asset, err := s.trackedAsset(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, asset.Shown(asset.Tracks, s.addresses(r.Request)))
}

// getAssetTrack answers GET /asset/{id}/track/{trackId}.
func (s *server) getAssetTrack(w http.ResponseWriter, r *request) error {
	asset, err := s.trackedAsset(r)
	if err != nil {
		return err
	}
	track, err := asset.Track(r.PathValue("trackId"))
	if err != nil {
		return err
	}
	return s.writeTrack(w, r, http.StatusOK, asset, *track)
}

func (s *server) trackedAsset(r *request) (weir.Asset, error) {
	asset, err := getPresent(r, s.Store.Asset, r.PathValue("id"))
	return asset, notFoundAs(err, "asset not found")
}

func (s *server) writeTrack(w http.ResponseWriter, r *request, status int, a weir.Asset, t weir.AssetTrack) error {
	return writeJSON(w, status, a.Shown([]weir.AssetTrack{t}, s.addresses(r.Request))[0])
}

// addAssetTrack answers POST /asset/{id}/track.
func (s *server) addAssetTrack(w http.ResponseWriter, r *request, body weir.NewAssetTrack) error {
	if body.URL != "" {
		if err := s.checkSource("url", body.URL); err != nil {
			return err
		}
	}
	if err := caption.CheckCharset(body.Charset); err != nil {
		return err
	}
	var cues []caption.Cue
	if body.Text != "" {
		var err error
		if cues, err = s.readText(r.Context(), []byte(body.Text), ""); err != nil {
			return err
		}
	}
	var track weir.AssetTrack
	asset, err := s.changeTracks(r, func(ctx context.Context, tx *store.Tx, a *weir.Asset, now time.Time) (err error) {
		if track, err = a.AddTrack(body, now); err == nil && body.URL != "" {
			err = tx.Enqueue(ctx, store.JobTrack, store.TrackRef(a.ID, track.ID))
		}
		return err
	})
	if err == nil && cues != nil {
		added := track.ID
		if asset, track, err = s.storeText(r, added, cues); err != nil {
			_, dropErr := s.changeTracks(r, func(_ context.Context, _ *store.Tx, a *weir.Asset, now time.Time) error {
				_, err := a.DeleteTrack(added, now)
				return err
			})
			return errors.Join(err, dropErr)
		}
	}
	if err != nil {
		return err
	}
	return s.writeTrack(w, r, http.StatusCreated, asset, track)
}

// patchAssetTrack answers PATCH /asset/{id}/track/{trackId}.
func (s *server) patchAssetTrack(w http.ResponseWriter, r *request, patch weir.AssetTrackPatch) error {
	var track weir.AssetTrack
	asset, err := s.changeTracks(r, func(_ context.Context, _ *store.Tx, a *weir.Asset, now time.Time) (err error) {
		track, err = a.PatchTrack(r.PathValue("trackId"), patch, now)
		return err
	})
	if err != nil {
		return err
	}
	return s.writeTrack(w, r, http.StatusOK, asset, track)
}

// deleteAssetTrack answers DELETE /asset/{id}/track/{trackId}.
func (s *server) deleteAssetTrack(w http.ResponseWriter, r *request) error {
	var track weir.AssetTrack
	asset, err := s.changeTracks(r, func(ctx context.Context, tx *store.Tx, a *weir.Asset, now time.Time) (err error) {
		if track, err = a.DeleteTrack(r.PathValue("trackId"), now); err != nil {
			return err
		}
		return tx.CancelJobs(ctx, store.TrackRef(a.ID, track.ID))
	})
	if err == nil {
		err = media.DeleteText(context.WithoutCancel(r.Context()), s.Media, media.AssetFolder(asset.ID), track.Object)
	}
	return noContent(w, err)
}

// changeTracks changes the tracks of the asset that the path names.
func (s *server) changeTracks(r *request, do func(context.Context, *store.Tx, *weir.Asset, time.Time) error) (asset weir.Asset, err error) {
	ctx, events := r.Context(), weir.NewEventBatch(s.EventBase, time.Now())
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		asset, err = changeTx(tx, r, r.PathValue("id"), (*store.Tx).UpdateAsset, func(tx *store.Tx, a *weir.Asset) error {
			if a.Deleted {
				return weir.Errorf(weir.NotFound, "asset not found")
			}
			return do(ctx, tx, a, events.Now)
		})
		if err != nil {
			return err
		}
		events.Asset(weir.AssetUpdated, asset)
		return tx.EmitBatch(ctx, events)
	})
	return asset, err
}

// receiveTrack answers PUT /asset/{id}/track/{trackId}/file, whose body is the file.
func (s *server) receiveTrack(w http.ResponseWriter, r *request) error {
	if _, err := s.trackedAsset(r); err != nil { // before the file is read
		return err
	}
	file, err := s.readFile(w, r)
	if err != nil {
		return err
	}
	cues, err := s.readText(r.Context(), file, r.URL.Query().Get("charset"))
	if err != nil {
		return err
	}
	asset, track, err := s.storeText(r, r.PathValue("trackId"), cues)
	if err != nil {
		return err
	}
	return s.writeTrack(w, r, http.StatusOK, asset, track)
}

// Files of text are held in memory, so only maxFiles that are larger than largeFile are received at
// once.
const (
	largeFile = 1 << 20
	maxFiles  = 4
)

// readFile reads a file of text. All of it has to arrive within the timeout of a step of an upload.
func (s *server) readFile(w http.ResponseWriter, r *request) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > largeFile {
		select {
		case s.files <- struct{}{}:
			defer func() { <-s.files }()
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.timeout))
	file, err := io.ReadAll(http.MaxBytesReader(w, r.Body, caption.MaxFile))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return nil, weir.Errorf(weir.TooLarge, "the file is larger than 10 MiB, the maximum for text")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, weir.Errorf(weir.Refused, "the file did not arrive within %s; send it again", s.timeout)
	case err != nil:
		return nil, weir.Wrap(weir.Refused, err, "the file did not arrive completely; send it again")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return file, nil
}

// readText reads a file of text, as one of a few at a time if it is large.
func (s *server) readText(ctx context.Context, file []byte, charset string) ([]caption.Cue, error) {
	if len(file) > largeBody {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return caption.Read(file, charset)
}

// storeText stores the text of a track, and deletes the one that it replaces.
func (s *server) storeText(r *request, trackID string, cues []caption.Cue) (asset weir.Asset, track weir.AssetTrack, err error) {
	ctx := context.WithoutCancel(r.Context()) // it has arrived, so the client need not wait
	if asset, err = s.trackedAsset(r); err != nil {
		return asset, track, err
	}
	if err := asset.CheckText(trackID, caption.End(cues)); err != nil {
		return asset, track, err
	}
	if err := s.FreeSpace(); err != nil {
		return asset, track, err
	}
	current, err := asset.Track(trackID)
	if err != nil {
		return asset, track, err
	}
	folder, replaced := media.AssetFolder(asset.ID), current.Object
	file, err := media.SaveText(ctx, s.Media, folder, trackID, cues)
	if err != nil {
		return asset, track, err
	}
	asset, err = s.changeTracks(r, func(ctx context.Context, tx *store.Tx, a *weir.Asset, now time.Time) error {
		before, err := a.Track(trackID)
		if err != nil {
			return err
		}
		if err := tx.CheckQuota(ctx, a.UserID, weir.Storage, file.Size-before.Size); err != nil {
			return err
		}
		replaced = before.Object
		track, err = a.TrackStored(trackID, file, now)
		return err
	})
	unused := ""
	switch kind := weir.KindOf(err); {
	case replaced == file.Object: // the same text once more
	case err == nil:
		unused = replaced
	case kind == weir.NotFound || kind == weir.Denied: // after other errors it may be in use
		unused = file.Object
	}
	return asset, track, errors.Join(err, media.DeleteText(ctx, s.Media, folder, unused))
}
