package vod

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/weir"
)

// Publisher renders what a plan produced and puts it where the caller wants it.
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
	Dest    blob.Store            // gets the outputs
	Outputs weir.TranscodeOutputs // which, and under which paths
	TS      bool                  // HLS has MPEG-TS segments; else those of CMAF
	Dir     string                // for files that live as long as a call

	// Save is called with the state when it has something that must not be
	// forgotten: the id of an upload in parts. Nil = the caller keeps the state
	// only when Publish has returned.
	Save func(ctx context.Context, state *PublishState) error

	// Rendering is held while a segment is rendered and thus in memory. Publishers
	// that share it need memory for one segment together. Nil = this one alone.
	Rendering *sync.Mutex

	// PartSize is the size of a part of an upload; 0 = defaultPartSize, and a
	// disk gets files whole. The parts of a file whose head needs more are larger.
	PartSize int64
}

// PublishState is what a Publisher did so far. Its zero value is nothing.
type PublishState struct {
	Begun    bool                  `json:"begun,omitempty"` // an older master playlist is out of the way
	HLS      map[string]*HLSState  `json:"hls,omitempty"`   // by name of the stream
	MP4      map[string]*FileState `json:"mp4,omitempty"`   // by name of the rendition
	FMP4     map[string]*FileState `json:"fmp4,omitempty"`  // by name of the file
	Finished bool                  `json:"finished,omitempty"`
}

// uploads is how many segments, parts or files are in hand at the same time.
const uploads = 4

// The content types of what is put.
const (
	typeMP4      = "video/mp4"
	typeTS       = "video/mp2t"
	typePlaylist = "application/x-mpegurl"
	typeDASH     = "application/dash+xml"
)

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

// Publish puts what is new. When all streams are complete it finishes the outputs,
// and state.Finished is true. After an error the state tells what was done
// nevertheless, and another call goes on from there.
func (p *Publisher) Publish(ctx context.Context, state *PublishState, video, audio []Stream) error {
	if state.Finished {
		return nil
	}
	r := &publishing{Publisher: p, video: video, audio: audio, slots: make(chan struct{}, uploads), rendering: p.Rendering, state: state}
	if r.rendering == nil {
		r.rendering = new(sync.Mutex)
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	// All jobs are there before the first one starts: they share the maps of the state.
	jobs := append(r.hlsJobs(), r.fileJobs()...)
	group, groupCtx := errgroup.WithContext(ctx)
	for _, job := range jobs {
		group.Go(func() error { return job(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, s := range slices.Concat(video, audio) {
		if !s.Complete {
			return nil
		}
	}
	return r.finish(ctx)
}

// Abort takes back what would look finished: uploads that were begun, playlists and
// manifests. Segments and whole files stay; a later try finds them in place.
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
	if state.Begun {
		for _, key := range p.masters() {
			failed = errors.Join(failed, p.Dest.Delete(ctx, key))
		}
	}
	state.Begun, state.Finished = false, false
	return failed
}

// Withdraw takes back everything that was put.
func (p *Publisher) Withdraw(ctx context.Context, state *PublishState) error {
	failed := p.Abort(ctx, state)
	remove := func(key string) { failed = errors.Join(failed, p.Dest.Delete(ctx, key)) }
	for name, hls := range state.HLS {
		// Some may be there that were not noted since one before them was missing.
		for n := range hls.Segments + uploads {
			remove(p.hlsKey(name, strconv.Itoa(n)+".ts"))
			remove(p.hlsKey(name, strconv.Itoa(n)+".m4s"))
		}
		remove(p.hlsKey(name, "init.mp4"))
		remove(p.hlsKey(name, "index.m3u8"))
	}
	for name := range state.MP4 {
		remove(p.mp4Key(name))
	}
	for name := range state.FMP4 {
		remove(p.fmp4Key(name))
		remove(p.fmp4Key(strings.NewReplacer("index-stream", "media_", ".mp4", ".m3u8").Replace(name)))
	}
	*state = PublishState{}
	return failed
}

// begunUploads returns the uploads in parts that were begun, by key.
func (p *Publisher) begunUploads(state *PublishState) map[string]*FileState {
	begun := map[string]*FileState{}
	for name, f := range state.MP4 {
		if f.Upload != "" {
			begun[p.mp4Key(name)] = f
		}
	}
	for name, f := range state.FMP4 {
		if f.Upload != "" {
			begun[p.fmp4Key(name)] = f
		}
	}
	return begun
}

// masters returns the keys of what tells a player that an output is finished.
func (p *Publisher) masters() (keys []string) {
	if p.Outputs.HLS != nil {
		keys = append(keys, p.hlsKey("index.m3u8"))
	}
	if p.Outputs.FMP4 != nil {
		keys = append(keys, p.fmp4Key("master.m3u8"), p.fmp4Key("index.mpd"))
	}
	return keys
}

// begin takes the master playlists of an earlier output out of the way: with new
// segments behind it, an old playlist would play a mixture.
func (r *publishing) begin(ctx context.Context) error {
	if r.state.HLS == nil {
		r.state.HLS = map[string]*HLSState{}
	}
	if r.state.MP4 == nil {
		r.state.MP4 = map[string]*FileState{}
	}
	if r.state.FMP4 == nil {
		r.state.FMP4 = map[string]*FileState{}
	}
	if r.state.Begun {
		return nil
	}
	for _, key := range r.masters() {
		// Credentials that may write and not delete are usual, and good enough.
		if err := r.Dest.Delete(ctx, key); err != nil && weir.Retriable(err) {
			return err
		}
	}
	r.state.Begun = true
	return nil
}

// finish puts playlists and manifests, the master playlist of HLS last.
func (r *publishing) finish(ctx context.Context) error {
	if r.Outputs.FMP4 != nil {
		if err := r.finishFMP4(ctx); err != nil {
			return err
		}
	}
	if r.Outputs.HLS != nil {
		if err := r.finishHLS(ctx); err != nil {
			return err
		}
	}
	r.state.Finished = true
	return nil
}

// inSlot does f when fewer than [uploads] others are being done.
func (r *publishing) inSlot(ctx context.Context, f func() error) error {
	if err := r.takeSlot(ctx); err != nil {
		return err
	}
	defer func() { <-r.slots }()
	return f()
}

// takeSlot waits until there is a slot; who got it gives it back by reading from r.slots.
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

// putText puts a playlist or a manifest.
func (r *publishing) putText(ctx context.Context, key, contentType string, text []byte) error {
	return r.Dest.Put(ctx, key, bytes.NewReader(text), int64(len(text)), blob.PutOptions{ContentType: contentType})
}

// destKey returns the key of a file below a path that the caller gave.
func destKey(base string, names ...string) string {
	return strings.TrimPrefix(path.Join(append([]string{"/", base}, names...)...), "/")
}
