package ingest

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Unauthenticated clients can't fill the log: most of them are only counted.
func TestUnauthenticatedLogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book, s := &logBook{}, newUnauthenticatedLog()
		for range 600 {
			for range 100 {
				s.report(book.logger(), slog.LevelWarn, "publisher refused", "no stream has this stream key")
			}
			time.Sleep(100 * time.Millisecond) // of the bubble's clock
		}
		lines := strings.Count(book.String(), "publisher refused")
		if limit := unauthenticatedLinesAtOnce + unauthenticatedLines*60 + 1; lines > limit || lines < limit/2 {
			t.Errorf("%d lines about 60,000 clients in a minute, want about %d", lines, limit)
		}
		if !strings.Contains(book.String(), "others=") {
			t.Errorf("the others are not counted:\n%s", book)
		}
	})
}

// An address with many failures is blocked for a while, others are not.
func TestFailuresOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAdmission(nil, slog.New(slog.DiscardHandler))
		attacker, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		try := func(from netip.Addr) bool {
			slot, err := a.admit(from)
			if err != nil {
				return false
			}
			slot.fail()
			slot.free()
			return true
		}
		tries := 0
		for try(attacker) && tries < 1000 {
			tries++
		}
		if tries != maxFailuresAtOnce {
			t.Errorf("%d connections may fail at once, want %d", tries, maxFailuresAtOnce)
		}
		if !try(other) {
			t.Error("another address is not heard either")
		}
		if got, want := a.Stats(), (Stats{TurnedAway: 1}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
		time.Sleep(time.Second) // of the bubble's clock
		if !try(attacker) {
			t.Error("a second later it is still not heard")
		}
	})
}

// A client of RTMPS that does not use TLS is logged.
func TestRTMPSGarbage(t *testing.T) {
	address, log := start(t, RTMP{Listener: tls.NewListener(listen(t), &tls.Config{MinVersion: tls.VersionTLS12})}, newTestHub())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Repeat("garbage", 100)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, conn) // until the server has closed
	log.wait(t, "level=INFO", "before it sent a stream key")
}
