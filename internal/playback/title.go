package playback

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/access"
	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/view"
	"weir/internal/weir"
)

// title is an asset or a stream at one moment. It does not change; a newer one replaces it.
type title struct {
	view.Title
	policy    *weir.PlaybackPolicy
	ready     bool        // an asset is complete; a recording gets renditions later
	updated   weir.Millis // when an asset last changed
	segmented bool        // an asset is a recording or a clip
	begun     bool        // a stream was live at some time
	*tracks               // of an asset; those of a stream are in its broadcast
}

// live reports whether it is a stream.
func (t *title) live() bool { return t.StreamID != "" }

// gated returns what decides who may play it.
func (t *title) gated() access.Title {
	return access.Title{
		PlaybackID: t.PlaybackID, UserID: t.UserID, ProjectID: t.ProjectID, Policy: t.policy, Stream: t.live(), Length: t.length,
	}
}

// shared reports whether caches may give the response to other viewers: not if it depends on the
// viewer or on the origin of the page.
func (t *title) shared() bool {
	return !t.policy.Private() && (t.policy == nil || len(t.policy.AllowedOrigins) == 0)
}

// tracks are the tracks of an asset. Only the MP4 files change: they are added on request.
type tracks struct {
	presented media.Presentation
	signature *media.Signature // nil = it is not signed
	prefix    string
	video     []rendition
	audio     []rendition
	length    time.Duration
	done      bool         // the asset is complete
	memory    atomic.Int64 // approximate size in bytes

	mu    sync.Mutex
	files map[string]*mp4File // by rendition
}

// rendition is a track of a title.
type rendition struct {
	media.Rendition
	*media.Track
}

func (t *tracks) find(name string) (rendition, error) {
	for _, list := range [][]rendition{t.video, t.audio} {
		for _, r := range list {
			if r.Name == name {
				return r, nil
			}
		}
	}
	return rendition{}, weir.ErrNotFound()
}

// main returns the name of the rendition that is nearest to the source.
func (t *tracks) main() string {
	for _, list := range [][]rendition{t.video, t.audio} {
		if len(list) > 0 {
			return list[0].Name
		}
	}
	return ""
}

// same reports whether these are the tracks of a presentation, and none of them grows.
func (t *tracks) same(p media.Presentation) bool {
	grows := func(r media.Rendition) bool { return !r.Complete }
	return p.Complete == t.done && p.Signature == t.presented.Signature && slices.Equal(p.Renditions, t.presented.Renditions) && slices.Equal(p.Audio, t.presented.Audio) &&
		!slices.ContainsFunc(p.Renditions, grows) && !slices.ContainsFunc(p.Audio, grows)
}

func (t *tracks) defaultAudio() rendition {
	if len(t.audio) == 0 {
		return rendition{}
	}
	i := slices.IndexFunc(t.audio, func(r rendition) bool { return r.Index().Track.Default })
	return t.audio[max(i, 0)]
}

// hasCompleteVideo reports whether a video rendition is complete.
func (t *tracks) hasCompleteVideo() bool {
	return slices.ContainsFunc(t.video, func(r rendition) bool { return r.Complete })
}

// titles caches titles.
type titles struct {
	store   *store.Store
	media   blob.Store
	loading singleflight.Group
	mu      sync.Mutex
	cached  map[string]*cachedTitle
}

// cachedTitle is a cached title.
type cachedTitle struct {
	title   *title
	checked time.Time
	used    time.Time
}

const (
	// fresh is how long a title is cached without a check: how long after its deletion a viewer may
	// still be served.
	fresh = store.Fresh
	// maxLoad is the timeout of the storage.
	maxLoad   = 10 * time.Second
	maxMemory = 64 << 20
	maxTitles = 1000
)

// find returns a title that is cached for a moment. Concurrent requests load it once.
func (t *titles) find(ctx context.Context, playbackID string) (*title, error) {
	if n, ok := t.lookUp(playbackID, time.Now()); ok {
		return n, nil
	}
	found, err, _ := t.loading.Do(playbackID, func() (any, error) { return t.refresh(ctx, playbackID) })
	if err != nil {
		return nil, err
	}
	return found.(*title), nil
}

// lookUp returns the cached title, which may be nil, and whether it needs no check.
func (t *titles) lookUp(playbackID string, now time.Time) (*title, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.cached[playbackID]
	if k == nil {
		return nil, false
	}
	k.used = now
	return k.title, now.Sub(k.checked) < fresh
}

// refresh loads a title, unless another request has done so since this one missed it in the cache.
func (t *titles) refresh(ctx context.Context, playbackID string) (*title, error) {
	now := time.Now()
	old, ok := t.lookUp(playbackID, now)
	if ok {
		return old, nil
	}
	// Other requests wait for the result too, so it must not end with this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLoad)
	defer cancel()
	n, err := t.load(ctx, playbackID, old)
	if err != nil {
		t.forget(playbackID)
		return nil, err
	}
	t.remember(playbackID, &cachedTitle{title: n, checked: now, used: now})
	return n, nil
}

// load reads a title. It reuses those parts of the old one that can't have changed.
func (t *titles) load(ctx context.Context, playbackID string, old *title) (*title, error) {
	if old == nil || old.live() {
		stream, err := t.store.StreamByPlaybackID(ctx, playbackID)
		if err == nil {
			return titleOfStream(&stream)
		}
		if weir.KindOf(err) != weir.NotFound {
			return nil, err
		}
	}
	return t.loadAsset(ctx, playbackID, old)
}

