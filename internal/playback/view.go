package playback

import (
	"context"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/store"
	"weir/internal/weir"
)

// views counts viewings. A viewing begins at the master playlist and ends after viewingPause
// without a request. Viewers are identified by their token, or by their address and browser.
type views struct {
	mu     sync.Mutex
	active map[string]*viewing
	usage  map[usageOf]time.Duration
}

type viewing struct {
	weir.View
	played  time.Duration
	changed bool
}

type usageOf struct {
	userID, creatorID string
	hour              weir.Millis
}

const (
	viewingPause = 5 * time.Minute
	maxViewings  = 100_000
	saveEvery    = 2 * time.Second
)

// viewer identifies the viewer of a request.
type viewer struct {
	key   string // of the viewing
	id    string
	agent string
}

func (s *Server) viewer(v *visit) viewer {
	who := viewer{id: s.viewerOf(v), agent: v.UserAgent()}
	who.key = v.title.playbackID + "/" + who.id
	if v.token != nil {
		who.key = v.title.playbackID + "/" + v.token.viewing
	}
	return who
}

// viewerOf returns a hash of the viewer's address and browser.
func (s *Server) viewerOf(v *visit) string {
	return hex.EncodeToString(s.tokens.mac("viewer", s.address(v), v.UserAgent())[:12])
}

func (s *Server) address(v *visit) string {
	return weir.ClientAddr(v.RemoteAddr, v.Header.Values("X-Forwarded-For"), s.TrustedProxies).String()
}

func (c *views) begin(v *visit, who viewer) { c.note(&v.title.content, who, nil, time.Now()) }

// watched counts how much of a file, of that duration and size, was sent.
func (s *Server) watched(w *answer, v *visit, kind cmaf.Kind, length time.Duration, size int64) {
	if v.node || v.Method != http.MethodGet || w.status >= http.StatusBadRequest || !w.begun && w.status != http.StatusNotModified {
		return
	}
	s.views.note(&v.title.content, s.viewer(v), new(share(v.title, kind, length, min(w.bytes, size), size)), time.Now())
}

// meter counts how much of a large file was sent, while it is sent. The function that it returns
// gets numbers of bytes, and 0 at the end.
func (s *Server) meter(v *visit, kind cmaf.Kind, length time.Duration, size int64) func(int64) {
	who, unnoted, last := s.viewer(v), int64(0), time.Time{}
	return func(n int64) {
		unnoted += n
		if now := time.Now(); unnoted > 0 && (n == 0 || now.Sub(last) >= time.Second) {
			s.views.note(&v.title.content, who, new(share(v.title, kind, length, unnoted, size)), now)
			unnoted, last = 0, now
		}
	}
}

// share returns the playing time of what was sent. Audio counts only if there is no video.
func share(t *title, kind cmaf.Kind, length time.Duration, sent, size int64) time.Duration {
	if kind == cmaf.Audio && len(t.video) > 0 || size <= 0 {
		return 0
	}
	return time.Duration(float64(length) * float64(sent) / float64(size))
}

// note adds to a viewing, or starts one. played is nil if no media was sent.
func (c *views) note(of *content, who viewer, played *time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.active[who.key]
	if one == nil || now.Sub(one.LastSeen.Time()) > viewingPause {
		if len(c.active) >= maxViewings {
			return
		}
		if one != nil && one.changed {
			c.active[one.ID] = one // until it is written
		}
		one = &viewing{View: newView(of, who, now)}
		c.active[who.key] = one
	}
	one.LastSeen, one.changed = weir.At(now), true
	if played == nil {
		return
	}
	one.ExitedEarly = false
	one.played += *played
	one.PlaytimeMs = one.played.Milliseconds()
	if *played > 0 {
		c.usage[usageOf{of.userID, of.creatorID, weir.StepHour.Start(weir.At(now))}] += *played
	}
}

