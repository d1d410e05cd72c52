package live

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// claimEvery is how often a node looks for pulls that others have dropped.
	claimEvery = time.Second
	// renewEvery is how often it renews its claims.
	renewEvery = 2 * time.Second
	// releaseTimeout is how long a node that stops may take to report it.
	releaseTimeout = 2 * time.Second
)

// pulls are the pulls that this node has claimed.
type pulls struct {
	mu  sync.Mutex
	all map[string]*Pull // by stream
}

// Pull is a stream that this node fetches from its source. The caller of NextPull must end it, with
// Finish, Fail or Release.
type Pull struct {
	hub    *Hub
	stream weir.Stream
	claim  int64

	position  atomic.Int64
	publisher *Publisher
	playing   time.Time // since when; zero = not yet

	stopped chan struct{} // closed when the pull must end
	stop    func()
}

// NextPull waits for a stream that is to be pulled and that no node has claimed, and claims it until
// the pull ends.
func (h *Hub) NextPull(ctx context.Context) (*Pull, error) {
	changes, unwatch := h.o.Store.Watch(store.TopicPull)
	defer unwatch()
	look := time.NewTicker(claimEvery)
	defer look.Stop()
	for {
		claimed, stream, ok, err := h.o.Store.ClaimPull(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			h.o.Log.Warn("pull requests could not be read from the store", "err", err)
		case ok:
			p := &Pull{hub: h, stream: stream, claim: claimed.Claim, stopped: make(chan struct{})}
			p.stop = sync.OnceFunc(func() { close(p.stopped) })
			p.position.Store(claimed.Position)
			h.pulls.add(p)
			return p, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changes:
		case <-look.C:
		}
	}
}

func (a *pulls) add(p *Pull) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.all[p.stream.ID]; old != nil {
		old.stop() // another node had claimed it meanwhile
	}
	a.all[p.stream.ID] = p
}

func (a *pulls) remove(p *Pull) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[p.stream.ID] == p {
		delete(a.all, p.stream.ID)
	}
}

// keepPulls renews the claims of this node until ctx ends, and ends pulls that are not wanted any
// more or that another node has claimed.
func (h *Hub) keepPulls(ctx context.Context) {
	changes, unwatch := h.o.Store.Watch(store.TopicPull)
	defer unwatch()
	beat := time.NewTicker(renewEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-beat.C:
		}
		h.renewPulls(ctx)
	}
}

func (h *Hub) renewPulls(ctx context.Context) {
	h.pulls.mu.Lock()
	var beats []store.PullBeat
	had := map[string]*Pull{}
	for id, p := range h.pulls.all {
		beats = append(beats, p.beat())
		had[id] = p
	}
	h.pulls.mu.Unlock()
	if len(beats) == 0 {
		return
	}
	lost, err := h.o.Store.RenewPulls(ctx, beats, time.Now())
	if err != nil && ctx.Err() == nil {
		h.o.Log.Warn("the claims of pulls could not be renewed", "err", err)
	}
	for _, id := range lost {
		had[id].stop()
	}
}

// Where returns the source.
func (p *Pull) Where() weir.Pull { return *p.stream.Pull }

// StreamID names the stream, for logs.
func (p *Pull) StreamID() string { return p.stream.ID }

// Done is closed when the pull must end: it is not wanted any more, or another node has claimed it.
func (p *Pull) Done() <-chan struct{} { return p.stopped }

// Position returns how far the source was read, in the units of its reader.
func (p *Pull) Position() int64 { return p.position.Load() }

// SetPosition sets how far the source is read.
func (p *Pull) SetPosition(n int64) { p.position.Store(n) }

func (p *Pull) beat() store.PullBeat {
	return store.PullBeat{StreamID: p.stream.ID, Claim: p.claim, Position: p.position.Load()}
}

// Publish returns the publisher of the pull, which closes it.
func (p *Pull) Publish(remote string) *Publisher {
	if p.publisher == nil {
		p.publisher = newPublisher(p.hub, p.stream, Source{Protocol: "pull", Remote: remote})
	}
	return p.publisher
}

// Playable reports whether viewers can watch the stream.
func (p *Pull) Playable() bool {
	if p.publisher == nil || p.publisher.session == nil {
		return false
	}
	s := p.publisher.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.renditions.source() {
		if n, _ := r.carried(); n > 0 {
			return true
		}
	}
	return false
}

// Plays notes that media of the source is on air. The media waits for it.
func (p *Pull) Plays(ctx context.Context) error {
	p.playing = time.Now()
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	return p.hub.o.Store.PullPlays(ctx, p.beat())
}

// Finish ends the pull because the source has ended, or because an encoder sends the stream now.
func (p *Pull) Finish(ctx context.Context) error {
	return p.end(ctx, true, func(ctx context.Context) error { return p.hub.o.Store.PullDone(ctx, p.beat()) })
}

// Fail ends the pull because the source can't be read. A node will try again. why is shown to the
// owner, and must not name more of the source than its host.
func (p *Pull) Fail(ctx context.Context, why string) error {
	var played time.Duration
	if !p.playing.IsZero() {
		played = time.Since(p.playing)
	}
	return p.end(ctx, false, func(ctx context.Context) error {
		return p.hub.o.Store.PullFailed(ctx, p.beat(), why, played, time.Now())
	})
}

// Release ends the pull so that another node continues it, or this one after its next start.
func (p *Pull) Release(ctx context.Context) error {
	return p.end(ctx, false, func(ctx context.Context) error { return p.hub.o.Store.ReleasePull(ctx, p.beat(), time.Now()) })
}

// end closes the publisher and reports to the store, even if ctx has ended already.
func (p *Pull) end(ctx context.Context, clean bool, report func(context.Context) error) error {
	p.hub.pulls.remove(p)
	p.stop()
	if p.publisher != nil {
		p.publisher.Close(clean)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := report(ctx); !errors.Is(err, store.ErrLostPull) {
		return err
	}
	return nil
}

// TakenOver reports whether an error of a publisher means that another one has its stream.
func TakenOver(err error) bool { return errors.Is(err, errTakenOver) }
