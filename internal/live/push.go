package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/internal/guard"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// pushLook is how often it is looked where streams are to be sent on to, beside when
	// somebody changes it.
	pushLook = 2 * time.Second
	// The wait before a connection is tried again: at first, and at most.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// pushGap is how long a target is kept connected while the encoder is away.
	pushGap = 25 * time.Second
	// settledAfter is how long a connection must hold until it is told of; longHold is
	// that for a target that failed again and again, and what makes up for failures.
	settledAfter = 7 * time.Second
	longHold     = 2 * time.Minute
	// toldFailure is which failure of a target is told of; after one more than that, a
	// connection counts only when it holds long.
	toldFailure = 2
)

// The states of a push.
const (
	pushPending      = "pending" // waits for media, or for its first connection
	pushConnected    = "connected"
	pushError        = "error"        // could not connect, or lost the connection; tries again
	pushDisconnected = "disconnected" // the encoder was away for too long
)

// Why a connection to a target ends although it is well.
var (
	errGap  = errors.New("nothing came from the encoder for a while")
	errOver = errors.New("the session is over")
)

// pushKey tells the pushes of a session apart.
type pushKey struct{ target, profile string }

// push sends a session on to one target, as long as it is wanted. It has a tap of its
// own, so that neither the encoder nor the other targets notice how it does.
type push struct {
	session *session
	log     *slog.Logger
	tell    func(weir.EventName, store.Push)
	connect func(ctx context.Context, url string, fail func(error)) (outlet, error)
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	wish     store.Push // only the target's name changes
	status   string
	lastErr  string
	note     string // what the target does not get
	failures int
	told     bool   // that it is connected
	unwanted bool   // nothing more is told of it
	out      outlet // nil = not connected
	since    time.Time
	bitrate  float64
	measured time.Time
	bytes    int64 // sent when that was
}

// keepPushing sends the sessions of this node on to their targets until ctx ends.
func (h *Hub) keepPushing(ctx context.Context) {
	changed, unwatch := h.o.Store.Watch(store.TopicLive)
	defer unwatch()
	var running sync.WaitGroup
	defer running.Wait()
	news := &pushNews{hub: h, wake: make(chan struct{}, 1)}
	running.Go(func() { news.run(ctx) })
	tick := time.NewTicker(pushLook)
	defer tick.Stop()
	busy := map[*session]bool{}
	for {
		h.repush(ctx, busy, news, &running)
		select {
		case <-ctx.Done():
			for s := range busy {
				s.repush(ctx, nil, nil)
			}
			return
		case <-changed:
		case <-h.began:
		case <-tick.C:
		}
	}
}

// repush starts and ends pushes as they are wanted now. busy are the sessions that may
// have some.
func (h *Hub) repush(ctx context.Context, busy map[*session]bool, news *pushNews, running *sync.WaitGroup) {
	var ids []string
	open := map[*session]bool{}
	for _, s := range h.all() {
		open[s] = true
		ids = append(ids, s.stream.ID)
	}
	for s := range busy {
		if !open[s] {
			s.repush(ctx, nil, nil)
			delete(busy, s)
		}
	}
	wanted, err := h.o.Store.Pushes(ctx, ids)
	if err != nil {
		if ctx.Err() == nil {
			h.o.Log.Warn("where streams are to be sent on to could not be read", "err", err)
		}
		return
	}
	for s := range open {
		if len(wanted[s.stream.ID]) == 0 && !busy[s] {
			continue
		}
		busy[s] = true
		ended := s.repush(ctx, wanted[s.stream.ID], func(wish store.Push, after <-chan struct{}) *push {
			p := &push{
				session: s, connect: targetDialer(h.o.Guard), log: s.log.With("target", wish.Target.ID), wish: wish, status: pushPending,
				tell: func(name weir.EventName, wish store.Push) { news.add(s.stream.ID, name, wish) }, done: make(chan struct{}),
			}
			ctx, cancel := context.WithCancel(ctx)
			p.cancel = cancel
			running.Go(func() {
				defer close(p.done)
				defer cancel()
				if after != nil {
					<-after // which is told to end: a target may take only one connection with a key
				}
				p.run(ctx)
			})
			return p
		})
		for _, wish := range ended {
			news.add(s.stream.ID, weir.MultistreamDisconnected, wish)
		}
	}
}

