// Package push implements multistream: it sends live streams on to other platforms.
//
// A [Manager] compares the targets of streams in the store with the running pushes, whenever a
// session opens or a target changes. A push (push.go) is one goroutine that sends one rendition of
// one session to one target: it waits for media from its own tap of package live, connects through
// package guard, sends, and connects again when the connection fails. feed.go converts the frames
// for the target: one video and one audio track, times from 0. rtmp.go and srt.go are the two kinds
// of connection. events.go writes the events of targets, so that no push waits for the store.
//
// A target that is slow or down affects neither the encoder nor the other targets.
package push

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weir/internal/guard"
	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/weir"
)

// reconcileEvery is how often the manager looks for changes without a signal.
const reconcileEvery = 2 * time.Second

// OnAir is what a manager needs of a live.Hub.
type OnAir interface {
	// Broadcasts returns the open sessions of this node.
	Broadcasts() []*live.Broadcast
	// Opened receives after sessions were opened.
	Opened() <-chan struct{}
}

// Options are the options of a manager.
type Options struct {
	OnAir OnAir
	Store *store.Store
	Guard *guard.Guard // connects to targets
	Log   *slog.Logger
}

// Manager sends the sessions of this node on to their targets.
type Manager struct {
	o       Options
	events  *eventQueue
	running sync.WaitGroup

	mu       sync.Mutex
	sessions map[string]session // by session id
}

// session holds the pushes of a session.
type session struct {
	broadcast live.Broadcast // differs if the session was reopened
	pushes    map[key]*push
}

// key identifies a push of a session.
type key struct{ target, profile string }

// New returns a manager. Run does its work.
func New(o Options) *Manager {
	return &Manager{o: o, events: newEventQueue(o.Store, o.Log), sessions: map[string]session{}}
}

// Run sends sessions to their targets until ctx ends, and returns when the last connection is closed.
func (m *Manager) Run(ctx context.Context) error {
	changed, unwatch := m.o.Store.Watch(store.TopicLive)
	defer unwatch()
	defer m.running.Wait()
	m.running.Go(func() { m.events.run(ctx) })
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	for {
		m.reconcile(ctx)
		select {
		case <-ctx.Done():
			m.keepOnly(nil)
			return nil
		case <-changed:
		case <-m.o.OnAir.Opened():
		case <-tick.C:
		}
	}
}

// reconcile starts and ends pushes so that those in the store run.
func (m *Manager) reconcile(ctx context.Context) {
	onAir := m.o.OnAir.Broadcasts()
	m.keepOnly(onAir)
	var ids []string
	for _, b := range onAir {
		ids = append(ids, b.Stream().ID)
	}
	wanted, err := m.o.Store.Pushes(ctx, ids)
	if err != nil {
		if ctx.Err() == nil {
			m.o.Log.Warn("the targets of streams could not be read", "err", err)
		}
		return
	}
	for _, b := range onAir {
		id := b.Stream().ID
		for _, p := range m.update(ctx, b, wanted[id]) {
			m.events.add(id, weir.MultistreamDisconnected, p)
		}
	}
}

// keepOnly ends the pushes of sessions that are not among those on air.
func (m *Manager) keepOnly(onAir []*live.Broadcast) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.sessions {
		if slices.ContainsFunc(onAir, func(b *live.Broadcast) bool { return *b == s.broadcast }) {
			continue
		}
		for _, p := range s.pushes {
			p.end()
		}
		delete(m.sessions, id)
	}
}

// update starts and ends pushes of a session so that the wanted ones run. It returns those that it
// ended because they are not wanted any more.
func (m *Manager) update(ctx context.Context, b *live.Broadcast, wanted []store.Push) (ended []store.Push) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, known := m.sessions[b.SessionID()]
	if !known && len(wanted) == 0 {
		return nil
	}
	if !known {
		s = session{*b, map[key]*push{}}
		m.sessions[b.SessionID()] = s
	}
	kept := map[key]bool{}
	for _, want := range wanted {
		k := key{want.Ref.ID, want.Ref.Profile}
		kept[k] = true
		var after <-chan struct{}
		if p := s.pushes[k]; p != nil {
			if p.matches(want) {
				continue
			}
			p.end()
			after = p.done
		}
		s.pushes[k] = m.start(ctx, b, want, after)
	}
	for k, p := range s.pushes {
		if kept[k] {
			continue
		}
		p.end()
		delete(s.pushes, k)
		if ctx.Err() == nil {
			ended = append(ended, p.wanted())
		}
	}
	return ended
}

// start starts a push. If it replaces one, after is closed when that one has ended: a target may
// accept only one connection with a key.
func (m *Manager) start(ctx context.Context, b *live.Broadcast, want store.Push, after <-chan struct{}) *push {
	stream := b.Stream().ID
	ctx, cancel := context.WithCancel(ctx)
	p := &push{
		want: want, status: statusPending, cancel: cancel, done: make(chan struct{}),
		open:    func(profile string) (tap, error) { return openTap(b, profile) },
		connect: targetDialer(m.o.Guard),
		emit:    func(name weir.EventName, want store.Push) { m.events.add(stream, name, want) },
		log:     m.o.Log.With("stream", stream, "session", b.SessionID(), "target", want.Target.ID),
	}
	m.running.Go(func() {
		defer close(p.done)
		defer cancel()
		if after != nil {
			<-after
		}
		p.run(ctx)
	})
	return p
}

// openTap returns the frames of the rendition that a target gets.
func openTap(b *live.Broadcast, profile string) (tap, error) {
	if t := b.Tap(live.TapOptions{Rendition: profile, Audio: live.AudioAAC}); t != nil {
		return t, nil
	}
	return nil, weir.Errorf(weir.Invalid, "the stream has no live rendition %q; use the profile %q for this target",
		profile, weir.SourceProfile)
}

// Targets returns the health of the targets of a session, in the order of their ids, and their
// errors, for people.
func (m *Manager) Targets(sessionID string) (health []weir.TargetHealth, issues []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, p := range m.sessions[sessionID].pushes {
		h := p.health(now)
		health = append(health, h)
		if h.Status == statusError {
			issues = append(issues, fmt.Sprintf("the multistream target %q receives nothing: %s", p.wanted().Target.Name, h.LastError))
		}
	}
	slices.SortFunc(health, func(a, b weir.TargetHealth) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Profile, b.Profile))
	})
	slices.Sort(issues)
	return health, issues
}
