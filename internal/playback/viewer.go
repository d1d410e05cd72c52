package playback

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"weir/internal/cmaf"
	"weir/internal/endpoint"
	"weir/internal/view"
	"weir/internal/weir"
)

// MayPlay returns nil if the request, which is not one for media, is of a viewer who may play the
// content. token is the one in the addresses of the viewer's playlists; "" = the request has none.
func (s *Server) MayPlay(r *http.Request, playbackID string, token weir.Secret) error {
	return s.admit(&request{Request: r, server: s, id: playbackID, at: r.URL.Path, text: token.Reveal(), inPath: token != ""})
}

// Address returns the address of the client. Address, ID and Describe are for package access.
func (req *request) Address() netip.Addr {
	return endpoint.ClientAddr(req.Request, req.server.TrustedProxies)
}

// ID returns what identifies the client without a token.
func (req *request) ID() string { return req.server.viewerID(req.viewer()) }

// viewerID returns a hash of the network and the device of a viewer.
func (s *Server) viewerID(w view.Viewer) string {
	return s.control.ViewerID(w.Network.String(), w.Device.Kind, w.Device.OS, w.Device.Browser)
}

// Describe returns what an access webhook gets about the viewer.
func (req *request) Describe() map[string]json.RawMessage {
	base := endpoint.RequestBase(req.Request, req.server.TrustedProxies)
	// The token is left out: anyone who reads the webhook's log could use it.
	address := &url.URL{Path: cmp.Or(req.at, "/hls/"+req.id+"/"+req.path), RawQuery: req.URL.RawQuery}
	headers := map[string]string{"Host": req.Host}
	for name, values := range req.Header {
		if name == cacheHeader {
			continue
		}
		headers[name] = strings.Join(values, ", ")
	}
	viewer := map[string]json.RawMessage{}
	for name, value := range map[string]any{
		"userIP": req.Address().String(), "playDomain": req.Host, "playURL": base + address.RequestURI(), "headers": headers,
	} {
		if text, err := json.Marshal(value); err == nil {
			viewer[name] = text
		}
	}
	return viewer
}

// viewer returns the viewer, as views are counted.
func (req *request) viewer() view.Viewer {
	who := view.Viewer{Network: weir.Network(req.Address()), Device: view.DeviceOf(req.UserAgent())}
	if req.token != nil {
		who.Token = req.token.Viewer
	}
	return who
}

// beginView counts a viewer who begins to watch. It returns an error if the owner of the title has the
// maximum of viewers already, unless this one is among them.
func (s *Server) beginView(req *request) error {
	if req.forAll() {
		return nil // it is no viewer
	}
	limit, err := s.viewerLimit(req)
	if err != nil {
		return err
	}
	return s.views.Begin(req.Context(), &req.title.Title, req.viewer(), limit)
}

// mayBeginView is beginView without counting.
func (s *Server) mayBeginView(req *request) error {
	limit, err := s.viewerLimit(req)
	if err != nil {
		return err
	}
	return s.views.MayBegin(req.Context(), &req.title.Title, req.viewer(), limit)
}

// viewerLimit returns how many may watch the content of the owner of a title at once.
func (s *Server) viewerLimit(req *request) (int, error) {
	terms, err := s.control.Terms(req.Context(), req.title.gated())
	if terms.Unlimited {
		return view.Unlimited, err
	}
	return terms.ViewerLimit, err
}

// countWatched counts how much of a file, of that duration and size, was sent.
func (s *Server) countWatched(w *endpoint.Response, req *request, kind cmaf.Kind, length time.Duration, size int64) {
	if req.node || req.Method != http.MethodGet || w.Status() >= http.StatusBadRequest || !w.Begun() && w.Status() != http.StatusNotModified {
		return
	}
	s.views.Note(&req.title.Title, req.viewer(), playedTime(req.title, kind, length, min(w.Bytes(), size), size))
}

// meter counts how much of a large file was sent, while it is sent. The function that it returns
// gets numbers of bytes, and 0 at the end.
func (s *Server) meter(req *request, kind cmaf.Kind, length time.Duration, size int64) func(int64) {
	return s.views.Meter(&req.title.Title, req.viewer(), func(sent int64) time.Duration {
		return playedTime(req.title, kind, length, sent, size)
	})
}

// playedTime returns the playing time of what was sent. Audio counts only if there is no video.
func playedTime(t *title, kind cmaf.Kind, length time.Duration, sent, size int64) time.Duration {
	if kind == cmaf.Audio && len(t.video) > 0 || size <= 0 {
		return 0
	}
	return time.Duration(float64(length) * float64(sent) / float64(size))
}

// Stats are the counts of a Server.
type Stats struct {
	Viewers      int64 // with a request in the last half minute
	Reloads      int64 // requests that wait for a playlist
	Waits        int64 // requests that wait for a part
	NodeRequests int64 // requests to other nodes
	EdgeHits     int64 // files of other nodes that were there
	EdgeJoined   int64 // files of other nodes that another request was fetching
	EdgeBytes    int64 // of the files of other nodes that are kept
	Uncounted    int64 // requests whose viewing was not counted
	Refused      int64 // viewers refused because the account had too many
	Stale        int64 // responses while the database did not respond
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	views := s.views.Stats()
	n := Stats{
		Viewers: views.Viewers, Uncounted: views.Uncounted, Refused: views.Refused,
		Reloads: s.reloads.Load(), Waits: s.waits.Load(), Stale: s.stale.Load(),
	}
	if s.edge != nil {
		n.NodeRequests, n.EdgeHits, n.EdgeJoined = s.edge.requests.Load(), s.edge.hits.Load(), s.edge.joined.Load()
		n.EdgeBytes = s.edge.cache.used()
	}
	return n
}
