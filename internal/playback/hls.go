package playback

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/cmaf"
	"weir/internal/endpoint"
	"weir/internal/hls"
	"weir/internal/weir"
)

const (
	typePlaylist = "application/vnd.apple.mpegurl"
	typeMP4      = "video/mp4"
	typeTS       = "video/mp2t"
	typeJPEG     = "image/jpeg"
)

// inTS reports whether a path asks for MPEG-TS: ts.m3u8 beside index.m3u8.
func inTS(path string) bool { return strings.HasSuffix(path, "ts.m3u8") }

// master answers with the master playlist of an asset.
func (s *Server) master(w *endpoint.Response, req *request) error {
	m := cmaf.Master{TS: inTS(req.path), Captions: req.title.presented.Captions}
	if m.TS && req.title.signature != nil {
		return errSignedTS()
	}
	name := "/index.m3u8"
	if m.TS {
		name = "/ts.m3u8"
	}
	list := func(renditions []rendition) (named []cmaf.Rendition) {
		for _, r := range renditions {
			if !r.Complete && req.title.hasCompleteVideo() || m.TS && !fitsTS(r) {
				continue // a player must not switch to one that is behind
			}
			named = append(named, cmaf.Rendition{Name: r.Name, URI: req.below("") + r.Name + name, Index: r.Index()})
		}
		return named
	}
	m.Video, m.Audio, m.Text = list(req.title.video), list(req.title.audio), req.subtitles()
	switch {
	case len(req.title.video) == 0 && len(req.title.audio) == 0:
		return errNotReady()
	case len(m.Video) < min(1, len(req.title.video)), len(m.Audio) < len(req.title.audio):
		return weir.Errorf(weir.NotFound, "the codecs of the video are not supported in MPEG-TS; use index.m3u8")
	}
	if req.Method == http.MethodGet {
		if err := s.beginView(req); err != nil {
			return err
		}
	}
	return s.text(w, req, m.Playlist().Text())
}

// playlist answers with the media playlist of a rendition of an asset.
func (s *Server) playlist(w *endpoint.Response, req *request) error {
	name, _, _ := strings.Cut(req.path, "/")
	r, err := req.title.find(name)
	if err != nil {
		return err
	}
	if inTS(req.path) && req.title.signature != nil {
		return errSignedTS()
	}
	index := r.Index()
	segments, ended := req.title.shown(r)
	index.Segments = segments
	list := hls.Media{Type: hls.VOD, Ended: ended}
	if !ended {
		list.Type, list.FromStart, list.Target = hls.Event, true, growingTarget(r, segments)
	}
	below := req.below(name)
	numbered := func(extension string) func(int) string {
		return func(n int) string { return below + strconv.Itoa(n) + extension }
	}
	if !inTS(req.path) {
		list.Version = 6 // EXT-X-MAP, even if there is no segment yet
		list.Segments = index.Entries(numbered(".m4s"), func(n int) string { return below + initName(index.InitOf(n)) })
		return s.text(w, req, list.Text())
	}
	if !fitsTS(r) {
		return weir.Errorf(weir.NotFound, "the codecs of the rendition are not supported in MPEG-TS; use index.m3u8")
	}
	var extra []time.Duration
	if ended {
		extra = req.title.extraTS(r)
	}
	list.Segments = index.Entries(numbered(".ts"), nil, extra...)
	return s.text(w, req, list.Text())
}

// initName returns the name of the init segment after k changes of the coding.
func initName(k int) string {
	if k == 0 {
		return "init.mp4"
	}
	return "init-" + strconv.Itoa(k) + ".mp4"
}

// initNumber parses such a name.
func initNumber(name string) (int, bool) {
	if name == initName(0) {
		return 0, true
	}
	p, ok := parseFileName(name)
	return int(p.segment), ok && p.init && p.segment > 0
}

// shown returns the segments of a rendition for its playlist, and whether there are no more.
// Complete audio does not run ahead of video that is still being encoded.
func (t *tracks) shown(r rendition) (segments []cmaf.Segment, ended bool) {
	index := r.Index()
	if index.Track.Kind != cmaf.Audio || len(t.video) == 0 || t.hasCompleteVideo() {
		return index.Segments, r.Complete
	}
	end := time.Duration(math.MaxInt64)
	for _, video := range t.video {
		end = min(end, video.Index().Track.Time(video.Index().End()))
	}
	n := 0
	for n < len(index.Segments) && index.Track.Time(index.Segments[n].Start()) < end {
		n++
	}
	return index.Segments[:n], false
}

// growingTarget returns the target duration of the playlist of a growing rendition, which must not
// change: all segments are about as long as the first.
func growingTarget(r rendition, segments []cmaf.Segment) time.Duration {
	if len(segments) == 0 {
		return 0
	}
	first := r.Index().Track.Time(segments[0].Duration())
	return first.Truncate(time.Second) + 2*time.Second
}

// text answers with a playlist of an asset.
func (s *Server) text(w *endpoint.Response, req *request, text []byte) error {
	return sendPlaylist(w, req, req.title.keepText(), hls.NewText(text))
}

