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
	// maxSegment is how long a segment may be, and maxInit what stands before it: two
	// segments of audio and of picture each are in memory at once.
	maxSegment = 32 << 20
	maxInit    = 1 << 20
	// behindEdge is how many segments before the end of a live playlist reading begins, as
	// the standard wants.
	behindEdge = 3
	// segmentTries is how often a segment is asked for.
	segmentTries = 3
	// soonestReload is how soon a playlist is asked for again.
	soonestReload = 500 * time.Millisecond
	// maxSilence is how long a live playlist may have nothing new, beside three times its
	// longest segment.
	maxSilence = 15 * time.Second
)

// readHLS reads what a playlist tells of. It was asked for at one address, and found at
// another.
func (s *pullSource) readHLS(ctx context.Context, w *web, text []byte, asked, found *url.URL) error {
	master, list, err := readPlaylist(text)
	if err != nil {
		return err
	}
	clock := &hlsClock{offsets: map[int64]time.Duration{}, began: make(chan struct{})}
	main := &hlsReader{source: s, web: w, clock: clock, list: list, at: asked, base: found, leads: true}
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
	beside := &hlsReader{source: s, web: w, clock: clock}
	if beside.at, err = addressIn(found, audio.URI); err != nil {
		return err
	}
	if err := beside.load(ctx); err != nil {
		return err
	}
	s.promise(true, true)
	clock.shared = true
	beside.follow(main)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return main.run(ctx) })
	g.Go(func() error {
		err := beside.run(ctx)
		if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind == weir.Invalid {
			s.withoutAudio(strings.Join(e.Messages, "; "))
			return nil
		}
		return err
	})
	return g.Wait()
}

// addressIn returns where a file is that a playlist names.
func addressIn(base *url.URL, uri string) (*url.URL, error) {
	u, err := base.Parse(uri)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, badPlaylist("names a file whose address can't be used")
	}
	return u, nil
}

// hlsClock joins the pieces of a presentation between which its times jump. Audio and
// picture share it, so that they stay in step.
type hlsClock struct {
	mu      sync.Mutex
	offsets map[int64]time.Duration // by piece
	end     time.Duration           // of what there was so far
	first   time.Duration           // when the pictures began
	began   chan struct{}           // closed when they did
	once    sync.Once
	shared  bool // audio has a playlist of its own
}

// at returns when a frame of a piece is due.
func (c *hlsClock) at(piece int64, at time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	offset, known := c.offsets[piece]
	if !known {
		offset = c.end - at
		c.offsets[piece] = offset
		delete(c.offsets, piece-4) // nobody is so far behind
	}
	at += offset
	c.end = max(c.end, at+20*time.Millisecond)
	return at
}

// begin notes when the pictures begin.
func (c *hlsClock) begin(at time.Duration) {
	c.once.Do(func() {
		c.first = at
		close(c.began)
	})
}

// hlsReader reads one media playlist.
type hlsReader struct {
	source *pullSource
	web    *web
	clock  *hlsClock
	leads  bool // the pictures, or all there is: it says where the source is

	at     *url.URL // where the playlist is asked for
	base   *url.URL // where it was found: what its names are relative to
	list   *hls.Media
	loaded time.Time
	next   int64 // number of the segment that comes next
	placed bool  // next says so
	lives  bool  // the playlist was seen without an end

	initial hls.File // that is in start
	start   []byte
	tracks  []cmaf.Track
	configs []codec.Packet
	ts      *mpegts.Demuxer
	part    int64 // the piece that is being read
	begun   bool
	keys    map[string][]byte
}

// load asks for the playlist.
func (r *hlsReader) load(ctx context.Context) error {
	text, found, err := r.web.all(ctx, r.at, 0, 0, maxPlaylist)
	if err != nil {
		return err
	}
	r.loaded = time.Now()
	master, list, err := readPlaylist(text)
	if err != nil {
		return err
	}
	if master != nil {
		return badPlaylist("has variants which have variants; there can be only one level of them")
	}
	r.base, r.list = found, list
	return nil
}

// place decides with which segment to begin.
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
	// Where it was left, if that is in the playlist; if not, the source began anew.
	if position > r.next && position <= last+1 {
		r.next = position
	}
}

// follow begins with the segment of the same time as another reader. What is in it before
// the other's first frame is left out later.
func (r *hlsReader) follow(main *hlsReader) {
	main.place()
	segments := r.list.Segments
	if len(segments) == 0 || len(main.list.Segments) == 0 {
		return
	}
	r.placed = true
	var before, after time.Duration // of the other's start
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

// fetched is a segment that is in memory.
type fetched struct {
	hls.Segment
	start []byte // what stands before it
	data  []byte
}

// run reads the playlist to its end: one side fetches a segment while the other hands
// the one before it on, as fast as it is shown.
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
	return failed // what was there before is handed on
}

// fetchAll fetches one segment after the other.
func (r *hlsReader) fetchAll(ctx context.Context, to chan<- fetched) error {
	progress := time.Now()
	for {
		r.lives = r.lives || !r.list.Ended
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
		case r.list.Ended && r.lives:
			// A live source may come back under the same address.
			return weir.Errorf(weir.Upstream, "the stream at %s has ended", r.at.Hostname())
		case r.list.Ended:
			return nil
		case silence > 3*r.list.Target+maxSilence:
			return weir.Errorf(weir.Upstream, "the playlist of %s has had nothing new for %d seconds", r.at.Hostname(), int(silence.Seconds()))
		}
		if err := r.reload(ctx); err != nil {
			return err
		}
	}
}

