package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"runtime/debug"
	"sync"
	"time"

	"weir/internal/budget"
	"weir/internal/codec"
	"weir/internal/guard"
	"weir/internal/live"
	"weir/internal/weir"
)

// maxPulls is the maximum number of sources that a node reads at once. Other nodes read the rest.
const maxPulls = 200

// Puller fetches streams from the sources that their owners set: HLS, files over HTTP (MP4, FLV,
// MPEG-TS), RTMP and RTMPS, SRT. The hub distributes the pulls among the nodes.
//
// A source is not trusted: every address that it names goes through the guard, what it sends is
// limited in size and time, and the owner gets a sentence for each error, which has no more of the
// source's URL than its host.
type Puller struct {
	Hub    *live.Hub
	Guard  *guard.Guard
	Budget *budget.Budget // nil = no limits
	Log    *slog.Logger
}

// Run pulls until ctx ends, and returns when all pulls have ended.
func (p Puller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, maxPulls)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		pull, err := p.Hub.NextPull(ctx)
		if err != nil {
			return nil // ctx has ended
		}
		running.Go(func() {
			defer func() { <-slots }()
			p.run(ctx, pull, pull.Publish(pullHost(pull.Where())))
		})
	}
}

// run reads a source until it ends, fails, or the pull is withdrawn.
func (p Puller) run(ctx context.Context, pull pullRequest, to publisher) {
	s := newPullSource(p, pull, to)
	reading, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel()
		select {
		case <-pull.Done():
		case <-s.publisher.Done():
		case <-reading.Done():
		}
	})
	s.log.Info("pull started")
	release, err := p.Budget.Stream(to.Files())
	if err == nil {
		defer release()
		err = s.readSafely(reading)
	}
	cancel()
	watch.Wait()
	s.end(ctx, err)
	s.closing.Wait()
}

// pullRequest is what a source needs of a live.Pull.
type pullRequest interface {
	StreamID() string
	Where() weir.Pull
	Done() <-chan struct{}
	Position() int64
	SetPosition(n int64)
	Playable() bool
	Plays(ctx context.Context) error
	Finish(ctx context.Context) error
	Fail(ctx context.Context, why string) error
	Release(ctx context.Context) error
}

// pullSource is a stream that is being fetched.
type pullSource struct {
	Puller
	pull      pullRequest
	where     weir.Pull
	host      string
	log       *slog.Logger
	publisher publisher

	mu      sync.Mutex // audio and video may come from two goroutines
	feed    *feed
	plays   bool      // viewers can watch it
	checked time.Time // when that was last checked
	pace    pacer

	closing sync.WaitGroup // connections that take a while to close
}

func newPullSource(p Puller, pull pullRequest, to publisher) *pullSource {
	where := pull.Where()
	s := &pullSource{Puller: p, pull: pull, where: where, host: pullHost(where), publisher: to}
	s.log = p.Log.With("stream", pull.StreamID(), "source", s.host)
	s.feed = newFeed(to, bounded(s.log))
	return s
}

// pullHost returns the part of the source's URL that may be logged.
func pullHost(where weir.Pull) string {
	u, err := url.Parse(where.Source)
	if err != nil || u.Hostname() == "" {
		return "the source"
	}
	return u.Hostname()
}

// readSafely reads the source. A panic that it causes ends only this pull.
func (s *pullSource) readSafely(ctx context.Context) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			s.log.Error("pull ended by a panic", "err", problem, "stack", string(debug.Stack()))
			err = weir.Errorf(weir.Invalid, "the media of %s can't be read", s.host)
		}
	}()
	if err := s.where.Check(); err != nil {
		return err
	}
	u, err := url.Parse(s.where.Source)
	if err != nil {
		return err
	}
	switch u.Scheme {
	case "rtmp", "rtmps":
		err = s.readRTMP(ctx)
	case "srt":
		err = s.readSRT(ctx)
	default:
		err = s.readHTTP(ctx, u)
	}
	if ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if finished := s.feed.flush(ctx); err == nil {
		err = finished
	}
	if err == nil && !s.feed.started {
		err = weir.Errorf(weir.Invalid, "%s sent no supported media", s.host)
	}
	return err
}