// keepText returns for how long playlists and other lists of an asset are valid.
func (t *title) keepText() endpoint.Caching {
	if t.done {
		return endpoint.For(10 * time.Second)
	}
	return endpoint.For(time.Second)
}

// sendPlaylist answers with a playlist, compressed if the client takes that. caching is used if the
// content is the same for all viewers.
func sendPlaylist(w *endpoint.Response, req *request, caching endpoint.Caching, text *hls.Text) error {
	h, body, tag := w.Header(), text.Plain, text.Tag
	h.Add("Vary", "Accept-Encoding")
	// A playlist of one viewer's own is not worth the CPU time of compression.
	if req.shareable() && req.Header.Get("Range") == "" && endpoint.AcceptsGzip(req.Request) {
		body, tag = text.Gzip(), tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(body))) // net/http leaves it out of what is encoded
	}
	return cachedAs(w, req, typePlaylist, caching, tag, body)
}

// cached answers with a generated body. caching is used if the content is the same for all viewers.
func cached(w *endpoint.Response, req *request, kind string, caching endpoint.Caching, body []byte) error {
	sum := sha256.Sum256(body)
	return cachedAs(w, req, kind, caching, hex.EncodeToString(sum[:12]), body)
}

// cachedAs is cached for a body that a tag names.
func cachedAs(w *endpoint.Response, req *request, kind string, caching endpoint.Caching, tag string, body []byte) error {
	if !req.shareable() {
		caching = endpoint.PrivateRevalidate
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("ETag", `"`+tag+`"`)
	caching.Set(h)
	return serveBody(w, req, body)
}

// segment answers with the init segment or a segment of a rendition.
func (s *Server) segment(w *endpoint.Response, req *request) error {
	name, file, _ := strings.Cut(req.path, "/")
	r, err := req.title.find(name)
	if err != nil {
		return err
	}
	if k, ok := initNumber(file); ok {
		data, err := req.title.init(r, k)
		if err != nil {
			return err
		}
		return s.initSegment(w, req, name, data)
	}
	number, format, _ := strings.Cut(file, ".")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || strconv.Itoa(n) != number {
		return weir.ErrNotFound()
	}
	index := r.Index()
	switch {
	case format == "ts" && req.title.signature != nil:
		return errSignedTS()
	case format == "ts":
		return s.transportStream(w, req, r, n)
	case format != "m4s" || n >= len(index.Segments):
		return weir.ErrNotFound()
	case req.title.signature != nil:
		return s.signedSegment(w, req, r, n)
	}
	segment := index.Segments[n]
	w.Header().Set("Content-Type", typeMP4)
	s.immutable(w, req, fmt.Sprintf("%s/%d %d", name, n, segment.Size()))
	err = s.object(w, req, r.SegmentKey(n), segment.Size())
	s.countWatched(w, req, index.Track.Kind, index.TrackOf(n).Time(segment.Duration()), segment.Size())
	return err
}

// errSignedTS refuses MPEG-TS, which has no place for a signature.
func errSignedTS() error {
	return weir.Errorf(weir.NotFound, "the video is signed with C2PA, which MPEG-TS does not support; use index.m3u8")
}

// init returns the init segment of a rendition after k changes of its coding.
func (t *tracks) init(r rendition, k int) ([]byte, error) {
	if t.signature != nil {
		return t.signature.Init(r.Track, k)
	}
	return r.InitAfter(k)
}

// signedSegment answers with a segment of a signed asset: a box comes before its media.
func (s *Server) signedSegment(w *endpoint.Response, req *request, r rendition, n int) error {
	file, err := req.title.signature.Segment(r.Track, r.Dir, n)
	if err != nil {
		return err
	}
	index := r.Index()
	reader := file.Reader(req.Context())
	defer reader.Close()
	w.Header().Set("Content-Type", typeMP4)
	s.immutable(w, req, fmt.Sprintf("%s/%d signed %d", r.Name, n, file.Size()))
	err = serveContent(w, req, reader)
	s.countWatched(w, req, index.Track.Kind, index.TrackOf(n).Time(index.Segments[n].Duration()), file.Size())
	return err
}

func (s *Server) initSegment(w *endpoint.Response, req *request, name string, data []byte) error {
	w.Header().Set("Content-Type", typeMP4)
	s.immutable(w, req, fmt.Sprintf("%s/init %x", name, sha256.Sum256(data)))
	return serveContent(w, req, bytes.NewReader(data))
}

// immutable sets the headers of a response that never changes, as files of a ready asset or of a
// stream. what identifies it.
func (s *Server) immutable(w *endpoint.Response, req *request, what string) {
	sum := sha256.Sum256([]byte(req.title.AssetID + req.title.StreamID + "/" + what))
	h := w.Header()
	h.Set("ETag", `"`+hex.EncodeToString(sum[:12])+`"`)
	switch {
	case !req.shareable():
		endpoint.PrivateFor(time.Hour).Set(h)
	case !req.title.ready:
		endpoint.For(10 * time.Second).Set(h)
	default:
		endpoint.ImmutableFor(time.Hour).Set(h)
	}
}