// reload asks for the playlist again, when something new can be in it.
func (r *hlsReader) reload(ctx context.Context) error {
	for tries := 1; ; tries++ {
		if err := pause(ctx, time.Until(r.loaded.Add(max(r.list.Target/2, soonestReload)))); err != nil {
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
		// It went on without us, or began anew.
		r.source.log.Info("the playlist of the source jumped", "from", r.next, "to", first)
		r.placed = false
	}
	return nil
}

// pause waits a moment.
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

// fetch fetches a segment. One that does not exist is left out.
func (r *hlsReader) fetch(ctx context.Context, segment hls.Segment, to chan<- fetched) error {
	if segment.Gap {
		return nil
	}
	for tries := 1; ; tries++ {
		f, err := r.try(ctx, segment)
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
			if gone(err) {
				r.source.log.Warn("a segment of the source does not exist and is left out", "number", segment.Number)
				return nil
			}
			return err
		}
		if err := pause(ctx, soonestReload); err != nil {
			return err
		}
	}
}

func (r *hlsReader) try(ctx context.Context, segment hls.Segment) (f fetched, err error) {
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

// file fetches a file of the playlist.
func (r *hlsReader) file(ctx context.Context, f hls.File, limit int64) ([]byte, error) {
	at, err := addressIn(r.base, f.URI)
	if err != nil {
		return nil, err
	}
	var end int64 // 0 = to the end of the file
	if f.Length > 0 {
		end = f.Offset + f.Length
	}
	data, _, err := r.web.all(ctx, at, f.Offset, end, limit)
	return data, err
}

// decrypt returns a segment as it was before somebody encrypted it.
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
			return nil, badPlaylist("has an initialisation vector that can't be read")
		}
		iv = given
	}
	block, err := aes.NewCipher(key)
	if err != nil || len(key) != aes.BlockSize || len(data) == 0 || len(data)%aes.BlockSize != 0 {
		return nil, badPlaylist("is encrypted, and its segments or its key have no possible length")
	}
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(data, data)
	padding := int(data[len(data)-1])
	if padding == 0 || padding > aes.BlockSize {
		return nil, badPlaylist("is encrypted with another key than it says")
	}
	return data[:len(data)-padding], nil
}

// play hands the frames of a segment on.
func (r *hlsReader) play(ctx context.Context, f fetched) error {
	if !r.begun || f.Breaks != r.part {
		r.part, r.begun, r.ts = f.Breaks, true, nil
	}
	take := func(p codec.Packet, at time.Duration) error { return r.take(ctx, p, at) }
	if f.start == nil && mpegts.Detect(f.data) {
		if r.ts == nil {
			r.ts = mpegts.NewDemuxer(take, r.promise, r.source.log)
		}
		r.ts.Lost() // segments need not count on
		if err := r.ts.Write(f.data); err != nil {
			return unreadable(err)
		}
		return unreadable(r.ts.Flush())
	}
	in := cmaf.NewReader(io.MultiReader(bytes.NewReader(f.start), bytes.NewReader(f.data)))
	if err := r.describe(ctx, in); err != nil {
		return err
	}
	return fragments(in, r.tracks, r.configs, take)
}

// describe reads what stands before a segment of fragmented MP4.
func (r *hlsReader) describe(ctx context.Context, in *cmaf.Reader) error {
	tracks, err := in.Tracks()
	if err != nil {
		return err
	}
	if r.tracks != nil && sameTracks(r.tracks, tracks) {
		return nil
	}
	r.tracks = tracks
	var silent string
	if r.configs, silent, err = r.source.usable(tracks, r.promise); err != nil {
		return err
	}
	if !r.clock.shared { // else the audio is in the other playlist
		r.source.withoutAudio(silent)
	}
	for _, config := range r.configs {
		if config.Config {
			if err := r.source.addNow(ctx, config, 0); err != nil {
				return unreadable(err)
			}
		}
	}
	return nil
}

func sameTracks(a, b []cmaf.Track) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Kind != b[i].Kind || a[i].Timescale != b[i].Timescale || !bytes.Equal(a[i].Entry, b[i].Entry) {
			return false
		}
	}
	return true
}

// promise tells of the tracks, if all of them are here: those of two playlists are
// promised together.
func (r *hlsReader) promise(video, audio bool) {
	select {
	case <-r.clock.began: // it was told already
	default:
		if r.leads && !r.clock.shared {
			r.source.promise(video, audio)
		}
	}
}

// take hands on a frame when it is due.
func (r *hlsReader) take(ctx context.Context, p codec.Packet, at time.Duration) error {
	if p.Config {
		return r.source.addNow(ctx, p, at)
	}
	if !r.leads {
		select {
		case <-r.clock.began:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	due := r.clock.at(r.part, at)
	if r.leads {
		r.clock.begin(due)
	} else if due < r.clock.first-100*time.Millisecond {
		return ctx.Err()
	}
	return r.source.add(ctx, p, due)
}
