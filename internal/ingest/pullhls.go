package ingest

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/hls"
	"weir/internal/mpegts"
	"weir/internal/weir"
)

const (
	// maxSegment is the maximum size of a segment, maxInit that of its init segment. Two segments
	// of audio and two of video are in memory at once.
	maxSegment = 32 << 20
	maxInit    = 1 << 20
	// behindEdge is the number of segments before the end of a live playlist where reading starts,
	// as the standard demands.
	behindEdge = 3
	// segmentTries is the maximum number of requests for a segment.
	segmentTries = 3
	// minReload is the minimum interval between two requests for a playlist.
	minReload = 500 * time.Millisecond
	// maxSilence is how long a live playlist may have nothing new, beside three times its target
	// duration.
	maxSilence = 15 * time.Second
)

// readHLS reads the stream of a playlist. asked is its URL, found the one after redirects.
func (s *pullSource) readHLS(ctx context.Context, w *fetcher, text []byte, asked, found *url.URL) error {
	master, list, err := readPlaylist(text)
	if err != nil {
		return err
	}
	clock := &hlsClock{offsets: map[int64]time.Duration{}, began: make(chan struct{})}
	main := &hlsReader{source: s, fetcher: w, clock: clock, list: list, at: asked, base: found, leads: true}
	if master == nil {
		return main.run(ctx)
	}
	variant, audio := bestVariant(master)
	if main.at, err = addressIn(found, variant.URI); err != nil {
		return err
	}
	if err := main.load(ctx); err != nil {
		return err
	}
	if audio == nil {
		return main.run(ctx)
	}
	audioReader := &hlsReader{source: s, fetcher: w, clock: clock}
	if audioReader.at, err = addressIn(found, audio.URI); err != nil {
		return err
	}
	if err := audioReader.load(ctx); err != nil {
		return err
	}
	s.announce(true, true)
	clock.shared = true
	audioReader.follow(main)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return main.run(ctx) })
	g.Go(func() error {
		err := audioReader.run(ctx)
		if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind == weir.Invalid {
			s.ignoreAudio(strings.Join(e.Messages, "; "))
			return nil
		}
		return err
	})
	return g.Wait()
}

// addressIn returns the absolute URL of a file of a playlist.
func addressIn(base *url.URL, uri string) (*url.URL, error) {
	u, err := base.Parse(uri)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, badPlaylist("names a file with an invalid address")
	}
	return u, nil
}

// hlsClock makes one timeline of the sections of a stream between its discontinuities. Audio and
// video share it, so that they stay in sync.
type hlsClock struct {
	mu      sync.Mutex
	offsets map[int64]time.Duration // by section
	end     time.Duration           // of the media so far
	first   time.Duration           // time of the first video frame
	began   chan struct{}           // closed when first is set
	once    sync.Once
	shared  bool // audio has a playlist of its own
}

// at returns the time of a frame on the timeline.
func (c *hlsClock) at(section int64, at time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	offset, known := c.offsets[section]
	if !known {
		offset = c.end - at
		c.offsets[section] = offset
		delete(c.offsets, section-4) // no reader is so far behind
	}
	at += offset
	c.end = max(c.end, at+20*time.Millisecond)
	return at
}

// setFirst notes the time of the first video frame.
func (c *hlsClock) setFirst(at time.Duration) {
	c.once.Do(func() {
		c.first = at
		close(c.began)
	})
}

// hlsReader reads one media playlist.
type hlsReader struct {
	source  *pullSource
	fetcher *fetcher
	clock   *hlsClock
	leads   bool // it reads the video, or everything, and notes the position in the source

	at     *url.URL // of the playlist
	base   *url.URL // that after redirects, to which names in the playlist are relative
	list   *hls.Media
	loaded time.Time
	next   int64 // number of the next segment
	placed bool  // next is set
	live   bool  // the playlist had no end before

	initial hls.File // that is in start
	start   []byte   // init segment
	tracks  []cmaf.Track
	configs []codec.Packet
	ts      *mpegts.Demuxer
	section int64 // between discontinuities
	begun   bool
	keys    map[string][]byte
}

func (r *hlsReader) load(ctx context.Context) error {
	text, found, err := r.fetcher.getAll(ctx, r.at, 0, 0, maxPlaylist)
	if err != nil {
		return err
	}
	r.loaded = time.Now()
	master, list, err := readPlaylist(text)
	if err != nil {
		return err
	}
	if master != nil {
		return badPlaylist("has variants that are master playlists; they must be media playlists")
	}
	r.base, r.list = found, list
	return nil
}

