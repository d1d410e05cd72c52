package work

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/weir"
)

// Recordings makes assets of sessions that have ended. Unlike a task, this is done on the origin
// node, whether it does tasks or not: it has the files. Nothing is encoded, and if the storage is
// the same disk nothing is copied either.
type Recordings struct {
	Store *store.Store
	Media blob.Store // weir's own storage
	// Folder returns the path of a folder of the last period of a session, or an error of kind Busy
	// while it is still being written.
	Folder func(folder string) (string, error)
	// Period returns the path of the files of an earlier period of a session, maybe of another
	// node, or an error of kind NotFound if there are none.
	Period func(ctx context.Context, session weir.Session, period int) (string, error)
	Signer *publish.Signer
	Base   weir.Base // of the URLs in events
	Log    *slog.Logger
}

// recordingAttempts is the maximum number of attempts, about one a minute, to make an asset of
// damaged files. There is no limit while the disk is full or the storage is down.
const recordingAttempts = 30

// Keep handles store.JobRecording. It can be repeated: the asset is created at the end.
func (r *Recordings) Keep(ctx context.Context, job store.Job) error {
	id, _, _ := strings.Cut(job.Ref, "/")
	session, err := r.Store.Session(ctx, id)
	if weir.KindOf(err) == weir.NotFound {
		// The account was deleted. Another attempt may have left files since.
		return r.Media.DeletePrefix(ctx, media.AssetFolder(id))
	}
	if err != nil {
		return err
	}
	if _, err := r.Store.Asset(ctx, id); err == nil || weir.KindOf(err) != weir.NotFound {
		return err // it is done
	}
	last, err := r.Folder(session.Folder(len(session.Earlier)))
	if err != nil {
		return err
	}
	dirs, err := r.earlierPeriods(ctx, session)
	if err != nil {
		return err
	}
	kept, err := media.KeepRecording(ctx, r.Media, media.AssetFolder(id), append(dirs, last)...)
	if weir.KindOf(err) == weir.NotFound {
		// A backup has the finished recording, and not the files, of a session that ended meanwhile.
		if before, keptErr := media.KeptRecording(ctx, r.Media, media.AssetFolder(id)); weir.KindOf(keptErr) != weir.NotFound {
			kept, err = before, keptErr
		}
	}
	var signature *media.Signature
	if err == nil && session.C2PA {
		signature, err = r.sign(ctx, session, &kept)
	}
	switch {
	case err == nil:
		stored, err := storedBytes(ctx, r.Media, id)
		if err != nil {
			return err
		}
		return r.createAsset(ctx, job, session, func(a *weir.Asset, now time.Time) {
			present(a, kept, signature, now)
			a.Stored = stored
		})
	case weir.KindOf(err) == weir.NotFound && (session.SourceSegments == 0 || session.RecordedBytes == 0):
		return r.Store.JobTx(ctx, job, func(tx *store.Tx) error {
			_, err := tx.UpdateSession(ctx, id, func(s *weir.Session) error { s.Unrecorded, s.RecordedBytes = true, 0; return nil })
			return err
		})
	case weir.KindOf(err) == weir.NotFound:
		err = weir.Wrap(weir.Gone, err, "the files of the recording are not on the server any more")
	case ctx.Err() != nil || weir.Retriable(err) && (weir.KindOf(err) != weir.Internal || job.Attempt < recordingAttempts):
		return err
	}
	r.Log.ErrorContext(ctx, "recording failed: it can't be made an asset", "session", id, "err", err)
	return r.createAsset(ctx, job, session, func(a *weir.Asset, now time.Time) { a.Fail(message(err), now) })
}

// sign signs a recording that was kept.
func (r *Recordings) sign(ctx context.Context, session weir.Session, kept *media.Recording) (*media.Signature, error) {
	stream, err := r.Store.Stream(ctx, session.ParentID)
	if err != nil {
		return nil, err
	}
	return signRecording(ctx, r.Media, r.Signer, kept, recordingOf(weir.NewRecording(&session, &stream, time.Now()), &session))
}