func titleOfStream(stream *weir.Stream) (*title, error) {
	if stream.Deleted || stream.Suspended {
		return nil, weir.ErrNotFound()
	}
	return &title{
		Title: view.Title{
			PlaybackID: stream.PlaybackID, StreamID: stream.ID, UserID: stream.UserID, ProjectID: stream.ProjectID, CreatorID: stream.CreatorID.String(),
		},
		policy: stream.PlaybackPolicy, ready: true, begun: stream.IsActive || stream.LastSeen > 0, tracks: &tracks{},
	}, nil
}

func (t *titles) loadAsset(ctx context.Context, playbackID string, old *title) (*title, error) {
	asset, err := t.store.AssetByPlaybackID(ctx, playbackID)
	if err == nil && asset.Deleted {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return nil, err
	}
	ready := asset.Status.Phase == weir.AssetReady
	of := func(t *tracks) *title {
		return &title{
			Title: view.Title{
				PlaybackID: asset.PlaybackID, AssetID: asset.ID, UserID: asset.UserID, ProjectID: asset.ProjectID, CreatorID: asset.CreatorID.String(),
			},
			policy: asset.PlaybackPolicy, ready: ready, updated: asset.Status.UpdatedAt, segmented: asset.Segmented(), tracks: t,
		}
	}
	switch asset.Status.Phase {
	case weir.AssetWaiting, weir.AssetProcessing:
	case weir.AssetReady:
		if old != nil && old.done && old.AssetID == asset.ID && old.ready && old.updated == asset.Status.UpdatedAt {
			return of(old.tracks), nil
		}
	default:
		return nil, errNotReady()
	}
	n := &tracks{prefix: "asset/" + asset.ID}
	p, err := media.LoadPresentation(ctx, t.media, n.prefix)
	if err != nil {
		if weir.KindOf(err) == weir.NotFound {
			return nil, errNotReady()
		}
		return nil, storageError(err)
	}
	if asset.Sign && p.Signature == "" {
		return nil, errNotReady() // it is never played unsigned
	}
	if old != nil && old.same(p) {
		return of(old.tracks), nil
	}
	if n.signature, err = media.LoadSignature(ctx, t.media, n.prefix, p); err != nil {
		return nil, storageError(err)
	}
	n.presented, n.done, n.length = p, p.Complete, time.Duration(p.Duration*float64(time.Second))
	n.memory.Add(n.signature.Memory())
	if n.video, err = t.open(ctx, n, p.Renditions, old); err != nil {
		return nil, err
	}
	if n.audio, err = t.open(ctx, n, p.Audio, old); err != nil {
		return nil, err
	}
	return of(n), nil
}

func errNotReady() error { return weir.Errorf(weir.NotFound, "asset is not ready for playback") }

// storageError returns an error of the storage for the viewer. Only the log has its text, which can
// contain paths.
func storageError(err error) error {
	switch weir.KindOf(err) {
	case weir.NotFound:
		return weir.Wrap(weir.NotFound, err, "not found")
	case weir.Internal:
		return err
	}
	away := weir.Wrap(weir.Outage, err, "the media storage does not respond; try again")
	away.RetryAfter = storageRetry
	return away
}

func (t *titles) open(ctx context.Context, n *tracks, list []media.Rendition, old *title) ([]rendition, error) {
	var opened []rendition
	for _, r := range list {
		track, err := t.track(ctx, n.prefix, r, old)
		if err != nil {
			return nil, storageError(fmt.Errorf("rendition %s: %w", r.Name, err))
		}
		n.memory.Add(indexMemory(track.Index()))
		opened = append(opened, rendition{r, track})
	}
	return opened, nil
}

func (t *titles) track(ctx context.Context, prefix string, r media.Rendition, old *title) (*media.Track, error) {
	if old != nil && r.Complete {
		if before, err := old.find(r.Name); err == nil && before.Rendition == r {
			return before.Track, nil
		}
	}
	return media.Open(ctx, t.media, prefix+"/"+r.Dir)
}

func indexMemory(index cmaf.TrackIndex) (bytes int64) {
	const segmentBytes, partBytes, sampleBytes = 56, 40, 16
	for _, segment := range index.Segments {
		bytes += segmentBytes
		for _, part := range segment.Parts {
			bytes += partBytes + sampleBytes*int64(cap(part.Samples))
		}
	}
	return bytes
}

func (t *titles) forget(playbackID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.cached, playbackID)
}

// remember caches a title, and drops the least recently used ones if there are too many. The new
// one stays, whatever its size is.
func (t *titles) remember(playbackID string, k *cachedTitle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cached[playbackID] = k
	var total int64
	for _, k := range t.cached {
		total += k.title.memory.Load()
	}
	for len(t.cached) > 1 && (len(t.cached) > maxTitles || total > maxMemory) {
		oldest := ""
		for id, k := range t.cached {
			if id != playbackID && (oldest == "" || k.used.Before(t.cached[oldest].used)) {
				oldest = id
			}
		}
		total -= t.cached[oldest].title.memory.Load()
		delete(t.cached, oldest)
	}
}
