package work

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/blob"
	"weir/internal/clip"
	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// Sessions are those that are on air on this node, or have just ended there.
type Sessions interface {
	// Ranges returns what there is of a session, in milliseconds of the wall clock.
	Ranges(sessionID string) ([]weir.ClipRange, error)
	// Tracks returns the tracks of a session so far, the video first. over = nothing will be added to them.
	Tracks(sessionID string) (tracks []*media.Track, over bool, err error)
	// Await waits until a session has its media up to a time, or will not get it. A wait that ends with ctx is
	// an error of kind Busy.
	Await(ctx context.Context, sessionID string, until time.Time) error
}

// Clips cuts clips. Unlike with other tasks, the task of a clip is done by one job, which starts at once: out of
// a session on air on the node that has its files, out of an asset on any node that runs work. The clip can be
// played when the job is done. Then a task makes its renditions, as for a recording.
type Clips struct {
	ClipOptions
	tasks

	encoded, copied atomic.Int64
}

// ClipOptions are the options of Clips.
type ClipOptions struct {
	Store  *store.Store
	Media  blob.Store // weir's own storage
	Engine vod.Engine
	OnAir  Sessions // nil = this node does not run live
	// Ask requests the ranges of a session from another node.
	Ask    func(ctx context.Context, node, sessionID string) ([]weir.ClipRange, error)
	Signer *publish.Signer
	Dir    string    // of this node, for files of running tasks
	Base   weir.Base // of the URLs in events
	Log    *slog.Logger
}

// clipBackoff are the delays before the retries of a clip. They are short, because somebody waits for it.
var clipBackoff = []time.Duration{2 * time.Second, 10 * time.Second}

// NewClips returns a Clips that is ready.
func NewClips(o ClipOptions) *Clips {
	return &Clips{ClipOptions: o, tasks: tasks{store: o.Store, base: o.Base, log: o.Log, backoff: clipBackoff, keepJob: true}}
}

// ClipStats are counts since the start.
type ClipStats struct {
	Completed int64 // clips
	Failed    int64 // clips, for good
	Encoded   int64 // frames of video at the edges of clips
	Copied    int64 // frames of video
}

// Stats returns the current counts.
func (c *Clips) Stats() ClipStats {
	return ClipStats{c.completed.Load(), c.failed.Load(), c.encoded.Load(), c.copied.Load()}
}

// Ranges returns what there is of a source now, in order: of a session by the wall clock, of an asset alone from
// its start. An error of kind NotFound means that nothing is kept of it.
func (c *Clips) Ranges(ctx context.Context, of weir.ClipSource) ([]weir.ClipRange, error) {
	if of.AssetID == "" {
		air, err := c.Store.OnAirSession(ctx, of.SessionID)
		switch {
		case weir.IsNotFound(err):
			of.AssetID = of.SessionID // its recording has the same id
		case err != nil:
			return nil, err
		case air.Node == c.Store.NodeID() && c.OnAir != nil:
			return c.OnAir.Ranges(of.SessionID)
		default:
			return c.Ask(ctx, air.Node, of.SessionID)
		}
	}
	source, err := c.openAsset(ctx, of.AssetID)
	if err != nil {
		return nil, err
	}
	if of.SessionID != "" {
		return media.SpansOf(source.main().Index()), nil
	}
	return []weir.ClipRange{{Start: 0, End: media.NewTimes(source.all()...).Length()}}, nil
}

// clipSource is what a clip is cut from.
type clipSource struct {
	clip.Source
	live  bool   // a session that may still grow
	asset string // "" = it is a session
	text  []weir.AssetTrack
}

// all returns the tracks, the one whose frames count first.
func (s clipSource) all() []*media.Track {
	if s.Video == nil {
		return s.Audio
	}
	return append([]*media.Track{s.Video}, s.Audio...)
}

func (s clipSource) main() *media.Track { return s.all()[0] }

// openAsset opens the best tracks of an asset. An error of kind NotFound means that there is nothing to cut.
func (c *Clips) openAsset(ctx context.Context, id string) (s clipSource, err error) {
	a, err := c.Store.Asset(ctx, id)
	switch {
	case weir.IsNotFound(err) || err == nil && a.Deleted:
		return s, weir.Errorf(weir.NotFound, "the source of the clip was deleted")
	case err != nil:
		return s, ownError{err}
	case a.Status.Phase != weir.AssetReady:
		return s, weir.Errorf(weir.NotFound, "the source of the clip is not ready")
	}
	s.asset, s.text = id, a.Tracks
	prefix := media.AssetFolder(id)
	shown, err := media.LoadPresentation(ctx, c.Media, prefix)
	if err != nil {
		return s, err
	}
	pixels := 0
	for _, r := range shown.Renditions {
		track, err := media.Open(ctx, c.Media, prefix+"/"+r.Dir)
		if err != nil {
			return s, err
		}
		if r.Name == weir.SourceProfile {
			s.Video = track
			break
		}
		if size := track.Index().Track.Width * track.Index().Track.Height; size > pixels {
			s.Video, pixels = track, size
		}
	}
	for _, r := range shown.Audio {
		track, err := media.Open(ctx, c.Media, prefix+"/"+r.Dir)
		if err != nil {
			return s, err
		}
		s.Audio = append(s.Audio, track)
	}
	if len(s.all()) == 0 || len(s.main().Index().Segments) == 0 {
		return s, weir.Errorf(weir.NotFound, "the source of the clip has no media")
	}
	return s, nil
}

