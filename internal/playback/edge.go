package playback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/cmaf"
	"weir/internal/endpoint"
	"weir/internal/hls"
	"weir/internal/store"
	"weir/internal/weir"
)

// A stream is received by its origin node and can be watched on any node. The other nodes are
// edges: an edge admits and counts viewers, and fetches playlists and media from the origin node,
// once for all viewers who want the same. Only the URIs in playlists differ between viewers.

const (
	// maxFetch is the maximum size of a file of a stream.
	maxFetch = 64 << 20
	// largeFetch is the size from which files are fetched only a few at a time.
	largeFetch = 1 << 20
	// DefaultEdgeCache is the size of the cache of an edge: the newest 15 seconds of streams of together
	// 18 Mbit/s, in parts and in segments.
	DefaultEdgeCache = 64 << 20
	// keepState is how long players get the last playlist of a stream whose origin node does not
	// answer: about as long as a session waits for its encoder.
	keepState = time.Minute
	// retryEvery is the interval of requests to an origin node that does not answer.
	retryEvery = 250 * time.Millisecond
	// silenceTimeout is the timeout of the first byte of a response, beside the time that the origin
	// node may wait. hls.js waits 10 s for that of a playlist, and reloadWait is 6 s.
	silenceTimeout = 3 * time.Second
	// originTimeout is the timeout of the rest of a response.
	originTimeout = 10 * time.Second
	maxOrigins    = 10_000
	lengthHeader  = "Weir-Length" // duration of a segment or part in nanoseconds
)

// Errors of an origin node that may be gone in a moment.
var (
	errNoResponse = weir.Errorf(weir.Upstream, "the origin server of the stream does not respond; try again")
	errNotYet     = weir.Errorf(weir.NotFound, "the stream has not started yet")
)

// errMoving says that the new origin node has nothing to show yet. It is not NotFound: players do not
// ask again then.
var errMoving = weir.Errorf(weir.Upstream, "the stream has just moved to another server, which is not ready yet; try again")

// errNoOrigin says that a stream has no origin node.
var errNoOrigin = weir.Errorf(weir.NotFound, "the stream is not live at the moment")

func isTemporary(err error) bool { return errors.Is(err, errNoResponse) || errors.Is(err, errNotYet) }

// edge fetches streams from their origin nodes.
type edge struct {
	store    *store.Store
	peers    *Peers
	log      *slog.Logger
	flights  singleflight.Group // requests, by address
	large    chan struct{}      // limits concurrent fetches of large files
	cache    fileCache
	end      context.CancelFunc // ends all requests
	life     context.Context    // until then
	running  sync.WaitGroup
	requests atomic.Int64
	hits     atomic.Int64                   // files from the cache
	joined   atomic.Int64                   // files that another request was fetching already
	origins  store.Recent[store.OriginNode] // by playback id

	mu          sync.Mutex
	unreachable map[string]time.Time // by URL of a node: when it last could not be connected to
}

func newEdge(st *store.Store, peers *Peers, cache int64, log *slog.Logger) *edge {
	e := &edge{store: st, peers: peers, log: log, large: make(chan struct{}, 16), unreachable: map[string]time.Time{}, cache: newFileCache(cache)}
	e.life, e.end = context.WithCancel(context.Background())
	e.origins.Store, e.origins.Max = st, maxOrigins
	return e
}

// close ends all requests. No new one may start.
func (e *edge) close() {
	e.end()
	e.running.Wait()
}

// fetched is a response of an origin node.
type fetched struct {
	body    []byte           // empty if there is media
	media   *arriving        // of a segment or part
	rest    func() error     // receives the media; nil = it is there
	text    func() *hls.Text // the same as a playlist, prepared on the first call
	kind    string           // content type
	caching endpoint.Caching
	length  time.Duration // of media

	update    sync.Once // sets the two below
	delta     *hls.Text // the playlist without its older segments; nil = there is none
	deltaFrom int64     // the number of the first segment in it
}

// size returns the size of the whole body.
func (f *fetched) size() int64 {
	if f.media != nil {
		return f.media.size
	}
	return int64(len(f.body))
}

func newFetched(body []byte) *fetched {
	return &fetched{body: body, text: sync.OnceValue(func() *hls.Text { return hls.NewText(body) })}
}

