package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"weir/internal/config"
	"weir/internal/ingest"
	"weir/internal/rtc"
)

// lookupTime is the timeout for looking up the names of --webrtc-host.
const lookupTime = 10 * time.Second

// openWebRTC listens for WebRTC, on one port over UDP and TCP, and makes the WHIP endpoint for browsers and
// encoders.
func (s *server) openWebRTC(ctx context.Context) error {
	if s.hub == nil || !s.cfg.Runs(config.API) || s.cfg.WebRTC == "" {
		return nil
	}
	hosts, err := lookUp(ctx, s.cfg.WebRTCHost)
	if err != nil {
		return fmt.Errorf("--webrtc-host: %w", err)
	}
	packets, err := net.ListenPacket("udp", s.cfg.WebRTC)
	if err != nil {
		return fmt.Errorf("--webrtc: %w", err)
	}
	udp := packets.(*net.UDPConn)
	host, _, _ := net.SplitHostPort(s.cfg.WebRTC)
	port := strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port)
	tcp, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("--webrtc: %w", errors.Join(err, udp.Close()))
	}
	s.webrtc, err = rtc.New(rtc.Options{UDP: udp, TCP: s.budget.Peers(tcp), Hosts: hosts, MaxViewers: s.cfg.MaxWebRTCViewers, Log: s.logger("rtc")})
	if err != nil {
		return errors.Join(err, udp.Close(), tcp.Close())
	}
	s.onClose(func() {
		if err := s.webrtc.Close(); err != nil {
			s.log.Warn("WebRTC could not be closed cleanly", "err", err)
		}
	})
	s.whip = ingest.WHIP{
		RTC: s.webrtc, Hub: s.hub, Admission: s.admission, TrustedProxies: s.cfg.TrustedProxies,
		Observe: s.metrics.observe, Log: s.logger("ingest"),
	}.Endpoint()
	return nil
}

func lookUp(ctx context.Context, hosts []string) (found []netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	for _, host := range hosts {
		if host == "" {
			continue
		}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			found = append(found, a.Unmap())
		}
	}
	return found, nil
}

// webRTCHere answers offers of WebRTC on this node: with a stream key they are from publishers,
// otherwise from viewers. Without WebRTC here, other serves them.
func (s *server) webRTCHere(other http.Handler) http.Handler {
	if s.webrtc == nil {
		return other
	}
	whep := s.playback.WHEP()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasStreamKey(r) {
			s.whip.ServeHTTP(w, r)
			return
		}
		whep.ServeHTTP(w, r)
	})
}
