// Package publish puts the tracks of a result where they can be played: [Outputs] renders them as
// HLS, MP4 and fragmented MP4 and puts that to a caller's storage, [Asset] makes them playable in
// weir's own. Both publish tracks that still grow. How a track was made does not matter here: a
// [Track] is a track of package media as far as it is stored, with bounds of what will follow.
//
// Outputs are signed (C2PA) while they are sent, see [Signing]; [Signer] also signs presentations of
// assets. [VerifyPlaylist] verifies what was signed.
package publish

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"weir/internal/blob"
	"weir/internal/weir"
)

// Outputs renders tracks in the caller's formats and puts them to the caller's destination. Each
// format is an [output]; run.send sends every object.
//
// Publish may be called whenever there is something new: it puts everything that is contiguous from
// the start and was not put before. Its progress is in a [State], which the caller keeps
// between calls, also over a crash. The result depends on the tracks alone, so repeated work gives
// the same bytes under the same keys. Playlists are put after everything else, and the master
// playlist of HLS very last: an output without it is not finished.
//
// Memory does not depend on the duration of the source, except for the index.
type Outputs struct {
	Store   blob.Store            // has the tracks
	Dest    blob.Dest             // gets the outputs
	Formats weir.TranscodeOutputs // with their paths
	TS      bool                  // HLS has MPEG-TS segments, else CMAF; all video is H.264
	Dir     string                // for temporary files during a call
	Sign    *Signing              // nil = outputs are not signed
	Text    []Text                // beside HLS and DASH, and in MP4 files

	Captions []int // in the frames, see cmaf.Master

	// Save is called when the state has the id of a new multipart upload, which must not be lost.
	// Nil = the caller keeps the state only when Publish has returned.
	Save func(ctx context.Context, state *State) error

	// Rendering is held while a segment is in memory. All that share it need the memory of
	// one segment. Nil = a mutex of its own.
	Rendering *sync.Mutex
}

// uploads is how many segments, parts or files are sent at the same time.
const uploads = 4

// run is a call of Publish.
type run struct {
	*Outputs
	video []Track
	audio []Track // the default first
	slots *semaphore.Weighted

	rendering *sync.Mutex // see Outputs.Rendering

	mu    sync.Mutex // guards state
	state *State
}

// job is a part of a run, concurrent with the others.
type job func(context.Context) error

// Publish puts what is new. When all tracks are complete it finishes the outputs, and
// state.Finished is true. Then it seals the destination, and state.Base is its URL. After an error,
// state has what was done, and another call continues from there.
func (p *Outputs) Publish(ctx context.Context, state *State, video, audio []Track) (err error) {
	if !state.Finished {
		if err := p.publish(ctx, state, video, audio); err != nil || !state.Finished {
			return err
		}
	}
	if state.Base == "" {
		state.Base, err = p.Dest.Seal(ctx)
	}
	return err
}

func (p *Outputs) publish(ctx context.Context, state *State, video, audio []Track) error {
	r := &run{
		Outputs: p, video: video, audio: audio, state: state,
		slots: semaphore.NewWeighted(uploads), rendering: p.Rendering,
	}
	if r.rendering == nil {
		r.rendering = new(sync.Mutex)
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	// All jobs are made before the first one starts: they share the maps of the state.
	var jobs []job
	for _, o := range p.list() {
		jobs = append(jobs, o.jobs(r)...)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, do := range jobs {
		group.Go(func() error { return do(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if slices.ContainsFunc(slices.Concat(video, audio), Track.incomplete) {
		return nil
	}
	for _, o := range p.list() {
		if err := o.finish(ctx, r); err != nil {
			return err
		}
	}
	state.Finished = true
	return nil
}

// begin deletes the manifests of an earlier output: an old playlist with new segments would play a
// mixture.
func (r *run) begin(ctx context.Context) error {
	if r.state.Begun {
		return nil
	}
	for _, o := range r.list() {
		for _, key := range o.manifests() {
			// Credentials without the right to delete are usual, and good enough.
			if err := r.Dest.Delete(ctx, key); err != nil && weir.Retriable(err) {
				return err
			}
		}
	}
	if r.Sign != nil && len(r.state.items) == 0 {
		r.state.Set = weir.NewID()
	}
	r.state.Begun = true
	return nil
}

// Abort aborts uploads and deletes manifests, so that no output looks finished. Segments and
// complete files stay for a later try.
func (p *Outputs) Abort(ctx context.Context, state *State) error {
	var failed error
	for _, o := range p.list() {
		for name, item := range state.items[o.name()] {
			if item.Upload == "" {
				continue
			}
			if err := p.abortUpload(ctx, o.keys(name, item)[0], item.Upload); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			item.fileState = fileState{}
		}
		for _, key := range o.manifests() {
			if state.Begun {
				failed = errors.Join(failed, p.Dest.Delete(ctx, key))
			}
		}
	}
	state.Begun, state.Finished, state.Base = false, false, ""
	return failed
}

// abortUpload aborts a multipart upload, if it still exists.
func (p *Outputs) abortUpload(ctx context.Context, key, id string) error {
	upload, err := p.Dest.Resume(ctx, key, id)
	if err == nil {
		err = upload.Abort(ctx)
	}
	if weir.KindOf(err) == weir.NotFound {
		return nil
	}
	return err
}

// Withdraw deletes everything that was put.
func (p *Outputs) Withdraw(ctx context.Context, state *State) error {
	failed := p.Abort(ctx, state)
	for _, o := range p.list() {
		for name, item := range state.items[o.name()] {
			for _, key := range o.keys(name, item) {
				failed = errors.Join(failed, p.Dest.Delete(ctx, key))
			}
		}
	}
	*state = State{}
	return failed
}

// inSlot calls f when less than [uploads] objects are being sent.
func (r *run) inSlot(ctx context.Context, f func() error) error {
	if err := r.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.slots.Release(1)
	return f()
}

func (r *run) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// save gives the state to the caller.
func (r *run) save(ctx context.Context) error {
	if r.Save == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Save(ctx, r.state)
}