// place sets the first segment.
func (r *hlsReader) place() {
	segments := r.list.Segments
	if r.placed || len(segments) == 0 {
		return
	}
	r.placed = true
	first, last := segments[0].Number, segments[len(segments)-1].Number
	position := int64(0)
	if r.leads {
		position = r.source.pull.Position()
	}
	r.next = first
	if !r.list.Ended {
		r.next = max(first, last-behindEdge+1)
	}
	// Reading continues at the last position, if that is in the playlist. If not, the source has
	// started again.
	if position > r.next && position <= last+1 {
		r.next = position
	}
}

// follow sets the first segment to that of the same time as the main reader's. Frames before the
// first one of the main reader are dropped later.
func (r *hlsReader) follow(main *hlsReader) {
	main.place()
	segments := r.list.Segments
	if len(segments) == 0 || len(main.list.Segments) == 0 {
		return
	}
	r.placed = true
	var before, after time.Duration // of the main reader's first segment
	for _, s := range main.list.Segments {
		if s.Number < main.next {
			before += s.Duration
		} else {
			after += s.Duration
		}
	}
	if main.list.Ended {
		r.next = segments[0].Number
		for _, s := range segments {
			if before -= s.Duration; before < 0 {
				break
			}
			r.next = s.Number + 1
		}
		return
	}
	r.next = segments[len(segments)-1].Number
	for i := len(segments) - 1; i >= 0 && after > 0; i-- {
		after -= segments[i].Duration
		r.next = segments[i].Number
	}
}

// fetched is a segment in memory.
type fetched struct {
	hls.Segment
	start []byte // init segment
	data  []byte
}

// run reads the playlist to its end. One goroutine fetches a segment while another plays the one
// before it in real time.
func (r *hlsReader) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	segments := make(chan fetched)
	var fetching sync.WaitGroup
	var failed error
	fetching.Go(func() {
		defer close(segments)
		failed = r.fetchAll(ctx, segments)
	})
	defer fetching.Wait()
	defer cancel()
	for f := range segments {
		if err := r.play(ctx, f); err != nil {
			return err
		}
		if r.leads {
			r.source.pull.SetPosition(f.Number + 1)
		}
	}
	return failed // after what was fetched before
}

func (r *hlsReader) fetchAll(ctx context.Context, to chan<- fetched) error {
	progress := time.Now()
	for {
		r.live = r.live || !r.list.Ended
		r.place()
		for _, segment := range r.list.Segments {
			if segment.Number < r.next {
				continue
			}
			if err := r.fetch(ctx, segment, to); err != nil {
				return err
			}
			r.next, progress = segment.Number+1, time.Now()
		}
		switch silence := time.Since(progress); {
		case r.list.Ended && r.live:
			// A live source may start again at the same URL.
			return weir.Errorf(weir.Upstream, "the stream at %s has ended", r.at.Hostname())
		case r.list.Ended:
			return nil
		case silence > 3*r.list.Target+maxSilence:
			return weir.Errorf(weir.Upstream, "the playlist of %s has had no new segment for %d seconds", r.at.Hostname(), int(silence.Seconds()))
		}
		if err := r.reload(ctx); err != nil {
			return err
		}
	}
}

