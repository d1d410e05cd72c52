package playback

import (
	"net/http"
	"net/netip"
	"time"

	"weir/internal/cmaf"
	"weir/internal/view"
	"weir/internal/weir"
)

func (s *Server) viewer(v *visit) view.Viewer {
	who := view.Viewer{Network: weir.Network(s.address(v)), Device: view.DeviceOf(v.UserAgent())}
	if v.token != nil {
		who.Token = v.token.viewing
	}
	return who
}

// viewerID returns a hash of the network and the device of a viewer.
func (s *Server) viewerID(w view.Viewer) string {
	return s.tokens.viewerID(w.Network.String(), w.Device.Kind, w.Device.OS, w.Device.Browser)
}

func (s *Server) address(v *visit) netip.Addr {
	return weir.ClientAddr(v.Request, s.TrustedProxies)
}

// begin counts a viewer who begins to watch. It returns an error if the owner of the title has the
// maximum of viewers already, unless this one is among them.
func (s *Server) begin(v *visit) error {
	limit, err := s.viewerLimit(v)
	if err != nil {
		return err
	}
	return s.views.Begin(v.Context(), &v.title.Title, s.viewer(v), limit)
}

// mayBegin is begin without counting.
func (s *Server) mayBegin(v *visit) error {
	limit, err := s.viewerLimit(v)
	if err != nil {
		return err
	}
	return s.views.Fits(v.Context(), &v.title.Title, s.viewer(v), limit)
}

// viewerLimit returns how many may watch the content of the owner of a title at once.
func (s *Server) viewerLimit(v *visit) (int, error) {
	terms, err := s.titles.terms(v.Context(), v.title.PlaybackID, "")
	if terms.Unlimited {
		return view.Unlimited, err
	}
	return terms.ViewerLimit, err
}

// watched counts how much of a file, of that duration and size, was sent.
func (s *Server) watched(w *answer, v *visit, kind cmaf.Kind, length time.Duration, size int64) {
	if v.node || v.Method != http.MethodGet || w.status >= http.StatusBadRequest || !w.begun && w.status != http.StatusNotModified {
		return
	}
	s.views.Note(&v.title.Title, s.viewer(v), share(v.title, kind, length, min(w.bytes, size), size))
}

// meter counts how much of a large file was sent, while it is sent. The function that it returns
// gets numbers of bytes, and 0 at the end.
func (s *Server) meter(v *visit, kind cmaf.Kind, length time.Duration, size int64) func(int64) {
	return s.views.Meter(&v.title.Title, s.viewer(v), func(sent int64) time.Duration {
		return share(v.title, kind, length, sent, size)
	})
}

// share returns the playing time of what was sent. Audio counts only if there is no video.
func share(t *title, kind cmaf.Kind, length time.Duration, sent, size int64) time.Duration {
	if kind == cmaf.Audio && len(t.video) > 0 || size <= 0 {
		return 0
	}
	return time.Duration(float64(length) * float64(sent) / float64(size))
}

// Stats are the counts of a Server.
type Stats struct {
	Viewers   int64 // with a request in the last half minute
	Reloads   int64 // requests that wait for a playlist
	Waits     int64 // requests that wait for a part
	Asked     int64 // requests to other nodes
	Uncounted int64 // requests whose viewing was not counted
	Full      int64 // viewers refused because the account had too many
	Throttled int64 // requests refused because of wrong credentials from their address
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	views := s.views.Stats()
	n := Stats{
		Viewers: views.Viewers, Uncounted: views.Uncounted, Full: views.Refused,
		Reloads: s.reloads.Load(), Waits: s.waits.Load(), Throttled: s.throttled.Load(),
	}
	if s.edge != nil {
		n.Asked = s.edge.asked.Load()
	}
	return n
}
