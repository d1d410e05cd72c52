package playback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/cmaf"
	"weir/internal/endpoint"
	"weir/internal/hls"
	"weir/internal/live"
	"weir/internal/weir"
)

// All that a stream makes players and caches wait for follows from the targets of package live.

const (
	// reloadWait is the maximum time of a blocking playlist reload: three target durations. After
	// that, the player gets the current playlist.
	reloadWait = 3 * live.SegmentTarget
	// partMargin is how much longer than three parts a player waits for a part: for the encoder.
	partMargin = 500 * time.Millisecond
)

// As RFC 8216bis advises, the response to a blocking reload is valid for six target durations, another
// playlist for half of one.
var (
	keepAwaited  = endpoint.For(6 * live.SegmentTarget)
	keepPlaylist = endpoint.For(live.SegmentTarget / 2)
	// keepPoster is about half the time until there is a new one.
	keepPoster = endpoint.For(live.PosterEvery / 2)
)

// onAir returns the handler of a route for a stream; nil = there is none.
func (s *Server) onAir(route string) handler {
	handle := s.liveRoute(route)
	if handle == nil {
		return nil
	}
	next := func(w *endpoint.Response, req *request) error {
		carries := s.carries(req)
		switch {
		case s.edge == nil && req.broadcast == nil:
			return errOffAir(req.title)
		case s.edge == nil:
			return handle(w, req)
		}
		moved := req.broadcast != nil && req.broadcast.HandedOver()
		if carries || moved && route == routeSegment {
			err := handle(w, req)
			if !isMoved(err) && !(moved && weir.KindOf(err) == weir.NotFound) {
				return err
			}
		}
		return s.fromOrigin(w, req, route, handle)
	}
	switch route {
	case routePoster:
		return s.orLastPoster(next)
	case routeDVR:
		return s.orRecording(next, s.recordedMaster)
	case routeSegment:
		return s.orRecording(next, s.recordedFile)
	}
	return next
}

// liveRoute returns the handler of a route for a stream of this node; nil = there is none.
func (s *Server) liveRoute(route string) handler {
	switch route {
	case routeMaster:
		return s.liveMaster
	case routeMedia:
		return s.livePlaylist
	case routeDVR:
		return s.dvrMaster
	case routeDVRMedia:
		return s.dvrPlaylist
	case routeSegment:
		return s.liveFile
	case routePoster:
		return s.livePoster
	}
	return nil
}

// errOffAir returns the error for a stream that is not live.
func errOffAir(t *title) error {
	if !t.begun {
		return weir.Errorf(weir.NotFound, "the stream has not started yet")
	}
	return weir.Errorf(weir.NotFound, "the stream is not live at the moment")
}

// liveMaster answers with the master playlist of a stream.
func (s *Server) liveMaster(w *endpoint.Response, req *request) error {
	if inTS(req.path) {
		return weir.Errorf(weir.NotFound, "live streams are not available as MPEG-TS; use index.m3u8")
	}
	return s.writeMaster(w, req, req.broadcast.Master())
}

// dvrMaster answers with the master playlist of the recording so far, see dvr.go.
func (s *Server) dvrMaster(w *endpoint.Response, req *request) error {
	m := req.broadcast.Recorded()
	if len(m.Video)+len(m.Audio) == 0 {
		return weir.Errorf(weir.NotFound, "the stream is not recorded; play index.m3u8")
	}
	return s.writeMaster(w, req, m)
}

// dvrPlaylist answers with the recording so far of one rendition.
func (s *Server) dvrPlaylist(w *endpoint.Response, req *request) error {
	name, _, _ := strings.Cut(req.path, "/")
	text, err := req.broadcast.WholePlaylist(name)
	if err != nil {
		return err
	}
	return sendPlaylist(w, req, keepPlaylist, text.Wrap(req.below(name), ""))
}

func (s *Server) writeMaster(w *endpoint.Response, req *request, m cmaf.Master) error {
	if !presentable(&m) {
		return weir.Errorf(weir.NotFound, "the stream has not started yet")
	}
	for _, list := range [][]cmaf.Rendition{m.Video, m.Audio} {
		for i := range list {
			list[i].URI = req.below("") + list[i].URI
		}
	}
	if req.Method == http.MethodGet && !req.node {
		if err := s.beginView(req); err != nil {
			return err
		}
	}
	list := hls.NewText(m.Playlist().Text())
	if req.URL.Query().Get("ll") == "0" {
		list = list.Wrap("", "?ll=0")
	}
	return sendPlaylist(w, req, keepPlaylist, list)
}

