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
	// claimEvery is how often a node looks for pulls that others have left.
	claimEvery = time.Second
	// renewEvery is how often it says that it still has its own.
	renewEvery = 2 * time.Second
	// partingTime is how long a node that stops may take to say so.
	partingTime = 2 * time.Second
)

// pulls are those that this node has.
type pulls struct {
	mu  sync.Mutex
	all map[string]*Pull // by stream
}

// Pull is a stream that this node is to fetch from its source. Whoever got it from
// NextPull must end it: with Finish, Fail or Release.
type Pull struct {
	hub    *Hub
	stream weir.Stream
	claim  int64

	position  atomic.Int64
	publisher *Publisher
	playing   time.Time // since when; zero = not yet

	done chan struct{}
	once sync.Once
}

// NextPull waits for a stream that is to be pulled and that nobody has. Until the pull is
// ended, the store knows that this node has it.
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
			h.o.Log.Warn("pulls could not be looked for", "err", err)
		case ok:
			p := &Pull{hub: h, stream: stream, claim: claimed.Claim, done: make(chan struct{})}
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
	if a.all == nil {
		a.all = map[string]*Pull{}
	}
	if old := a.all[p.stream.ID]; old != nil {
		old.stop() // it was taken from us, and nobody has told it yet
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

// keepPulls says until ctx ends that this node has its pulls, and ends those that are not
// wanted any more or that somebody else has by now.
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
		h.o.Log.Warn("the store was not told what is pulled", "err", err)
	}
	for _, id := range lost {
		had[id].stop()
	}
}

// Where returns what the owner said about the source.
func (p *Pull) Where() weir.Pull { return *p.stream.Pull }

// StreamID names the stream, for logs.
func (p *Pull) StreamID() string { return p.stream.ID }

// Done is closed when the pull must end: it is not wanted any more, or somebody else has
// it.
func (p *Pull) Done() <-chan struct{} { return p.done }

func (p *Pull) stop() { p.once.Do(func() { close(p.done) }) }

// Position returns how far the source was read when somebody had the pull last, as the
// reader of the source counts.
func (p *Pull) Position() int64 { return p.position.Load() }

// SetPosition notes how far the source is read.
func (p *Pull) SetPosition(n int64) { p.position.Store(n) }

func (p *Pull) beat() store.PullBeat {
	return store.PullBeat{StreamID: p.stream.ID, Claim: p.claim, Position: p.position.Load()}
}

// Publish returns the publisher of what is pulled. The pull closes it.
func (p *Pull) Publish(remote string) *Publisher {
	if p.publisher == nil {
		p.publisher = &Publisher{hub: p.hub, stream: p.stream, from: Source{Protocol: "pull", Remote: remote}, done: make(chan struct{})}
	}
	return p.publisher
}

// Playable reports whether viewers can watch what was published so far.
func (p *Pull) Playable() bool {
	if p.publisher == nil || p.publisher.session == nil {
		return false
	}
	s := p.publisher.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.renditions() {
		if n, _ := r.carried(); n > 0 {
			return true
		}
	}
	return false
}

// Plays says that media of the source is on air.
func (p *Pull) Plays(ctx context.Context) error {
	p.playing = time.Now()
	return p.hub.o.Store.PullPlays(ctx, p.beat())
}

// Finish ends the pull because there is nothing more to fetch, or because an encoder has
// the stream now.
func (p *Pull) Finish(ctx context.Context) error {
	return p.end(ctx, true, func(ctx context.Context) error { return p.hub.o.Store.PullDone(ctx, p.beat()) })
}

// Fail ends it because the source can't be read. Somebody will try again. What the owner
// is told must not have more of the source in it than its host.
func (p *Pull) Fail(ctx context.Context, why string) error {
	var played time.Duration
	if !p.playing.IsZero() {
		played = time.Since(p.playing)
	}
	return p.end(ctx, false, func(ctx context.Context) error {
		return p.hub.o.Store.PullFailed(ctx, p.beat(), why, played, time.Now())
	})
}

// Release ends it so that another node goes on, or this one after its next start.
func (p *Pull) Release(ctx context.Context) error {
	return p.end(ctx, false, func(ctx context.Context) error { return p.hub.o.Store.ReleasePull(ctx, p.beat(), time.Now()) })
}

// end lets the publisher go and tells the store, also when ctx has ended already.
func (p *Pull) end(ctx context.Context, clean bool, tell func(context.Context) error) error {
	p.hub.pulls.remove(p)
	p.stop()
	if p.publisher != nil {
		p.publisher.Close(clean)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingTime)
	defer cancel()
	if err := tell(ctx); !errors.Is(err, store.ErrLostPull) {
		return err
	}
	return nil
}

// TakenOver reports whether an error of a publisher says that another one has its stream.
func TakenOver(err error) bool { return errors.Is(err, errTakenOver) }