// updateFor returns the playlist without older segments, for a player that waits for a segment and
// has those before it. A player that lacks some of the older ones gets the whole playlist.
func (f *fetched) updateFor(segment int64) *hls.Text {
	f.update.Do(func() {
		_, list, err := hls.Parse(f.body)
		if err != nil || list == nil {
			return
		}
		if d := list.Delta(); d.Skipped > list.Skipped {
			f.delta, f.deltaFrom = hls.NewText(d.Text()), d.Sequence+int64(d.Skipped)
		}
	})
	if f.delta == nil || f.deltaFrom > segment {
		return f.text()
	}
	return f.delta
}

// origin returns the origin node of a playback id.
func (e *edge) origin(ctx context.Context, id string) (store.OriginNode, error) {
	return e.origins.Get(ctx, id, time.Now(), func(ctx context.Context) (store.OriginNode, error) {
		node, err := e.store.OriginNodeOf(ctx, id)
		if weir.KindOf(err) == weir.NotFound {
			err = errNoOrigin
		}
		return node, err
	})
}

// get returns a file of a stream from the cache or from its origin node. Concurrent requests for
// the same file share one fetch, which does not end with the first of them.
func (e *edge) get(ctx context.Context, id string, t target) (*fetched, error) {
	if f, ok := e.cache.get(t.address, time.Now()); ok {
		e.hits.Add(1)
		return f, nil
	}
	own := false // this request fetches it
	flight := e.flights.DoChan(t.address, func() (any, error) {
		own = true
		e.running.Add(1)
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(e.life, cancel)
		end := func() {
			stop()
			cancel()
			e.running.Done()
		}
		f, err := e.fetchFromOrigin(ctx, id, t)
		if err != nil {
			end()
			return nil, err
		}
		e.remember(t, f)
		if f.rest == nil {
			end()
			return f, nil
		}
		rest := f.rest
		f.rest = nil // it keeps the response, and f is kept
		go func() {  // viewers read it meanwhile
			defer end()
			if err := rest(); err != nil {
				e.cache.drop(t.address, f)
				e.log.WarnContext(ctx, "response of the origin node broke off", "err", err)
			}
		}()
		return f, nil
	})
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-flight:
		if r.Err != nil {
			return nil, r.Err
		}
		if !own {
			e.joined.Add(1)
		}
		return r.Val.(*fetched), nil
	}
}

// remember caches files that do not change, and the last state of those that do.
func (e *edge) remember(t target, f *fetched) {
	now := time.Now()
	switch {
	case t.forever:
		e.cache.put(t.address, f, time.Time{})
	case t.wait > 0 && f.caching == keepAwaited: // otherwise it is not what was waited for
		e.cache.put(t.address, f, now.Add(reloadWait))
	}
	if t.state != "" {
		e.cache.put(t.state, f, now.Add(keepState))
	}
}

// fetchFromOrigin asks the origin node of a stream, and the new one after a handover.
func (e *edge) fetchFromOrigin(ctx context.Context, id string, t target) (*fetched, error) {
	c, err := e.origin(ctx, id)
	if err != nil {
		return nil, err
	}
	f, err := e.fetch(ctx, c, t)
	if !isTemporary(err) {
		return f, err
	}
	e.origins.Expire(id)
	switch next, nextErr := e.origin(ctx, id); {
	case nextErr != nil:
		return nil, nextErr
	case next != c:
		return e.fetch(ctx, next, t)
	}
	return nil, err
}

func (e *edge) fetch(ctx context.Context, c store.OriginNode, t target) (*fetched, error) {
	switch {
	case c.Node == e.store.NodeID():
		return nil, errNotYet // otherwise the stream would have been found on this node
	case c.URL == "" || e.isUnreachable(c.URL):
		return nil, errNoResponse
	}
	e.requests.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(t.wait+silenceTimeout, cancel)
	end := func() {
		timeout.Stop()
		cancel()
	}
	response, err := e.peers.Do(ctx, http.MethodGet, c.URL, t.address, nil, nil)
	if err != nil {
		end()
		e.noteUnreachable(c.URL, err)
		e.log.WarnContext(ctx, "origin node of a stream does not respond", "node", c.Node, "err", err)
		return nil, errNoResponse
	}
	timeout.Reset(originTimeout)
	h, size := response.Header, response.ContentLength
	if t.media && response.StatusCode == http.StatusOK && size > 0 && size <= maxFetch {
		f := &fetched{media: newArriving(size)}
		f.describe(h)
		f.rest = func() error {
			defer end()
			defer response.Body.Close()
			return e.receive(ctx, f.media, response.Body)
		}
		return f, nil
	}
	defer end()
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFetch+1))
	switch {
	case err != nil:
		e.log.WarnContext(ctx, "response of the origin node broke off", "node", c.Node, "err", err)
		return nil, errNoResponse
	case len(body) > maxFetch:
		return nil, fmt.Errorf("node %s sent more than %d bytes", c.Node, maxFetch)
	case response.StatusCode == statusElsewhere:
		return nil, errNoResponse
	case response.StatusCode == statusNotYet:
		return nil, errNotYet
	case response.StatusCode != http.StatusOK:
		return nil, errorOf(response.StatusCode, body)
	}
	f := newFetched(body)
	f.describe(h)
	return f, nil
}