func newView(of *content, who viewer, now time.Time) weir.View {
	v := weir.View{
		ID: weir.NewID(), PlaybackID: of.playbackID, UserID: of.userID, ProjectID: of.projectID, AssetID: of.assetID, StreamID: of.streamID,
		CreatorID: of.creatorID, ViewerID: who.id, StartedAt: weir.At(now), LastSeen: weir.At(now), ExitedEarly: true,
	}
	v.DeviceType, v.OS, v.Browser = device(who.agent)
	v.Device = v.OS
	return v
}

func device(agent string) (kind, os, browser string) {
	first := func(pairs ...string) string {
		for i := 0; i < len(pairs); i += 2 {
			if strings.Contains(agent, pairs[i]) {
				return pairs[i+1]
			}
		}
		return ""
	}
	os = first("iPhone", "iOS", "iPad", "iOS", "Android", "Android", "Windows", "Windows", "Mac OS X", "macOS", "CrOS", "ChromeOS", "Linux", "Linux")
	browser = first("Edg/", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "Chrome/", "Chrome", "Safari/", "Safari")
	kind = first("iPad", "tablet", "Tablet", "tablet", "Mobile", "mobile", "iPhone", "mobile", "TV", "tv")
	if kind == "" && browser != "" {
		kind = "desktop"
	}
	return kind, os, browser
}

// run writes changed views to the store every saveEvery, and when ctx ends.
func (c *views) run(ctx context.Context, st *store.Store, log *slog.Logger) error {
	tick := time.NewTicker(saveEvery)
	defer tick.Stop()
	for {
		ended := false
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		if err := c.save(context.WithoutCancel(ctx), st, time.Now()); err != nil {
			log.WarnContext(ctx, "views not written, they will be later", "err", err)
		}
		if ended {
			return nil
		}
	}
}

// save writes what has changed, and drops viewings that have ended.
func (c *views) save(ctx context.Context, st *store.Store, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	changed, usage := c.take()
	if len(changed) == 0 && len(usage) == 0 {
		c.forget(now)
		return nil
	}
	err := st.Tx(ctx, func(tx *store.Tx) error {
		for _, v := range changed {
			if err := tx.SaveView(ctx, v); err != nil {
				return err
			}
		}
		for u, length := range usage {
			if err := tx.SaveUsage(ctx, weir.Usage{UserID: u.userID, CreatorID: u.creatorID, Hour: u.hour, DeliveryMs: length.Milliseconds()}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		c.putBack(changed, usage)
		return err
	}
	c.forget(now)
	return nil
}

// take returns what has changed since the last call.
func (c *views) take() ([]weir.View, map[usageOf]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []weir.View
	for _, v := range c.active {
		if v.changed {
			changed = append(changed, v.View)
			v.changed = false
		}
	}
	usage := c.usage
	c.usage = map[usageOf]time.Duration{}
	return changed, usage
}

// forget drops viewings that have ended and are written.
func (c *views) forget(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, v := range c.active {
		if !v.changed && now.Sub(v.LastSeen.Time()) > viewingPause {
			delete(c.active, key)
		}
	}
}

// putBack keeps what could not be written for the next save.
func (c *views) putBack(changed []weir.View, usage map[usageOf]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unwritten := map[string]bool{}
	for _, v := range changed {
		unwritten[v.ID] = true
	}
	for _, v := range c.active {
		v.changed = v.changed || unwritten[v.ID]
	}
	for u, length := range usage {
		c.usage[u] += length
	}
}

// watching is how long after the last request a viewer counts.
const watching = 30 * time.Second

// Stats are the counts of a Server.
type Stats struct {
	Viewers int64 // with a request in the last half minute
	Reloads int64 // requests that wait for a playlist
	Waits   int64 // requests that wait for a part
	Asked   int64 // requests to other nodes
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	n := Stats{Viewers: s.views.watching(time.Now()), Reloads: s.reloads.Load(), Waits: s.waits.Load()}
	if s.edge != nil {
		n.Asked = s.edge.asked.Load()
	}
	return n
}

func (c *views) watching(now time.Time) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.active {
		if now.Sub(v.LastSeen.Time()) < watching {
			n++
		}
	}
	return n
}
