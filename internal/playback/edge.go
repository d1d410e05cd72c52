package playback

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/store"
	"weir/internal/weir"
)

// A stream is carried by one node, and watched on any. A node that does not carry it is an
// edge: it lets viewers in, counts them, and asks the origin node for what they want, once for
// all who want the same. What it gets is the same for all viewers; only the addresses in
// playlists are made the viewer's own here.

const (
	// largestFetch is the largest piece of a stream that is passed on.
	largestFetch = 64 << 20
	// largeFetch is from which size on pieces are fetched only a few at a time.
	largeFetch = 1 << 20
	// maxPieces is how many bytes an edge remembers.
	maxPieces = 64 << 20
	// keepState is how long players are shown the last state of a stream whose origin node is
	// silent: as long as a session waits for its encoder, about.
	keepState = time.Minute
	// askAgain is how often an origin node that is silent is looked for while a player waits.
	askAgain = 250 * time.Millisecond
	// maxAsk is what an answer may take beyond what the origin node waits for.
	maxAsk       = 10 * time.Second
	maxOrigins   = 10_000
	lengthHeader = "Weir-Length" // how long a piece is, in nanoseconds
)

// Why an origin node does not give what is wanted, though it, or another, may in a moment.
var (
	errSilent = weir.Errorf(weir.Upstream, "the server that carries the stream does not answer; try again")
	errNotYet = weir.Errorf(weir.NotFound, "the stream has not started yet")
)

// errNobody says that nobody carries a stream.
var errNobody = weir.Errorf(weir.NotFound, "the stream is not live at the moment")

func away(err error) bool { return errors.Is(err, errSilent) || errors.Is(err, errNotYet) }

// edge is the way to streams that other nodes carry.
type edge struct {
	store   *store.Store
	peers   *Peers
	log     *slog.Logger
	flights singleflight.Group // by what is asked for
	asking  singleflight.Group // for origin nodes, by playback id
	large   chan struct{}      // turns at fetching large pieces
	pieces  pieces
	end     context.CancelFunc // of all that is being asked
	life    context.Context    // until then
	running sync.WaitGroup
	asked   atomic.Int64
	mu      sync.Mutex
	origins map[string]knownOrigin
}

type knownOrigin struct {
	store.OriginNode
	err     error
	checked time.Time
}

func newEdge(st *store.Store, peers *Peers, log *slog.Logger) *edge {
	e := &edge{store: st, peers: peers, log: log, large: make(chan struct{}, 16), origins: map[string]knownOrigin{}}
	e.life, e.end = context.WithCancel(context.Background())
	e.pieces.init(maxPieces)
	return e
}

// close ends what is being asked. Nobody may ask any more.
func (e *edge) close() {
	e.end()
	e.running.Wait()
}

// fetched is what an origin node gave.
type fetched struct {
	body    []byte
	kind    string // content type
	caching string
	length  time.Duration // of media

	update    sync.Once // sets the two below, for all viewers
	delta     []byte    // the playlist without its older segments; nil = there is none
	deltaFrom int64     // the number of the first segment in it
}

// updateFor returns the playlist without the older segments for a player that waits for a segment,
// and so has those before it. If it does not have all that is left out, it gets the whole playlist.
func (f *fetched) updateFor(segment int64) []byte {
	f.update.Do(func() {
		_, list, err := hls.Parse(f.body)
		if err != nil || list == nil {
			return
		}
		if d := list.Delta(); d.Skipped > list.Skipped {
			f.delta, f.deltaFrom = d.Text(), d.Sequence+int64(d.Skipped)
		}
	})
	if f.delta == nil || f.deltaFrom > segment {
		return f.body
	}
	return f.delta
}

// origin node returns who carries what is played under an id.
func (e *edge) origin(ctx context.Context, id string) (store.OriginNode, error) {
	e.mu.Lock()
	known, ok := e.origins[id]
	e.mu.Unlock()
	if ok && time.Since(known.checked) < fresh {
		return known.OriginNode, known.err
	}
	found, err, _ := e.asking.Do(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLoad)
		defer cancel()
		k := knownOrigin{checked: time.Now()}
		k.OriginNode, k.err = e.store.OriginNodeOf(ctx, id)
		if weir.KindOf(k.err) == weir.NotFound {
			k.err = errNobody
		} else if k.err != nil {
			return store.OriginNode{}, k.err // not remembered
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.origins) >= maxOrigins {
			clear(e.origins)
		}
		e.origins[id] = k
		return k.OriginNode, k.err
	})
	return found.(store.OriginNode), err
}

func (e *edge) forget(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.origins, id)
}

