// Package playback serves viewers: playlists, segments, MP4 files, thumbnails and downloads of
// assets, playlists and segments of live streams.
//
// All paths are below /hls/<playbackId>/. [Server.ServeHTTP] finds the asset or stream (title.go),
// asks package access whether the viewer may play it (viewer.go; cache.go: for caches), and calls the handler for the rest
// of the path: for an asset in hls.go, ts.go and file.go, for a stream in live.go. content.go sends
// bodies, package view counts what viewers watch (viewer.go).
//
// Streams are also below /webrtc/<playbackId>, for viewers over WebRTC (whep.go). Streams of other
// nodes are fetched from there (edge.go), below /_node/ (edge_node.go).
//
// If the policy of an asset or a stream is not public, the URIs in a playlist are below t/<token>/,
// so all further requests of a player have that token in their path. Every path accepts the viewer's
// own JWT or access key as well.
package playback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/access"
	"weir/internal/blob"
	"weir/internal/endpoint"
	"weir/internal/live"
	"weir/internal/rtc"
	"weir/internal/store"
	"weir/internal/view"
	"weir/internal/weir"
)

// Options are the options of a Server.
type Options struct {
	Store       *store.Store
	Media       blob.Store
	Gate        *access.Gate
	Live        *live.Hub   // nil = this node has no live streams
	RTC         *rtc.Server // nil = no viewers over WebRTC. It needs Live
	Peers       *Peers      // nil = there are no other nodes
	CacheSecret weir.Secret // that caches prove themselves with; "" = none can
	// CacheAdmission is how long caches may keep that a viewer may play: how much longer a viewer who
	// loses access goes on.
	CacheAdmission time.Duration
	EdgeCache      int64  // bytes of other nodes' streams that are kept
	Dir            string // for temporary files; "" = that of the system
	TrustedProxies []netip.Prefix
	Log            *slog.Logger
	// Observe is called after every request, for metrics.
	Observe func(ctx context.Context, route string, status int, took time.Duration)
}

// Server serves viewers. It is safe for concurrent use.
type Server struct {
	Options
	titles      titles
	control     *access.Control
	views       *view.Counter
	recordings  store.Recent[lastRecording] // by the playback id of a stream
	whep        *rtc.Endpoint               // nil = there is no WebRTC
	edge        *edge                       // nil = there are no other nodes
	cacheSecret cacheSecret
	rendering   chan struct{} // limits concurrent muxing: each takes the memory of a segment
	timeout     time.Duration // for reading writeStep of a response
	reloadWait  time.Duration // maximum time of a blocking playlist reload
	partMargin  time.Duration // see there

	reloads, waits atomic.Int64 // requests that wait for a playlist, and for a part
	stale          atomic.Int64 // responses while the database did not respond
}

// New returns a Server. Run writes what it counts.
func New(ctx context.Context, opt Options) (*Server, error) {
	control, err := access.OpenControl(ctx, opt.Gate)
	if err != nil {
		return nil, err
	}
	opt.Media = impatient{opt.Media, storageWait}
	s := &Server{
		Options: opt, timeout: time.Minute, reloadWait: reloadWait, partMargin: partMargin, control: control,
		titles:      titles{store: opt.Store, media: opt.Media, known: store.Recent[*title]{Store: opt.Store, Max: maxKnown}, cached: map[string]*cachedTitle{}},
		recordings:  store.Recent[lastRecording]{Store: opt.Store, Max: maxRecordings},
		rendering:   make(chan struct{}, max(2, runtime.GOMAXPROCS(0))),
		cacheSecret: newCacheSecret(opt.CacheSecret),
	}
	s.views = view.New(view.Options{Store: opt.Store, ViewerID: s.viewerID, Others: opt.Peers != nil, Log: opt.Log})
	if opt.Dir != "" {
		if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("create the temporary folder for playback: %w", err)
		}
	}
	if opt.RTC != nil && opt.Live != nil {
		s.whep = s.newWHEP()
	}
	if opt.Peers != nil {
		s.edge = newEdge(opt.Store, opt.Peers, cmp.Or(opt.EdgeCache, DefaultEdgeCache), opt.Log)
	}
	return s, nil
}

// Run writes views to the store until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if s.edge != nil {
		defer s.edge.close()
	}
	if s.whep == nil {
		return s.views.Run(ctx)
	}
	// WebRTC sessions end first, so that their views are written too.
	counting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() {
		s.whep.Close()
		cancel()
	})()
	return s.views.Run(counting)
}

