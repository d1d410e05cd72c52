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
	// The minimum and maximum delay before the next attempt to connect.
	minRetry = time.Second
	maxRetry = 30 * time.Second
	// maxGap is how long a target stays connected without media from the encoder.
	maxGap = 25 * time.Second
	// A connection has to last for settledAfter before its event is written. After many failures it
	// has to last for longHold, which also resets their count.
	settledAfter = 7 * time.Second
	longHold     = 2 * time.Minute
	// eventFailure is the number of the failure that has an event. After one more, a connection has
	// to last for longHold.
	eventFailure = 2
)

// The states of a push.
const (
	statusPending      = "pending" // waits for media, or for its first connection
	statusConnected    = "connected"
	statusError        = "error"        // could not connect, or lost the connection; it tries again
	statusDisconnected = "disconnected" // the encoder sent nothing for maxGap
)

// Why a healthy connection to a target ends.
var (
	errGap  = errors.New("the encoder sent nothing for a while")
	errOver = errors.New("the session is over")
)

// push sends a session to one target until it ends, or the push is ended.
type push struct {
	open    func(profile string) (tap, error)
	connect connector
	emit    func(weir.EventName, store.Push)
	log     *slog.Logger
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	want     store.Push // only the name of the target changes
	status   string
	lastErr  string
	note     string // what the target does not get
	failures int
	settled  bool       // the event of the connection was written
	unwanted bool       // no more events are written
	out      targetConn // nil = not connected
	since    time.Time
	bitrate  float64
	measured time.Time
	bytes    int64 // sent when the bitrate was measured
}

// connector connects to a target. fail is called if the connection breaks later.
type connector func(ctx context.Context, url string, fail func(error)) (targetConn, error)

// tap is what a push needs of a live.Tap.
type tap interface {
	Next(ctx context.Context) (live.TapItem, error)
	Close()
}

// matches reports whether a push sends what is wanted now.
func (p *push) matches(want store.Push) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want.Target.URL != want.Target.URL || p.want.Ref.VideoOnly != want.Ref.VideoOnly {
		return false
	}
	p.want.Target.Name = want.Target.Name
	return true
}

// end ends a push. It has no events after that.
func (p *push) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwanted = true
	p.cancel()
}

// event writes an event, unless the push has been ended. The caller holds mu.
func (p *push) event(name weir.EventName) {
	if !p.unwanted {
		p.emit(name, p.want)
	}
}

func (p *push) wanted() store.Push {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.want
}

// run sends until the push or the session ends.
func (p *push) run(ctx context.Context) {
	wait := minRetry
	for {
		began := time.Now()
		err := p.sendOnce(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, errOver):
			return
		case errors.Is(err, errGap):
			p.disconnected()
			continue
		case errors.Is(err, errOtherTracks):
			continue
		}
		p.failed(err)
		if time.Since(began) > maxRetry {
			wait = minRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, maxRetry)
	}
}

// sendOnce waits for media, connects, sends, and returns why that ended.
func (p *push) sendOnce(ctx context.Context) error {
	tap, err := p.open(p.wanted().Ref.Profile)
	if err != nil {
		return err
	}
	defer tap.Close()
	// It connects when there is something to send: the tracks and a frame.
	var waiting []live.TapItem
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
	out, err := p.connect(ctx, p.wanted().Target.URL.Reveal(), cancel)
	if err != nil {
		return err
	}
	defer out.close()
	defer context.AfterFunc(ctx, out.limitWrite)()
	defer p.connected(out)()
	to := newConverter(out, p.wanted().Ref.VideoOnly)
	for _, f := range waiting {
		if err := to.convert(f); err != nil {
			return causeOf(ctx, err)
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
		if err := to.convert(f); err != nil {
			return causeOf(ctx, err)
		}
		p.sent()
		if len(f.Tracks) > 0 {
			p.setNote(to.note)
		}
	}
}

// next reads a tap. Errors other than those of ctx are the end of the session.
func next(ctx context.Context, from tap) (live.TapItem, error) {
	f, err := from.Next(ctx)
	if err != nil && ctx.Err() == nil {
		err = errOver
	}
	return f, err
}

// causeOf returns why a connection ended. The cause of ctx says more than the write that failed.
func causeOf(ctx context.Context, err error) error { return cmp.Or(context.Cause(ctx), err) }

func targetDialer(g *guard.Guard) connector {
	return func(ctx context.Context, url string, fail func(error)) (targetConn, error) {
		if strings.HasPrefix(strings.ToLower(url), "srt:") {
			return dialSRT(ctx, url, g.Resolve, fail)
		}
		return dialRTMP(ctx, url, g.DialContext, fail)
	}
}

// connected notes that the target has accepted the stream. The caller calls over when the
// connection has ended.
func (p *push) connected(out targetConn) (over func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.out, p.since, p.settled = statusConnected, out, time.Now(), false
	p.bytes, p.measured, p.bitrate = 0, p.since, 0
	p.log.Info("target connected", "profile", shownProfile(p.want.Ref.Profile))
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.out, p.bitrate, p.note = nil, 0, ""
	}
}

// sent notes that a frame was sent. Once the connection has lasted, it writes the event of it. That
// must not happen without media: the event that a target gets a stream must not follow the one that
// the stream is idle.
func (p *push) sent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := time.Since(p.since)
	if held >= longHold {
		p.failures = 0
	}
	if p.settled || held < settledAfter || p.failures > eventFailure {
		return
	}
	p.settled, p.lastErr = true, ""
	p.event(weir.MultistreamConnected)
}

// failed notes that the target could not be reached, or that the connection broke.
func (p *push) failed(err error) {
	sentence := sentenceOf(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.lastErr, p.settled = statusError, sentence, false
	if p.failures++; p.failures == eventFailure {
		p.event(weir.MultistreamError)
	}
	p.log.Info("target failed", "profile", shownProfile(p.want.Ref.Profile), "failures", p.failures, "reason", sentence)
}

// disconnected notes that the connection was ended because the encoder sends nothing.
func (p *push) disconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = statusDisconnected
	if p.settled {
		p.settled = false
		p.event(weir.MultistreamDisconnected)
	}
}

// shownProfile returns the name of a profile for the log: 720p0, at the frame rate of the source, is 720p.
func shownProfile(name string) string {
	if short := strings.TrimSuffix(name, "0"); strings.HasSuffix(short, "p") {
		return short
	}
	return name
}

func (p *push) setNote(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = note
}

// health returns the state of the push for the owner of the stream.
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

// sentenceOf returns an error in words for the owner. Of the URL it has the host at most.
func sentenceOf(err error) string {
	if e, ok := errors.AsType[*guard.BlockedError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal && len(e.Messages) > 0 {
		return e.Messages[0]
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
