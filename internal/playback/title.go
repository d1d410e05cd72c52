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
	"weir/internal/caption"
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
	phase     weir.AssetPhase   // of an asset
	ready     bool              // an asset is complete; a recording gets renditions later
	updated   weir.Millis       // when an asset last changed
	sign      bool              // an asset is never played unsigned
	segmented bool              // an asset is a recording or a clip
	begun     bool              // a stream was live at some time
	text      []weir.AssetTrack // of an asset: tracks of text that viewers get
	*tracks                     // of an asset; those of a stream are in its broadcast
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
	return !t.policy.Private() && !t.restrictsOrigin()
}

// restrictsOrigin reports whether only pages of some origins may play it.
func (t *title) restrictsOrigin() bool { return t.policy != nil && len(t.policy.AllowedOrigins) > 0 }

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
	files map[string]*mp4File      // by rendition
	cues  map[string][]caption.Cue // of tracks of text, by their objects
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
	return p.Complete == t.done && p.Signature == t.presented.Signature && slices.Equal(p.Renditions, t.presented.Renditions) && slices.Equal(p.Audio, t.presented.Audio) && slices.Equal(p.Captions, t.presented.Captions) &&
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

// titles finds titles. What the store says of them is in known, and stays there while the database
// does not respond; the tracks of assets are read from the media storage, and cached here.
type titles struct {
	store   *store.Store
	media   blob.Store
	known   store.Recent[*title] // by playback id; assets without tracks
	loading singleflight.Group
	mu      sync.Mutex
	cached  map[string]*cachedTitle
}

// cachedTitle is an asset with its tracks.
type cachedTitle struct {
	of    *title // what the store said when the tracks were read
	title *title
	used  time.Time
}

const (
	// fresh is how long a title is cached without a check: how long after its deletion a viewer may
	// still be served.
	fresh = store.Fresh
	// maxLoad is the timeout of the storage.
	maxLoad   = 10 * time.Second
	maxMemory = 64 << 20
	maxTitles = 1000
	// maxKnown is the number of titles without tracks. One takes about a kilobyte.
	maxKnown = 10_000
)

// find returns a title that is cached for a moment. Concurrent requests load it once.
func (t *titles) find(ctx context.Context, playbackID string) (*title, error) {
	known, err := t.known.Get(ctx, playbackID, time.Now(), func(ctx context.Context) (*title, error) {
		return t.load(ctx, playbackID)
	})
	if err != nil || known.live() {
		return known, err
	}
	if n, ok := t.lookUp(known); ok {
		return n, nil
	}
	found, err, _ := t.loading.Do(playbackID, func() (any, error) { return t.refresh(ctx, known) })
	if err != nil {
		return nil, err
	}
	return found.(*title), nil
}

// lookUp returns the asset with its tracks, which may be nil, and whether it needs no check.
func (t *titles) lookUp(known *title) (*title, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.cached[known.PlaybackID]
	if k == nil {
		return nil, false
	}
	k.used = time.Now()
	return k.title, k.of == known
}

// refresh reads the tracks of an asset, unless another request has done so since this one missed
// them in the cache.
func (t *titles) refresh(ctx context.Context, known *title) (*title, error) {
	old, ok := t.lookUp(known)
	if ok {
		return old, nil
	}
	// Other requests wait for the result too, so it must not end with this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLoad)
	defer cancel()
	tracks, err := t.loadTracks(ctx, known, old)
	if err != nil {
		t.forget(known.PlaybackID)
		return nil, err
	}
	n := *known
	n.tracks = tracks
	t.remember(known.PlaybackID, &cachedTitle{of: known, title: &n, used: time.Now()})
	return &n, nil
}

// load reads what the store says of a title.
func (t *titles) load(ctx context.Context, playbackID string) (*title, error) {
	if !t.isAsset(playbackID) {
		stream, err := t.store.StreamByPlaybackID(ctx, playbackID)
		if err == nil {
			return titleOfStream(&stream)
		}
		if !weir.IsNotFound(err) {
			return nil, err
		}
	}
	asset, err := t.store.AssetByPlaybackID(ctx, playbackID)
	if err == nil && asset.Deleted {
		err = weir.ErrNotFound()
	}
	if weir.IsNotFound(err) {
		t.forget(playbackID)
	}
	if err != nil {
		return nil, err
	}
	return titleOfAsset(&asset), nil
}

// isAsset reports whether a playback id is known to be that of an asset.
func (t *titles) isAsset(playbackID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cached[playbackID] != nil
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

func titleOfAsset(asset *weir.Asset) *title {
	return &title{
		Title: view.Title{
			PlaybackID: asset.PlaybackID, AssetID: asset.ID, UserID: asset.UserID, ProjectID: asset.ProjectID, CreatorID: asset.CreatorID.String(),
		},
		policy: asset.PlaybackPolicy, phase: asset.Status.Phase, ready: asset.Status.Phase == weir.AssetReady,
		updated: asset.Status.UpdatedAt, sign: asset.Sign, segmented: asset.Segmented(), text: playableText(asset.Tracks),
	}
}

// loadTracks reads the tracks of an asset. It reuses those of the old title that can't have changed.
func (t *titles) loadTracks(ctx context.Context, known, old *title) (*tracks, error) {
	switch known.phase {
	case weir.AssetWaiting, weir.AssetProcessing:
	case weir.AssetReady:
		if old != nil && old.done && old.AssetID == known.AssetID && old.ready && old.updated == known.updated {
			return old.tracks, nil
		}
	default:
		return nil, errNotReady()
	}
	n := &tracks{prefix: media.AssetFolder(known.AssetID)}
	p, err := media.LoadPresentation(ctx, t.media, n.prefix)
	if err != nil {
		if weir.KindOf(err) == weir.NotFound {
			return nil, errNotReady()
		}
		return nil, storageError(err)
	}
	if known.sign && p.Signature == "" {
		return nil, errNotReady() // it is never played unsigned
	}
	if old != nil && old.same(p) {
		return old.tracks, nil
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
	return n, nil
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