// presentable removes renditions without media from a master playlist, and reports whether it can
// be served. A player does not look for new renditions later, so it waits for late audio, for the
// duration of a segment.
func presentable(m *cmaf.Master) bool {
	empty := func(r cmaf.Rendition) bool { return len(r.Index.Segments) == 0 }
	all, waited := len(m.Video)+len(m.Audio), false
	for _, list := range []*[]cmaf.Rendition{&m.Video, &m.Audio} {
		*list = slices.DeleteFunc(slices.Clone(*list), empty)
		for _, r := range *list {
			waited = waited || r.Index.Duration() >= live.SegmentTarget
		}
	}
	there := len(m.Video) + len(m.Audio)
	return there > 0 && (there == all || waited)
}

// livePlaylist answers with the media playlist of a rendition, when it has the segment or part that
// the player waits for.
func (s *Server) livePlaylist(w *endpoint.Response, req *request) error {
	name, _, _ := strings.Cut(req.path, "/")
	if inTS(req.path) {
		return weir.Errorf(weir.NotFound, "live streams are not available as MPEG-TS; use index.m3u8")
	}
	q, err := parseQuery(req.URL.Query())
	if err != nil {
		return err
	}
	start, caching := time.Now(), keepPlaylist
	var text *hls.Text
	if q.Segment < 0 {
		text, err = req.broadcast.Playlist(req.Context(), name, q)
	} else {
		caching = keepAwaited
		ctx, cancel := context.WithTimeout(req.Context(), s.reloadWait)
		s.reloads.Add(1)
		text, err = req.broadcast.Playlist(ctx, name, q)
		s.reloads.Add(-1)
		late := ctx.Err() != nil
		cancel()
		if err != nil && late && req.Context().Err() == nil {
			// The encoder sends nothing. Players that get an error stop sooner or later, those that
			// get the same playlist continue.
			q.Segment, caching = -1, keepPlaylist
			text, err = req.broadcast.Playlist(req.Context(), name, q)
		}
	}
	if err != nil {
		return err
	}
	if err := s.admitAgain(req, start); err != nil {
		return err
	}
	return sendPlaylist(w, req, caching, text.Wrap(req.below(name), ""))
}

func parseQuery(query url.Values) (live.Query, error) {
	q := live.Query{Low: query.Get("ll") != "0", Segment: -1, Part: -1}
	switch query.Get("_HLS_skip") {
	case "YES", "v2":
		q.Skip = true
	}
	if !query.Has("_HLS_msn") {
		if query.Has("_HLS_part") {
			return q, weir.Errorf(weir.Refused, "_HLS_part needs _HLS_msn, the number of its segment")
		}
		return q, nil
	}
	n, err := strconv.ParseUint(query.Get("_HLS_msn"), 10, 63)
	if err != nil {
		return q, weir.Errorf(weir.Refused, "_HLS_msn must be a segment number, 0 or greater")
	}
	q.Segment = int64(n)
	if query.Has("_HLS_part") {
		p, err := strconv.ParseUint(query.Get("_HLS_part"), 10, 31)
		if err != nil {
			return q, weir.Errorf(weir.Refused, "_HLS_part must be a part number, 0 or greater")
		}
		q.Part = int(p)
	}
	return q, nil
}

// mediaFile is a parsed file name: an init segment, a segment or a part of one.
type mediaFile struct {
	init    bool
	segment int64 // or the number of the init segment
	part    int   // -1 = all of the segment
}

// parseFileName parses a file name. Every file has exactly one name.
func parseFileName(file string) (p mediaFile, ok bool) {
	if k, found := strings.CutPrefix(file, "init-"); found {
		n, ok := cutNumber(&k, 31)
		return mediaFile{init: true, segment: n, part: -1}, ok && k == ".mp4"
	}
	p.part = -1
	if p.segment, ok = cutNumber(&file, 63); !ok {
		return p, false
	}
	if file == ".m4s" {
		return p, true
	}
	if file, ok = strings.CutPrefix(file, "."); !ok {
		return p, false
	}
	n, ok := cutNumber(&file, 31)
	p.part = int(n)
	return p, ok && file == ".m4s"
}