// isUnreachable reports whether a node refused a connection a moment ago. All viewers of its streams try
// again, each at its own time.
func (e *edge) isUnreachable(url string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.unreachable[url]) < retryEvery
}

// noteUnreachable notes that a request to a node has failed, if there was no connection.
func (e *edge) noteUnreachable(url string, err error) {
	if failed, ok := errors.AsType[*net.OpError](err); !ok || failed.Op != "dial" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(e.unreachable, func(_ string, at time.Time) bool { return now.Sub(at) > retryEvery })
	e.unreachable[url] = now
}

// describe takes over what the headers of a response say.
func (f *fetched) describe(h http.Header) {
	nanoseconds, _ := strconv.ParseInt(h.Get(lengthHeader), 10, 64)
	f.kind, f.caching, f.length = h.Get("Content-Type"), endpoint.CachingOf(h), time.Duration(nanoseconds)
}

// receive receives a file, a large one only beside a few others.
func (e *edge) receive(ctx context.Context, a *arriving, from io.Reader) error {
	if a.size > largeFetch {
		select {
		case e.large <- struct{}{}:
			defer func() { <-e.large }()
		case <-ctx.Done():
			return a.fail(context.Cause(ctx))
		}
	}
	return a.receive(from)
}

func errorOf(status int, body []byte) error {
	var said struct{ Errors []string }
	if err := json.Unmarshal(body, &said); err != nil || len(said.Errors) == 0 {
		said.Errors = []string{"the origin server of the stream failed; try again"}
	}
	for _, kind := range []weir.Kind{weir.NotFound, weir.Refused, weir.Busy} {
		if kind.Status() == status {
			return &weir.Error{Kind: kind, Messages: said.Errors}
		}
	}
	return &weir.Error{Kind: weir.Upstream, Messages: said.Errors}
}

// target is a file of a stream that a viewer requests.
type target struct {
	address string        // on the origin node; the same for all viewers
	wait    time.Duration // how long the origin node may wait for it
	forever bool          // it does not change
	media   bool          // it is a segment or a part
	state   string        // cache key of its last state; "" = an old state is useless
}

// targetOf returns the target of a request, without anything about the viewer.
func (s *Server) targetOf(req *request, route string) (target, error) {
	t := target{address: nodeAddress(hlsForNodes, req.id+"/"+req.path)}
	switch route {
	case routeSegment:
		_, file, _ := strings.Cut(req.path, "/")
		p, ok := parseFileName(file)
		if !ok {
			return t, weir.ErrNotFound()
		}
		t.forever, t.media, t.wait = true, !p.init, s.reloadWait // as long as after a handover, see awaitShown
	case routeMaster, routeDVR, routeDVRMedia:
		t.state = "state " + t.address
	case routeMedia:
		q, err := parseQuery(req.URL.Query())
		if err != nil {
			return t, err
		}
		// Delta updates are made here: so players share one request, and every player can continue
		// from the last state.
		query := url.Values{}
		if !q.Low {
			query.Set("ll", "0")
		}
		t.state = "state " + t.address + query.Encode()
		if q.Segment >= 0 {
			t.wait = s.reloadWait
			query.Set("_HLS_msn", strconv.FormatInt(q.Segment, 10))
		}
		if q.Part >= 0 {
			query.Set("_HLS_part", strconv.Itoa(q.Part))
		}
		if len(query) > 0 {
			t.address += "?" + query.Encode()
		}
	}
	return t, nil
}

func nodeAddress(below, path string) string {
	return (&url.URL{Path: NodePath + below + path}).EscapedPath()
}

