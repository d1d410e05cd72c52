package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"weir/internal/ingest"
	"weir/internal/rtc"
)

// lookupTime is how long a name of --webrtc-host may take to be looked up.
const lookupTime = 10 * time.Second

// openWebRTC listens for browsers, on one port over UDP and TCP.
func openWebRTC(ctx context.Context, cfg *Config, log *slog.Logger) (*rtc.Server, error) {
	hosts, err := lookUp(ctx, cfg.WebRTCHost)
	if err != nil {
		return nil, fmt.Errorf("--webrtc-host: %w", err)
	}
	packets, err := net.ListenPacket("udp", cfg.WebRTC)
	if err != nil {
		return nil, fmt.Errorf("--webrtc: %w", err)
	}
	udp := packets.(*net.UDPConn)
	host, _, _ := net.SplitHostPort(cfg.WebRTC)
	tcp, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port)))
	if err != nil {
		return nil, fmt.Errorf("--webrtc: %w", errors.Join(err, udp.Close()))
	}
	server, err := rtc.New(rtc.Options{UDP: udp, TCP: tcp, Hosts: hosts, Log: log})
	if err != nil {
		return nil, errors.Join(err, udp.Close(), tcp.Close())
	}
	return server, nil
}

// lookUp returns the addresses of hosts.
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

// closeWebRTC ends what is still connected.
func (p *parts) closeWebRTC(log *slog.Logger) {
	if p.rtc == nil {
		return
	}
	if err := p.rtc.Close(); err != nil {
		log.Warn("WebRTC was not closed in order", "err", err)
	}
}

// newWHIP is who lets browsers and encoders publish.
func (p *parts) newWHIP(cfg *Config, m *metrics, log *slog.Logger) *rtc.Door {
	return ingest.WHIP{
		RTC: p.rtc, Hub: p.hub, Counters: &p.doors, TrustedProxies: cfg.TrustedProxies, Log: log.With("part", "ingest"),
		Observe: func(_ context.Context, route string, status int, took time.Duration) { m.observe(route, status, took) },
	}.Door()
}

// webRTC answers below /webrtc/: who comes with a stream key publishes, others watch.
func webRTC(whip, whep http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, rtc.DoorPath), "/")
		if ingest.IsStreamKey(id) {
			whip.ServeHTTP(w, r)
			return
		}
		whep.ServeHTTP(w, r)
	})
}
