package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// published is the state of the publication of a task.
type published struct {
	Asset     *publish.AssetState `json:"asset,omitempty"` // in weir's own storage
	Files     *publish.State      `json:"files,omitempty"` // in the caller's storage
	RequestID string              `json:"requestId,omitempty"`
}

// publication is a job that publishes.
type publication struct {
	*Work
	job   store.Job
	task  weir.Task
	state store.TaskState
	plan  vod.Plan
	done  published

	video, audio []publish.Track
	warnings     []string // about the source
}

// publish handles store.JobPublish: it publishes finished pieces of a task, and completes the task
// after the last one.
func (w *Work) publish(ctx context.Context, job store.Job) error {
	p := &publication{Work: w, job: job}
	var ok bool
	if err := w.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) (err error) {
		p.state, ok, err = tx.StartPublish(ctx, job)
		return err
	}); err != nil || !ok {
		return err
	}
	if err := p.load(ctx); err != nil {
		return err
	}
	if p.finished() {
		w.progress.note(p.task.ID, func(t *taskProgress) { t.step = stepPublishing })
		if err := vod.CheckFrames(p.plan, p.video); err != nil {
			return err
		}
	}
	if p.task.Extends() {
		return p.publishRecording(ctx)
	}
	if p.task.OutputAssetID != "" {
		return p.publishAsset(ctx)
	}
	return p.publishFiles(ctx)
}

// load reads the plan, the finished pieces, and what was published before.
func (p *publication) load(ctx context.Context) (err error) {
	if p.task, err = p.Store.Task(ctx, p.state.TaskID); err != nil {
		return ownError{err}
	}
	if p.plan, err = planOf(p.state); err != nil {
		return err
	}
	if p.state.Publication != nil {
		if err := json.Unmarshal(p.state.Publication, &p.done); err != nil {
			return fmt.Errorf("decode publication of task %s: %w", p.task.ID, err)
		}
	}
	names, err := p.publishable(ctx)
	if err != nil {
		return err
	}
	chunks, audio, err := p.results(ctx, p.task.ID, names)
	if err != nil {
		return err
	}
	p.warnings = vod.Warnings(p.plan, chunks, audio)
	p.video, p.audio, err = p.Engine.ResultTracks(ctx, p.plan, chunks, audio)
	return err
}

// publishable returns the names of pieces that can be published: the first chunks without a gap,
// and the audio.
func (p *publication) publishable(ctx context.Context) (names []string, err error) {
	pieces, err := p.Store.Pieces(ctx, p.task.ID)
	if err != nil {
		return nil, ownError{err}
	}
	for _, piece := range pieces {
		if piece.State == store.PieceDone && piece.Name != thumbnailsPiece && piece.Number < p.state.Ahead {
			names = append(names, piece.Name)
		}
	}
	return names, nil
}

func (w *Work) results(ctx context.Context, taskID string, names []string) (chunks []vod.ChunkResult, audio []vod.RenditionResult, err error) {
	results, err := w.Store.PieceResults(ctx, taskID, names)
	if err != nil {
		return nil, nil, ownError{err}
	}
	for _, name := range names {
		if strings.HasPrefix(name, chunkPiece) {
			var chunk vod.ChunkResult
			err = json.Unmarshal(results[name], &chunk)
			chunks = append(chunks, chunk)
		} else {
			var track vod.RenditionResult
			err = json.Unmarshal(results[name], &track)
			audio = append(audio, track)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("decode result of %s of task %s: %w", name, taskID, err)
		}
	}
	return chunks, audio, nil
}

// finished reports whether all pieces are done.
func (p *publication) finished() bool { return p.state.Complete() || p.state.Pieces == 0 }

// share returns the published share of the output.
func (p *publication) share() float64 {
	if p.state.Pieces == 0 {
		return 1
	}
	return float64(p.state.Done) / float64(p.state.Pieces)
}

// save writes the state of the publication.
func (p *publication) save(ctx context.Context, tx *store.Tx, share float64) error {
	text, err := json.Marshal(p.done)
	if err != nil {
		return err
	}
	_, err = tx.UpdateTaskState(ctx, p.task.ID, func(s *store.TaskState) { s.Publication, s.Published = text, max(s.Published, share) })
	return err
}

