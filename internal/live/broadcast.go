package live

import (
	"context"
	"io"
	"time"

	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/weir"
)

// Broadcast is a session as viewers see it: on air, waiting for its encoder, or just over.
type Broadcast struct{ session *session }

// Query selects the form of a playlist.
type Query struct {
	Low  bool // with parts
	Skip bool // a delta update

	// Segment and Part must be there, or are waited for; Segment -1 = no wait, Part -1 = the whole
	// segment.
	Segment int64
	Part    int
}

// Stream returns the stream as it was when the session began.
func (b *Broadcast) Stream() weir.Stream { return b.session.stream }

// SessionID returns the id of the session.
func (b *Broadcast) SessionID() string { return b.session.info.ID }

// Master returns the renditions that a player chooses from. Those that will come in a moment have no
// segments.
func (b *Broadcast) Master() cmaf.Master {
	all := &b.session.renditions
	all.mu.RLock()
	defer all.mu.RUnlock()
	var m cmaf.Master
	if all.video != nil {
		m.Video = append(m.Video, all.video.choice())
	}
	there := map[string]bool{}
	for _, r := range all.rungs {
		m.Video = append(m.Video, r.choice())
		there[r.name] = true
	}
	if all.video != nil {
		for _, name := range b.session.ladder.expected() {
			if !there[name] {
				m.Video = append(m.Video, cmaf.Rendition{Name: name})
			}
		}
	}
	if all.audio != nil {
		m.Audio = append(m.Audio, all.audio.choice())
	}
	return m
}

// PartDuration returns the maximum duration of the parts; 0 = playlists have none.
func (b *Broadcast) PartDuration() time.Duration { return b.session.renditions.partTarget }

// Playlist returns the media playlist of a rendition as soon as it has the segment and part of the
// query. A wait that ends with ctx is an error of kind Busy.
func (b *Broadcast) Playlist(ctx context.Context, name string, q Query) (*hls.Text, error) {
	r, err := b.rendition(name)
	if err != nil {
		return nil, err
	}
	if err := r.await(ctx, q); err != nil {
		return nil, err
	}
	if q.Segment < 0 || r.target.get() == 0 {
		r.awaitFirst(ctx)
	}
	return r.playlist(q, b.reports(name))
}

// firstWait is how long players wait for the first segment of a rendition: longer than the duration
// of most segments, and not so long that players take the server for dead.
const firstWait = 6 * time.Second

// awaitFirst waits for the first whole segment of a rendition. hls.js gives up on a playlist that has
// parts only, ffmpeg fails on a rendition that is empty while others are not, and the segment decides
// the target duration. If it does not come in time, players get the playlist as it is.
func (r *rendition) awaitFirst(ctx context.Context) {
	begun, changed := r.begun()
	if begun {
		return // nearly always, so without a timer
	}
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	for !begun {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		begun, changed = r.begun()
	}
}

// begun reports whether there is a whole segment, or none will come here, and returns what is closed at
// the next change.
func (r *rendition) begun() (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.segments) > 0 || r.ended || r.handedOver, r.changed
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

// Part opens a part of a segment. It waits for a part that comes next.
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

// Duration returns the duration of a segment or, if part is not negative, of a part of it; 0 = not
// known.
func (b *Broadcast) Duration(name string, n int64, part int) time.Duration {
	r, err := b.rendition(name)
	if err != nil {
		return 0
	}
	return r.duration(n, part)
}

// rendition returns the rendition of a name.
func (b *Broadcast) rendition(name string) (*rendition, error) {
	for _, r := range b.session.renditions.all() {
		if r.name == name {
			return r, nil
		}
	}
	return nil, weir.ErrNotFound()
}

// reports returns how far the other renditions are.
func (b *Broadcast) reports(except string) []hls.Report {
	var reports []hls.Report
	for _, r := range b.session.renditions.all() {
		if report := r.progress.Load(); r.name != except && report != nil {
			reports = append(reports, *report)
		}
	}
	return reports
}
