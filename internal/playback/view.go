package playback

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/store"
	"weir/internal/weir"
)

// views counts viewings. A viewing begins at the master playlist and ends after viewingPause
// without a request.
type views struct {
	mu     sync.Mutex
	active map[viewingOf]*viewing
	usage  map[usageOf]time.Duration
	// viewers are those of the active viewings. counts are the numbers of those who watch, by account:
	// counted at a time, and raised by everybody who has begun since.
	viewers map[viewerOf]*watcher
	counts  map[string]int
	counted time.Time
	// begun limits the viewings that each network begins: beyond that, they are not counted.
	begun     weir.Buckets[netip.Prefix]
	uncounted int64
	id        func(viewer) string // makes the id of a viewer, without the address
}

func newViews(id func(viewer) string) views {
	return views{
		active: map[viewingOf]*viewing{}, usage: map[usageOf]time.Duration{}, viewers: map[viewerOf]*watcher{}, counts: map[string]int{},
		begun: weir.Buckets[netip.Prefix]{AtOnce: viewingsAtOnce, PerSecond: viewingsPerSecond, Max: maxNetworks}, id: id,
	}
}

type viewing struct {
	weir.View
	by      *watcher
	played  time.Duration
	changed bool
}

// watcher is a viewer of an account's content.
type watcher struct {
	key      viewerOf
	seen     time.Time
	viewings int
}

type viewingOf struct {
	playbackID string
	viewer     viewer
}

type viewerOf struct {
	userID string
	viewer viewer
}

type usageOf struct {
	userID, creatorID string
	hour              weir.Millis
}

const (
	viewingPause = 5 * time.Minute
	maxViewings  = 100_000
	saveEvery    = 2 * time.Second
	// watching is how long after the last request a viewer counts as watching.
	watching = 30 * time.Second

	// A network may begin so many viewings at once, and then so many a second: enough for the people
	// behind one address. Each viewing is a row in the store.
	viewingsAtOnce    = 100
	viewingsPerSecond = 1
)

// viewer is who sent a request, as far as it can be known. The User-Agent itself is no part of it,
// because a client can send another one with every request.
type viewer struct {
	network netip.Prefix
	device  device
	token   string // the viewing of a token; "" = the title is public
}

// device is what a User-Agent says.
type device struct{ kind, os, browser string }

// identity returns what identifies a viewer: the token, or the network and the device.
func (w viewer) identity() viewer {
	if w.token != "" {
		return viewer{token: w.token}
	}
	return w
}

func (s *Server) viewer(v *visit) viewer {
	who := viewer{network: weir.Network(s.address(v)), device: deviceOf(v.UserAgent())}
	if v.token != nil {
		who.token = v.token.viewing
	}
	return who
}

// viewerID returns a hash of the network and the device of the viewer.
func (s *Server) viewerID(v *visit) string { return s.tokens.viewerID(s.viewer(v)) }

func (t *tokens) viewerID(w viewer) string {
	return hex.EncodeToString(t.mac("viewer", w.network.String(), w.device.kind, w.device.os, w.device.browser)[:12])
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
	return s.admitted(s.views.begin(&v.title.content, s.viewer(v), limit.room, time.Now()), limit)
}

// mayBegin is begin without counting.
func (s *Server) mayBegin(v *visit) error {
	limit, err := s.viewerLimit(v)
	if err != nil {
		return err
	}
	return s.admitted(s.views.fits(v.title.userID, s.viewer(v), limit.room, time.Now()), limit)
}

func (s *Server) admitted(ok bool, limit viewerLimit) error {
	if ok {
		return nil
	}
	s.full.Add(1)
	return weir.Errorf(weir.Denied, "the account has reached its limit of %d viewers at once", limit.whole)
}

// viewerLimit is how many may watch an account's content at once, and how many of them on this node.
type viewerLimit struct{ whole, room int }

func (s *Server) viewerLimit(v *visit) (viewerLimit, error) {
	terms, err := s.titles.terms(v.Context(), v.title.playbackID, "")
	limit := viewerLimit{terms.ViewerLimit, terms.ViewerLimit}
	if terms.Unlimited {
		limit.room = math.MaxInt
	}
	if err != nil || terms.Unlimited || s.Peers == nil {
		return limit, err
	}
	now := time.Now()
	others, err := s.elsewhere.Get(v.Context(), v.title.userID, now, func(ctx context.Context) (int64, error) {
		return s.Store.ViewersElsewhere(ctx, v.title.userID, weir.At(now.Add(-watching)))
	})
	limit.room -= int(others)
	return limit, err
}