// get returns something of a stream: from memory, or from its origin node. Of those who want
// the same at the same time one asks for all, and goes on asking when that one leaves.
func (e *edge) get(ctx context.Context, id string, t target) (*fetched, error) {
	if f, ok := e.pieces.get(t.address, time.Now()); ok {
		return f, nil
	}
	flight := e.flights.DoChan(t.address, func() (any, error) {
		e.running.Add(1)
		defer e.running.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.wait+maxAsk)
		defer cancel()
		defer context.AfterFunc(e.life, cancel)()
		f, err := e.ask(ctx, id, t)
		if err != nil {
			return nil, err
		}
		e.remember(t, f)
		return f, nil
	})
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-flight:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*fetched), nil
	}
}

// remember keeps what does not change, and the last state of what does.
func (e *edge) remember(t target, f *fetched) {
	now := time.Now()
	switch {
	case t.forever:
		e.pieces.put(t.address, f, time.Time{})
	case t.wait > 0 && f.caching != keepNothing:
		e.pieces.put(t.address, f, now.Add(reloadWait))
	}
	if t.state != "" {
		e.pieces.put(t.state, f, now.Add(keepState))
	}
}

// ask asks the origin node of a stream, and the next one if the stream has moved.
func (e *edge) ask(ctx context.Context, id string, t target) (*fetched, error) {
	c, err := e.origin(ctx, id)
	if err != nil {
		return nil, err
	}
	f, err := e.fetch(ctx, c, t)
	if !away(err) {
		return f, err
	}
	e.forget(id)
	switch next, nextErr := e.origin(ctx, id); {
	case nextErr != nil:
		return nil, nextErr
	case next != c:
		return e.fetch(ctx, next, t)
	}
	return nil, err
}

// fetch asks one node.
func (e *edge) fetch(ctx context.Context, c store.OriginNode, t target) (*fetched, error) {
	switch {
	case c.Node == e.store.NodeID():
		return nil, errNotYet // or it would have been found here
	case c.URL == "":
		return nil, errSilent
	}
	e.asked.Add(1)
	answer, err := e.peers.Do(ctx, http.MethodGet, c.URL, t.address, nil, nil)
	if err != nil {
		e.log.WarnContext(ctx, "the node that carries a stream does not answer", "node", c.Node, "err", err)
		return nil, errSilent
	}
	defer answer.Body.Close()
	if answer.ContentLength > largeFetch {
		select {
		case e.large <- struct{}{}:
			defer func() { <-e.large }()
		case <-ctx.Done():
			return nil, errSilent
		}
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, largestFetch+1))
	switch {
	case err != nil:
		e.log.WarnContext(ctx, "the node that carries a stream broke off", "node", c.Node, "err", err)
		return nil, errSilent
	case len(body) > largestFetch:
		return nil, fmt.Errorf("node %s answers with more than %d bytes", c.Node, largestFetch)
	case answer.StatusCode == statusElsewhere:
		return nil, errSilent
	case answer.StatusCode == statusNotYet:
		return nil, errNotYet
	case answer.StatusCode != http.StatusOK:
		return nil, errorOf(answer.StatusCode, body)
	}
	nanoseconds, _ := strconv.ParseInt(answer.Header.Get(lengthHeader), 10, 64)
	h := answer.Header
	return &fetched{body: body, kind: h.Get("Content-Type"), caching: h.Get("Cache-Control"), length: time.Duration(nanoseconds)}, nil
}

// errorOf is what an origin node has answered instead.
func errorOf(status int, body []byte) error {
	var said struct{ Errors []string }
	if err := json.Unmarshal(body, &said); err != nil || len(said.Errors) == 0 {
		said.Errors = []string{"the server that carries the stream can't answer; try again"}
	}
	for _, kind := range []weir.Kind{weir.NotFound, weir.Refused, weir.Busy} {
		if kind.Status() == status {
			return &weir.Error{Kind: kind, Messages: said.Errors}
		}
	}
	return &weir.Error{Kind: weir.Upstream, Messages: said.Errors}
}

// target is what a viewer wants of a stream, as every node names it.
type target struct {
	address string        // below NodePath; there is one for each thing
	wait    time.Duration // how long the origin node may wait for it
	forever bool          // it does not change
	state   string        // "" = it can't be answered with what it was before
}

