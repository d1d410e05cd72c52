package main

import (
	"io"
	"net"
	"strings"
	"testing"
)

// answerOnce listens, reads a little from whoever comes, and answers.
func answerOnce(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 1537))
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func TestExamineDoors(t *testing.T) {
	rtmp, other := answerOnce(t, "\x03"+strings.Repeat("x", 3072)), answerOnce(t, "HTTP/1.1 400 Bad Request")
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	taken := packets.LocalAddr().String()
	for _, tt := range []struct {
		name    string
		door    door
		serving bool
		want    state
		detail  string
	}{
		{"free", door{setting: "rtmp", addr: "127.0.0.1:0", speaks: speaksRTMP}, false, stateOK, "free"},
		{"weir", door{setting: "rtmp", addr: rtmp, speaks: speaksRTMP}, true, stateOK, weirServes},
		{"another media server", door{setting: "rtmp", addr: rtmp, speaks: speaksRTMP}, false, stateMissing, "choose another address with --rtmp"},
		{"something else beside weir", door{setting: "rtmp", addr: other, speaks: speaksRTMP}, true, stateMissing, "another program"},
		{"not over TLS", door{setting: "rtmps", addr: rtmp, secure: true, speaks: speaksRTMP}, true, stateMissing, "--rtmps"},
		{"datagrams free", door{setting: "srt", addr: "127.0.0.1:0", datagrams: true}, false, stateOK, "free"},
		{"datagrams of weir", door{setting: "srt", addr: taken, datagrams: true}, true, stateOK, weirServes},
		{"datagrams of another", door{setting: "srt", addr: taken, datagrams: true}, false, stateMissing, "--srt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if f := tt.door.examine(t.Context(), tt.serving); f.state != tt.want || !strings.Contains(f.detail, tt.detail) {
				t.Errorf("found %+v, want %s and %q", f, tt.want, tt.detail)
			}
		})
	}
}

func TestExamineDoorsOfSettings(t *testing.T) {
	cfg := &Config{Parts: []string{partLive}, RTMP: "127.0.0.1:0"}
	if f := examineDoors(t.Context(), cfg, false); len(f) != 1 || f[0].what != "rtmp 127.0.0.1:0" || f[0].state != stateOK {
		t.Errorf("found %+v, want the address of RTMP", f)
	}
	cfg.Parts = []string{partAPI}
	if f := examineDoors(t.Context(), cfg, false); len(f) > 0 {
		t.Errorf("found %+v on a node that runs nothing live", f)
	}
}