// fromOrigin answers with a file of a stream of another node. If this node becomes the origin node
// meanwhile, here answers.
func (s *Server) fromOrigin(w *endpoint.Response, req *request, route string, here handler) error {
	t, err := s.targetOf(req, route)
	if err != nil {
		return err
	}
	start := time.Now()
	var f *fetched
	for {
		if f, err = s.edge.get(req.Context(), req.id, t); !isTemporary(err) || time.Since(start) > t.wait {
			break
		}
		if route == routeSegment && errors.Is(err, errNotYet) && req.broadcast != nil && !req.broadcast.HandedOver() {
			err := s.awaitShown(req) // this node is the new origin node
			if err == nil {
				err = s.admitAgain(req, start)
			}
			if err == nil {
				err = here(w, req)
			}
			if !isMoved(err) {
				return err
			}
		}
		select {
		case <-req.Context().Done():
			return context.Cause(req.Context())
		case <-time.After(retryEvery):
		}
		if s.carries(req) {
			return here(w, req)
		}
	}
	if weir.KindOf(err) == weir.NotFound && !errors.Is(err, errNoOrigin) || isTemporary(err) {
		// The origin node does not answer, and the encoder may connect to another one, or has just
		// done so. Players that get an error stop sooner or later.
		if last, ok := s.edge.cache.get(t.state, time.Now()); ok {
			f, err = &fetched{body: last.body, text: last.text, kind: last.kind, caching: keepPlaylist}, nil
		} else if req.broadcast != nil && req.broadcast.HandedOver() && t.state != "" {
			return here(w, req.withoutWait())
		}
	}
	switch {
	case errors.Is(err, errNoOrigin):
		err = errOffAir(req.title)
	case route == routeSegment && errors.Is(err, errNotYet):
		err = errMoving
	}
	if err != nil {
		return err
	}
	if err := s.admitAgain(req, start); err != nil {
		return err
	}
	return s.writeFetched(w, req, route, f)
}

// carries reports whether this node is the origin node and has the requested rendition.
func (s *Server) carries(req *request) bool {
	if s.Live == nil {
		return false
	}
	b, ok := s.Live.Find(req.id)
	if !ok {
		return false
	}
	req.broadcast = b
	return !b.HandedOver() && b.Shows(req.rendition())
}

// rendition returns the name of the requested rendition; "" = a master playlist or poster.
func (req *request) rendition() string {
	name, _, nested := strings.Cut(req.path, "/")
	if !nested {
		return ""
	}
	return name
}

// withoutWait returns a request for the current state of a playlist.
func (req *request) withoutWait() *request {
	now := *req
	now.Request = req.Clone(req.Context())
	query := now.URL.Query()
	for _, name := range []string{"_HLS_msn", "_HLS_part", "_HLS_skip"} {
		query.Del(name)
	}
	now.URL.RawQuery = query.Encode()
	return &now
}

// writeFetched answers with what an origin node returned.
func (s *Server) writeFetched(w *endpoint.Response, req *request, route string, f *fetched) error {
	name, file, _ := strings.Cut(req.path, "/")
	switch route {
	case routeMaster, routeDVR:
		if req.Method == http.MethodGet {
			if err := s.beginView(req); err != nil {
				return err
			}
		}
		behind := ""
		if req.URL.Query().Get("ll") == "0" {
			behind = "?ll=0"
		}
		return sendPlaylist(w, req, f.caching, f.text().Wrap(req.below(""), behind))
	case routeMedia, routeDVRMedia:
		text := f.text()
		if q, err := parseQuery(req.URL.Query()); route == routeMedia && err == nil && q.Skip && q.Segment >= 0 {
			text = f.updateFor(q.Segment)
		}
		return sendPlaylist(w, req, f.caching, text.Wrap(req.below(name), ""))
	case routeSegment:
		if p, _ := parseFileName(file); p.init {
			return s.initSegment(w, req, name, f.body)
		}
		w.Header().Set("Content-Type", typeMP4)
		size := f.size()
		s.immutable(w, req, fmt.Sprintf("%s/%s %d", name, file, size))
		var err error
		if f.media != nil {
			err = serveContent(w, req, f.media.reader(req.Context()))
		} else {
			err = serveFile(w, req, bytes.NewReader(f.body))
		}
		s.countWatched(w, req, cmaf.Video, f.length, size)
		return err
	}
	return cached(w, req, f.kind, f.caching, f.body)
}