// targetOf reads what a viewer wants. Nothing of who that is is in it.
func (s *Server) targetOf(v *visit, route string) (target, error) {
	t := target{address: nodeAddress(hlsForNodes, v.id+"/"+v.path)}
	switch route {
	case routeSegment:
		_, file, _ := strings.Cut(v.path, "/")
		p, ok := parsePiece(file)
		if !ok {
			return t, weir.ErrNotFound()
		}
		t.forever = true
		if p.part >= 0 {
			t.wait = s.partWait
		}
	case routeMaster, routeDVR, routeDVRMedia:
		t.state = "state " + t.address
	case routeMedia:
		q, err := parseQuery(v.URL.Query())
		if err != nil {
			return t, err
		}
		// What a player has already is left out here, if it asks for that: what others ask
		// for is the same then, and the last state is one that every player can go on from.
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

// fromOrigin answers with something of a stream that another node carries. Should it be
// carried here by then, here answers.
func (s *Server) fromOrigin(w *answer, v *visit, route string, here func(*answer, *visit) error) error {
	t, err := s.targetOf(v, route)
	if err != nil {
		return err
	}
	start := time.Now()
	var f *fetched
	for {
		if f, err = s.edge.get(v.Context(), v.id, t); !away(err) || time.Since(start) > t.wait {
			break
		}
		select {
		case <-v.Context().Done():
			return context.Cause(v.Context())
		case <-time.After(askAgain):
		}
		if s.carries(v) {
			return here(w, v)
		}
	}
	if weir.KindOf(err) == weir.NotFound && !errors.Is(err, errNobody) || away(err) {
		// The origin node is gone and its encoder may come back to another, or has, and there is
		// not much to see yet. Players that get an error give up sooner or later.
		if last, ok := s.edge.pieces.get(t.state, time.Now()); ok {
			f, err = &fetched{body: last.body, kind: last.kind, caching: keepNothing}, nil
		} else if v.broadcast != nil && v.broadcast.HandedOver() && t.state != "" {
			return here(w, v.withoutWait())
		}
	}
	if errors.Is(err, errNobody) {
		err = errOffAir(v.title)
	}
	if err != nil {
		return err
	}
	if time.Since(start) > fresh {
		if err := s.enter(v); err != nil { // much can have happened meanwhile
			return err
		}
	}
	return s.passOn(w, v, route, f)
}

// carries looks whether a stream is carried here, and what the viewer wants of it can be
// seen.
func (s *Server) carries(v *visit) bool {
	if s.Live == nil {
		return false
	}
	b, ok := s.Live.Find(v.id)
	if !ok {
		return false
	}
	v.broadcast = b
	return !b.HandedOver() && b.Shows(v.rendition())
}

// rendition returns which one a viewer wants something of; "" = of all.
func (v *visit) rendition() string {
	name, _, nested := strings.Cut(v.path, "/")
	if !nested {
		return ""
	}
	return name
}

// withoutWait is a visit that wants a playlist as it is now.
func (v *visit) withoutWait() *visit {
	now := *v
	now.Request = v.Clone(v.Context())
	query := now.URL.Query()
	for _, name := range []string{"_HLS_msn", "_HLS_part", "_HLS_skip"} {
		query.Del(name)
	}
	now.URL.RawQuery = query.Encode()
	return &now
}

// passOn gives a viewer what an origin node gave.
func (s *Server) passOn(w *answer, v *visit, route string, f *fetched) error {
	name, file, _ := strings.Cut(v.path, "/")
	switch route {
	case routeMaster, routeDVR:
		if v.Method == http.MethodGet {
			s.views.begin(v, s.viewer(v))
		}
		behind := ""
		if v.URL.Query().Get("ll") == "0" {
			behind = "?ll=0"
		}
		return cached(w, v, typePlaylist, f.caching, hls.WrapURIs(f.body, v.below(""), behind))
	case routeMedia:
		text := f.body
		if q, err := parseQuery(v.URL.Query()); err == nil && q.Skip && q.Segment >= 0 {
			text = f.updateFor(q.Segment)
		}
		return cached(w, v, typePlaylist, f.caching, hls.WrapURIs(text, v.below(name), ""))
	case routeDVRMedia:
		return cached(w, v, typePlaylist, f.caching, hls.WrapURIs(f.body, v.below(name), ""))
	case routeSegment:
		w.Header().Set("Content-Type", typeMP4)
		if p, _ := parsePiece(file); p.init {
			s.immutable(w, v, fmt.Sprintf("%s/init %x", name, sha256.Sum256(f.body)))
			return serveContent(w, v, bytes.NewReader(f.body))
		}
		size := int64(len(f.body))
		s.immutable(w, v, fmt.Sprintf("%s/%s %d", name, file, size))
		serveFile(w, v, bytes.NewReader(f.body))
		s.watched(w, v, cmaf.Video, f.length, size)
		return nil
	}
	return cached(w, v, f.kind, f.caching, f.body)
}
