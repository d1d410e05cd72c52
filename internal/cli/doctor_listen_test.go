package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/config"
)

// replyToEach listens. It reads the first bytes of each connection, replies and closes it.
func replyToEach(t *testing.T, reply string) string {
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
			_, _ = io.WriteString(conn, reply)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String()
}

func TestExamineLiveEndpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	rtmp, other := replyToEach(t, "\x03"+strings.Repeat("x", 3072)), replyToEach(t, "HTTP/1.1 400 Bad Request")
	ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "weir_build_info 1")
	}))
	defer ops.Close()
	serving := ops.Listener.Addr().String()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	taken := packets.LocalAddr().String()
	for _, tt := range []struct {
		name   string
		cfg    config.Config // Ops is set where a weir serves
		want   state
		detail string
	}{
		{"free", config.Config{RTMP: "127.0.0.1:0"}, stateOK, "free"},
		{"weir", config.Config{RTMP: rtmp, Ops: serving}, stateOK, weirServes},
		{"another media server", config.Config{RTMP: rtmp}, stateMissing, "choose another address with --rtmp"},
		{"something else beside weir", config.Config{RTMP: other, Ops: serving}, stateMissing, "another program"},
		{"not over TLS", config.Config{RTMPS: rtmp, Ops: serving}, stateMissing, "--rtmps"},
		{"datagrams free", config.Config{SRT: "127.0.0.1:0"}, stateOK, "free"},
		{"datagrams of weir", config.Config{SRT: taken, Ops: serving}, stateOK, weirServes},
		{"datagrams of another", config.Config{SRT: taken}, stateMissing, "--srt"},
		{"WebRTC over TCP", config.Config{WebRTC: other}, stateMissing, "--webrtc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Parts = []string{config.Live}
			all := examineEndpoints(t.Context(), &tt.cfg)
			if f := all[len(all)-1]; f.state != tt.want || !strings.Contains(f.detail, tt.detail) {
				t.Errorf("found %+v, want %s and %q", f, tt.want, tt.detail)
			}
		})
	}
}

func TestExamineEndpointsOfSettings(t *testing.T) {
	cfg := &config.Config{Parts: []string{config.Live}, RTMP: "127.0.0.1:0"}
	if f := examineEndpoints(t.Context(), cfg); len(f) != 1 || f[0].what != "rtmp 127.0.0.1:0" || f[0].state != stateOK {
		t.Errorf("found %+v, want the address of RTMP", f)
	}
	cfg.Parts = []string{config.API}
	if f := examineEndpoints(t.Context(), cfg); len(f) > 0 {
		t.Errorf("found %+v on a node that runs nothing live", f)
	}
}
