package playback

import (
	"context"
	"net/http"
	"strings"
	"time"

	"weir/internal/endpoint"
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

// Statuses for another node if a third node, or this one in a moment, may have the stream.
const (
	statusElsewhere = http.StatusMisdirectedRequest
	statusNotYet    = http.StatusTooEarly
)

// Node serves the streams of this node to other nodes. It must be behind [Peers.Only]: it neither
// checks nor counts viewers, because the other node does. signalling answers WebRTC offers; nil =
// there is no WebRTC.
func (s *Server) Node(signalling http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+NodePath+hlsForNodes, s.handleNode)
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

func (s *Server) handleNode(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	out := s.response(w, r)
	id, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, NodePath+hlsForNodes), "/")
	route := routeOf(path)
	req := &request{Request: r, server: s, id: id, path: path, node: true}
	if err := s.serveNode(out, req, route); err != nil {
		s.fail(out, req, route, err)
	}
	out.End()
	if s.Observe != nil {
		s.Observe(r.Context(), r.Method+" "+strings.TrimSuffix(NodePath, "/")+route, out.Status(), time.Since(start))
	}
}

// serveNode answers another node, or returns the error that answers it.
func (s *Server) serveNode(w *endpoint.Response, req *request, route string) error {
	handle := s.liveRoute(route)
	if handle == nil {
		return weir.ErrNotFound()
	}
	var here bool
	if s.Live != nil {
		req.broadcast, here = s.Live.Find(req.id)
	}
	switch {
	case !here, req.broadcast.HandedOver() && route != routeSegment:
		writeFailure(w, statusElsewhere, "this node is not the origin of the stream")
		return nil
	case route != routeSegment && !req.broadcast.Shows(req.rendition()):
		writeFailure(w, statusNotYet, errNotYet.Messages...)
		return nil
	}
	// The other node has checked the policy of the stream.
	req.title = &title{Title: view.Title{PlaybackID: req.id, StreamID: req.broadcast.Stream().ID}, ready: true, begun: true, tracks: &tracks{}}
	var err error
	if route == routeSegment && !req.broadcast.HandedOver() {
		err = s.awaitShown(req)
	}
	if err == nil {
		err = handle(w, req)
	}
	if isMoved(err) || req.broadcast.HandedOver() && weir.KindOf(err) == weir.NotFound {
		writeFailure(w, statusElsewhere, live.ErrHandedOver.Messages...)
		return nil
	}
	return err
}

// awaitShown waits until a segment or part can be requested of a session that has just come here
// from another node.
func (s *Server) awaitShown(req *request) error {
	ctx, cancel := context.WithTimeout(req.Context(), s.reloadWait)
	defer cancel()
	s.waits.Add(1)
	err := req.broadcast.AwaitShown(ctx, req.rendition())
	s.waits.Add(-1)
	if err != nil && ctx.Err() != nil {
		return errMoving
	}
	return err
}