// end writes the state of the publication, and lets another job continue.
func (p *publication) end(ctx context.Context, also func(tx *store.Tx, events *weir.EventBatch) error) error {
	return p.tx(ctx, p.job, func(tx *store.Tx, events *weir.EventBatch) error {
		if err := p.save(ctx, tx, p.share()); err != nil {
			return err
		}
		if also != nil {
			if err := also(tx, events); err != nil {
				return err
			}
		}
		return tx.EndPublish(ctx, p.job, p.state)
	})
}

// publishFiles writes the outputs of a transcode task to the caller's storage.
func (p *publication) publishFiles(ctx context.Context) error {
	outputs, done, err := p.outputs(ctx, p.state, p.task, weir.ObjectStore{})
	if err != nil {
		return notSaved(err)
	}
	defer done()
	up, onIPFS := outputs.Dest.(*upload)
	if err := p.put(ctx, outputs); err != nil {
		return err
	}
	if !p.finished() {
		return p.end(ctx, nil)
	}
	output := p.plan.Source.Describe()
	output.RequestID = p.done.RequestID
	outputs.Describe(&output, p.done.Files, p.video, p.audio)
	err = p.tx(ctx, p.job, func(tx *store.Tx, events *weir.EventBatch) error {
		if err := complete(ctx, tx, events, p.task.ID, &weir.TaskOutput{Transcode: &output}, p.warnings); err != nil {
			return err
		}
		if onIPFS {
			if err := up.complete(ctx, tx, output.BaseURL, events.Now); err != nil {
				return err
			}
		}
		return p.save(ctx, tx, 1)
	})
	if err == nil && onIPFS {
		up.count()
	}
	return p.ended(ctx, p.task, err)
}

// put publishes what is new, and saves the state.
func (p *publication) put(ctx context.Context, outputs *publish.Outputs) error {
	if p.done.Files == nil {
		p.done.Files, p.done.RequestID = &publish.State{}, publish.NewRequestID()
	}
	save := func(ctx context.Context) error {
		return p.tx(ctx, p.job, func(tx *store.Tx, _ *weir.EventBatch) error { return p.save(ctx, tx, 0) })
	}
	outputs.Save = func(ctx context.Context, state *publish.State) error {
		p.done.Files = state
		return save(ctx)
	}
	if up, ok := outputs.Dest.(*upload); ok { // sealing takes long, and deletes what is staged
		up.saved = save
	}
	err := outputs.Publish(ctx, p.done.Files, p.video, p.audio)
	if err == nil && p.finished() && !p.done.Files.Finished {
		err = errors.New("all pieces are done, but not all files are published")
	}
	if err != nil && ctx.Err() == nil {
		// The next attempt continues after what was published.
		if saveErr := save(ctx); saveErr != nil {
			p.Log.WarnContext(ctx, "progress of the publication could not be saved", "task", p.task.ID, "err", saveErr)
		}
	}
	return notSaved(err)
}

// notSaved puts the message that clients know in front of an error of the caller's storage.
func notSaved(err error) error {
	e, ok := errors.AsType[*weir.Error](err)
	_, own := errors.AsType[ownError](err)
	if !ok || own || e.Kind != weir.Invalid && e.Kind != weir.Denied && e.Kind != weir.Upstream {
		return err
	}
	return weir.Wrap(e.Kind, e.Err, "error saving file to storage: %s", strings.Join(e.Messages, "; "))
}

// outputs returns the outputs of a task, or of an asset with an object store. The function that it
// returns closes the storage.
func (w *Work) outputs(ctx context.Context, state store.TaskState, t weir.Task, o weir.ObjectStore) (*publish.Outputs, func(), error) {
	formats := weir.TranscodeOutputs{}
	if p := t.Params.Transcode; p != nil {
		formats = p.Outputs
	}
	dest, err := w.destination(ctx, state, t, o)
	if err != nil {
		return nil, nil, err
	}
	dir, err := w.dir(state)
	if err != nil {
		return nil, nil, err
	}
	var plan vod.Plan
	if state.Plan != nil {
		if plan, err = planOf(state); err != nil {
			return nil, nil, err
		}
	}
	outputs := &publish.Outputs{Store: w.Media, Dest: dest, Formats: formats, TS: plan.TS(), Dir: dir, Rendering: &w.rendering, Captions: plan.Source.Captions}
	if outputs.Text, err = w.sourceText(ctx, plan.Source); err != nil {
		_ = dest.Close()
		return nil, nil, err
	}
	if t.Params.Transcode != nil && t.Params.Transcode.C2PA {
		if outputs.Sign, err = w.signing(state, t); err != nil {
			_ = dest.Close()
			return nil, nil, err
		}
	}
	return outputs, func() { _ = dest.Close() }, nil
}

