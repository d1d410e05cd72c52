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
	state   *runState
	meter   *meter
	file    string // the source

	mu      sync.Mutex // guards the results in state
	changed chan struct{}
}

// open makes the working folder, or continues with that of a killed run.
func (r *runner) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(r.o.Dir, 0o700); err != nil {
		return err
	}
	if r.state, err = loadState(r.o); err != nil {
		return err
	}
	if r.work, err = blob.NewDisk(filepath.Join(r.o.Dir, "media")); err != nil {
		return err
	}
	r.engine = Engine{FFmpeg: r.o.FFmpeg, Store: r.work, MaxDuration: r.o.MaxDuration}
	r.outputs = &publish.Outputs{
		Store: r.work, Dest: r.o.Dest, Formats: r.o.Outputs, Dir: r.o.Dir,
		Save: func(_ context.Context, state *publish.State) error { return r.state.savePublished(state) },
	}
	return ctx.Err()
}

// close removes the files of the run, unless it can be continued, and returns its error.
func (r *runner) close(ctx context.Context, err error) error {
	keep := err != nil && ctx.Err() == nil && weir.Retriable(err)
	if err != nil && !keep && r.state != nil && r.outputs != nil {
		// Also when ctx has ended.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, r.outputs.Withdraw(cleanup, &r.state.Published))
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
	video, audio, err := r.tracks(ctx)
	if err != nil {
		return weir.TranscodeOutput{}, err
	}
	if err := CheckFrames(*r.state.Plan, video); err != nil {
		return weir.TranscodeOutput{}, err
	}
	if !r.state.Published.Finished {
		return weir.TranscodeOutput{}, weir.Errorf(weir.Internal, "all chunks are encoded, but not all outputs are published")
	}
	r.meter.done()
	if r.o.Warn != nil {
		for _, sentence := range Warnings(*r.state.Plan, r.state.Chunks, r.state.Audio) {
			r.o.Warn(sentence)
		}
	}
	out := r.state.Plan.Source.Describe()
	out.RequestID = r.state.RequestID
	r.outputs.Describe(&out, &r.state.Published, video, audio)
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
		return weir.Errorf(weir.Invalid, "%s: URLs are not supported here; name a file", r.o.Source)
	}
	r.file = filepath.Join(r.o.Dir, "source")
	if r.state.Fetched {
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
	r.state.Fetched = true
	return r.state.save()
}

// plan imports the source and makes the plan.
func (r *runner) plan(ctx context.Context) error {
	if r.state.Plan != nil {
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
	r.state.Plan = &plan
	if r.o.Signer != nil {
		if r.state.Manifest, err = publish.ReadManifest(r.file); err != nil {
			return err
		}
	}
	return r.state.save()
}

// encode makes the missing audio tracks and chunks, and publishes results meanwhile.
func (r *runner) encode(ctx context.Context) error {
	r.changed = make(chan struct{}, 1)
	r.changed <- struct{}{}
	plan := r.state.Plan
	r.outputs.TS = plan.TS()
	if r.o.Signer != nil {
		from := publish.Origin{Name: publish.SourceName(r.o.Source), Manifest: r.state.Manifest}
		r.outputs.Sign = r.o.Signer.Transcode(from, time.Now())
	}
	r.meter.encoding(plan, r.state.Chunks)

	publishing, publishCtx := errgroup.WithContext(ctx)
	encoding, encodeCtx := errgroup.WithContext(publishCtx)
	for k, track := range plan.Audio {
		if !slices.ContainsFunc(r.state.Audio, func(a RenditionResult) bool { return a.Name == track.Name }) {
			encoding.Go(func() error { return r.encodeAudio(encodeCtx, k) })
		}
	}
	encoding.Go(func() error { return r.encodeVideo(encodeCtx) })
	publishing.Go(func() error {
		defer close(r.changed)
		return encoding.Wait()
	})
	publishing.Go(func() error {
		for range r.changed {
			if err := r.publish(publishCtx); err != nil {
				return err
			}
		}
		return r.publish(publishCtx)
	})
	return publishing.Wait()
}

func (r *runner) encodeAudio(ctx context.Context, k int) error {
	result, err := r.engine.EncodeAudio(ctx, *r.state.Plan, k, nil)
	if err != nil {
		return err
	}
	return r.addResult(func() error { return r.state.addAudio(result) })
}

// encodeVideo runs the encodes that are not finished, as many at the same time as there are encoders.
func (r *runner) encodeVideo(ctx context.Context) error {
	done := map[int]bool{}
	for _, c := range r.state.Chunks {
		done[c.Chunk] = true
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(r.o.Request.Encoders, 1))
	for first, chunk := range r.state.Plan.Chunks {
		// An encode that was begun goes on with the first chunk that is not done.
		if !done[first] && (!chunk.Continues || done[first-1]) {
			group.Go(func() error { return r.encodeFrom(groupCtx, first) })
		}
	}
	return group.Wait()
}

// encodeFrom makes chunk n and those that continue it.
func (r *runner) encodeFrom(ctx context.Context, n int) error {
	return r.engine.Encode(ctx, *r.state.Plan, n, EncodeOptions{
		File: r.file, Progress: r.meter.chunk,
		Done: func(result ChunkResult) error {
			r.meter.chunk(result.Chunk, 1)
			return r.addResult(func() error { return r.state.addChunk(result) })
		},
	})
}

// addResult stores a result and wakes encode, which publishes it.
func (r *runner) addResult(add func() error) error {
	r.mu.Lock()
	err := add()
	r.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case r.changed <- struct{}{}:
	default: // it is awake already
	}
	return nil
}

func (r *runner) tracks(ctx context.Context) (video, audio []publish.Track, err error) {
	r.mu.Lock()
	chunks, audios := slices.Clone(r.state.Chunks), slices.Clone(r.state.Audio)
	r.mu.Unlock()
	return r.engine.ResultTracks(ctx, *r.state.Plan, chunks, audios)
}

func (r *runner) publish(ctx context.Context) error {
	video, audio, err := r.tracks(ctx)
	if err != nil {
		return err
	}
	err = r.outputs.Publish(ctx, &r.state.Published, video, audio)
	if err = errors.Join(err, r.state.savePublished(&r.state.Published)); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}
