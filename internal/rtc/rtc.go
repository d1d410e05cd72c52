// Package rtc speaks WebRTC with browsers and encoders. It is the only user of pion.
//
// A [Server] has one UDP and one TCP port for all peers. [Server.Accept] answers the offer of a peer
// that publishes and returns its frames (receive.go; order.go makes frames of packets, clock.go puts
// audio and video on one timeline). [Server.Send] answers the offer of a viewer and sends frames
// (send.go). An [Endpoint] takes offers over HTTP: WHIP in package ingest, WHEP in package playback.
//
// An offer is untrusted text and is parsed by offer.go before pion sees it. The server is an
// ICE-lite agent: it answers clients with the right credentials and never sends a byte to an
// address only because an offer names it, so nobody can make it probe its own network.
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
	"sync/atomic"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/webrtc/v4"

	"weir/internal/weir"
)

const (
	// The connection of a silent peer ends after the sum of the first two.
	disconnectedAfter = 5 * time.Second
	failedAfter       = 5 * time.Second
	keepAliveEvery    = 2 * time.Second
	// connectTime is the maximum time from the offer to the connection.
	connectTime = 15 * time.Second
	// answerTime is the maximum time for making an answer.
	answerTime = 5 * time.Second

	// socketBuffer is the size of each buffer of the UDP socket, which all peers share.
	socketBuffer = 4 << 20
	// tcpBuffer is how many bytes may wait for a peer behind TCP before packets are lost.
	tcpBuffer = 2 << 20
	// firstPacketTime is how long a TCP connection may take to send its first packet.
	firstPacketTime = 10 * time.Second
)

// Options are the options of a server.
type Options struct {
	// UDP and TCP are where peers connect to; the server closes them. TCP may be nil.
	UDP *net.UDPConn
	TCP net.Listener

	// Hosts are the addresses in answers; none = those of this machine that the sockets listen on.
	Hosts []netip.Addr

	MaxPeers   int // including those that are not connected yet; 0 = 500
	MaxWaiting int // peers of one address that are not connected yet; 0 = 32

	Log *slog.Logger
}

// Server answers offers. Its methods may be called at the same time.
type Server struct {
	log        *slog.Logger
	api        *webrtc.API
	muxes      []interface{ Close() error }
	maxPeers   int
	maxWaiting int // per address

	mu      sync.Mutex
	peers   map[*peer]bool
	waiting map[netip.Prefix]int // peers that are not connected yet
	closed  bool
	open    sync.WaitGroup // peers
}

// New returns a server that listens. It must be closed.
func New(o Options) (*Server, error) {
	s := &Server{
		log: o.Log, maxPeers: cmp.Or(o.MaxPeers, 500), maxWaiting: cmp.Or(o.MaxWaiting, 32),
		peers: map[*peer]bool{}, waiting: map[netip.Prefix]int{},
	}
	loggers := loggers{o.Log}
	// A small buffer would lose bursts of packets, such as key frames. If the kernel allows less
	// than this, that has to do.
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
			Listener: &limited{Listener: o.TCP, max: int64(2 * s.maxPeers)}, Logger: loggers.NewLogger("ice"), ReadBufferSize: 64, WriteBufferSize: tcpBuffer,
			FirstStunBindTimeout: firstPacketTime, AliveDurationForConnFromStun: firstPacketTime,
		})
		s.muxes = append(s.muxes, tcp)
		setting.SetICETCPMux(tcp)
	}
	s.api = webrtc.NewAPI(webrtc.WithMediaEngine(media), webrtc.WithInterceptorRegistry(interceptors), webrtc.WithSettingEngine(setting))
	return s, nil
}

// announce puts the given addresses into answers, instead of those of this machine.
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

// The payload types of our own offers.
const (
	payloadOpus = 111
	payloadH264 = 96 // and up, in pairs: H.264 and its retransmissions
)

// register registers the codecs: Opus, and H.264 in the profiles of browsers and encoders.
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

// intercept adds retransmission and bandwidth feedback. It adds no sender reports: a [Sender]
// writes them itself, because only it can relate audio to video.
func intercept(media *webrtc.MediaEngine, to *interceptor.Registry, l loggers) error {
	receiver, err := report.NewReceiverInterceptor(report.WithReceiverLoggerFactory(l))
	if err != nil {
		return err
	}
	to.Add(receiver)
	return errors.Join(webrtc.ConfigureNack(media, to), webrtc.ConfigureSimulcastExtensionHeaders(media), webrtc.ConfigureTWCCSender(media, to))
}

// Peers returns the number of peers, including those that are not connected yet.
func (s *Server) Peers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.peers)
}

func errClosed() error { return weir.Errorf(weir.Busy, "this server is shutting down; connect again") }

// checkLimits returns an error if no more peers from a network are taken.
func (s *Server) checkLimits(from netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLimitsLocked(from)
}

func (s *Server) checkLimitsLocked(from netip.Prefix) error {
	switch {
	case s.closed:
		return errClosed()
	case len(s.peers) >= s.maxPeers:
		e := weir.Errorf(weir.Busy, "%d are connected over WebRTC, which is all that this server takes; try later", s.maxPeers)
		e.RetryAfter = 10 * time.Second
		return e
	case s.waiting[from] >= s.maxWaiting:
		e := weir.Errorf(weir.Busy, "%d offers from this address were answered, and nobody connected; try later", s.maxWaiting)
		e.RetryAfter = connectTime
		return e
	}
	return nil
}

func (s *Server) add(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLimitsLocked(p.from); err != nil {
		return err
	}
	s.peers[p], p.waiting = true, true
	s.waiting[p.from]++
	s.open.Add(1)
	return nil
}

// settle notes that a peer is connected, or has ended: it does not wait any more.
func (s *Server) settle(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.waiting {
		return
	}
	p.waiting = false
	if s.waiting[p.from]--; s.waiting[p.from] == 0 {
		delete(s.waiting, p.from)
	}
}

func (s *Server) remove(p *peer) {
	s.settle(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p)
	s.open.Done()
}

// Close ends all connections and waits for their end.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for p := range s.peers {
		p.end(errClosed())
		s.open.Go(p.Close)
	}
	s.mu.Unlock()
	s.open.Wait()
	var failed error
	for _, m := range s.muxes {
		if err := m.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// limited closes connections at once while there are max open ones.
type limited struct {
	net.Listener
	max  int64
	open atomic.Int64
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			return &counted{Conn: conn, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
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
