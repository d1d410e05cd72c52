package live

import (
	"context"
	"io"
	"time"

	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/weir"
)

// Broadcast is a stream as viewers see it: on air, in a gap, or just over.
type Broadcast struct{ session *session }

// Query is what a player may ask of a playlist.
type Query struct {
	Low  bool // with parts
	Skip bool // without what it has already

	// Segment and Part are what it waits for; Segment -1 = nothing, Part -1 = the whole
	// segment.
	Segment int64
	Part    int
}

// Stream returns the stream as it was when the session began.
func (b *Broadcast) Stream() weir.Stream { return b.session.stream }

// SessionID returns the id of the session.
func (b *Broadcast) SessionID() string { return b.session.info.ID }

// Master returns what a player chooses from. Renditions that will come in a moment are in
// it without segments.
func (b *Broadcast) Master() cmaf.Master {
	b.session.looking.RLock()
	defer b.session.looking.RUnlock()
	var m cmaf.Master
	if r := b.session.video; r != nil {
		m.Video = append(m.Video, r.choice())
	}
	there := map[string]bool{}
	for _, r := range b.session.rungs {
		m.Video = append(m.Video, r.choice())
		there[r.name] = true
	}
	if b.session.video != nil {
		for _, name := range b.session.ladder.expected() {
			if !there[name] {
				m.Video = append(m.Video, cmaf.Rendition{Name: name})
			}
		}
	}
	if r := b.session.audio; r != nil {
		m.Audio = append(m.Audio, r.choice())
	}
	return m
}

// Playlist returns the media playlist of a rendition as soon as it has what the query
// waits for. A wait that ends with ctx is an error of kind Busy.
func (b *Broadcast) Playlist(ctx context.Context, name string, q Query) ([]byte, error) {
	r, err := b.rendition(name)
	if err != nil {
		return nil, err
	}
	if err := r.await(ctx, q); err != nil {
		return nil, err
	}
	if q.Segment < 0 {
		r.awaitFirst(ctx)
	}
	return r.playlist(q, b.reports(name))
}

// firstWait is how long players wait for the first segment of a rendition: longer than most
// segments last, and not so long that they take the server for dead.
const firstWait = 6 * time.Second

// awaitFirst waits for the first whole segment of a rendition. hls.js gives up on a
// playlist that has parts only, and ffmpeg falls over a rendition that is empty while
// others are not. If it does not come in time they get what there is.
func (r *rendition) awaitFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	for {
		r.mu.Lock()
		changed, over := r.changed, len(r.segments) > 0 || r.ended || r.gone
		r.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Init returns an init segment of a rendition, by the number in its playlist.
func (b *Broadcast) Init(name string, k int) ([]byte, error) {
	r, err := b.rendition(name)
	if err != nil {
		return nil, err
	}
	if k < int(r.base) {
		return r.storedInit(k)
	}
	return r.recorder.Init(k - int(r.base))
}

// Segment opens a whole segment.
func (b *Broadcast) Segment(name string, n int64) (io.ReadSeekCloser, int64, error) {
	r, err := b.rendition(name)
	if err != nil {
		return nil, 0, err
	}
	r.mu.Lock()
	whole := n >= r.base && r.has(n-r.base, -1)
	r.mu.Unlock()
	if !whole || r.gap(n) {
		return nil, 0, weir.ErrNotFound()
	}
	return r.recorder.Open(n - r.base)
}

// Part opens a part of a segment. One that does not exist yet is waited for, if it is
// the next one.
func (b *Broadcast) Part(ctx context.Context, name string, n int64, part int) (io.ReadSeekCloser, int64, error) {
	r, err := b.rendition(name)
	if err != nil {
		return nil, 0, err
	}
	if !r.announced(n, part) {
		return nil, 0, weir.ErrNotFound()
	}
	if err := r.await(ctx, Query{Segment: n, Part: part}); err != nil {
		return nil, 0, err
	}
	return r.recorder.Part(n-r.base, part)
}

// Length returns how long a segment or, if part is not negative, a part of it is; 0 =
// not known.
func (b *Broadcast) Length(name string, n int64, part int) time.Duration {
	r, err := b.rendition(name)
	if err != nil {
		return 0
	}
	return r.length(n, part)
}

// rendition returns one by its name.
func (b *Broadcast) rendition(name string) (*rendition, error) {
	for _, r := range b.session.everything() {
		if r.name == name {
			return r, nil
		}
	}
	return nil, weir.ErrNotFound()
}

// reports tells how far the other renditions are.
func (b *Broadcast) reports(except string) []hls.Report {
	var reports []hls.Report
	for _, r := range b.session.everything() {
		if report := r.progress.Load(); r.name != except && report != nil {
			reports = append(reports, *report)
		}
	}
	return reports
}