// addPacket gives a packet to the feed when it is due.
func (s *pullSource) addPacket(ctx context.Context, p codec.Packet, at time.Duration) error {
	if err := s.pace.wait(ctx, at); err != nil {
		return err
	}
	return s.addPacketNow(ctx, p, at)
}

func (s *pullSource) addPacketNow(ctx context.Context, p codec.Packet, at time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.feed.addPacket(ctx, p, at); err != nil {
		return err
	}
	if !s.plays && time.Since(s.checked) >= checkEvery {
		s.checkPlays(ctx)
	}
	return nil
}

// checkPlays checks whether viewers can watch by now.
func (s *pullSource) checkPlays(ctx context.Context) {
	if s.checked = time.Now(); !s.pull.Playable() {
		return
	}
	s.plays = true
	s.log.Info("pull is on air")
	if err := s.pull.Plays(ctx); err != nil {
		s.log.Warn("the state of the pull could not be saved", "err", err)
	}
}

// end reports the result of the pull.
func (s *pullSource) end(ctx context.Context, err error) {
	var ended error // by the hub
	select {
	case <-s.publisher.Done():
		ended = s.publisher.Write(live.Frame{})
	default:
	}
	unwanted := false
	select {
	case <-s.pull.Done():
		unwanted = true
	default:
	}
	var failed error
	switch {
	case live.TakenOver(ended):
		s.log.Info("pull ended: an encoder sends to the stream now")
		failed = s.pull.Finish(ctx)
	case ctx.Err() != nil:
		s.log.Info("pull released: shutting down")
		failed = s.pull.Release(ctx)
	case unwanted:
		s.log.Info("pull was cancelled")
		failed = s.pull.Finish(ctx)
	case err == nil:
		s.log.Info("pull finished: the source has ended")
		failed = s.pull.Finish(ctx)
	default:
		why := s.sentence(cmp.Or(ended, err))
		s.log.Warn("pull failed and will be retried", "reason", why, "err", withoutURL(err))
		failed = s.pull.Fail(ctx, why)
	}
	if failed != nil {
		s.log.Warn("the end of the pull could not be saved", "err", failed)
	}
}

// sentence returns an error in words for the owner.
func (s *pullSource) sentence(err error) string {
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal && len(e.Messages) > 0 {
		return fmt.Sprintf("the pull source failed: %s", e.Messages[0])
	}
	return fmt.Sprintf("the pull source failed: %s could not be read", s.host)
}

// withoutURL returns an error without the URL that errors of HTTP clients carry.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// cutOff returns an error for the owner if a source ends in the middle of a frame.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return weir.Wrap(weir.Upstream, err, "the source ends in the middle of a frame")
	}
	return err
}

// unreadable makes an error of the media one that the owner may see.
func unreadable(err error) error {
	if _, ok := errors.AsType[*weir.Error](err); ok || err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return weir.Wrap(weir.Invalid, err, "the media of the source can't be read: %v", err)
}

const (
	// checkEvery is the interval of checks whether a pull plays.
	checkEvery = 100 * time.Millisecond
	// maxLate is the maximum delay of a frame. After a longer one, the frames that follow are
	// delayed as well.
	maxLate = 500 * time.Millisecond
	// maxEarly is how far frames may be ahead. If they are further ahead, their times have jumped.
	maxEarly = 10 * time.Second
)

// pacer passes the frames of a file on in real time.
type pacer struct {
	mu    sync.Mutex
	start time.Time // when a frame at 0 is due
	set   bool
}

func (p *pacer) wait(ctx context.Context, at time.Duration) error {
	p.mu.Lock()
	now := time.Now()
	due := p.start.Add(at)
	if !p.set || due.Before(now.Add(-maxLate)) || due.After(now.Add(maxEarly)) {
		p.start, p.set, due = now.Add(-at), true, now
	}
	p.mu.Unlock()
	wait := due.Sub(now)
	if wait <= 0 {
		return ctx.Err()
	}
	return pause(ctx, wait)
}
