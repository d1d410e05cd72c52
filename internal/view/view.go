// Package view counts who watches what, and for how long.
//
// A view is one viewer of one title: it begins at the master playlist or with the first media, and
// ends after a pause. [Counter.Begin] starts a view unless the account has its maximum of viewers
// at once (limit.go). [Counter.Note] adds what was sent to the view, and to the usage of the account
// in this hour. All that is in memory; [Counter.Run] writes it to the store, many views at once
// (save.go).
//
// The caller says what was sent: this package knows durations, not media. Viewers are told apart by
// their token, or by network and device (viewer.go).
package view

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// Options are the options of a Counter.
type Options struct {
	Store *store.Store
	// ViewerID makes the id of a viewer for the store.
	ViewerID func(Viewer) string
	// Others says that there are other nodes, whose viewers count for the limits of accounts too.
	Others bool
	Log    *slog.Logger
}

// Counter counts views. It is safe for concurrent use.
type Counter struct {
	Options
	elsewhere store.Recent[int64] // viewers on other nodes, by the account that they watch
	refused   atomic.Int64

	mu     sync.Mutex
	active map[viewKey]*activeView
	usage  map[usageKey]time.Duration // that is not written yet
	// usageDue is when usage is written.
	usageDue time.Time
	// watchers are those of the active views. counts are the numbers of those who watch, by account:
	// counted at a time, and raised by everybody who has begun since.
	watchers map[watcherKey]*watcher
	counts   map[string]int
	counted  time.Time
	// begun limits the views that each network begins: beyond that, they are not counted.
	begun     weir.Buckets[netip.Prefix]
	uncounted int64
}

// Title is what is watched: an asset or a stream.
type Title struct {
	PlaybackID        string
	AssetID, StreamID string // one of them
	UserID, ProjectID string // who owns it
	CreatorID         string
}

// activeView is a view that has not ended.
type activeView struct {
	weir.View
	by     *watcher
	played time.Duration
	stored stored
}

type viewKey struct {
	playbackID string
	viewer     Viewer
}

type usageKey struct {
	userID, creatorID string
	hour              weir.Millis
}

const (
	// pause is how long after the last request a view ends.
	pause    = 5 * time.Minute
	maxViews = 100_000

	// A network may begin so many views at once, and then so many a second: enough for the people
	// behind one address. Each view is a row in the store.
	beginAtOnce    = 100
	beginPerSecond = 1
	// maxNetworks is the maximum number of networks whose views are limited at once.
	maxNetworks = 100_000
)

// New returns a Counter. Run writes what it counts.
func New(o Options) *Counter {
	return &Counter{
		Options: o, elsewhere: store.Recent[int64]{Store: o.Store, Max: maxAccounts},
		active: map[viewKey]*activeView{}, usage: map[usageKey]time.Duration{}, watchers: map[watcherKey]*watcher{}, counts: map[string]int{},
		begun: weir.Buckets[netip.Prefix]{AtOnce: beginAtOnce, PerSecond: beginPerSecond, Max: maxNetworks},
	}
}

// Begin starts a view, or continues one. It returns an error if that many viewers watch the account
// of the title already, unless this one is among them. See Unlimited.
func (c *Counter) Begin(ctx context.Context, of *Title, who Viewer, limit int) error {
	room, err := c.room(ctx, of.UserID, limit)
	if err != nil {
		return err
	}
	return c.admitted(c.beginView(of, who, room, time.Now()), limit)
}

// MayBegin is Begin without starting a view.
func (c *Counter) MayBegin(ctx context.Context, of *Title, who Viewer, limit int) error {
	room, err := c.room(ctx, of.UserID, limit)
	if err != nil {
		return err
	}
	return c.admitted(c.mayBegin(of.UserID, who, room, time.Now()), limit)
}

// Start starts a view, or continues one, whatever the limit of the account is.
func (c *Counter) Start(of *Title, who Viewer) { c.note(of, who, nil, time.Now()) }

