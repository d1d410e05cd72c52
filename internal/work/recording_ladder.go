package work

import (
	"context"
	"slices"
	"time"

	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/weir"
)

// follow creates the task that makes renditions and thumbnails of a recording or a clip.
func follow(ctx context.Context, tx *store.Tx, events *weir.EventBatch, recording weir.Asset) error {
	if recording.Type != "video" {
		return nil
	}
	task := weir.NewLadder(recording, events.Now)
	if err := tx.CreateTask(ctx, &task); err != nil {
		return err
	}
	events.Task(weir.TaskSpawned, task)
	return nil
}

// sourceOnly reports whether a recording, or a clip of one, has no renditions beside the source.
func (w *Work) sourceOnly(ctx context.Context, assetID string) (bool, error) {
	a, err := w.Store.Asset(ctx, assetID)
	if err != nil || a.Source.SessionID == "" {
		return false, err
	}
	session, err := w.Store.Session(ctx, a.Source.SessionID)
	if weir.IsNotFound(err) {
		return false, nil
	}
	return session.RecordingSpec.SourceOnly(), err
}

// prepareRecording plans the renditions of a recording or a clip, and creates the pieces. There is
// nothing to fetch: its tracks are in the storage.
func (w *Work) prepareRecording(ctx context.Context, job store.Job, t weir.Task, state store.TaskState) error {
	sourceOnly, err := w.sourceOnly(ctx, t.OutputAssetID)
	if err != nil {
		return ownError{err}
	}
	dir, err := w.dir(state)
	if err != nil {
		return err
	}
	w.progress.note(t.ID, func(p *taskProgress) { p.step, p.fetched = stepPreparing, 1 })
	src, err := w.Engine.Recorded(ctx, prefix(t, state), dir)
	if err != nil {
		return err
	}
	request := w.request(ctx, t)
	request.SourceOnly = sourceOnly
	plan, noRenditions, err := w.Engine.PlanRecorded(ctx, src, request)
	if err != nil {
		return err
	}
	if noRenditions != "" {
		w.Log.InfoContext(ctx, "recording gets no renditions beside its source", "asset", t.OutputAssetID, "why", noRenditions)
	}
	pieces, err := w.piecesOf(ctx, plan, t)
	if err != nil {
		return err
	}
	_, err = w.openPieces(ctx, job, t, plan, pieces)
	return err
}

// publishRecording publishes the renditions of a recording when all are done.
func (p *publication) publishRecording(ctx context.Context) error {
	if !p.finished() {
		return p.end(ctx, nil)
	}
	asset, err := p.asset(ctx)
	if err != nil {
		return err
	}
	playable := &publish.Asset{Store: p.Media, Prefix: media.AssetFolder(asset.ID)}
	var signature *media.Signature
	if asset.Sign {
		playable.Sign = func(ctx context.Context, shown *media.Presentation) (err error) {
			of := publish.Subject{Asset: asset, Copied: publish.RecordedTracks}
			if asset.Source.Type == weir.SourceRecording {
				session, err := p.Store.Session(ctx, asset.Source.SessionID)
				if err != nil {
					return err
				}
				of = recordingOf(asset, &session)
			}
			signature, err = p.Signer.Present(ctx, p.Media, playable.Prefix, shown, of)
			return err
		}
	}
	shown, err := playable.AddRenditions(ctx, p.video)
	if err != nil {
		return err
	}
	files, err := p.recordedFiles(ctx, asset, shown)
	if err != nil {
		return err
	}
	files = signedFiles(files, signature)
	return p.completeTask(ctx, asset, nil, func(a *weir.Asset, now time.Time) {
		a.Files, a.C2PA = files, provenance(signature)
		a.Status.UpdatedAt = weir.At(now)
	}, weir.AssetUpdated)
}

// recordedFiles returns the list of files of a recording, with the MP4 files of its renditions and
// its thumbnails.
func (p *publication) recordedFiles(ctx context.Context, a weir.Asset, shown media.Presentation) ([]weir.File, error) {
	var audio []publish.Track
	for _, r := range shown.Audio {
		track, err := media.Open(ctx, p.Media, media.AssetFolder(a.ID)+"/"+r.Dir)
		if err != nil {
			return nil, err
		}
		audio = append(audio, publish.Track{Name: r.Name, Index: track.Index()})
	}
	files := slices.Clone(a.Files)
	add := func(f weir.File) {
		files = slices.DeleteFunc(files, func(old weir.File) bool { return old.Path == f.Path })
		files = append(files, f)
	}
	for _, s := range p.video {
		if s.Name == media.RecordedVideo || s.Name == "low-bitrate" || !a.StaticMP4 && p.plan.Source.Duration > mp4Until {
			continue
		}
		size, err := publish.MP4Size(s, audio)
		if weir.KindOf(err) == weir.Invalid {
			continue // it can't be one MP4 file
		}
		if err != nil {
			return nil, err
		}
		add(p.mp4File(s, size))
	}
	add(weir.File{Type: "thumbnails_vtt", Path: "thumbnails/thumbnails.vtt"})
	return files, nil
}