// sourceText reads the texts of a source for its outputs.
func (w *Work) sourceText(ctx context.Context, src vod.Source) (list []publish.Text, err error) {
	for _, t := range src.AssetTracks(time.Time{}) {
		text := publish.Text{
			Name: t.Name, Language: t.Language, Default: t.Default, Forced: t.Forced, ClosedCaptions: t.ClosedCaptions, Start: t.StartTime(),
		}
		if text.Cues, err = media.LoadText(ctx, w.Media, src.Prefix, t.Object); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

// signing returns what signs the outputs of a task.
func (w *Work) signing(state store.TaskState, t weir.Task) (*publish.Signing, error) {
	if w.Signer == nil {
		return nil, weir.Errorf(weir.Unavailable, "c2pa: this server has no key to sign with")
	}
	var o origin
	if state.Source != nil {
		if err := json.Unmarshal(state.Source, &o); err != nil {
			return nil, err
		}
	}
	from := publish.Origin{Name: publish.SourceName(t.Params.Transcode.Input.URL), SHA256: o.SHA256, Manifest: o.Manifest}
	if c := t.Params.Transcode.CreatorID; c != nil {
		from.CreatorID = c.Value
	}
	return w.Signer.Transcode(from, time.Now()), nil
}

// destination opens the destination of the outputs of a task, or the object store of an asset.
func (w *Work) destination(ctx context.Context, state store.TaskState, t weir.Task, o weir.ObjectStore) (blob.Dest, error) {
	switch {
	case t.Params.Transcode == nil:
		return blob.OpenDest(o.URL.Reveal(), w.Caller)
	case t.Secrets.Proof != "":
		return w.openUpload(ctx, state, t, partOutputs)
	case t.Secrets.StorageURL != "":
		return blob.OpenDest(t.Secrets.StorageURL, w.Caller)
	}
	return nil, weir.Errorf(weir.Invalid, "the credentials of the task are deleted, because it ended long ago; send the request again")
}

// ended counts a task if err, of the transaction that completed it, is nil.
func (w *Work) ended(ctx context.Context, t weir.Task, err error) error {
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	if err == nil {
		w.completed.Add(1)
		w.Log.InfoContext(ctx, "task completed", "task", t.ID, "type", t.Type)
	}
	return err
}

// asset returns the asset of the task.
func (p *publication) asset(ctx context.Context) (weir.Asset, error) {
	asset, err := p.Store.Asset(ctx, p.task.OutputAssetID)
	if err != nil {
		return asset, ownError{err}
	}
	if asset.Deleted {
		return asset, weir.Errorf(weir.Gone, messageDeleted)
	}
	return asset, nil
}

// publishAsset publishes what is done of an asset for viewers.
func (p *publication) publishAsset(ctx context.Context) error {
	if p.done.Asset == nil {
		p.done.Asset = &publish.AssetState{}
	}
	playable := &publish.Asset{Store: p.Media, Prefix: media.AssetFolder(p.task.OutputAssetID), Duration: p.plan.Source.Duration, Captions: p.plan.Source.Captions}
	if p.task.Params.Upload.C2PA {
		playable.Sign = p.sign
	}
	if err := playable.Publish(ctx, p.done.Asset, p.video, p.audio); err != nil {
		return err
	}
	signature, err := media.LoadSignature(ctx, p.Media, playable.Prefix, p.done.Asset.Presentation)
	if err != nil {
		return err
	}
	if !p.finished() {
		return p.end(ctx, func(tx *store.Tx, events *weir.EventBatch) error {
			if !p.done.Asset.Playable() {
				return nil
			}
			return p.playable(ctx, tx, events, signature)
		})
	}
	asset, err := p.asset(ctx)
	if err != nil {
		return err
	}
	p.describe(&asset)
	files, err := p.files(asset)
	if err != nil {
		return err
	}
	files = signedFiles(files, signature)
	elsewhere, err := p.copyToObjectStore(ctx, asset, files)
	if err != nil {
		return err
	}
	onIPFS, err := p.copyAtCreation(ctx, asset)
	if err != nil {
		return err
	}
	defer onIPFS.close()
	return p.completeTask(ctx, asset, onIPFS, func(a *weir.Asset, now time.Time) {
		p.describe(a)
		a.Files, a.PlaybackURL, a.DownloadURL = files, playbackURL(*a), p.downloadURL(*a)
		a.C2PA = provenance(signature)
		a.ImportTracks(p.plan.Source.AssetTracks(now))
		if elsewhere != "" {
			a.PlaybackURL = elsewhere
		}
		onIPFS.record(a, now)
		a.Ready(now)
	}, weir.AssetUpdated, weir.AssetReadyEvent)
}

// sign signs the presentation of an upload.
func (p *publication) sign(ctx context.Context, shown *media.Presentation) error {
	asset, err := p.asset(ctx)
	if err != nil {
		return err
	}
	o := p.origin()
	_, err = p.Signer.Present(ctx, p.Media, media.AssetFolder(asset.ID), shown, publish.Subject{
		Asset: asset, Source: publish.NewIngredient(asset.Name, p.plan.Source.Probe.Format, o.Manifest), Copied: p.plan.Copied(), SHA256: o.SHA256,
	})
	return err
}

// completeTask completes the task, changes its asset and emits events. copied is the copy of the asset on IPFS,
// if it has one.
func (p *publication) completeTask(ctx context.Context, asset weir.Asset, copied *assetCopy, change func(*weir.Asset, time.Time), names ...weir.EventName) error {
	stored, err := storedBytes(ctx, p.Media, asset.ID)
	if err != nil {
		return err
	}
	err = p.tx(ctx, p.job, func(tx *store.Tx, events *weir.EventBatch) error {
		made := asset
		change(&made, events.Now)
		made.PlaybackURL, made.DownloadURL = "", "" // only the asset itself has them
		made = made.WithBase(p.Base)
		if err := complete(ctx, tx, events, p.task.ID, &weir.TaskOutput{Upload: &weir.AssetOutput{AssetSpec: made}}, p.warnings); err != nil {
			return err
		}
		if err := p.save(ctx, tx, 1); err != nil {
			return err
		}
		if err := copied.complete(ctx, tx, events.Now); err != nil {
			return err
		}
		changed, err := tx.UpdateAsset(ctx, asset.ID, func(a *weir.Asset) error {
			change(a, events.Now)
			a.Stored = stored
			return nil
		})
		if err != nil || changed.Deleted {
			return err
		}
		for _, name := range names {
			events.Asset(name, changed)
		}
		return nil
	})
	if err == nil {
		copied.count()
	}
	return p.ended(ctx, p.task, err)
}

// playable sets the playback URL of an asset that is not ready yet.
func (p *publication) playable(ctx context.Context, tx *store.Tx, events *weir.EventBatch, signature *media.Signature) error {
	changed := false
	a, err := tx.UpdateAsset(ctx, p.task.OutputAssetID, func(a *weir.Asset) error {
		if changed = a.PlaybackURL == "" && !a.Deleted; changed {
			a.PlaybackURL, a.C2PA = playbackURL(*a), provenance(signature)
			a.Status.UpdatedAt = weir.At(events.Now)
		}
		return nil
	})
	if err == nil && changed {
		events.Asset(weir.AssetUpdated, a)
	}
	return err
}

func playbackURL(a weir.Asset) string { return "/hls/" + a.PlaybackID + "/index.m3u8" }

// downloadURL returns the URL of the source of an asset, if it is kept.
func (p *publication) downloadURL(a weir.Asset) string {
	if !p.origin().Kept {
		return ""
	}
	name := "video"
	switch a.VideoSpec.Format {
	case "mp4", "mov", "avi", "flv", "webm", "wav", "mp3", "ogg":
		name += "." + a.VideoSpec.Format
	case "mpegts":
		name += ".ts"
	case "matroska":
		name += ".mkv"
	}
	return "/hls/" + a.PlaybackID + "/download/" + name
}

// describe sets the properties of the source on an asset.
func (p *publication) describe(a *weir.Asset) {
	o, spec := p.origin(), p.plan.Source.Probe.VideoSpec()
	a.VideoSpec, a.Size = &spec, o.Size
	a.Hash = []weir.Hash{{Hash: o.SHA256, Algorithm: "sha256"}}
	a.Type = "audio"
	if p.plan.Source.Video != nil {
		a.Type = "video"
	}
}

func (p *publication) origin() (o origin) {
	_ = json.Unmarshal(p.state.Source, &o) // written by noteSource
	return o
}

// mp4Until is the duration in seconds up to which assets have MP4 files by default.
const mp4Until = 120

func (p *publication) files(a weir.Asset) ([]weir.File, error) {
	files := []weir.File{{Type: "catalyst_hls_manifest", Path: "index.m3u8"}}
	if p.origin().Kept {
		files = append(files, weir.File{Type: "source_file", Path: "video", Size: a.Size})
	}
	if a.StaticMP4 || p.plan.Source.Duration <= mp4Until {
		for _, s := range p.video {
			if s.Name == "low-bitrate" && len(p.video) > 1 {
				continue
			}
			size, err := publish.MP4Size(s, p.audio)
			if err != nil {
				return nil, err
			}
			files = append(files, p.mp4File(s, size))
		}
	}
	if p.plan.Source.Video != nil {
		files = append(files, weir.File{Type: "thumbnails_vtt", Path: "thumbnails/thumbnails.vtt"})
	}
	return files, nil
}

// mp4File returns the entry of a rendition's MP4 file in the list of files.
func (p *publication) mp4File(s publish.Track, size int64) weir.File {
	f := weir.File{Type: "static_transcoded_mp4", Path: s.Name + ".mp4", Size: size, Width: s.Index.Track.Width, Height: s.Index.Track.Height}
	if p.plan.Source.Duration > 0 {
		f.Bitrate = int(float64(size) * 8 / p.plan.Source.Duration)
	}
	return f
}

// copyToObjectStore copies an asset to the object store of its owner, as static files below its
// playback id. It returns the playback URL there, if the store is public.
func (p *publication) copyToObjectStore(ctx context.Context, a weir.Asset, files []weir.File) (string, error) {
	if a.ObjectStoreID == "" {
		return "", nil
	}
	o, err := p.Store.ObjectStore(ctx, a.ObjectStoreID)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		return "", ownError{err}
	}
	if err != nil || o.Deleted || o.Disabled {
		return "", weir.Errorf(weir.Invalid, "error saving file to storage: the object store of the asset was deleted or disabled")
	}
	outputs, done, err := p.outputs(ctx, p.state, p.task, o)
	if err != nil {
		return "", err
	}
	defer done()
	if a.Sign {
		o := p.origin()
		from := publish.Origin{Name: a.Name, SHA256: o.SHA256, CreatorID: a.CreatorID.String(), Manifest: o.Manifest}
		outputs.Sign = p.Signer.Transcode(from, time.Now())
	}
	outputs.Formats = assetFormats(a, slices.ContainsFunc(files, func(f weir.File) bool { return f.Type == "static_transcoded_mp4" }))
	if err := p.put(ctx, outputs); err != nil {
		return "", err
	}
	if o.PublicURL == "" {
		return "", nil
	}
	return strings.TrimSuffix(o.PublicURL, "/") + "/" + a.PlaybackID + "/index.m3u8", nil
}

// assetFormats returns the formats for an asset's object store.
func assetFormats(a weir.Asset, mp4 bool) weir.TranscodeOutputs {
	formats := weir.TranscodeOutputs{HLS: &weir.PathParam{Path: "/" + a.PlaybackID}}
	if mp4 {
		formats.MP4 = &weir.PathParam{Path: "/" + a.PlaybackID}
	}
	return formats
}