// repush makes the pushes of a session those that are wanted, and returns those that
// ended because nobody wants them.
func (s *session) repush(ctx context.Context, wanted []store.Push, start func(store.Push, <-chan struct{}) *push) (ended []store.Push) {
	s.pushing.Lock()
	defer s.pushing.Unlock()
	if s.pushes == nil {
		s.pushes = map[pushKey]*push{}
	}
	kept := map[pushKey]bool{}
	for _, wish := range wanted {
		key := pushKey{wish.Ref.ID, wish.Ref.Profile}
		kept[key] = true
		var after <-chan struct{}
		if p := s.pushes[key]; p != nil {
			if p.goesOn(wish) {
				continue
			}
			p.end()
			after = p.done
		}
		s.pushes[key] = start(wish, after)
	}
	for key, p := range s.pushes {
		if kept[key] {
			continue
		}
		p.end()
		delete(s.pushes, key)
		if ctx.Err() == nil {
			ended = append(ended, p.wished())
		}
	}
	return ended
}

// pushHealth returns how the pushes of a session do, in the order of their targets.
func (s *session) pushHealth(now time.Time) (all []weir.TargetHealth) {
	s.pushing.Lock()
	defer s.pushing.Unlock()
	for _, p := range s.pushes {
		all = append(all, p.health(now))
	}
	sortPushes(all)
	return all
}

// goesOn reports whether a push is what is wanted now.
func (p *push) goesOn(wish store.Push) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wish.Target.URL != wish.Target.URL || p.wish.Ref.VideoOnly != wish.Ref.VideoOnly {
		return false
	}
	p.wish.Target.Name = wish.Target.Name
	return true
}

// end lets a push go that nobody wants any more. What it told of before has been told, and
// nothing comes after that.
func (p *push) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwanted = true
	p.cancel()
}

// say tells of a push that is wanted; the caller holds mu.
func (p *push) say(name weir.EventName) {
	if !p.unwanted {
		p.tell(name, p.wish)
	}
}

func (p *push) wished() store.Push {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wish
}

// run sends until the push is not wanted any more or the session is over.
func (p *push) run(ctx context.Context) {
	wait := firstRetry
	for {
		began := time.Now()
		err := p.once(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, errOver):
			return
		case errors.Is(err, errGap):
			p.leave()
			continue
		case errors.Is(err, errOtherTracks):
			continue
		}
		p.failed(err)
		if time.Since(began) > lastRetry {
			wait = firstRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, lastRetry)
	}
}

// once waits for media, connects, and sends until something ends that.
func (p *push) once(ctx context.Context) error {
	tap, err := p.tap()
	if err != nil {
		return err
	}
	defer tap.Close()
	// Nobody is called before there is something to say.
	var waiting []Tapped
	for {
		f, err := next(ctx, tap)
		if err != nil {
			return err
		}
		if len(f.Tracks) > 0 {
			waiting = nil
		}
		if waiting = append(waiting, f); len(waiting) == 2 {
			break
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, err := p.connect(ctx, p.wished().Target.URL.Reveal(), func(err error) { cancel(err) })
	if err != nil {
		return err
	}
	defer out.close()
	unhurried := context.AfterFunc(ctx, out.hurry)
	defer unhurried()
	over := p.connected(out)
	defer over()
	feed := newPushFeed(out, p.wished().Ref.VideoOnly)
	for _, f := range waiting {
		if err := feed.add(f); err != nil {
			return broken(ctx, err)
		}
	}
	p.setNote(feed.note)
	gap := time.AfterFunc(pushGap, func() { cancel(errGap) })
	defer gap.Stop()
	for {
		f, err := next(ctx, tap)
		if err != nil {
			return err
		}
		gap.Reset(pushGap)
		if err := feed.add(f); err != nil {
			return broken(ctx, err)
		}
		p.fed()
		if len(f.Tracks) > 0 {
			p.setNote(feed.note)
		}
	}
}

// next returns what comes next from a tap.
func next(ctx context.Context, tap *Tap) (Tapped, error) {
	f, err := tap.Next(ctx)
	if err != nil && ctx.Err() == nil {
		err = errOver // whatever the tap says of it
	}
	return f, err
}

// broken returns why a connection ended: what was said of it, if something was, tells
// more than the write that failed.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tap returns the frames of the rendition that the target gets.
func (p *push) tap() (*Tap, error) {
	name := p.wished().Ref.Profile
	if name == weir.SourceProfile {
		return p.session.newTap(asAAC), nil
	}
	if tap := p.session.newTapOf(name, asAAC); tap != nil {
		return tap, nil
	}
	return nil, weir.Errorf(weir.Invalid, "the rendition %q of the stream is not made live; use the profile %q for this target", name, weir.SourceProfile)
}

// targetDialer returns what connects to targets.
func targetDialer(g *guard.Guard) func(ctx context.Context, url string, fail func(error)) (outlet, error) {
	return func(ctx context.Context, url string, fail func(error)) (outlet, error) {
		if strings.HasPrefix(strings.ToLower(url), "srt:") {
			return dialSRT(ctx, url, g.Resolve, fail)
		}
		return dialRTMP(ctx, url, g.DialContext, fail)
	}
}

// connected notes that the target takes the stream. The function that it returns says that
// the connection is over.
func (p *push) connected(out outlet) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.out, p.since, p.told = pushConnected, out, time.Now(), false
	p.bytes, p.measured, p.bitrate = 0, p.since, 0
	p.log.Info("target connected", "profile", p.wish.Ref.Profile)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.out, p.bitrate, p.note = nil, 0, ""
	}
}