// waiting is why a job has to be continued later. It needs no slot meanwhile.
type waiting struct {
	after time.Duration
	step  string // for people
}

func (w waiting) Error() string { return w.step }

// The steps of a clip, for people.
const (
	stepEnd       = "waiting for the end of the clip"
	stepNode      = "waiting for the server that has the stream"
	stepRecording = "waiting for the recording"
	stepCutting   = "cutting"
)

const (
	// clipHold is how long a job waits with its slot for the end of its clip: River runs jobs up to a second late.
	clipHold = time.Second
	// clipAwait is how long after its end a job waits with its slot for media that is on its way.
	clipAwait = time.Second
	// clipRetry is when a job looks again for media, for the node of a session, or for a recording.
	clipRetry = time.Second
	// noRecordingAfter is how long after the end of a session a clip waits for its recording.
	noRecordingAfter = 3 * time.Hour
)

// open opens the source of a clip.
func (c *Clips) open(ctx context.Context, job store.Job, t weir.Task) (clipSource, error) {
	p := t.Params.Clip
	if p.InputID != "" {
		return c.openAsset(ctx, p.InputID)
	}
	air, err := c.Store.OnAirSession(ctx, p.SessionID)
	onAir := err == nil
	if err != nil && !weir.IsNotFound(err) {
		return clipSource{}, ownError{err}
	}
	if onAir && (air.Node != c.Store.NodeID() || c.OnAir == nil) {
		return clipSource{}, c.move(ctx, job, t)
	}
	if c.OnAir != nil {
		s, err := c.openSession(ctx, p)
		if !weir.IsNotFound(err) {
			return s, err
		}
		if onAir { // it has just begun here
			return clipSource{}, waiting{clipRetry, stepEnd}
		}
	}
	return c.openRecording(ctx, p.SessionID)
}

// errMoved says that another node has the job.
var errMoved = errors.New("another node has the files")

// move gives the job to the node that carries the session.
func (c *Clips) move(ctx context.Context, job store.Job, t weir.Task) error {
	node, err := c.Store.NodeOfSession(ctx, t.Params.Clip.SessionID)
	if err != nil {
		return ownError{err}
	}
	if node == "" || node == c.Store.NodeID() { // it is gone: the session will end, or continue elsewhere
		return waiting{clipRetry, stepNode}
	}
	if err := c.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) error { return tx.EnqueueClip(ctx, t, time.Time{}) }); err != nil {
		return err
	}
	return errMoved
}

// openSession opens the tracks of a session of this node, when they have the end of the clip.
func (c *Clips) openSession(ctx context.Context, p *weir.ClipParams) (s clipSource, err error) {
	if p.ClipStrategy.EndTime >= weir.ClipWall {
		end := time.UnixMicro(int64(math.Round(p.ClipStrategy.EndTime * 1000)))
		left := time.Until(end)
		if left > clipHold {
			return s, waiting{left - clipHold, stepEnd}
		}
		within, cancel := context.WithTimeout(ctx, max(0, left)+clipAwait)
		err := c.OnAir.Await(within, p.SessionID, end)
		cancel()
		if weir.KindOf(err) == weir.Busy && ctx.Err() == nil {
			return s, waiting{clipRetry, stepEnd}
		}
		if err != nil {
			return s, err
		}
	}
	tracks, _, err := c.OnAir.Tracks(p.SessionID)
	if err != nil {
		return s, err
	}
	s.live = true
	for _, track := range tracks {
		if track.Index().Track.Width > 0 {
			s.Video = track
		} else {
			s.Audio = append(s.Audio, track)
		}
	}
	return s, nil
}

