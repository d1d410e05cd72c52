package push

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/internal/guard"
	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// The delay before the next attempt to connect: at first, and at most.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// maxGap is how long a target stays connected while the encoder is away.
	maxGap = 25 * time.Second
	// settledAfter is how long a connection must hold before its event is written. After
	// many failures it must hold for longHold, which also resets their count.
	settledAfter = 7 * time.Second
	longHold     = 2 * time.Minute
	// toldFailure is the number of the failure that has an event. After one more, a
	// connection counts only when it holds long.
	toldFailure = 2
)

// The states of a push.
const (
	statusPending      = "pending" // waits for media, or for its first connection
	statusConnected    = "connected"
	statusError        = "error"        // could not connect, or lost the connection; it tries again
	statusDisconnected = "disconnected" // the encoder was away for too long
)

// Why a healthy connection to a target ends.
var (
	errGap  = errors.New("nothing came from the encoder for a while")
	errOver = errors.New("the session is over")
)

// push sends a session on to one target for as long as it is wanted.
type push struct {
	open    func(profile string) (tap, error)
	connect connector
	tell    func(weir.EventName, store.Push)
	log     *slog.Logger
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	want     store.Push // only the name of the target changes
	status   string
	lastErr  string
	note     string // what the target does not get
	failures int
	told     bool   // the event of the connection was written
	unwanted bool   // no more events are written
	out      outlet // nil = not connected
	since    time.Time
	bitrate  float64
	measured time.Time
	bytes    int64 // sent when the bitrate was measured
}

// connector connects to a target. fail is called if the connection breaks later.
type connector func(ctx context.Context, url string, fail func(error)) (outlet, error)

// tap is what a push reads: live.Tap.
type tap interface {
	Next(ctx context.Context) (live.Tapped, error)
	Close()
}

// goesOn reports whether a push is what is wanted now.
func (p *push) goesOn(want store.Push) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want.Target.URL != want.Target.URL || p.want.Ref.VideoOnly != want.Ref.VideoOnly {
		return false
	}
	p.want.Target.Name = want.Target.Name
	return true
}

// end ends a push that is not wanted any more. No event of it comes after that.
func (p *push) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwanted = true
	p.cancel()
}

// say writes an event, unless the push has been ended. The caller holds mu.
func (p *push) say(name weir.EventName) {
	if !p.unwanted {
		p.tell(name, p.want)
	}
}

func (p *push) wanted() store.Push {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want
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

// once waits for media, connects, sends, and returns why that ended.
func (p *push) once(ctx context.Context) error {
	tap, err := p.open(p.wanted().Ref.Profile)
	if err != nil {
		return err
	}
	defer tap.Close()
	// A target is called only when there is something to send: the tracks and a frame.
	var waiting []live.Tapped
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
	out, err := p.connect(ctx, p.wanted().Target.URL.Reveal(), func(err error) { cancel(err) })
	if err != nil {
		return err
	}
	defer out.close()
	unhurried := context.AfterFunc(ctx, out.hurry)
	defer unhurried()
	over := p.connected(out)
	defer over()
	to := newFeed(out, p.wanted().Ref.VideoOnly)
	for _, f := range waiting {
		if err := to.add(f); err != nil {
			return broken(ctx, err)
		}
	}
	p.setNote(to.note)
	gap := time.AfterFunc(maxGap, func() { cancel(errGap) })
	defer gap.Stop()
	for {
		f, err := next(ctx, tap)
		if err != nil {
			return err
		}
		gap.Reset(maxGap)
		if err := to.add(f); err != nil {
			return broken(ctx, err)
		}
		p.fed()
		if len(f.Tracks) > 0 {
			p.setNote(to.note)
		}
	}
}

// next returns what comes next from a tap.
func next(ctx context.Context, from tap) (live.Tapped, error) {
	f, err := from.Next(ctx)
	if err != nil && ctx.Err() == nil {
		err = errOver // whatever error the tap has
	}
	return f, err
}

// broken returns why a connection ended. If ctx has a cause, that says more than the write
// that failed.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// targetDialer returns the function that connects to targets.
func targetDialer(g *guard.Guard) connector {
	return func(ctx context.Context, url string, fail func(error)) (outlet, error) {
		if strings.HasPrefix(strings.ToLower(url), "srt:") {
			return dialSRT(ctx, url, g.Resolve, fail)
		}
		return dialRTMP(ctx, url, g.DialContext, fail)
	}
}

// connected notes that the target takes the stream. The caller calls over when the connection
// has ended.
func (p *push) connected(out outlet) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.out, p.since, p.told = statusConnected, out, time.Now(), false
	p.bytes, p.measured, p.bitrate = 0, p.since, 0
	p.log.Info("target connected", "profile", p.want.Ref.Profile)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.out, p.bitrate, p.note = nil, 0, ""
	}
}

// fed notes that a frame was sent. Once the connection has held, it writes the event of it.
// That must not happen while the encoder is away: no event may say that a target gets a stream
// after one that said the stream is idle.
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
	sentence := sentenceOf(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.lastErr, p.told = statusError, sentence, false
	if p.failures++; p.failures == toldFailure {
		p.say(weir.MultistreamError)
	}
	p.log.Info("target failed", "profile", p.want.Ref.Profile, "failures", p.failures,
		"reason", sentence)
}

// leave notes that the connection was ended because the encoder is away.
func (p *push) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = statusDisconnected
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

// health returns what the owner of the stream sees.
func (p *push) health(now time.Time) weir.TargetHealth {
	p.mu.Lock()
	defer p.mu.Unlock()
	if span := now.Sub(p.measured).Seconds(); p.out != nil && span > 0.5 {
		sent := p.out.sent()
		p.bitrate = float64(sent-p.bytes) * 8 / span
		p.measured, p.bytes = now, sent
	}
	return weir.TargetHealth{
		ID: p.want.Ref.ID, Profile: p.want.Ref.Profile, Status: p.status, Bitrate: p.bitrate,
		LastError: cmp.Or(p.lastErr, p.note),
	}
}

// sentenceOf returns what the owner is told of an error. Of the target's URL, it has the host
// at most.
func sentenceOf(err error) string {
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
