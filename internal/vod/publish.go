package vod

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/weir"
)

// Publisher renders what a plan produced in the caller's formats and puts it where the caller
// wants it. Each format is an [output]; an object goes through publishing.send on its way to
// the destination.
//
// Publish may be called as often as there is something new: it puts what is
// contiguous from the start and was not put before. What it did is in a
// [PublishState], which the caller keeps between calls, also over a crash. All that
// is rendered follows from the streams alone, so what is done twice gives the
// same bytes under the same keys. Playlists come when everything else is there, and
// the master playlist of HLS very last: an output without it is not finished.
//
// Memory does not depend on the length of the source, but for the index.
type Publisher struct {
	Work    blob.Store            // has the streams
	Dest    blob.Dest             // gets the outputs
	Outputs weir.TranscodeOutputs // which, and under which paths
	TS      bool                  // HLS has MPEG-TS segments, else those of CMAF; see Plan.TS
	Dir     string                // for files that live as long as a call

	// Save is called with the state when it has something that must not be
	// forgotten: the id of an upload in parts. Nil = the caller keeps the state
	// only when Publish has returned.
	Save func(ctx context.Context, state *PublishState) error

	// Rendering is held while a segment is rendered and thus in memory. Publishers
	// that share it need memory for one segment together. Nil = this one alone.
	Rendering *sync.Mutex
}

// uploads is how many segments, parts or files are in hand at the same time.
const uploads = 4

// publishing is one call of Publish.
type publishing struct {
	*Publisher
	video []Stream
	audio []Stream // the one to play unasked is the first
	slots chan struct{}

	rendering *sync.Mutex // see Publisher.Rendering

	mu    sync.Mutex // guards state
	state *PublishState
}

// publishJob is a part of a call that goes on beside the others.
type publishJob func(context.Context) error

// Publish puts what is new. When all streams are complete it finishes the outputs, and
// state.Finished is true. Then it seals the destination, and state.Base is where the outputs
// are. After an error the state tells what was done nevertheless, and another call goes on
// from there.
func (p *Publisher) Publish(
	ctx context.Context, state *PublishState, video, audio []Stream,
) (err error) {
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

func (p *Publisher) publish(ctx context.Context, state *PublishState, video, audio []Stream) error {
	r := &publishing{
		Publisher: p, video: video, audio: audio, state: state,
		slots: make(chan struct{}, uploads), rendering: p.Rendering,
	}
	if r.rendering == nil {
		r.rendering = new(sync.Mutex)
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	// All jobs are there before the first one starts: they share the maps of the state.
	var jobs []publishJob
	for _, o := range p.outputs() {
		jobs = append(jobs, o.jobs(r)...)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, job := range jobs {
		group.Go(func() error { return job(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if slices.ContainsFunc(slices.Concat(video, audio), Stream.incomplete) {
		return nil
	}
	for _, o := range p.outputs() {
		if err := o.finish(ctx, r); err != nil {
			return err
		}
	}
	state.Finished = true
	return nil
}

// begin takes the manifests of an earlier output out of the way: with new segments behind it,
// an old playlist would play a mixture.
func (r *publishing) begin(ctx context.Context) error {
	if r.state.Begun {
		return nil
	}
	for _, o := range r.outputs() {
		for _, key := range o.manifests() {
			// Credentials that may write and not delete are usual, and good enough.
			if err := r.Dest.Delete(ctx, key); err != nil && weir.Retriable(err) {
				return err
			}
		}
	}
	r.state.Begun = true
	return nil
}

// Abort takes back what would look finished: uploads that were begun, and manifests.
// Segments and whole files stay; a later try finds them in place.
func (p *Publisher) Abort(ctx context.Context, state *PublishState) error {
	var failed error
	for key, f := range p.begunUploads(state) {
		upload, err := p.Dest.Resume(ctx, key, f.Upload)
		if err == nil {
			err = upload.Abort(ctx)
		}
		if err != nil && weir.KindOf(err) != weir.NotFound {
			failed = errors.Join(failed, err)
			continue
		}
		*f = FileState{}
	}
	for _, o := range p.outputs() {
		for _, key := range o.manifests() {
			if state.Begun {
				failed = errors.Join(failed, p.Dest.Delete(ctx, key))
			}
		}
	}
	state.Begun, state.Finished, state.Base = false, false, ""
	return failed
}

// Withdraw takes back everything that was put.
func (p *Publisher) Withdraw(ctx context.Context, state *PublishState) error {
	failed := p.Abort(ctx, state)
	for _, o := range p.outputs() {
		for name, piece := range state.Pieces[o.name()] {
			for _, key := range o.keys(name, piece) {
				failed = errors.Join(failed, p.Dest.Delete(ctx, key))
			}
		}
	}
	*state = PublishState{}
	return failed
}

// begunUploads returns the uploads in parts that were begun, by key.
func (p *Publisher) begunUploads(state *PublishState) iter.Seq2[string, *FileState] {
	return func(yield func(string, *FileState) bool) {
		for _, o := range p.outputs() {
			for name, piece := range state.Pieces[o.name()] {
				if piece.Upload != "" && !yield(o.keys(name, piece)[0], &piece.FileState) {
					return
				}
			}
		}
	}
}

// inSlot does f when fewer than [uploads] others are being done.
func (r *publishing) inSlot(ctx context.Context, f func() error) error {
	if err := r.takeSlot(ctx); err != nil {
		return err
	}
	defer func() { <-r.slots }()
	return f()
}

// takeSlot waits until there is a slot; a caller that got it gives it back by reading from
// r.slots.
func (r *publishing) takeSlot(ctx context.Context) error {
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change changes the state.
func (r *publishing) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// save hands the state to the caller.
func (r *publishing) save(ctx context.Context) error {
	if r.Save == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Save(ctx, r.state)
}
