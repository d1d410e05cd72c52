package playback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"weir/internal/endpoint"
	"weir/internal/live"
	"weir/internal/rtc"
	"weir/internal/store"
)

// Headers with the address of a viewer or an encoder, and the host that it requested.
const (
	viewerHeader = "Weir-Viewer"
	hostHeader   = "Weir-Host"
)

func isMoved(err error) bool { return errors.Is(err, live.ErrHandedOver) }

// Relay passes WebRTC offers for streams of other nodes to these. The media goes directly between
// the other node and the peer. Other requests go to here. playbackID returns the playback id for an
// id in a URL.
//
// The origin node admits and counts the viewer. An encoder continues a session on the node that has
// it open; if that node does not answer, on this one.
func (s *Server) Relay(here http.Handler, playbackID func(r *http.Request, id string) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, session, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, rtc.EndpointPath), "/")
		c, elsewhere := s.originOfOffer(r, strings.TrimPrefix(id, "video+"), session, playbackID)
		if !elsewhere {
			here.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			writeFailure(w, http.StatusBadRequest, "the body is incomplete or too large")
			return
		}
		if s.relay(w, r, c, body) {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		here.ServeHTTP(w, r)
	})
}

// originOfOffer returns the other node that a request is for, if there is one.
func (s *Server) originOfOffer(r *http.Request, id, session string, playbackID func(*http.Request, string) (string, error)) (store.OriginNode, bool) {
	begins := session == "" && r.Method == http.MethodPost
	if !begins && (session == "" || r.Method == http.MethodOptions) {
		return store.OriginNode{}, false
	}
	id, err := playbackID(r, id)
	if err != nil {
		return store.OriginNode{}, false // here answers with the error
	}
	c, err := s.edge.origin(r.Context(), id)
	if err != nil || c.SessionID == "" || c.URL == "" || c.Node == s.Store.NodeID() {
		return store.OriginNode{}, false
	}
	return c, true
}

// relay passes a request to another node. It reports whether that answered.
func (s *Server) relay(w http.ResponseWriter, r *http.Request, c store.OriginNode, body []byte) bool {
	header := r.Header.Clone()
	for _, name := range []string{"Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Keep-Alive", "Accept-Encoding", signatureHeader} {
		header.Del(name)
	}
	client := endpoint.ClientAddr(r, s.TrustedProxies)
	header.Set(viewerHeader, netip.AddrPortFrom(client, 0).String())
	header.Set(hostHeader, r.Host)
	header.Del("X-Forwarded-For")
	path := nodeAddress(webRTCForNodes, strings.TrimPrefix(r.URL.Path, rtc.EndpointPath))
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	ctx, cancel := context.WithTimeout(r.Context(), originTimeout)
	defer cancel()
	response, err := s.edge.peers.Do(ctx, r.Method, c.URL, path, header, body)
	if err != nil {
		s.Log.WarnContext(ctx, "origin node of a stream does not respond to an offer", "node", c.Node, "err", err)
		return false
	}
	defer response.Body.Close()
	for name, values := range response.Header {
		if !slices.Contains([]string{"Connection", "Transfer-Encoding", "Date"}, name) {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(response.Body, maxFetch))
	return true
}
