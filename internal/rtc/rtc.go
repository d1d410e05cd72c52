// Package rtc speaks WebRTC with browsers and encoders. It is the only user of pion.
//
// A [Server] has one UDP and one TCP port for all of them. [Server.Accept] answers the
// offer of somebody who sends and hands over frames (receive.go; order.go puts packets
// together, clock.go puts audio and video on one timeline). [Server.Send] answers the
// offer of somebody who watches and takes frames (send.go). How offers get here is the
// caller's business: WHIP in package ingest, WHEP in package playback.
//
// An offer is foreign text and is read by offer.go before pion sees it. The server is an
// ICE-lite agent: it answers whoever shows the right credentials and never sends a byte to an
// address only because an offer names it, so nobody can make it knock at endpoints inside its
// network.
package rtc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/webrtc/v4"

	"weir/internal/weir"
)

const (
	// A peer that is not heard of counts as gone after the sum of the first two.
	disconnectedAfter = 5 * time.Second
	failedAfter       = 5 * time.Second
	keepAliveEvery    = 2 * time.Second
	// connectTime is how long a peer may take from its offer to being connected.
	connectTime = 15 * time.Second
	// answerTime is how long an answer may take to be made.
	answerTime = 5 * time.Second

	// Buffers of the one UDP socket that everybody shares.
	socketBuffer = 4 << 20
	// tcpBuffer is how much may wait for a peer behind TCP before packets are lost.
	tcpBuffer = 2 << 20
	// firstPacketTime is how long a TCP connection may take to say whose it is.
	firstPacketTime = 10 * time.Second
)

// Options are what a server is made of.
type Options struct {
	// UDP and TCP are where peers connect to; the server closes them. TCP may be nil.
	UDP *net.UDPConn
	TCP net.Listener

	// Hosts are the addresses that peers are told to connect to; none = those of this
	// machine that the sockets listen on.
	Hosts []netip.Addr

	// MaxPeers is how many may be connected, or about to be; 0 = 500.
	MaxPeers int
	// MaxWaiting is how many from one address may be about to be connected; 0 = 32.
	MaxWaiting int

	Log *slog.Logger
}

// Server answers offers. Its methods may be called at the same time.
type Server struct {
	log   *slog.Logger
	api   *webrtc.API
	muxes []interface{ Close() error }
	limit int
	wait  int // most of an address that are not connected yet

	mu      sync.Mutex
	peers   map[*peer]bool
	waiting map[netip.Prefix]int // peers that are not connected yet
	closed  bool
	leaving sync.WaitGroup // peers that are being closed
}

// New returns a server that listens. It must be closed.
func New(o Options) (*Server, error) {
	s := &Server{log: o.Log, limit: cmp.Or(o.MaxPeers, 500), wait: cmp.Or(o.MaxWaiting, 32), peers: map[*peer]bool{}, waiting: map[netip.Prefix]int{}}
	loggers := loggers{o.Log}
	// A burst of packets, a key frame say, must not be lost in a buffer that is too small;
	// what the kernel allows is good enough.
	_, _ = o.UDP.SetReadBuffer(socketBuffer), o.UDP.SetWriteBuffer(socketBuffer)

	var setting webrtc.SettingEngine
	setting.LoggerFactory = loggers
	setting.SetLite(true)
	setting.SetICETimeouts(disconnectedAfter, failedAfter, keepAliveEvery)
	setting.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	setting.SetDTLSConnectContextMaker(func() (context.Context, func()) {
		return context.WithTimeout(context.Background(), connectTime)
	})
	networks := []webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6}
	if o.TCP != nil {
		networks = append(networks, webrtc.NetworkTypeTCP4, webrtc.NetworkTypeTCP6)
	}
	setting.SetNetworkTypes(networks)
	local := o.UDP.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	setting.SetIncludeLoopbackCandidate(local.IsLoopback())
	if err := announce(&setting, o.Hosts); err != nil {
		return nil, err
	}

	media, interceptors := &webrtc.MediaEngine{}, &interceptor.Registry{}
	if err := errors.Join(register(media), intercept(media, interceptors, loggers)); err != nil {
		return nil, err
	}
	udp := ice.NewUDPMuxDefault(ice.UDPMuxParams{Logger: loggers.NewLogger("ice"), UDPConn: o.UDP})
	s.muxes = append(s.muxes, udp)
	setting.SetICEUDPMux(udp)
	if o.TCP != nil {
		tcp := ice.NewTCPMuxDefault(ice.TCPMuxParams{
			Listener: &limited{Listener: o.TCP, limit: 2 * s.limit}, Logger: loggers.NewLogger("ice"), ReadBufferSize: 64, WriteBufferSize: tcpBuffer,
			FirstStunBindTimeout: firstPacketTime, AliveDurationForConnFromStun: firstPacketTime,
		})
		s.muxes = append(s.muxes, tcp)
		setting.SetICETCPMux(tcp)
	}
	s.api = webrtc.NewAPI(webrtc.WithMediaEngine(media), webrtc.WithInterceptorRegistry(interceptors), webrtc.WithSettingEngine(setting))
	return s, nil
}