// request is one request of a viewer.
type request struct {
	*http.Request
	server    *Server
	id        string // playback id
	title     *title
	broadcast *live.Broadcast // of a stream that is live, or was a moment ago
	path      string          // below the playback id, and below the token if there is one
	at        string          // the whole path, if it is not below /hls/
	base      string          // what relative URIs begin with, if the files are elsewhere
	node      bool            // the request is of another node, which has admitted the viewer
	proven    bool            // the request is of a cache of the operator, see cache.go
	// text is the token in the path, if inPath: relative URIs have it too.
	text   string
	inPath bool
	// token is the token in the path, or a new one for the URIs in the response; nil = none is needed.
	token *access.Token
}

// below returns the prefix of URIs in a file of the given folder, which has the viewer's token.
func (req *request) below(folder string) string {
	switch {
	case req.token == nil || req.inPath:
		return req.base
	case folder == "":
		return req.base + tokenMark + req.token.Text + "/"
	}
	up := strings.Repeat("../", strings.Count(folder, "/")+1)
	return up + tokenMark + req.token.Text + "/" + folder + "/"
}

// The routes in logs and metrics: the path itself can contain a token.
const (
	routeMaster      = "/hls/{id}/index.m3u8"
	routeMedia       = "/hls/{id}/{rendition}/index.m3u8"
	routeDVR         = "/hls/{id}/dvr.m3u8"
	routeDVRMedia    = "/hls/{id}/{rendition}/dvr.m3u8"
	routeSegment     = "/hls/{id}/{rendition}/{segment}"
	routeMP4         = "/hls/{id}/{rendition}.mp4"
	routeDownload    = "/hls/{id}/download/{name}"
	routeThumbnail   = "/hls/{id}/thumbnails/{name}"
	routePoster      = "/hls/{id}/poster.jpg"
	routeText        = "/hls/{id}/text/{track}.{format}"
	routeTextMedia   = "/hls/{id}/text/{track}/index.m3u8"
	routeTextSegment = "/hls/{id}/text/{track}/{segment}"
	routeAdmission   = "/hls/{id}/admission"
	routeUnknown     = "/hls/unknown"
)

// ServeHTTP answers everything below /hls/.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	out := s.response(w, r)
	h := out.Header()
	endpoint.CORS{Origin: "*", Expose: "Accept-Ranges, Age, Content-Length, Content-Range, Date, ETag, Retry-After"}.Allow(h)
	h.Set("Timing-Allow-Origin", "*")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	id, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/hls/"), "/")
	req := &request{Request: oneRange(r), server: s, id: id, path: path}
	req.text, req.path, req.inPath = cutToken(path)
	route, err := s.serve(out, req)
	if err != nil {
		s.fail(out, req, route, err)
	}
	out.End()
	if out.Status() < http.StatusBadRequest {
		s.countStale()
	}
	if s.Observe != nil {
		s.Observe(r.Context(), r.Method+" "+route, out.Status(), time.Since(start))
	}
	s.Log.DebugContext(r.Context(), "request", "route", route, "status", out.Status(), "bytes", out.Bytes(), "took", time.Since(start))
}

// countStale counts a response that was made without the database.
func (s *Server) countStale() {
	if s.Store.Away() != nil {
		s.stale.Add(1)
	}
}

// response returns the response to a viewer.
func (s *Server) response(w http.ResponseWriter, r *http.Request) *endpoint.Response {
	return &endpoint.Response{ResponseWriter: w, Request: r, Timeout: s.timeout, Step: writeStep}
}

// writeStep is the number of bytes that a viewer has to read within the timeout.
const writeStep = 1 << 20

// serve answers a request, or returns the error that answers it.
func (s *Server) serve(w *endpoint.Response, req *request) (route string, err error) {
	switch req.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		endpoint.CORS{Methods: "GET, HEAD, OPTIONS"}.Preflight(w.Header(), req.Request)
		w.WriteHeader(http.StatusNoContent)
		return routeUnknown, nil
	default:
		w.Header().Set("Allow", "GET, HEAD, OPTIONS")
		writeFailure(w, http.StatusMethodNotAllowed, "use GET or HEAD")
		return routeUnknown, nil
	}
	route = routeOf(req.path)
	if req.proven, err = s.cacheSecret.proves(req.Header); err != nil {
		return route, err
	}
	if err := s.admit(req); err != nil {
		return route, err
	}
	if route == routeAdmission {
		return route, s.admission(w, req)
	}
	handle := s.stored(route)
	if req.title.live() {
		handle = s.onAir(route)
	}
	if handle == nil {
		return route, weir.ErrNotFound()
	}
	return route, handle(w, req)
}

