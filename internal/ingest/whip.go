package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/rtc"
	"weir/internal/weir"
)

// WHIP lets browsers and encoders publish over WebRTC: they post their offer to
// /webrtc/<streamKey>. Its handler is [WHIP.Endpoint].
type WHIP struct {
	RTC            *rtc.Server
	Hub            *live.Hub
	TrustedProxies []netip.Prefix
	Log            *slog.Logger
	// Counters, if there are some, count the sessions.
	Counters *Counters
	// Observe is told of every request, for metrics; may be nil.
	Observe func(ctx context.Context, route string, status int, took time.Duration)

	unauthenticated *unauthenticated // who is refused
	// publish is Hub.Publish, if a test does not want another one.
	publish func(ctx context.Context, key string, from live.Source) (publisher, error)
}

// Why a session ends.
var (
	errDeleted  = errors.New("the encoder ended the session")
	errNoMedia  = errors.New("nothing came in time")
	errShutdown = errors.New("shutting down")
	errTold     = errors.New("the publisher was told to end")
)

// Endpoint returns the handler. Its Close ends the sessions.
func (w WHIP) Endpoint() *rtc.Endpoint {
	if w.Counters == nil {
		w.Counters = &Counters{}
	}
	w.unauthenticated = newUnauthenticated()
	if w.publish == nil {
		w.publish = func(ctx context.Context, key string, from live.Source) (publisher, error) {
			p, err := w.Hub.Publish(ctx, key, from)
			if err != nil {
				return nil, err
			}
			return p, nil
		}
	}
	return &rtc.Endpoint{Open: w.open, Route: rtc.EndpointPath + "{streamKey}", Log: w.Log, Observe: w.Observe}
}

// open lets an encoder in whose stream key is good.
func (w WHIP) open(r *http.Request, key, offer string) (rtc.Session, error) {
	addr := weir.ClientAddr(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), w.TrustedProxies)
	remote := addr.String()
	asking, cancel := context.WithTimeout(r.Context(), handshakeTime)
	defer cancel()
	p, err := w.publish(asking, key, live.Source{Protocol: "whip", Remote: remote})
	if weir.KindOf(err) == weir.NotFound {
		err = weir.Errorf(weir.NotFound, "no stream has this stream key")
	}
	if err != nil {
		return nil, w.refuse(err, w.Log.With("remote", remote))
	}
	receiver, err := w.RTC.Accept(r.Context(), addr, offer)
	if err != nil {
		p.Close(false)
		if weir.KindOf(err) == weir.Busy {
			w.Counters.turnedAway.Add(1)
		}
		return nil, w.refuse(err, w.Log.With("remote", remote, "stream", p.StreamID()))
	}
	w.Counters.open.Add(1)
	// The session outlives the request.
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	s := &whipSession{
		Receiver: receiver, publisher: p, end: end, over: make(chan struct{}), counters: w.Counters,
		log: w.Log.With("remote", remote, "stream", p.StreamID()),
	}
	s.feed = newFeed(p, bounded(s.log))
	s.feed.promise(receiver.Sends())
	go s.run(ctx)
	return s, nil
}

// refuse says in the log why an encoder is not let in, as it is told. What is wrong here
// is logged where it is answered.
func (w WHIP) refuse(err error, log *slog.Logger) error {
	if weir.KindOf(err) != weir.Internal {
		w.unauthenticated.tell(log, slog.LevelWarn, "publisher refused", err.Error())
	}
	return err
}

// whipSession is an encoder that publishes.
type whipSession struct {
	*rtc.Receiver
	publisher publisher
	feed      *feed
	heard     bool // audio came
	log       *slog.Logger
	counters  *Counters
	end       context.CancelCauseFunc
	over      chan struct{}
}

// Leave ends the session because the encoder says so.
func (s *whipSession) Leave() { s.end(errDeleted) }

// Stop ends the session because this server does.
func (s *whipSession) Stop() { s.end(errShutdown) }

// Done is closed when nothing of the session is left.
func (s *whipSession) Done() <-chan struct{} { return s.over }

// run takes frames until the session ends.
func (s *whipSession) run(ctx context.Context) {
	defer close(s.over)
	defer s.end(nil)
	s.log.Info("publisher connected", "protocol", "whip")
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-s.publisher.Done():
			s.end(errTold)
		case <-ctx.Done():
		}
	})
	err := s.take(ctx)
	s.end(err)
	watch.Wait()
	s.leave(context.WithoutCancel(ctx), err)
	s.Close()
	s.counters.open.Add(-1)
}

// take hands the frames of the encoder to the feed and returns why there are no more.
func (s *whipSession) take(ctx context.Context) (err error) {
	// Whatever an encoder can make us do, it happens to it alone.
	defer func() {
		if problem := recover(); problem != nil {
			s.log.Error("session ended by a defect", "err", problem, "stack", string(debug.Stack()))
			err = errors.New("a defect")
		}
	}()
	silence := time.AfterFunc(firstMediaTime+handshakeTime, func() { s.end(errNoMedia) })
	defer silence.Stop()
	for {
		f, err := s.Next(ctx)
		if err != nil {
			return err
		}
		silence.Reset(idleTime)
		if err := s.frame(ctx, f); err != nil {
			return err
		}
	}
}

// frame hands a frame to the feed.
func (s *whipSession) frame(ctx context.Context, f rtc.Frame) error {
	p := codec.Packet{Kind: f.Kind, Codec: codec.H264, Composition: f.PTS - f.DTS, Data: f.Data}
	if f.Kind == cmaf.Audio {
		p.Codec = codec.Opus
		if !s.heard {
			s.heard = true
			// Over WebRTC, Opus has two channels and says nothing ahead of them.
			if err := s.feed.add(ctx, codec.Packet{Kind: cmaf.Audio, Codec: codec.Opus, Config: true, Data: codec.OpusHead(2)}, f.DTS); err != nil {
				return err
			}
		}
	}
	return s.feed.add(ctx, p, f.DTS)
}

// leave lets the publisher go and says why in the log.
func (s *whipSession) leave(ctx context.Context, why error) {
	clean := errors.Is(why, errDeleted) || errors.Is(why, rtc.ErrLeft)
	var ended error // by the hub
	select {
	case <-s.publisher.Done():
		ended = s.publisher.Write(live.Frame{})
	default:
		if err := s.feed.finish(ctx); err != nil {
			why = errors.Join(why, err)
		}
	}
	s.publisher.Close(clean)
	logEnd(s.log, ending{stopping: errors.Is(why, errShutdown), ended: ended, clean: clean, why: why, lost: fmt.Sprint(why)})
}

// IsStreamKey reports whether an id in an address has the form of a stream key: four
// groups with dashes between them. Playback ids have none.
func IsStreamKey(id string) bool {
	groups := strings.Split(strings.TrimPrefix(id, "video+"), "-")
	for _, g := range groups {
		if len(g) != 4 {
			return false
		}
	}
	return len(groups) == 4
}