// announce lets peers be told other addresses than those of this machine.
func announce(setting *webrtc.SettingEngine, hosts []netip.Addr) error {
	if len(hosts) == 0 {
		return nil
	}
	var external []string
	for _, h := range hosts {
		external = append(external, h.Unmap().String())
	}
	return setting.SetICEAddressRewriteRules(webrtc.ICEAddressRewriteRule{
		External: external, AsCandidateType: webrtc.ICECandidateTypeHost, Mode: webrtc.ICEAddressRewriteReplace,
	})
}

// The payload types that pion shows where a peer leaves the choice to it.
const (
	payloadOpus = 111
	payloadH264 = 96 // and up, in twos: H.264 and what was lost of it
)

// register says which codecs there are: H.264 in the profiles that browsers and encoders
// have, and Opus.
func register(media *webrtc.MediaEngine) error {
	err := media.RegisterCodec(webrtc.RTPCodecParameters{
		RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: opusRate, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1;stereo=1"},
		PayloadType:        payloadOpus,
	}, webrtc.RTPCodecTypeAudio)
	feedback := []webrtc.RTCPFeedback{{Type: "goog-remb"}, {Type: "ccm", Parameter: "fir"}, {Type: "nack"}, {Type: "nack", Parameter: "pli"}}
	payload := webrtc.PayloadType(payloadH264)
	for _, profile := range []string{"42e01f", "42001f", "4d001f", "640032", "64001f"} {
		for _, mode := range []int{1, 0} {
			err = errors.Join(err, media.RegisterCodec(webrtc.RTPCodecParameters{
				RTPCodecCapability: webrtc.RTPCodecCapability{
					MimeType: webrtc.MimeTypeH264, ClockRate: h264Rate, RTCPFeedback: feedback,
					SDPFmtpLine: fmt.Sprintf("level-asymmetry-allowed=1;packetization-mode=%d;profile-level-id=%s", mode, profile),
				},
				PayloadType: payload,
			}, webrtc.RTPCodecTypeVideo), media.RegisterCodec(webrtc.RTPCodecParameters{
				RTPCodecCapability: webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeRTX, ClockRate: h264Rate, SDPFmtpLine: fmt.Sprintf("apt=%d", payload)},
				PayloadType:        payload + 1,
			}, webrtc.RTPCodecTypeVideo))
			if payload += 2; payload == payloadOpus-1 {
				payload += 2
			}
		}
	}
	return err
}

// intercept adds what repairs losses and tells senders how much gets through. What
// receivers are told of the time is said by a [Sender] itself: it alone knows which audio
// belongs to which picture.
func intercept(media *webrtc.MediaEngine, to *interceptor.Registry, l loggers) error {
	receiver, err := report.NewReceiverInterceptor(report.WithReceiverLoggerFactory(l))
	if err != nil {
		return err
	}
	to.Add(receiver)
	return errors.Join(webrtc.ConfigureNack(media, to), webrtc.ConfigureSimulcastExtensionHeaders(media), webrtc.ConfigureTWCCSender(media, to))
}

// Peers returns how many are connected, or about to be.
func (s *Server) Peers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.peers)
}

// errClosed is what everybody is told when the server is closed.
func errClosed() error { return weir.Errorf(weir.Busy, "this server is shutting down; connect again") }

// room says why no more peers from an address are taken, if so.
func (s *Server) room(from netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomNow(from)
}

func (s *Server) roomNow(from netip.Prefix) error {
	switch {
	case s.closed:
		return errClosed()
	case len(s.peers) >= s.limit:
		e := weir.Errorf(weir.Busy, "%d are connected over WebRTC, which is all that this server takes; try later", s.limit)
		e.RetryAfter = 10 * time.Second
		return e
	case s.waiting[from] >= s.wait:
		e := weir.Errorf(weir.Busy, "%d offers from this address were answered, and nobody connected; try later", s.wait)
		e.RetryAfter = connectTime
		return e
	}
	return nil
}

// add takes a peer in, if there is room.
func (s *Server) add(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.roomNow(p.from); err != nil {
		return err
	}
	s.peers[p], p.waiting = true, true
	s.waiting[p.from]++
	s.leaving.Add(1)
	return nil
}

// settle notes that a peer is connected.
func (s *Server) settle(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleNow(p)
}

func (s *Server) settleNow(p *peer) {
	if !p.waiting {
		return
	}
	p.waiting = false
	if s.waiting[p.from]--; s.waiting[p.from] == 0 {
		delete(s.waiting, p.from)
	}
}

func (s *Server) remove(p *peer) {
	s.mu.Lock()
	delete(s.peers, p)
	s.settleNow(p)
	s.mu.Unlock()
	s.leaving.Done()
}

// Close ends all connections and waits for their end.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for p := range s.peers {
		p.end(errClosed())
		s.leaving.Go(p.close)
	}
	s.mu.Unlock()
	s.leaving.Wait()
	var failed error
	for _, m := range s.muxes {
		if err := m.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// limited lets only so many connections be open at once; more are closed at once.
type limited struct {
	net.Listener
	limit int
	mu    sync.Mutex
	open  int
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		room := l.open < l.limit
		if room {
			l.open++
		}
		l.mu.Unlock()
		if room {
			return &counted{Conn: conn, closed: sync.OnceFunc(func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.open--
			})}, nil
		}
		_ = conn.Close()
	}
}

type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}