// admit finds the title of a request and checks that the viewer may play it.
func (s *Server) admit(req *request) (err error) {
	if req.title, err = s.titles.find(req.Context(), req.id); err != nil {
		return err
	}
	req.token, err = s.control.Admit(req.Context(), req.title.gated(), access.Viewer{Request: req.Request, Token: req.text, HasToken: req.inPath, Cache: req.forAll(), Client: req})
	return err
}

// admitAgain checks the viewer again if the request has waited for long.
func (s *Server) admitAgain(req *request, start time.Time) error {
	if req.node || time.Since(start) <= fresh {
		return nil
	}
	return s.admit(req)
}

// tokenMark begins a path with a token.
const tokenMark = "t/"

// cutToken splits a path that begins with t/<token>/.
func cutToken(path string) (text, rest string, ok bool) {
	after, ok := strings.CutPrefix(path, tokenMark)
	if !ok {
		return "", path, false
	}
	text, rest, _ = strings.Cut(after, "/")
	return text, rest, true
}

// oneRange removes several ranges from a request: each could be a request to the storage.
func oneRange(r *http.Request) *http.Request {
	if !strings.Contains(r.Header.Get("Range"), ",") {
		return r
	}
	whole := *r
	whole.Header = r.Header.Clone()
	whole.Header.Del("Range")
	return &whole
}

func routeOf(path string) string {
	first, rest, nested := strings.Cut(path, "/")
	switch {
	case path == "index.m3u8" || path == "ts.m3u8":
		return routeMaster
	case path == "dvr.m3u8":
		return routeDVR
	case nested && rest == "dvr.m3u8":
		return routeDVRMedia
	case path == "poster.jpg":
		return routePoster
	case path == "admission":
		return routeAdmission
	case first == "download" && nested:
		return routeDownload
	case first == "thumbnails" && nested:
		return routeThumbnail
	case nested && (rest == "index.m3u8" || rest == "ts.m3u8"):
		return routeMedia
	case first == textFolder && nested && textRoute(rest) != "": // a rendition may have this name, too
		return textRoute(rest)
	case nested:
		return routeSegment
	case strings.HasSuffix(path, ".mp4"):
		return routeMP4
	}
	return routeUnknown
}

// handler serves a request of a viewer, or returns the error to send.
type handler func(*endpoint.Response, *request) error

// stored returns the handler of a route for an asset; nil = there is none.
func (s *Server) stored(route string) handler {
	switch route {
	case routeMaster:
		return s.master
	case routeMedia:
		return s.playlist
	case routeSegment:
		return s.segment
	case routeMP4:
		return s.mp4
	case routeDownload:
		return s.download
	case routeThumbnail:
		return s.thumbnail
	case routeText:
		return s.textFile
	case routeTextMedia:
		return s.textPlaylist
	case routeTextSegment:
		return s.textSegment
	case routePoster:
		return s.poster
	}
	return nil
}

// keepFailure is how long caches keep a failure that all viewers get. They ask for the same at the same
// moment: when the encoder pauses, before a show begins, while a node or the storage is silent.
const keepFailure = time.Second

// shared reports whether all viewers get the same failure. What is refused to one of them is not.
func (req *request) shared(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
	default:
		return false
	}
	return req.title == nil || req.shareable() // nil = nobody was asked who the viewer is
}

func (s *Server) fail(w *endpoint.Response, req *request, route string, err error) {
	if req.Context().Err() != nil { // the viewer has disconnected
		return
	}
	if e, ok := errors.AsType[*weir.Error](err); !ok || e.Kind == weir.Internal || e.Err != nil {
		s.Log.ErrorContext(req.Context(), "request failed", "route", route, "begun", w.Begun(), "err", err)
	}
	if w.Begun() {
		return // net/http closes the connection, because the body is too short
	}
	f := endpoint.FailureOf(err, "Internal server error")
	f.Caching = endpoint.Never
	if req.shared(f.Status) {
		f.Caching = endpoint.For(keepFailure)
	}
	f.Write(w)
}

// writeFailure sends a failure that no handler has returned as an error.
func writeFailure(w http.ResponseWriter, status int, messages ...string) {
	endpoint.Failure{Status: status, Messages: messages, Caching: endpoint.Never}.Write(w)
}
