package vod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/ffmpeg"
	"weir/internal/publish"
	"weir/internal/weir"
)

// RunOptions say what Run does.
type RunOptions struct {
	FFmpeg  *ffmpeg.Engine
	Source  string        // path of a file, or a URL
	Fetcher *blob.Fetcher // for URLs; nil = only files
	Request Request
	Outputs weir.TranscodeOutputs
	Dest    blob.Dest

	MaxDuration time.Duration   // of the source; see Engine
	Signer      *publish.Signer // nil = outputs are not signed

	// Dir is a folder for this run only. Run makes it, and removes it when the work is done, was cancelled,
	// or can't be done. The next run with the same source and request continues from the files of a killed
	// run.
	Dir string

	Progress func(Progress)        // one call at a time; may be nil
	Warn     func(sentence string) // gets each of Warnings, at the end; may be nil
}

// Progress is the progress of Run.
type Progress struct {
	Step     string // for people: fetching, reading, encoding, finishing
	Fraction float64
	FPS      float64 // frames of the source a second; 0 = not known
	Speed    float64 // seconds of the source a second; 0 = not known
	ETA      time.Duration
}

// workPrefix is the prefix of tracks in the working storage of a run.
const workPrefix = "work"

// Run makes all results of one source in one process.
func Run(ctx context.Context, o RunOptions) (weir.TranscodeOutput, error) {
	r := &runner{o: o, meter: newMeter(o.Progress)}
	err := r.open(ctx)
	var out weir.TranscodeOutput
	if err == nil {
		out, err = r.run(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, r.close(ctx, err)
}

type runner struct {
	o       RunOptions
	work    blob.Store
	engine  Engine
	outputs *publish.Outputs
	kept    *runState
	meter   *meter
	file    string // the source

	mu    sync.Mutex // guards the results in kept
	fresh chan struct{}
}

// open makes the working folder, or continues with that of a killed run.
func (r *runner) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(r.o.Dir, 0o700); err != nil {
		return err
	}
	if r.kept, err = loadState(r.o); err != nil {
		return err
	}
	if r.work, err = blob.NewDisk(filepath.Join(r.o.Dir, "media")); err != nil {
		return err
	}
	r.engine = Engine{FFmpeg: r.o.FFmpeg, Store: r.work, MaxDuration: r.o.MaxDuration}
	r.outputs = &publish.Outputs{
		Store: r.work, Dest: r.o.Dest, Formats: r.o.Outputs, Dir: r.o.Dir,
		Save: func(_ context.Context, state *publish.State) error { return r.kept.savePublished(state) },
	}
	return ctx.Err()
}

// close removes the files of the run, unless it can be continued, and returns its error.
func (r *runner) close(ctx context.Context, err error) error {
	keep := err != nil && ctx.Err() == nil && weir.Retriable(err)
	if err != nil && !keep && r.kept != nil && r.outputs != nil {
		// Also when ctx has ended.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, r.outputs.Withdraw(cleanup, &r.kept.Published))
	}
	if r.work != nil {
		err = errors.Join(err, r.work.Close())
	}
	if !keep {
		err = errors.Join(err, os.RemoveAll(r.o.Dir))
	}
	return err
}

func (r *runner) run(ctx context.Context) (weir.TranscodeOutput, error) {
	for _, step := range []func(context.Context) error{r.fetch, r.plan, r.encode} {
		if err := step(ctx); err != nil {
			return weir.TranscodeOutput{}, err
		}
	}
	video, audio, err := r.streams(ctx)
	if err != nil {
		return weir.TranscodeOutput{}, err
	}
	if err := CheckFrames(*r.kept.Plan, video); err != nil {
		return weir.TranscodeOutput{}, err
	}
	if !r.kept.Published.Finished {
		return weir.TranscodeOutput{}, weir.Errorf(weir.Internal, "everything is encoded, and not everything was put")
	}
	r.meter.finish()
	if r.o.Warn != nil {
		for _, sentence := range Warnings(*r.kept.Plan, r.kept.Chunks, r.kept.Audio) {
			r.o.Warn(sentence)
		}
	}
	out := r.kept.Plan.Source.Describe()
	out.RequestID = r.kept.RequestID
	r.outputs.Describe(&out, &r.kept.Published, video, audio)
	return out, nil
}

// fetch downloads the source, if it is a URL.
func (r *runner) fetch(ctx context.Context) error {
	if !isURL(r.o.Source) {
		path, err := filepath.Abs(r.o.Source)
		r.file = path
		return err
	}
	if r.o.Fetcher == nil {
		return weir.Errorf(weir.Invalid, "%s: URLs can't be read here", r.o.Source)
	}
	r.file = filepath.Join(r.o.Dir, "source")
	if r.kept.Fetched {
		return nil
	}
	file, err := os.Create(r.file)
	if err != nil {
		return err
	}
	_, err = r.o.Fetcher.Fetch(ctx, r.o.Source, file, r.meter.bytes)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	r.kept.Fetched = true
	return r.kept.save()
}

// plan imports the source and makes the plan.
func (r *runner) plan(ctx context.Context) error {
	if r.kept.Plan != nil {
		return nil
	}
	src, err := r.engine.Import(ctx, ImportOptions{
		File: r.file, Prefix: workPrefix, SegmentSeconds: r.o.Request.SegmentSeconds, Progress: r.meter.step("reading"),
	})
	if err != nil {
		return err
	}
	plan, err := r.engine.Plan(ctx, src, r.o.Request)
	if err != nil {
		return err
	}
	r.kept.Plan = &plan
	if r.o.Signer != nil {
		if r.kept.Manifest, err = publish.ReadManifest(r.file); err != nil {
			return err
		}
	}
	return r.kept.save()
}

// encode makes the missing audio tracks and chunks, and publishes results meanwhile.
func (r *runner) encode(ctx context.Context) error {
	r.fresh = make(chan struct{}, 1)
	r.fresh <- struct{}{}
	plan := r.kept.Plan
	r.outputs.TS = plan.TS()
	if r.o.Signer != nil {
		from := publish.Origin{Name: publish.SourceName(r.o.Source), Manifest: r.kept.Manifest}
		r.outputs.Sign = r.o.Signer.Transcode(from, time.Now())
	}
	r.meter.encoding(plan, r.kept.Chunks)

	publishing, publishCtx := errgroup.WithContext(ctx)
	encoding, encodeCtx := errgroup.WithContext(publishCtx)
	for k, track := range plan.Audio {
		if !slices.ContainsFunc(r.kept.Audio, func(a RenditionResult) bool { return a.Name == track.Name }) {
			encoding.Go(func() error { return r.encodeAudio(encodeCtx, k) })
		}
	}
	encoding.Go(func() error { return r.encodeVideo(encodeCtx) })
	publishing.Go(func() error {
		defer close(r.fresh)
		return encoding.Wait()
	})
	publishing.Go(func() error {
		for range r.fresh {
			if err := r.publish(publishCtx); err != nil {
				return err
			}
		}
		return r.publish(publishCtx)
	})
	return publishing.Wait()
}

func (r *runner) encodeAudio(ctx context.Context, k int) error {
	result, err := r.engine.EncodeAudio(ctx, *r.kept.Plan, k, nil)
	if err != nil {
		return err
	}
	return r.note(func() error { return r.kept.addAudio(result) })
}

// encodeVideo runs the encodes that are not finished, as many at the same time as there are encoders.
func (r *runner) encodeVideo(ctx context.Context) error {
	done := map[int]bool{}
	for _, c := range r.kept.Chunks {
		done[c.Chunk] = true
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(r.o.Request.Encoders, 1))
	for first, chunk := range r.kept.Plan.Chunks {
		// An encode that was begun goes on with the first chunk that is not done.
		if !done[first] && (!chunk.Continues || done[first-1]) {
			group.Go(func() error { return r.encodeFrom(groupCtx, first) })
		}
	}
	return group.Wait()
}

// encodeFrom makes chunk n and those that continue it.
func (r *runner) encodeFrom(ctx context.Context, n int) error {
	return r.engine.Encode(ctx, *r.kept.Plan, n, EncodeOptions{
		File: r.file, Progress: r.meter.chunk,
		Done: func(result ChunkResult) error {
			r.meter.chunk(result.Chunk, 1)
			return r.note(func() error { return r.kept.addChunk(result) })
		},
	})
}

// note stores a result and wakes encode, which publishes it.
func (r *runner) note(add func() error) error {
	r.mu.Lock()
	err := add()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r.fresh <- struct{}{}:
	default: // it is awake already
	}
	return nil
}

func (r *runner) streams(ctx context.Context) (video, audio []publish.Stream, err error) {
	r.mu.Lock()
	chunks, audios := slices.Clone(r.kept.Chunks), slices.Clone(r.kept.Audio)
	r.mu.Unlock()
	return r.engine.Streams(ctx, *r.kept.Plan, chunks, audios)
}

func (r *runner) publish(ctx context.Context) error {
	video, audio, err := r.streams(ctx)
	if err != nil {
		return err
	}
	err = r.outputs.Publish(ctx, &r.kept.Published, video, audio)
	if err = errors.Join(err, r.kept.savePublished(&r.kept.Published)); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}
