package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// door is an address that encoders or viewers of live streams come to.
type door struct {
	setting, addr string
	datagrams     bool
	secure        bool
	// speaks reports whether what listens there speaks the door's protocol; nil = that
	// can't be told.
	speaks func(ctx context.Context, addr string, secure bool) bool
}

// examineDoors finds out whether the addresses for live streams are free, or taken by
// the weir that is serving.
func examineDoors(ctx context.Context, cfg *Config, serving bool) []finding {
	if !cfg.Runs(partLive) {
		return nil
	}
	var findings []finding
	for _, d := range []door{
		{setting: "rtmp", addr: cfg.RTMP, speaks: speaksRTMP},
		{setting: "rtmps", addr: cfg.RTMPS, secure: true, speaks: speaksRTMP},
		{setting: "srt", addr: cfg.SRT, datagrams: true},
		{setting: "webrtc", addr: cfg.WebRTC, datagrams: true},
		{setting: "webrtc", addr: cfg.WebRTC, datagrams: true},
	} {
		if d.addr != "" {
			findings = append(findings, d.examine(ctx, serving))
		}
	}
	return findings
}

func (d door) examine(ctx context.Context, serving bool) finding {
	what := d.setting + " " + d.addr
	var listener io.Closer
	var err error
	if d.datagrams {
		listener, err = new(net.ListenConfig).ListenPacket(ctx, "udp", d.addr)
	} else {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", d.addr)
	}
	switch {
	case err == nil:
		_ = listener.Close()
		return finding{what, stateOK, "free"}
	case errors.Is(err, syscall.EADDRINUSE) && serving && (d.speaks == nil || d.speaks(ctx, d.addr, d.secure)):
		return finding{what, stateOK, weirServes}
	}
	return finding{what, stateMissing, whyNotListening(err, d.setting)}
}

// whyNotListening says why an address can't be listened on, and what to do about it.
func whyNotListening(err error, setting string) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program listens there; end it, or choose another address with --" + setting
	case errors.Is(err, syscall.EACCES):
		return "this user may not listen there; ports below 1024 need CAP_NET_BIND_SERVICE"
	}
	return err.Error()
}

// speaksRTMP begins a handshake and looks at the version that comes back.
func speaksRTMP(ctx context.Context, addr string, secure bool) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var conn net.Conn
	if secure {
		// The certificate is for the public name, not for this address; nothing is believed here.
		conn, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	}
	if err != nil {
		return false
	}
	defer conn.Close()
	const version = 3
	deadline, _ := ctx.Deadline()
	answer := []byte{0}
	if conn.SetDeadline(deadline) != nil {
		return false
	}
	if _, err := conn.Write(append([]byte{version}, make([]byte, 1536)...)); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, answer)
	return err == nil && answer[0] == version
}

// examineMediaSpace looks at the disk of the media, when it is another than that of the
// data folder.
func examineMediaSpace(cfg *Config) []finding {
	path, local := strings.CutPrefix(cfg.Storage.Reveal(), "file:")
	if !local {
		return nil
	}
	dir, err := existing(strings.TrimPrefix(path, "//"))
	if err != nil {
		return []finding{{"media folder", stateMissing, err.Error()}}
	}
	data, err := existing(cfg.Data)
	if err != nil || sameDisk(dir, data) {
		return nil
	}
	f := examineSpace(dir)
	f.what = "media space"
	return []finding{f}
}

func sameDisk(a, b string) bool {
	var first, second unix.Stat_t
	return unix.Stat(a, &first) == nil && unix.Stat(b, &second) == nil && first.Dev == second.Dev
}
