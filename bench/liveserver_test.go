//go:build bench

package bench

import (
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib"
	"github.com/bluenviron/gortmplib/pkg/codecs"

	"weir/internal/wait"
)

// The servers that are measured.
const (
	bareServerName = "bare"
	weirName       = "weir"
	weirRecName    = "weir rec"
	peerName       = "mediamtx"
	peerRecName    = "mediamtx rec"
)

// demuxAddr is set in the process that is the bare server.
const demuxAddr = "WEIR_BENCH_DEMUX"

// liveServer is a server that takes streams, in a process of its own.
type liveServer struct {
	*process
	streams []broadcast
	ops     string // where weir tells of itself
	dir     string
}

// end stops the server and empties the files that it has written. They are removed with the
// folder of the test: ext4 passes over each file that was removed in the last minutes when it
// makes one, and the next server would pay for this one.
func (s *liveServer) end(t *testing.T) {
	t.Helper()
	s.stop()
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		return os.Truncate(path, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a server with room for n streams.
func (b *liveBench) start(t *testing.T, name string, n int) *liveServer {
	t.Helper()
	dir, err := os.MkdirTemp(b.out, "server-")
	if err != nil {
		t.Fatal(err)
	}
	s := &liveServer{dir: dir}
	switch name {
	case bareServerName:
		s.startDemux(t, n)
	case weirName, weirRecName:
		s.startWeir(t, b.weir, n, name == weirRecName)
	default:
		s.startPeer(t, b.peer, n, name == peerRecName)
	}
	return s
}

func (s *liveServer) startWeir(t *testing.T, binary string, n int, record bool) {
	t.Helper()
	web, rtmp := freeAddr(t), freeAddr(t)
	s.ops = freeAddr(t)
	s.process = startProcess(t, filepath.Join(s.dir, "log"), binary, "serve", "--data", filepath.Join(s.dir, "data"), "--http", web, "--ops", s.ops,
		"--rtmp", rtmp, "--srt", "", "--webrtc", "", "--api-key", apiKey, "--rate-limit", "1000000")
	waitFor(t, "http://"+web+"/readyz")
	for i := range n {
		var stream struct{ StreamKey, PlaybackID string }
		post(t, http.MethodPost, "http://"+web+"/api/stream", map[string]any{"name": fmt.Sprintf("stream %d", i), "profiles": []any{}, "record": record}, &stream)
		s.streams = append(s.streams, broadcast{"rtmp://" + rtmp + "/live#" + stream.StreamKey, "http://" + web + "/hls/" + stream.PlaybackID + "/index.m3u8"})
	}
}

// startPeer starts MediaMTX with low-latency HLS for every stream, as it is by default but
// for that.
func (s *liveServer) startPeer(t *testing.T, binary string, n int, record bool) {
	t.Helper()
	web, rtmp := freeAddr(t), freeAddr(t)
	config := filepath.Join(s.dir, "mediamtx.yml")
	text := fmt.Sprintf(`logLevel: error
rtsp: no
webrtc: no
srt: no
rtmp: yes
rtmpAddress: %s
hls: yes
hlsAddress: %s
hlsAlwaysRemux: yes
hlsVariant: lowLatency
pathDefaults:
  record: %t
  recordPath: %s
paths:
  all_others:
`, rtmp, web, record, filepath.Join(s.dir, "%path", "%Y-%m-%d_%H-%M-%S-%f"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MTX_MOQ", "no") // versions that do not know it ignore it here
	s.process = startProcess(t, filepath.Join(s.dir, "log"), binary, config)
	waitForPort(t, rtmp)
	waitForPort(t, web)
	for i := range n {
		s.streams = append(s.streams, broadcast{fmt.Sprintf("rtmp://%s/live#s%d", rtmp, i), fmt.Sprintf("http://%s/live/s%d/index.m3u8", web, i)})
	}
}

// startDemux starts this program again as the bare server.
func (s *liveServer) startDemux(t *testing.T, n int) {
	t.Helper()
	addr := freeAddr(t)
	t.Setenv(demuxAddr, addr)
	s.process = startProcess(t, filepath.Join(s.dir, "log"), os.Args[0], "-test.run", "^TestLive$")
	os.Unsetenv(demuxAddr)
	waitForPort(t, addr)
	for i := range n {
		s.streams = append(s.streams, broadcast{rtmp: fmt.Sprintf("rtmp://%s/live#s%d", addr, i)})
	}
}

// serveDemux is the bare server: it makes access units of what it is sent, with the library
// that others use, and drops them.
func serveDemux(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		panic(err)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer conn.Close()
			if err := demux(conn); err != nil {
				fmt.Println(err)
			}
		}()
	}
}

func demux(conn net.Conn) error {
	const idle = 10 * time.Second
	if err := conn.SetReadDeadline(time.Now().Add(idle)); err != nil {
		return err
	}
	server := &gortmplib.ServerConn{RW: conn}
	if err := server.Initialize(); err != nil {
		return err
	}
	if err := server.Accept(); err != nil {
		return err
	}
	r := &gortmplib.Reader{Conn: server}
	if err := r.Initialize(); err != nil {
		return err
	}
	for _, track := range r.Tracks() {
		switch track.Codec.(type) {
		case *codecs.H264:
			r.OnDataH264(track, func(time.Duration, time.Duration, [][]byte) {})
		case *codecs.MPEG4Audio:
			r.OnDataMPEG4Audio(track, func(time.Duration, []byte) {})
		}
	}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		if err := r.Read(); err != nil {
			return err
		}
	}
}

func waitForPort(t *testing.T, addr string) {
	t.Helper()
	wait.NoError(t, func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