// cutNumber cuts a number without leading zeros off the front of a text.
func cutNumber(text *string, bits int) (int64, bool) {
	digits := len(*text) - len(strings.TrimLeft(*text, "0123456789"))
	number := (*text)[:digits]
	n, err := strconv.ParseUint(number, 10, bits)
	if err != nil || len(number) > 1 && number[0] == '0' {
		return 0, false
	}
	*text = (*text)[digits:]
	return int64(n), true
}

// liveFile answers with an init segment, a segment or a part.
func (s *Server) liveFile(w *endpoint.Response, req *request) error {
	name, file, _ := strings.Cut(req.path, "/")
	p, ok := parseFileName(file)
	if !ok {
		return weir.ErrNotFound()
	}
	if p.init {
		data, err := req.broadcast.Init(name, int(p.segment))
		if err != nil {
			return err
		}
		return s.initSegment(w, req, name, data)
	}
	body, size, err := s.openFile(req, name, p)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", typeMP4)
	s.immutable(w, req, fmt.Sprintf("%s/%s %d", name, file, size))
	length := watchable(req.broadcast, name, p)
	if req.node {
		w.Header().Set(lengthHeader, strconv.FormatInt(int64(length), 10))
	}
	err = serveFile(w, req, body)
	s.countWatched(w, req, cmaf.Video, length, size)
	return err
}

// watchable returns the playing time of a file. That of audio is 0 if there is video.
func watchable(b *live.Broadcast, name string, p mediaFile) time.Duration {
	m := b.Master()
	if len(m.Video) > 0 && slices.ContainsFunc(m.Audio, func(r cmaf.Rendition) bool { return r.Name == name }) {
		return 0
	}
	return b.Duration(name, p.segment, p.part)
}

func (s *Server) openFile(req *request, name string, p mediaFile) (io.ReadSeekCloser, int64, error) {
	if at, ok := req.broadcast.Stored(name, p.segment, p.part); ok {
		return s.openStored(req.Context(), at)
	}
	if p.part < 0 {
		return req.broadcast.Segment(name, p.segment)
	}
	ctx, cancel := context.WithTimeout(req.Context(), 3*req.broadcast.PartDuration()+s.partMargin)
	defer cancel()
	s.waits.Add(1)
	body, size, err := req.broadcast.Part(ctx, name, p.segment, p.part)
	s.waits.Add(-1)
	if err != nil && ctx.Err() != nil && req.Context().Err() == nil {
		err = weir.Errorf(weir.NotFound, "the part was not available in time; load the playlist again")
	}
	return body, size, err
}

// openStored opens a file of an earlier period on another node, which is in the storage.
func (s *Server) openStored(ctx context.Context, at live.Stored) (io.ReadSeekCloser, int64, error) {
	if at.Size < 0 {
		info, err := s.Media.Stat(ctx, at.Key)
		if err != nil {
			return nil, 0, storageError(err)
		}
		return &object{ctx: ctx, store: s.Media, key: at.Key, size: info.Size}, info.Size, nil
	}
	body, _, err := s.Media.Get(ctx, at.Key, at.Offset, at.Size)
	if err != nil {
		return nil, 0, storageError(err)
	}
	part := make([]byte, at.Size) // a fraction of a second
	_, err = io.ReadFull(body, part)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, 0, storageError(weir.Wrap(weir.Upstream, err, "part in the storage"))
	}
	return inMemory{bytes.NewReader(part)}, at.Size, nil
}

// inMemory adds Close.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// livePoster answers with the current poster of a stream.
func (s *Server) livePoster(w *endpoint.Response, req *request) error {
	start := time.Now()
	image, err := req.broadcast.Poster(req.Context())
	if weir.KindOf(err) == weir.Busy { // for the viewer, there is none until it is made
		err = weir.Errorf(weir.NotFound, "there is no image of the stream yet")
	}
	if err == nil {
		err = s.admitAgain(req, start)
	}
	if err != nil {
		return err
	}
	return cached(w, req, typeJPEG, keepPoster, image)
}

// orLastPoster answers with the last poster of a stream that is not live.
func (s *Server) orLastPoster(next handler) handler {
	return func(w *endpoint.Response, req *request) error {
		err := next(w, req)
		if weir.KindOf(err) != weir.NotFound || s.Live == nil {
			return err
		}
		image, lastErr := s.Live.LastPoster(req.title.StreamID)
		if weir.KindOf(lastErr) == weir.NotFound {
			return err
		}
		if lastErr != nil {
			return lastErr
		}
		return cached(w, req, typeJPEG, keepPoster, image)
	}
}
