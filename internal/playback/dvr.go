package playback

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"time"

	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

// Who may play a stream may play its current session from the start at dvr.m3u8, if it is recorded.
// After the session the same address leads to its recording, until that is deleted or the next
// session begins. A player that has the playlists of the session gets the segments in them from the
// recording too.

// maxRecordings is the number of streams whose last recording is cached.
const maxRecordings = 10_000

// lastRecording is the recording of the last session of a stream.
type lastRecording struct {
	playbackID string
	first      int64 // the number of its first segment in the playlists of the stream
	moved      bool  // several nodes carried the session, and its numbers have gaps
}

// orRecording answers with the recording of the last session if the stream is not live.
func (s *Server) orRecording(next handler, recorded func(*endpoint.Response, *request, lastRecording) error) handler {
	return func(w *endpoint.Response, req *request) error {
		err := next(w, req)
		if weir.KindOf(err) != weir.NotFound || req.broadcast != nil || req.node {
			return err
		}
		last, findErr := s.recordings.Get(req.Context(), req.id, time.Now(), func(ctx context.Context) (lastRecording, error) {
			return s.findRecording(ctx, req.title.StreamID)
		})
		var t *title
		if findErr == nil {
			t, findErr = s.titles.find(req.Context(), last.playbackID)
		}
		switch {
		case weir.IsNotFound(findErr):
			return err
		case findErr != nil:
			return findErr
		case !reflect.DeepEqual(t.policy, req.title.policy):
			return err // the owner has changed who may play one of the two
		}
		r := *req
		r.title, r.id = t, last.playbackID
		return recorded(w, &r, last)
	}
}

func (s *Server) findRecording(ctx context.Context, streamID string) (last lastRecording, err error) {
	page, err := s.Store.Sessions(ctx, store.Query{Where: []store.Filter{{ID: "parentId", Value: streamID}}, Limit: 1})
	if err != nil {
		return last, err
	}
	if len(page.Items) == 0 || !page.Items[0].Record {
		return last, weir.ErrNotFound()
	}
	session := page.Items[0]
	asset, err := s.Store.Asset(ctx, session.ID)
	if err != nil {
		return last, err
	}
	first, err := s.Store.FirstSequence(ctx, streamID)
	return lastRecording{playbackID: asset.PlaybackID, first: first, moved: len(session.Earlier) > 0}, err
}

// recordedMaster answers dvr.m3u8 with the master playlist of a recording.
func (s *Server) recordedMaster(w *endpoint.Response, req *request, last lastRecording) error {
	req.base = "../" + last.playbackID + "/"
	if req.inPath {
		req.base = "../../" + req.base // the token
	}
	req.path, req.inPath = "index.m3u8", false
	if req.token != nil {
		req.token = s.control.TokenFor(req.title.gated(), req.token, time.Now())
	}
	return s.master(w, req)
}

// recordedFile answers with a segment of a recording, by its name in the playlists of the stream.
func (s *Server) recordedFile(w *endpoint.Response, req *request, last lastRecording) error {
	name, file, _ := strings.Cut(req.path, "/")
	p, ok := parseFileName(file)
	n := p.segment - last.first
	switch {
	case !ok || p.part >= 0 || n < 0 || last.moved:
		return weir.ErrNotFound()
	case p.init:
		req.path = name + "/" + initName(int(n))
	default:
		req.path = name + "/" + strconv.FormatInt(n, 10) + ".m4s"
	}
	return s.segment(w, req)
}