// openRecording opens the recording of a session that has ended.
func (c *Clips) openRecording(ctx context.Context, sessionID string) (s clipSource, err error) {
	a, err := c.Store.Asset(ctx, sessionID)
	if err != nil && !weir.IsNotFound(err) {
		return s, ownError{err}
	}
	if err == nil && (a.Deleted || a.Status.Phase == weir.AssetReady) {
		return c.openAsset(ctx, sessionID)
	}
	if err == nil && a.Status.Phase == weir.AssetFailed {
		return s, weir.Errorf(weir.Gone, "the stream has ended, and its recording failed")
	}
	session, err := c.Store.Session(ctx, sessionID)
	if err != nil && !weir.IsNotFound(err) {
		return s, ownError{err}
	}
	if err == nil && session.Recorded() && time.Since(session.LastSeen.Time()) < noRecordingAfter {
		return s, waiting{clipRetry, stepRecording}
	}
	return s, weir.Errorf(weir.Gone, "the stream has ended before the clip was cut, and it was not recorded")
}

// Cut handles store.JobClip and store.JobLiveClip. It can be repeated: the clip exists when its task is complete.
func (c *Clips) Cut(ctx context.Context, job store.Job) error {
	taskID, _, _ := strings.Cut(job.Ref, "/")
	t, err := c.start(ctx, job, taskID, func(*store.Tx) (float64, error) { return 0, nil })
	if err == nil {
		err = c.cut(ctx, job, t)
	}
	if err == nil || errors.Is(err, errNothingToDo) || errors.Is(err, errMoved) {
		return nil
	}
	if wait, ok := errors.AsType[waiting](err); ok {
		if err := c.note(ctx, taskID, wait.step, 0, new(reported)); err != nil {
			return err
		}
		return store.Later(wait.after)
	}
	return c.outcome(ctx, job, taskID, err)
}

const (
	// clipRounding is by how much a clip may start before its source: what the rules allow, and a
	// millisecond for the way to the timeline of the source.
	clipRounding = (weir.ClipRounding + 1) * time.Millisecond
	// clipSlack is by how much a clip may end after its source without a warning: that may be within a frame.
	clipSlack = 100 * time.Millisecond
)

// window returns where on the timeline of its source a clip is, and a warning if the source ends before it.
func (s clipSource) window(p *weir.ClipParams) (start, end time.Duration, warnings []string, err error) {
	times := media.NewTimes(s.all()...)
	at := func(ms float64) time.Duration {
		if p.SessionID != "" && ms >= weir.ClipWall {
			return times.AtWall(ms)
		}
		return times.AfterStart(ms)
	}
	start, end = at(p.ClipStrategy.StartTime), at(p.ClipStrategy.EndTime)
	switch {
	case start < times.Start()-clipRounding:
		return 0, 0, nil, weir.Errorf(weir.Gone, "the start of the clip is no longer kept")
	case start >= times.End() && s.live:
		return 0, 0, nil, weir.Errorf(weir.Gone, "the stream ended before the start of the clip")
	case start >= times.End():
		return 0, 0, nil, weir.Errorf(weir.Gone, "the clip starts after the end of its source")
	}
	if end > times.End()+clipSlack {
		missing := (end - times.End()).Round(time.Millisecond)
		warnings = append(warnings, "the clip is "+missing.String()+" shorter than requested: the stream ended before it")
	}
	return start, min(end, times.End()), warnings, nil
}

// cut cuts the clip of a task.
func (c *Clips) cut(ctx context.Context, job store.Job, t weir.Task) error {
	if t.Params.Clip == nil || t.Params.Clip.ClipStrategy == nil {
		return weir.Errorf(weir.Invalid, "the task names no source of the clip")
	}
	source, err := c.open(ctx, job, t)
	if err != nil {
		return err
	}
	start, end, warnings, err := source.window(t.Params.Clip)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.Dir, t.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return weir.Wrap(weir.Internal, err, "the folder of the clip could not be created")
	}
	defer func() { _ = os.RemoveAll(dir) }()
	began := time.Now()
	var result clip.Result
	err = c.reporting(ctx, t.ID, func(report func(share float64)) (err error) {
		result, err = clip.Cut(ctx, c.Engine, source.Source, clip.Options{
			Prefix: media.AssetFolder(t.OutputAssetID), Start: start, End: end, Dir: dir, Progress: report,
		})
		return err
	})
	if weir.IsNotFound(err) {
		return weir.Wrap(weir.Gone, err, "the clip would have no frame: its source was deleted, is no longer kept, or has a gap there")
	}
	if err != nil {
		return err
	}
	if result.Whole != "" {
		warnings = append(warnings, "all frames of the clip were encoded: "+result.Whole)
	}
	var signature *media.Signature
	if t.Params.Clip.C2PA {
		if signature, err = c.sign(ctx, t, source, start, end, &result); err != nil {
			return err
		}
	}
	text, err := c.clipText(ctx, t, source, start, end)
	if err != nil {
		return err
	}
	if err := c.completeTask(ctx, job, t, result.Recording, signature, text, warnings); err != nil {
		return err
	}
	c.completed.Add(1)
	c.encoded.Add(int64(result.Encoded))
	c.copied.Add(int64(result.Copied))
	c.Log.InfoContext(ctx, "clip cut", "task", t.ID, "asset", t.OutputAssetID, "seconds", result.Recording.Presentation.Duration,
		"encoded", result.Encoded, "copied", result.Copied, "whole", result.Whole, "took", time.Since(began))
	return nil
}

