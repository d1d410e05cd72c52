package ingest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"weir/internal/budget"
	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/endpoint"
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
	Admission      *Admission
	// Observe is called after every request, for metrics; may be nil.
	Observe func(ctx context.Context, route string, status int, took time.Duration)

	unauthenticated *unauthenticatedLog // logs refused clients
	publish         publishFunc         // nil = that of Hub
}

// Why a session ends, beside the errors of package rtc.
var (
	errNoMedia          = errors.New("no media arrived in time")
	errPublisherStopped = errors.New("the publisher was stopped")
)

// Endpoint returns the handler. Its Close ends the sessions.
func (w WHIP) Endpoint() *rtc.Endpoint {
	w.unauthenticated = newUnauthenticatedLog()
	if w.publish == nil {
		w.publish = publishTo(w.Hub)
	}
	return &rtc.Endpoint{Open: w.open, Route: rtc.EndpointPath + "{streamKey}", Log: w.Log, Observe: w.Observe}
}

// open starts a session for an encoder with a valid stream key.
func (w WHIP) open(r *http.Request, key, offer string) (rtc.Session, error) {
	addr := endpoint.ClientAddr(r, w.TrustedProxies)
	remote := addr.String()
	slot, err := w.Admission.admit(addr)
	if err != nil {
		return nil, err
	}
	p, receiver, err := w.accept(r, addr, slot, key, offer)
	if err != nil {
		slot.free()
		return nil, err
	}
	// The session outlives the request.
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	s := &whipSession{
		Receiver: receiver, publisher: p, end: end, over: make(chan struct{}), slot: slot,
		log: w.Log.With("remote", remote, "stream", p.StreamID()),
	}
	s.feed = newFeed(p, bounded(s.log))
	s.feed.announce(receiver.Sends())
	go s.run(ctx)
	return s, nil
}

// accept checks the stream key and answers the offer.
func (w WHIP) accept(r *http.Request, addr netip.Addr, t *slot, key, offer string) (publisher, *rtc.Receiver, error) {
	log := w.Log.With("remote", addr.String())
	asking, cancel := context.WithTimeout(r.Context(), handshakeTime)
	defer cancel()
	p, err := w.publish(asking, key, live.Source{Protocol: "whip", Remote: addr.String()})
	if err != nil {
		if weir.KindOf(err) == weir.NotFound {
			err = weir.Errorf(weir.NotFound, "no stream has this stream key")
		}
		if !weir.Retriable(err) {
			t.fail()
		}
		return nil, nil, w.refuse(err, log)
	}
	budget.Authenticated(r.Context())
	log = log.With("stream", p.StreamID())
	if err := t.goOnAir(p); err != nil {
		return nil, nil, err
	}
	receiver, err := w.RTC.Accept(r.Context(), offer)
	if err != nil {
		p.Close(false)
		return nil, nil, w.refuse(err, log)
	}
	return p, receiver, nil
}

// refuse logs why an encoder is refused. The endpoint logs internal errors.
func (w WHIP) refuse(err error, log *slog.Logger) error {
	if weir.KindOf(err) != weir.Internal {
		w.unauthenticated.report(log, slog.LevelWarn, "publisher refused", err.Error())
	}
	return err
}

// whipSession is the session of an encoder.
type whipSession struct {
	*rtc.Receiver
	publisher publisher
	feed      *feed
	heard     bool // audio was received
	log       *slog.Logger
	slot      *slot
	end       context.CancelCauseFunc
	over      chan struct{}
}

// End ends the session.
func (s *whipSession) End(cause error) { s.end(cause) }

// Done is closed when the session has ended.
func (s *whipSession) Done() <-chan struct{} { return s.over }

func (s *whipSession) run(ctx context.Context) {
	defer close(s.over)
	defer s.end(nil)
	s.log.Info("publisher connected", "protocol", "whip")
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-s.publisher.Done():
			s.end(errPublisherStopped)
		case <-ctx.Done():
		}
	})
	err := s.receive(ctx)
	s.end(err)
	watch.Wait()
	s.feed.end(context.WithoutCancel(ctx), s.log, err, errors.Is(err, rtc.ErrLeft), errors.Is(err, rtc.ErrShutdown))
	s.Close()
	s.slot.free()
}

// receive adds the frames of the encoder to the feed and returns why there are no more.
func (s *whipSession) receive(ctx context.Context) (err error) {
	// A panic that an encoder causes ends only its own session.
	defer func() {
		if problem := recover(); problem != nil {
			s.log.Error("session ended by a panic", "err", problem, "stack", string(debug.Stack()))
			err = errors.New("panic")
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

func (s *whipSession) frame(ctx context.Context, f rtc.Frame) error {
	p := codec.Packet{Kind: f.Kind, Codec: codec.H264, Composition: f.PTS - f.DTS, Data: f.Data}
	if f.Kind == cmaf.Audio {
		p.Codec = codec.Opus
		if !s.heard {
			s.heard = true
			// Over WebRTC, Opus has two channels and no configuration.
			if err := s.feed.addPacket(ctx, codec.Packet{Kind: cmaf.Audio, Codec: codec.Opus, Config: true, Data: codec.OpusHead(2)}, f.DTS); err != nil {
				return err
			}
		}
	}
	return s.feed.addPacket(ctx, p, f.DTS)
}

// IsStreamKey reports whether an id in a URL has the form of a stream key: four groups of four
// characters with dashes between them. Playback ids have no dashes.
func IsStreamKey(id string) bool {
	groups := strings.Split(strings.TrimPrefix(id, "video+"), "-")
	for _, g := range groups {
		if len(g) != 4 {
			return false
		}
	}
	return len(groups) == 4
}
