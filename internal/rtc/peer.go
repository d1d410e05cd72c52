package rtc

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"

	"weir/internal/budget"
	"weir/internal/weir"
)

// Why a connection ended.
var (
	ErrLeft         = errors.New("the peer closed the connection")
	ErrShutdown     = errors.New("shutting down")
	errLost         = errors.New("the connection was lost")
	errNotConnected = errors.New("the peer did not connect after the answer")
	errEnded        = errors.New("the session was ended")
	errEvicted      = errors.New("the peer was not connected yet when another one needed its place")
)

// peer is one connection.
type peer struct {
	server *Server
	pc     *webrtc.PeerConnection
	place  *budget.Place // of a viewer; nil = it publishes
	offer  offer
	answer string

	connected chan struct{}
	connect   sync.Once
	done      chan struct{}
	once      sync.Once
	cause     error
	closing   sync.Once
	timer     *time.Timer
	working   sync.WaitGroup
}

// newPeer makes a connection for an offer. It has no answer yet. A viewer needs a place.
func (s *Server) newPeer(from netip.Addr, sdp, wrongDirection string, viewer bool) (_ *peer, err error) {
	o, err := readOffer(sdp, wrongDirection)
	if err != nil {
		return nil, err
	}
	p := &peer{server: s, offer: o, connected: make(chan struct{}), done: make(chan struct{})}
	if viewer { // before memory is allocated
		if err := s.enter(p, from); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				p.place.Leave()
			}
		}()
	}
	if p.pc, err = s.api.NewPeerConnection(webrtc.Configuration{}); err != nil {
		return nil, err
	}
	p.timer = time.AfterFunc(connectTime, func() { p.end(errNotConnected) })
	p.pc.OnConnectionStateChange(p.changed)
	p.pc.OnDataChannel(func(c *webrtc.DataChannel) { _ = c.Close() })
	p.pc.SCTP().Transport().ICETransport().OnSelectedCandidatePairChange(func(pair *webrtc.ICECandidatePair) { s.tcp.markUsed(p, pair.Remote) })
	if err := s.addPeer(p); err != nil {
		p.timer.Stop()
		return nil, errors.Join(err, p.pc.GracefulClose())
	}
	return p, nil
}

func (p *peer) changed(state webrtc.PeerConnectionState) {
	switch state {
	case webrtc.PeerConnectionStateConnected:
		p.connect.Do(func() {
			p.timer.Stop()
			p.place.Busy()
			close(p.connected)
		})
	case webrtc.PeerConnectionStateFailed:
		select {
		case <-p.connected:
			p.end(errLost)
		default:
			p.end(errNotConnected)
		}
	case webrtc.PeerConnectionStateClosed:
		p.end(ErrLeft)
	}
}

// answerOffer makes the answer. A panic of pion affects only this offer. prepare is called between
// the offer and the answer.
func (p *peer) answerOffer(ctx context.Context, prepare func() error) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			p.server.log.ErrorContext(ctx, "an offer caused a panic", "err", problem)
			err = p.unusable(errors.New("panic"))
		}
	}()
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: p.offer.text}); err != nil {
		return p.unusable(err)
	}
	if err := prepare(); err != nil {
		return err
	}
	answer, err := p.pc.CreateAnswer(nil)
	if err != nil {
		return p.unusable(err)
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(answer); err != nil {
		return p.unusable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	select {
	case <-gathered:
	case <-ctx.Done():
		return weir.Wrap(weir.Busy, context.Cause(ctx), "the SDP answer took too long; try again")
	}
	p.answer = p.pc.LocalDescription().SDP
	return nil
}

// unusable returns the error of an offer that pion refuses. The cause quotes the offer, so only the
// log has it.
func (p *peer) unusable(cause error) error {
	p.server.log.Debug("an offer can't be used", "err", cause)
	if strings.Contains(cause.Error(), "codec") {
		return weir.Errorf(weir.Unsupported, "the offer has no profile of H.264 or Opus that this server supports")
	}
	return weir.Errorf(weir.Refused, "the offer can't be used: it does not describe media that can be sent and received")
}

// Answer returns the answer to the offer.
func (p *peer) Answer() string { return p.answer }

// Trickle takes an SDP fragment with ICE candidates.
func (p *peer) Trickle(fragment string) error { return checkFragment(fragment, p.offer.text) }

// Connected waits until the peer is connected. If the connection ends before, the error says why.
func (p *peer) Connected(ctx context.Context) error {
	select {
	case <-p.connected:
		return nil
	case <-p.done:
		return p.cause
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done is closed when the connection has ended.
func (p *peer) Done() <-chan struct{} { return p.done }

// Err returns why the connection ended; nil = it has not. It is [ErrLeft] if the peer closed it.
func (p *peer) Err() error {
	select {
	case <-p.done:
		return p.cause
	default:
		return nil
	}
}

func (p *peer) end(cause error) {
	p.once.Do(func() {
		p.cause = cause
		close(p.done)
	})
}

// Close ends the connection and waits for its end.
func (p *peer) Close() {
	p.end(errEnded)
	p.closing.Do(func() {
		p.timer.Stop()
		if err := p.pc.GracefulClose(); err != nil && !errors.Is(err, io.EOF) {
			p.server.log.Debug("a connection was not closed cleanly", "err", err)
		}
		p.working.Wait()
		p.place.Leave()
		p.server.removePeer(p)
	})
}
