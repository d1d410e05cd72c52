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

	"weir/internal/codec"
	"weir/internal/guard"
	"weir/internal/live"
	"weir/internal/weir"
)

// Puller fetches streams from where their owners say: HLS, files over HTTP (MP4, FLV,
// MPEG-TS), RTMP and RTMPS, SRT. Which ones, the hub says; several nodes share them.
//
// A source is as foreign as an encoder: every address that it names goes through the
// guard, what it sends is bounded in size and in time, and whatever fails is told to the
// owner in a sentence without more of the source in it than its host.
type Puller struct {
	Hub   *live.Hub
	Guard *guard.Guard
	Log   *slog.Logger

	// MaxPulls is how many sources are read at once; 0 = 200. What is more is left to
	// other nodes.
	MaxPulls int
}

// Run pulls until ctx ends, and returns when everything that it read is let go.
func (p Puller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, cmp.Or(p.MaxPulls, 200))
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

// run reads a source until it is through, fails or is not wanted any more.
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
	s.log.Info("pull begins")
	err := s.readSafely(reading)
	cancel()
	watch.Wait()
	s.end(ctx, err)
	s.closing.Wait()
}

// request is what a source needs of a live.Pull.
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

	mu     sync.Mutex // audio and video may come from two sides
	feed   *feed
	plays  bool
	looked time.Time // when it was last looked whether it plays
	pace   pace

	closing sync.WaitGroup // connections that take a while to close
}

func newPullSource(p Puller, pull pullRequest, to publisher) *pullSource {
	where := pull.Where()
	s := &pullSource{Puller: p, pull: pull, where: where, host: pullHost(where), publisher: to}
	s.log = p.Log.With("stream", pull.StreamID(), "source", s.host)
	s.feed = newFeed(to, bounded(s.log))
	return s
}

// pullHost is what may be told of a source.
func pullHost(where weir.Pull) string {
	u, err := url.Parse(where.Source)
	if err != nil || u.Hostname() == "" {
		return "the source"
	}
	return u.Hostname()
}

// readSafely reads the source. Whatever it can make us do, it happens to it alone.
func (s *pullSource) readSafely(ctx context.Context) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			s.log.Error("pull ended by a defect", "err", problem, "stack", string(debug.Stack()))
			err = weir.Errorf(weir.Invalid, "what %s sends can't be read", s.host)
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
	if finished := s.feed.finish(ctx); err == nil {
		err = finished
	}
	if err == nil && !s.feed.started {
		err = weir.Errorf(weir.Invalid, "%s sent no media that can be taken", s.host)
	}
	return err
}

// add hands a packet to the feed when its time has come.
func (s *pullSource) add(ctx context.Context, p codec.Packet, at time.Duration) error {
	if err := s.pace.wait(ctx, at); err != nil {
		return err
	}
	return s.addNow(ctx, p, at)
}

// addNow hands a packet to the feed.
func (s *pullSource) addNow(ctx context.Context, p codec.Packet, at time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.feed.add(ctx, p, at); err != nil {
		return err
	}
	if !s.plays {
		s.look(ctx)
	}
	return nil
}

// look finds out whether viewers can watch by now.
func (s *pullSource) look(ctx context.Context) {
	now := time.Now()
	if now.Sub(s.looked) < lookEvery {
		return
	}
	if s.looked = now; !s.pull.Playable() {
		return
	}
	s.plays = true
	s.log.Info("pull plays")
	if err := s.pull.Plays(ctx); err != nil {
		s.log.Warn("it could not be said that a pull plays", "err", err)
	}
}

// end says how the pull went.
func (s *pullSource) end(ctx context.Context, err error) {
	var told error // by the hub
	select {
	case <-s.publisher.Done():
		told = s.publisher.Write(live.Frame{})
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
	case live.TakenOver(told):
		s.log.Info("pull ended: an encoder sends to the stream now")
		failed = s.pull.Finish(ctx)
	case ctx.Err() != nil:
		s.log.Info("pull let go: shutting down")
		failed = s.pull.Release(ctx)
	case unwanted:
		s.log.Info("pull is not wanted any more")
		failed = s.pull.Finish(ctx)
	case err == nil:
		s.log.Info("pull is through")
		failed = s.pull.Finish(ctx)
	default:
		why := s.sentence(cmp.Or(told, err))
		s.log.Warn("pull failed; it will be tried again", "reason", why, "err", s.cause(err))
		failed = s.pull.Fail(ctx, why)
	}
	if failed != nil {
		s.log.Warn("it could not be said how a pull ended", "err", failed)
	}
}

// sentence returns what the owner is told of an error.
func (s *pullSource) sentence(err error) string {
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal && len(e.Messages) > 0 {
		return fmt.Sprintf("the pull source failed: %s", e.Messages[0])
	}
	return fmt.Sprintf("the pull source failed: %s could not be read", s.host)
}

// cause returns an error without the URL that errors of HTTP clients carry.
func (s *pullSource) cause(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// cutOff is the error of a source that ends where more must come.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return weir.Wrap(weir.Upstream, err, "the source ends in the middle of a frame")
	}
	return err
}

// unreadable makes an error about media one that the owner may see.
func unreadable(err error) error {
	if _, ok := errors.AsType[*weir.Error](err); ok || err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return weir.Wrap(weir.Invalid, err, "the media of the source can't be read: %v", err)
}

// lookEvery is how often it is looked whether a pull plays.
const lookEvery = 100 * time.Millisecond

// pace hands frames of a file on as fast as they are shown.
type pace struct {
	mu    sync.Mutex
	start time.Time // when a frame at 0 is due
	set   bool
}

const (
	// maxLate is how late a frame may be before those after it are put off as well.
	maxLate = 500 * time.Millisecond
	// maxEarly is how far frames may be ahead before that is a jump of their times.
	maxEarly = 10 * time.Second
)

// wait waits until a frame is due.
func (p *pace) wait(ctx context.Context, at time.Duration) error {
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