// present sets the properties of a recording on an asset.
func present(a *weir.Asset, kept media.Recording, signature *media.Signature, now time.Time) {
	a.VideoSpec, a.Type, a.C2PA = &kept.Spec, "audio", provenance(signature)
	a.PlaybackURL = playbackURL(*a)
	a.Files = []weir.File{{Type: "catalyst_hls_manifest", Path: "index.m3u8"}}
	main := media.RecordedAudio
	if len(kept.Presentation.Renditions) > 0 {
		a.Type, main = "video", media.RecordedVideo
	}
	if a.Size = kept.MP4Size; a.Size > 0 {
		a.DownloadURL = "/hls/" + a.PlaybackID + "/download/video.mp4"
		a.Files = append(a.Files, weir.File{
			Type: "static_transcoded_mp4", Path: main + ".mp4", Size: a.Size, Width: kept.Width, Height: kept.Height, Bitrate: int(kept.Spec.Bitrate),
		})
	}
	a.Ready(now)
}

// createAsset creates the asset of a session and emits events.
func (r *Recordings) createAsset(ctx context.Context, job store.Job, session weir.Session, end func(*weir.Asset, time.Time)) error {
	err := r.Store.JobTx(ctx, job, func(tx *store.Tx) error {
		stream, err := tx.LockStream(ctx, session.ParentID)
		if err != nil {
			return err
		}
		switch _, err := tx.Asset(ctx, session.ID); {
		case err == nil:
			return errNothingToDo
		case weir.KindOf(err) != weir.NotFound:
			return err
		}
		events := weir.NewEventBatch(r.Base, time.Now())
		a := weir.NewRecording(&session, &stream, events.Now)
		if err := tx.CreateAsset(ctx, &a); err != nil {
			return err
		}
		if _, err := tx.UpdateSession(ctx, session.ID, func(s *weir.Session) error { s.RecordedBytes = 0; return nil }); err != nil {
			return err // its bytes are those of the asset from now on
		}
		events.Asset(weir.AssetCreated, a)
		if a, err = tx.UpdateAsset(ctx, a.ID, func(a *weir.Asset) error { end(a, events.Now); return nil }); err != nil {
			return err
		}
		events.Asset(weir.AssetUpdated, a)
		if a.Status.Phase == weir.AssetReady {
			events.Asset(weir.AssetReadyEvent, a)
			events.Add(stream.RecordingReady(session, a.WithBase(r.Base), events.Now))
			if err := follow(ctx, tx, events, a); err != nil {
				return err
			}
		} else {
			events.Asset(weir.AssetFailedEvent, a)
		}
		return tx.EmitBatch(ctx, events)
	})
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	if err == nil {
		r.Log.InfoContext(ctx, "recording saved", "session", session.ID, "stream", session.ParentID)
	}
	return err
}

// periodTimeout is how long after the end of a session its recording waits for a node that has an
// earlier period of it and does not answer.
const periodTimeout = time.Hour

// earlierPeriods returns the folders of the earlier periods of a session, "" for one without files.
func (r *Recordings) earlierPeriods(ctx context.Context, session weir.Session) ([]string, error) {
	dirs := make([]string, len(session.Earlier))
	for period, of := range session.Earlier {
		if of.Lost {
			continue
		}
		dir, err := r.Period(ctx, session, period)
		switch {
		case err == nil:
			dirs[period] = dir
		case weir.KindOf(err) == weir.NotFound: // nothing was received
		case ctx.Err() != nil || time.Since(session.LastSeen.Time()) < periodTimeout:
			return nil, err
		default:
			r.Log.ErrorContext(ctx, "recording is saved without the media of a node that does not respond", "session", session.ID, "node", of.Node, "err", err)
			if err := r.Store.Tx(ctx, func(tx *store.Tx) error {
				_, err := tx.UpdateSession(ctx, session.ID, func(s *weir.Session) error { s.Earlier[period].Lost = true; return nil })
				return err
			}); err != nil {
				return nil, err
			}
		}
	}
	return dirs, nil
}