// sign signs a clip. What it was cut from is its ingredient, with the manifest of that if it is signed.
func (c *Clips) sign(ctx context.Context, t weir.Task, source clipSource, start, end time.Duration, result *clip.Result) (*media.Signature, error) {
	a, err := c.Store.Asset(ctx, t.OutputAssetID)
	if err != nil {
		return nil, ownError{err}
	}
	from, err := c.ingredient(ctx, t.Params.Clip, source, start, end)
	if err != nil {
		return nil, err
	}
	of := publish.Subject{Asset: a, Source: from}
	if result.Encoded == 0 { // a clip with encoded edges is not a copy
		of.Copied = publish.RecordedTracks
	}
	return signRecording(ctx, c.Media, c.Signer, &result.Recording, of)
}

// ingredient describes what a clip is cut from. The segments of a signed source that are in the clip are
// verified.
func (c *Clips) ingredient(ctx context.Context, p *weir.ClipParams, source clipSource, start, end time.Duration) (*publish.Ingredient, error) {
	if source.asset == "" {
		session, err := c.Store.Session(ctx, p.SessionID)
		if err != nil {
			return nil, ownError{err}
		}
		return publish.NewStreamIngredient(&session), nil
	}
	a, err := c.Store.Asset(ctx, source.asset)
	if err != nil {
		return nil, ownError{err}
	}
	from, prefix := &publish.Ingredient{Title: a.Name, Format: "video/mp4"}, media.AssetFolder(a.ID)
	shown, err := media.LoadPresentation(ctx, c.Media, prefix)
	if err != nil {
		return nil, err
	}
	signature, err := media.LoadSignature(ctx, c.Media, prefix, shown)
	if err != nil || signature == nil {
		return from, err
	}
	track := source.main()
	first, last := track.Index().Between(start, end)
	from.Manifest, err = signature.Verified(ctx, track, strings.TrimPrefix(track.Prefix(), prefix+"/"), first, last, time.Now())
	return from, err
}

// completeTask makes the clip available, and completes its task.
func (c *Clips) completeTask(ctx context.Context, job store.Job, t weir.Task, kept media.Recording, signature *media.Signature, text []weir.AssetTrack, warnings []string) error {
	stored, err := storedBytes(ctx, c.Media, t.OutputAssetID)
	if err != nil {
		return err
	}
	return c.tx(ctx, job, func(tx *store.Tx, events *weir.EventBatch) error {
		made, err := tx.Asset(ctx, t.OutputAssetID)
		if err != nil && !weir.IsNotFound(err) {
			return err
		}
		present(&made, kept, signature, events.Now)
		made.PlaybackURL, made.DownloadURL = "", "" // only the asset itself has them
		if err := complete(ctx, tx, events, t.ID, &weir.TaskOutput{Clip: &weir.AssetOutput{AssetSpec: made}}, warnings); err != nil {
			return err
		}
		a, err := tx.UpdateAsset(ctx, t.OutputAssetID, func(a *weir.Asset) error {
			present(a, kept, signature, events.Now)
			a.ImportTracks(text)
			a.Stored = stored
			return nil
		})
		if weir.IsNotFound(err) || err == nil && a.Deleted {
			return nil
		}
		if err != nil {
			return err
		}
		events.Asset(weir.AssetUpdated, a)
		events.Asset(weir.AssetReadyEvent, a)
		return follow(ctx, tx, events, a)
	})
}

// reporting calls do, and writes the progress that it reports meanwhile.
func (c *Clips) reporting(ctx context.Context, taskID string, do func(report func(share float64)) error) error {
	var shares progress
	var last reported
	write := func(_ context.Context, taskID string, p *taskProgress) error {
		return c.note(ctx, taskID, p.step, p.published, &last)
	}
	until, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { shares.report(until, c.Log, write) })
	defer running.Wait()
	defer stop()
	return do(func(share float64) {
		shares.note(taskID, func(p *taskProgress) { p.step, p.published = stepCutting, share })
	})
}

// note writes how far a clip is; last is what events reported last.
func (c *Clips) note(ctx context.Context, taskID, step string, share float64, last *reported) error {
	now := reached{step: step, share: share, last: *last}
	return c.advance(ctx, taskID, func(*store.Tx, time.Time) (reached, error) { return now, nil }, func(_ *store.Tx, now reported) error {
		*last = now
		return nil
	})
}