// fed notes that media goes to the target, and tells of the connection when it has held. It
// does so only then, and not while the encoder is away: who is told that the stream is idle
// must not hear after that of a target which gets it.
func (p *push) fed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := time.Since(p.since)
	if held >= longHold {
		p.failures = 0
	}
	if p.told || held < settledAfter || p.failures > toldFailure {
		return
	}
	p.told, p.lastErr = true, ""
	p.say(weir.MultistreamConnected)
}

// failed notes that the target could not be reached, or that the connection broke.
func (p *push) failed(err error) {
	sentence := pushSentence(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.lastErr, p.told = pushError, sentence, false
	if p.failures++; p.failures == toldFailure {
		p.say(weir.MultistreamError)
	}
	p.log.Info("target failed", "profile", p.wish.Ref.Profile, "failures", p.failures, "reason", sentence)
}

// leave notes that the target was left because the encoder is away.
func (p *push) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = pushDisconnected
	if p.told {
		p.told = false
		p.say(weir.MultistreamDisconnected)
	}
}

func (p *push) setNote(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = note
}

// health returns what the owner sees.
func (p *push) health(now time.Time) weir.TargetHealth {
	p.mu.Lock()
	defer p.mu.Unlock()
	if span := now.Sub(p.measured).Seconds(); p.out != nil && span > 0.5 {
		sent := p.out.sent()
		p.bitrate = float64(sent-p.bytes) * 8 / span
		p.measured, p.bytes = now, sent
	}
	h := weir.TargetHealth{ID: p.wish.Ref.ID, Profile: p.wish.Ref.Profile, Status: p.status, Bitrate: p.bitrate, LastError: p.lastErr}
	if h.LastError == "" {
		h.LastError = p.note
	}
	return h
}

// pushIssues returns what is not well with the pushes of a session, for people.
func (s *session) pushIssues() (issues []string) {
	s.pushing.Lock()
	defer s.pushing.Unlock()
	for _, p := range s.pushes {
		p.mu.Lock()
		if p.status == pushError {
			issues = append(issues, fmt.Sprintf("the multistream target %q gets nothing: %s", p.wish.Target.Name, p.lastErr))
		}
		p.mu.Unlock()
	}
	slices.Sort(issues)
	return issues
}

// pushSentence returns what the owner is told of an error. It says nothing that is in
// the URL of the target but the host.
func pushSentence(err error) string {
	if e, ok := errors.AsType[*guard.BlockedError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal && len(e.Messages) > 0 {
		return e.Messages[0]
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return "the host of the target has no address; check its name"
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return "the target did not answer in time"
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return "no connection to the target: " + e.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) {
		return "the target closed the connection"
	}
	return "the connection to the target failed"
}
