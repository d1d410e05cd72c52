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
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/webrtc/v4"

	"weir/internal/budget"
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
	// UDP and TCP are where peers connect to; the server closes them. TCP may be nil. If it is a listener
	// of a budget, connections that a peer uses are not evicted.
	UDP *net.UDPConn
	TCP net.Listener

	// Hosts are the addresses in answers; none = those of this machine that the sockets listen on.
	Hosts []netip.Addr

	// MaxViewers is the maximum number of viewers, of which one address has at most half; 0 = 500. One that is
	// not connected yet makes room for a new one. The caller limits those who publish: it knows their
	// stream keys.
	MaxViewers int
	MaxWaiting int // viewers of one address that are not connected yet; 0 = 16

	Log *slog.Logger
}

// Server answers offers. Its methods may be called at the same time.
type Server struct {
	log        *slog.Logger
	api        *webrtc.API
	muxes      []interface{ Close() error }
	tcp        *tcpListener // nil = there is none
	viewers    *budget.Pool // who is not connected yet is not busy
	maxViewers int

	mu     sync.Mutex
	peers  map[*peer]bool
	closed bool
	open   sync.WaitGroup // peers
}

// New returns a server that listens. It must be closed.
func New(o Options) (*Server, error) {
	s := &Server{log: o.Log, maxViewers: cmp.Or(o.MaxViewers, 500), peers: map[*peer]bool{}}
	s.viewers = budget.NewPool(budget.Limits{
		Members: s.maxViewers, PerAddress: max(s.maxViewers/2, 1), Waiting: cmp.Or(o.MaxWaiting, 16),
	})
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
		s.tcp = &tcpListener{Listener: o.TCP, conns: map[netip.AddrPort]*tcpConn{}}
		tcp := ice.NewTCPMuxDefault(ice.TCPMuxParams{
			Listener: s.tcp, Logger: loggers.NewLogger("ice"), ReadBufferSize: 64, WriteBufferSize: tcpBuffer,
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

// Viewers returns the numbers of viewers.
func (s *Server) Viewers() budget.PoolStats { return s.viewers.Stats() }

func errClosed() error { return weir.Errorf(weir.Busy, "this server is shutting down; connect again") }

// enter gives a viewer a place, until it leaves.
func (s *Server) enter(p *peer, from netip.Addr) (err error) {
	p.place, err = s.viewers.Enter(netip.AddrPortFrom(from, 0), func() { p.end(errEvicted) })
	switch {
	case errors.Is(err, budget.ErrAddress):
		return weir.TooMany(connectTime, "too many offers or viewers from this address; connect with the answers that you have, or try again later")
	case err != nil:
		e := weir.Errorf(weir.Overloaded, "%d viewers are connected over WebRTC, which is the maximum of this server; try again later, or use HLS", s.maxViewers)
		e.RetryAfter = 10 * time.Second
		return e
	}
	return nil
}

func (s *Server) addPeer(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed()
	}
	s.peers[p] = true
	s.open.Add(1)
	return nil
}

func (s *Server) removePeer(p *peer) {
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