// Note adds the duration of media that was sent to a viewer. It starts a view if there is none.
func (c *Counter) Note(of *Title, who Viewer, played time.Duration) {
	c.note(of, who, &played, time.Now())
}

// Meter returns a function that notes what is sent of a large file, while it is sent. That function
// gets numbers of bytes, and 0 at the end. played returns the duration of so many bytes.
func (c *Counter) Meter(of *Title, who Viewer, played func(bytes int64) time.Duration) func(bytes int64) {
	unnoted, last := int64(0), time.Time{}
	return func(n int64) {
		unnoted += n
		if now := time.Now(); unnoted > 0 && (n == 0 || now.Sub(last) >= time.Second) {
			c.note(of, who, new(played(unnoted)), now)
			unnoted, last = 0, now
		}
	}
}

// note adds to a view, or starts one. played is nil if no media was sent.
func (c *Counter) note(of *Title, who Viewer, played *time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if played != nil && *played > 0 {
		if len(c.usage) == 0 {
			c.usageDue = now.Add(ahead)
		}
		c.usage[usageKey{of.UserID, of.CreatorID, weir.StepHour.Start(weir.At(now))}] += *played
	}
	one := c.findOrStart(of, who, now)
	if one == nil {
		return
	}
	if played != nil {
		one.ExitedEarly = false
		one.played += *played
		one.PlaytimeMs = one.played.Milliseconds()
	}
}

// findOrStart returns the view of a viewer, or starts one. It returns nil if there are too many.
func (c *Counter) findOrStart(of *Title, who Viewer, now time.Time) *activeView {
	key := viewKey{of.PlaybackID, who.identity()}
	one := c.active[key]
	if one == nil || now.Sub(one.LastSeen.Time()) > pause {
		if len(c.active) >= maxViews || !c.begun.Take(who.Network, now) {
			c.uncounted++
			return nil
		}
		switch {
		case one == nil:
		case one.stored != one.exact():
			c.active[viewKey{playbackID: one.ID}] = one // until it is written
		default:
			c.drop(key)
		}
		one = &activeView{View: newView(of, who, c.ViewerID(who), now), by: c.watcher(watcherKey{of.UserID, key.viewer})}
		one.by.views++
		c.active[key] = one
	}
	one.LastSeen = weir.At(now)
	if now.Sub(one.by.seen) >= watching {
		c.counts[of.UserID]++
	}
	one.by.seen = now
	return one
}

// drop forgets a view.
func (c *Counter) drop(key viewKey) {
	by := c.active[key].by
	delete(c.active, key)
	if by.views--; by.views == 0 {
		delete(c.watchers, by.key)
	}
}

func newView(of *Title, who Viewer, id string, now time.Time) weir.View {
	return weir.View{
		ID: weir.NewID(), PlaybackID: of.PlaybackID, UserID: of.UserID, ProjectID: of.ProjectID, AssetID: of.AssetID, StreamID: of.StreamID,
		CreatorID: of.CreatorID, ViewerID: id, StartedAt: weir.At(now), LastSeen: weir.At(now), ExitedEarly: true,
		DeviceType: who.Device.Kind, Device: who.Device.OS, OS: who.Device.OS, Browser: who.Device.Browser,
	}
}

// Stats are the counts of a Counter.
type Stats struct {
	Viewers   int64 // with a request in the last half minute
	Uncounted int64 // requests whose view was not counted
	Refused   int64 // viewers refused because the account had its maximum
}

// Stats returns the current counts.
func (c *Counter) Stats() Stats { return c.stats(time.Now()) }

func (c *Counter) stats(now time.Time) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Uncounted: c.uncounted, Refused: c.refused.Load()}
	for _, v := range c.active {
		if now.Sub(v.LastSeen.Time()) < watching {
			s.Viewers++
		}
	}
	return s
}
