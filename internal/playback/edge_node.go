package playback

import (
	"net/http"
	"strings"
	"time"

	"weir/internal/live"
	"weir/internal/rtc"
	"weir/internal/view"
	"weir/internal/weir"
)

// Paths below NodePath.
const (
	hlsForNodes    = "hls/"    // live streams, as below /hls/
	webRTCForNodes = "webrtc/" // WebRTC sessions, as below /webrtc/
)

// Answers to another node if a third node, or this one in a moment, may have the stream.
const (
	statusElsewhere = http.StatusMisdirectedRequest
	statusNotYet    = http.StatusTooEarly
)

// Node serves the streams of this node to other nodes. It must be behind [Peers.Only]: it neither
// checks nor counts viewers, because the other node does. signalling answers WebRTC offers; nil =
// there is no WebRTC.
func (s *Server) Node(signalling http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+NodePath+hlsForNodes, s.answerNode)
	if signalling != nil {
		mux.HandleFunc(NodePath+webRTCForNodes, func(w http.ResponseWriter, r *http.Request) {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = rtc.EndpointPath+strings.TrimPrefix(r.URL.Path, NodePath+webRTCForNodes), ""
			r.RemoteAddr, r.Host = r.Header.Get(viewerHeader), r.Header.Get(hostHeader)
			for _, name := range []string{viewerHeader, hostHeader, signatureHeader} {
				r.Header.Del(name)
			}
			signalling.ServeHTTP(w, r)
		})
	}
	return mux
}

func (s *Server) answerNode(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	a := &answer{ResponseWriter: w, timeout: s.timeout}
	id, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, NodePath+hlsForNodes), "/")
	route := routeOf(path)
	if err := s.serveNode(a, &visit{Request: r, server: s, id: id, path: path, node: true}, route); err != nil {
		s.fail(a, r, route, err)
	}
	a.begin()
	if s.Observe != nil {
		s.Observe(r.Context(), r.Method+" "+strings.TrimSuffix(NodePath, "/")+route, a.status, time.Since(start))
	}
}

// serveNode answers another node, or returns the error that answers it.
func (s *Server) serveNode(w *answer, v *visit, route string) error {
	handle := s.liveRoute(route)
	if handle == nil {
		return weir.ErrNotFound()
	}
	var here bool
	if s.Live != nil {
		v.broadcast, here = s.Live.Find(v.id)
	}
	switch {
	case !here, v.broadcast.HandedOver() && route != routeSegment:
		writeErrors(w, statusElsewhere, []string{"the stream is not carried here"})
		return nil
	case !v.broadcast.Shows(v.rendition()):
		writeErrors(w, statusNotYet, errNotYet.Messages)
		return nil
	}
	// The other node has checked the policy of the stream.
	v.title = &title{Title: view.Title{PlaybackID: v.id, StreamID: v.broadcast.Stream().ID}, ready: true, begun: true, tracks: &tracks{}}
	err := handle(w, v)
	if isMoved(err) {
		writeErrors(w, statusElsewhere, live.ErrHandedOver.Messages)
		return nil
	}
	return err
}