// maxAccounts is the number of accounts whose viewers on other nodes are cached.
const maxAccounts = 10_000

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
	if played != nil && *played > 0 {
		c.usage[usageOf{of.userID, of.creatorID, weir.StepHour.Start(weir.At(now))}] += *played
	}
	one := c.find(of, who, now)
	if one == nil {
		return
	}
	if played != nil {
		one.ExitedEarly = false
		one.played += *played
		one.PlaytimeMs = one.played.Milliseconds()
	}
}

// begin starts a viewing, unless the account has so many viewers and this one is not among them.
func (c *views) begin(of *content, who viewer, limit int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.has(of.userID, who, limit, now) {
		return false
	}
	c.find(of, who, now)
	return true
}

// fits reports whether begin would start a viewing.
func (c *views) fits(userID string, who viewer, limit int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(userID, who, limit, now)
}

// has reports whether a viewer watches an account's content, or there is room for one more.
func (c *views) has(userID string, who viewer, limit int, now time.Time) bool {
	if by := c.viewers[viewerOf{userID, who.identity()}]; by != nil && now.Sub(by.seen) < watching {
		return true
	}
	if now.Sub(c.counted) >= fresh {
		c.counted = now
		clear(c.counts)
		for key, by := range c.viewers {
			if now.Sub(by.seen) < watching {
				c.counts[key.userID]++
			}
		}
	}
	return c.counts[userID] < limit
}

// find returns the viewing of a viewer, or starts one. It returns nil if there are too many.
func (c *views) find(of *content, who viewer, now time.Time) *viewing {
	key := viewingOf{of.playbackID, who.identity()}
	one := c.active[key]
	if one == nil || now.Sub(one.LastSeen.Time()) > viewingPause {
		if len(c.active) >= maxViewings || !c.begun.Take(who.network, now) {
			c.uncounted++
			return nil
		}
		switch {
		case one == nil:
		case one.changed:
			c.active[viewingOf{playbackID: one.ID}] = one // until it is written
		default:
			c.drop(key)
		}
		one = &viewing{View: newView(of, who, c.id(who), now), by: c.watcher(viewerOf{of.userID, key.viewer})}
		one.by.viewings++
		c.active[key] = one
	}
	one.LastSeen, one.changed = weir.At(now), true
	if now.Sub(one.by.seen) >= watching {
		c.counts[of.userID]++
	}
	one.by.seen = now
	return one
}

func (c *views) watcher(key viewerOf) *watcher {
	by := c.viewers[key]
	if by == nil {
		by = &watcher{key: key}
		c.viewers[key] = by
	}
	return by
}

// drop forgets a viewing.
func (c *views) drop(key viewingOf) {
	by := c.active[key].by
	delete(c.active, key)
	if by.viewings--; by.viewings == 0 {
		delete(c.viewers, by.key)
	}
}

func newView(of *content, who viewer, id string, now time.Time) weir.View {
	return weir.View{
		ID: weir.NewID(), PlaybackID: of.playbackID, UserID: of.userID, ProjectID: of.projectID, AssetID: of.assetID, StreamID: of.streamID,
		CreatorID: of.creatorID, ViewerID: id, StartedAt: weir.At(now), LastSeen: weir.At(now), ExitedEarly: true,
		DeviceType: who.device.kind, Device: who.device.os, OS: who.device.os, Browser: who.device.browser,
	}
}

// maxAgent is far above the length of the User-Agent of a browser.
const maxAgent = 512

func deviceOf(agent string) (d device) {
	agent = agent[:min(len(agent), maxAgent)]
	first := func(pairs ...string) string {
		for i := 0; i < len(pairs); i += 2 {
			if strings.Contains(agent, pairs[i]) {
				return pairs[i+1]
			}
		}
		return ""
	}
	d.os = first("iPhone", "iOS", "iPad", "iOS", "Android", "Android", "Windows", "Windows", "Mac OS X", "macOS", "CrOS", "ChromeOS", "Linux", "Linux")
	d.browser = first("Edg/", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "Chrome/", "Chrome", "Safari/", "Safari")
	d.kind = first("iPad", "tablet", "Tablet", "tablet", "Mobile", "mobile", "iPhone", "mobile", "TV", "tv")
	if d.kind == "" && d.browser != "" {
		d.kind = "desktop"
	}
	return d
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
			c.drop(key)
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
	n := Stats{Reloads: s.reloads.Load(), Waits: s.waits.Load(), Full: s.full.Load(), Throttled: s.throttled.Load()}
	n.Viewers, n.Uncounted = s.views.stats(time.Now())
	if s.edge != nil {
		n.Asked = s.edge.asked.Load()
	}
	return n
}

func (c *views) stats(now time.Time) (viewers, uncounted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.active {
		if now.Sub(v.LastSeen.Time()) < watching {
			viewers++
		}
	}
	return viewers, c.uncounted
}
