package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"weir/internal/config"
)

// weirServes is the detail of an address on which weir itself listens.
const weirServes = "weir is serving there"

// endpoint is an address that weir listens on.
type endpoint struct {
	setting, addr string
	udp           bool
	secure        bool
	// isWeir reports whether the program that listens there is, or may be, weir.
	isWeir func(ctx context.Context, e endpoint) bool
}

// examineEndpoints reports whether the addresses are free, or used by a running weir.
func examineEndpoints(ctx context.Context, cfg *config.Config) []finding {
	var findings []finding
	serving := false
	for _, e := range []endpoint{
		{setting: "http", addr: cfg.HTTP, secure: cfg.Secure(), isWeir: serves("/healthz", `"ok":true`)},
		{setting: "ops", addr: cfg.Ops, isWeir: serves("/metrics", "weir_build_info")},
	} {
		if e.addr != "" {
			f := e.examine(ctx)
			serving = serving || f.detail == weirServes
			findings = append(findings, f)
		}
	}
	if !cfg.Runs(config.Live) {
		return findings
	}
	// Of these protocols only RTMP can be recognized, and not which program it is: if weir serves on
	// this machine, they count as weir's.
	maybe := func(context.Context, endpoint) bool { return serving }
	rtmp := func(ctx context.Context, e endpoint) bool { return serving && speaksRTMP(ctx, e) }
	for _, e := range []endpoint{
		{setting: "rtmp", addr: cfg.RTMP, isWeir: rtmp},
		{setting: "rtmps", addr: cfg.RTMPS, secure: true, isWeir: rtmp},
		{setting: "srt", addr: cfg.SRT, udp: true, isWeir: maybe},
		{setting: "webrtc", addr: cfg.WebRTC, udp: true, isWeir: maybe},
		{setting: "webrtc", addr: cfg.WebRTC, isWeir: maybe},
	} {
		if e.addr != "" {
			findings = append(findings, e.examine(ctx))
		}
	}
	return findings
}

// examine reports whether weir could listen on the address, or already does.
func (e endpoint) examine(ctx context.Context) finding {
	what := e.setting + " " + e.addr
	var listener io.Closer
	var err error
	if e.udp {
		listener, err = new(net.ListenConfig).ListenPacket(ctx, "udp", e.addr)
	} else {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", e.addr)
	}
	switch {
	case err == nil:
		_ = listener.Close()
		return finding{what, stateOK, "free"}
	case errors.Is(err, syscall.EADDRINUSE) && e.isWeir(ctx, e):
		return finding{what, stateOK, weirServes}
	case errors.Is(err, syscall.EADDRINUSE):
		return finding{what, stateMissing, "another program listens there; end it, or choose another address with --" + e.setting}
	case errors.Is(err, syscall.EACCES):
		return finding{what, stateMissing, "this user may not listen there; ports below 1024 need CAP_NET_BIND_SERVICE"}
	}
	return finding{what, stateMissing, err.Error()}
}

// connectTimeout bounds the time in which a program must respond like weir.
const connectTimeout = 3 * time.Second

// insecure accepts every certificate: it is for the public name, not for this address, and no secret is
// sent.
func insecure() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// serves returns a function that reports whether the response to a GET request contains the text.
func serves(path, text string) func(context.Context, endpoint) bool {
	return func(ctx context.Context, e endpoint) bool {
		scheme := "http"
		if e.secure {
			scheme = "https"
		}
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		url := scheme + "://" + net.JoinHostPort(config.SplitAddress(e.addr, "localhost")) + path
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: insecure()}}
		resp, err := client.Do(request)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(body), text)
	}
}

// speaksRTMP begins a handshake and checks the version that comes back.
func speaksRTMP(ctx context.Context, e endpoint) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	dial := new(net.Dialer).DialContext
	if e.secure {
		dial = (&tls.Dialer{Config: insecure()}).DialContext
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(config.SplitAddress(e.addr, "localhost")))
	if err != nil {
		return false
	}
	defer conn.Close()
	const version = 3
	deadline, _ := ctx.Deadline()
	reply := []byte{0}
	if conn.SetDeadline(deadline) != nil {
		return false
	}
	if _, err := conn.Write(append([]byte{version}, make([]byte, 1536)...)); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, reply)
	return err == nil && reply[0] == version
}
