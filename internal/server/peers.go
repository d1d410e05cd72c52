package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"weir/internal/budget"
	"weir/internal/endpoint"
	"weir/internal/ingest"
	"weir/internal/playback"
	"weir/internal/weir"
)

// The paths at which nodes ask one another: for the files of sessions, for what clips can be cut
// from, and to let go of a stream.
const (
	sessionsForNodes = playback.NodePath + "session/"
	rangesForNodes   = playback.NodePath + "ranges/"
	releaseForNodes  = playback.NodePath + "release/"
)

// openPeers makes the client for other nodes.
func (s *server) openPeers(ctx context.Context) (err error) {
	if s.peers, err = playback.OpenPeers(ctx, s.store); err != nil {
		return err
	}
	s.onClose(s.peers.Close)
	return nil
}

// announce writes to the store how other nodes reach this one.
func (s *server) announce(ctx context.Context, port int) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := s.store.AnnounceURL(ctx, s.cfg.PeerURL(port)); err != nil {
		s.log.Warn("URL of this node could not be written; the next heartbeat writes it", "err", err)
	}
}

// routeNodes adds the routes for other nodes: live streams, offers of WebRTC, and the files of
// sessions.
func (s *server) routeNodes(mux *http.ServeMux) {
	only := func(next http.Handler) http.Handler {
		return s.peers.Only(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			budget.Authenticated(r.Context())
			next.ServeHTTP(w, r)
		}))
	}
	mux.Handle(playback.NodePath, only(s.playback.Node(s.webRTCHere(nil))))
	if s.hub != nil {
		mux.Handle("GET "+sessionsForNodes, only(s.hub.Files(sessionsForNodes)))
		mux.Handle("GET "+rangesForNodes+"{session}", only(http.HandlerFunc(s.sendRanges)))
		mux.Handle("POST "+releaseForNodes+"{stream}", only(http.HandlerFunc(s.release)))
	}
}

// sendRanges tells another node what there is of a session on this one.
func (s *server) sendRanges(w http.ResponseWriter, r *http.Request) {
	ranges, err := s.hub.Ranges(r.PathValue("session"))
	if err != nil {
		w.WriteHeader(weir.KindOf(err).Status())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(ranges)
}

// release lets go of a stream whose encoder has connected to another node.
func (s *server) release(w http.ResponseWriter, r *http.Request) {
	numbers, err := s.hub.Release(r.Context(), r.PathValue("stream"))
	if err != nil {
		w.WriteHeader(weir.KindOf(err).Status())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(numbers)
}

// numbersBytes is the maximum size of the response to that.
const numbersBytes = 1 << 10

// askToRelease asks another node to let go of a stream.
func (s *server) askToRelease(ctx context.Context, node, url, streamID string) (n weir.Numbers, err error) {
	if url == "" {
		return n, weir.Errorf(weir.Upstream, "node %s has no address", node)
	}
	body, err := s.askAt(ctx, http.MethodPost, node, url, releaseForNodes+streamID)
	if err != nil {
		return n, err
	}
	err = json.NewDecoder(io.LimitReader(body, numbersBytes)).Decode(&n)
	return n, errors.Join(err, body.Close())
}

// askForRanges asks another node what there is of a session on it.
func (s *server) askForRanges(ctx context.Context, node, sessionID string) (ranges []weir.ClipRange, err error) {
	body, err := s.askNode(ctx, http.MethodGet, node, rangesForNodes+sessionID)
	if err != nil {
		return nil, err
	}
	err = json.NewDecoder(io.LimitReader(body, rangesBytes)).Decode(&ranges)
	if err := errors.Join(err, body.Close()); err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "the response of node %s about the session can't be read", node)
	}
	return ranges, nil
}

// rangesBytes is the maximum size of the response: that of more than a hundred thousand reconnects of
// an encoder.
const rangesBytes = 16 << 20

// askForFiles requests files of sessions from another node.
func (s *server) askForFiles(ctx context.Context, node, path string) (io.ReadCloser, error) {
	return s.askNode(ctx, http.MethodGet, node, sessionsForNodes+path)
}

// askNode sends a request to another node.
func (s *server) askNode(ctx context.Context, method, node, path string) (io.ReadCloser, error) {
	base, err := s.store.NodeURL(ctx, node)
	if weir.KindOf(err) == weir.NotFound {
		return nil, weir.Wrap(weir.Upstream, err, "node %s does not answer", node)
	}
	if err != nil {
		return nil, err
	}
	return s.askAt(ctx, method, node, base, path)
}

// askAt sends a request to the node at a URL.
func (s *server) askAt(ctx context.Context, method, node, base, path string) (io.ReadCloser, error) {
	unreachable := func(err error) error {
		return weir.Wrap(weir.Upstream, err, "node %s does not answer", node)
	}
	resp, err := s.peers.Do(ctx, method, base, path, nil, nil)
	if err != nil {
		return nil, unreachable(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	_ = resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotFound:
		return nil, weir.Errorf(weir.NotFound, "node %s does not have %s", node, path)
	case http.StatusTooManyRequests:
		return nil, weir.Errorf(weir.Busy, "node %s still writes the session", node)
	}
	return nil, unreachable(fmt.Errorf("HTTP status %d", resp.StatusCode))
}

// playbackOf returns the playback id for the id in a URL of WebRTC: a stream key, or the
// playback id itself. A client that has shown too many invalid stream keys gets an error: this node
// must not tell it by passing on its offer which key is valid.
func (s *server) playbackOf(r *http.Request, id string) (string, error) {
	if !ingest.IsStreamKey(id) {
		return id, nil
	}
	if s.admission != nil {
		if err := s.admission.CheckKeys(endpoint.ClientAddr(r, s.cfg.TrustedProxies)); err != nil {
			return "", err
		}
	}
	if s.hub != nil {
		if playback, open := s.hub.PlaybackOf(id); open { // also while the database is away
			return playback, nil
		}
	}
	stream, err := s.store.StreamByKey(r.Context(), weir.Secret(id))
	return stream.PlaybackID, err
}