// reload fetches the playlist again, when it can have changed.
func (r *hlsReader) reload(ctx context.Context) error {
	for tries := 1; ; tries++ {
		if err := pause(ctx, time.Until(r.loaded.Add(max(r.list.Target/2, minReload)))); err != nil {
			return err
		}
		err := r.load(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil || tries == segmentTries {
			return err
		}
		r.loaded = time.Now()
	}
	segments := r.list.Segments
	if len(segments) == 0 || !r.placed {
		return nil
	}
	first, last := segments[0].Number, segments[len(segments)-1].Number
	if first > r.next || last < r.next-1 {
		// Segments were missed, or the source has started again.
		r.source.log.Info("the playlist of the source jumped", "from", r.next, "to", first)
		r.placed = false
	}
	return nil
}

func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// fetch fetches a segment. It skips one that does not exist.
func (r *hlsReader) fetch(ctx context.Context, segment hls.Segment, to chan<- fetched) error {
	if segment.Gap {
		return nil
	}
	for tries := 1; ; tries++ {
		f, err := r.fetchOnce(ctx, segment)
		if err == nil {
			select {
			case to <- f:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if ctx.Err() != nil || weir.KindOf(err) == weir.Invalid {
			return err
		}
		if tries == segmentTries {
			if notFound(err) {
				r.source.log.Warn("a segment of the source does not exist and is left out", "number", segment.Number)
				return nil
			}
			return err
		}
		if err := pause(ctx, minReload); err != nil {
			return err
		}
	}
}

func (r *hlsReader) fetchOnce(ctx context.Context, segment hls.Segment) (f fetched, err error) {
	f.Segment = segment
	if segment.Map != nil {
		if *segment.Map != r.initial {
			if r.start, err = r.file(ctx, *segment.Map, maxInit); err != nil {
				return f, err
			}
			r.initial = *segment.Map
		}
		f.start = r.start
	}
	if f.data, err = r.file(ctx, segment.File, maxSegment); err != nil || segment.Key == nil {
		return f, err
	}
	f.data, err = r.decrypt(ctx, segment, f.data)
	return f, err
}

func (r *hlsReader) file(ctx context.Context, f hls.File, limit int64) ([]byte, error) {
	at, err := addressIn(r.base, f.URI)
	if err != nil {
		return nil, err
	}
	var end int64 // 0 = to the end of the file
	if f.Length > 0 {
		end = f.Offset + f.Length
	}
	data, _, err := r.fetcher.getAll(ctx, at, f.Offset, end, limit)
	return data, err
}

func (r *hlsReader) decrypt(ctx context.Context, segment hls.Segment, data []byte) ([]byte, error) {
	key, known := r.keys[segment.Key.URI]
	if !known {
		var err error
		if key, err = r.file(ctx, hls.File{URI: segment.Key.URI}, aes.BlockSize); err != nil {
			return nil, weir.Wrap(weir.Upstream, err, "the key of the encrypted playlist can't be fetched")
		}
		r.keys = map[string][]byte{segment.Key.URI: key}
	}
	iv := make([]byte, aes.BlockSize)
	binary.BigEndian.PutUint64(iv[8:], uint64(segment.Number))
	if text := segment.Key.IV; text != "" {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "0x"), "0X")
		given, err := hex.DecodeString(strings.Repeat("0", max(0, 32-len(text))) + text)
		if err != nil || len(given) != aes.BlockSize {
			return nil, badPlaylist("has an invalid initialisation vector")
		}
		iv = given
	}
	block, err := aes.NewCipher(key)
	if err != nil || len(key) != aes.BlockSize || len(data) == 0 || len(data)%aes.BlockSize != 0 {
		return nil, badPlaylist("is encrypted, and its segments or its key have an invalid length")
	}
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(data, data)
	padding := int(data[len(data)-1])
	if padding == 0 || padding > aes.BlockSize {
		return nil, badPlaylist("is encrypted with another key than it says")
	}
	return data[:len(data)-padding], nil
}

func (r *hlsReader) play(ctx context.Context, f fetched) error {
	if !r.begun || f.Breaks != r.section {
		r.section, r.begun, r.ts = f.Breaks, true, nil
	}
	take := func(p codec.Packet, at time.Duration) error { return r.passOn(ctx, p, at) }
	if f.start == nil && mpegts.Detect(f.data) {
		if r.ts == nil {
			r.ts = mpegts.NewDemuxer(take, r.announce, r.source.log)
		}
		r.ts.Lost() // continuity counters may start again in each segment
		if err := r.ts.Write(f.data); err != nil {
			return unreadable(err)
		}
		return unreadable(r.ts.Flush())
	}
	in := cmaf.NewReader(io.MultiReader(bytes.NewReader(f.start), bytes.NewReader(f.data)))
	tracks, err := in.Tracks()
	if err != nil {
		return err
	}
	same := func(a, b cmaf.Track) bool {
		return a.Kind == b.Kind && a.Timescale == b.Timescale && bytes.Equal(a.Entry, b.Entry)
	}
	if r.tracks == nil || !slices.EqualFunc(r.tracks, tracks, same) {
		r.tracks = tracks
		if r.configs, err = r.source.configure(ctx, tracks, r.announce, r.clock.shared); err != nil {
			return err
		}
	}
	return fragments(in, r.tracks, r.configs, take)
}

// announce announces the tracks, unless they are in two playlists: those are announced together.
func (r *hlsReader) announce(video, audio bool) {
	select {
	case <-r.clock.began: // they were announced before
	default:
		if r.leads && !r.clock.shared {
			r.source.announce(video, audio)
		}
	}
}

// passOn passes a frame on when it is due.
func (r *hlsReader) passOn(ctx context.Context, p codec.Packet, at time.Duration) error {
	if p.Config {
		return r.source.addPacketNow(ctx, p, at)
	}
	if !r.leads {
		select {
		case <-r.clock.began:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	due := r.clock.at(r.section, at)
	if r.leads {
		r.clock.setFirst(due)
	} else if due < r.clock.first-100*time.Millisecond {
		return ctx.Err()
	}
	return r.source.addPacket(ctx, p, due)
}
