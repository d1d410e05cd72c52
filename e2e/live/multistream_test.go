package live

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// rtmpServer is a server of others that records what it gets.
type rtmpServer struct {
	otherServer
	folder string
}

// otherServer is a program of others that listens at an address.
type otherServer struct {
	t       *testing.T
	addr    string
	command []string
	cmd     *exec.Cmd
	said    *harness.LockedBuffer
}

// nginxServer is nginx with its RTMP module.
func nginxServer(t *testing.T) *rtmpServer {
	t.Helper()
	dir := t.TempDir()
	s := &rtmpServer{newOtherServer(t), filepath.Join(dir, "recorded")}
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(`load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;
user root;
daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr warn;
events {}
rtmp { server { listen %[2]s; application live { live on; record all; record_path %[3]s; record_unique on; } } }
`, dir, s.addr, s.folder)
	if err := errors.Join(os.Mkdir(s.folder, 0o755), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.command = []string{"/usr/sbin/nginx", "-p", dir, "-c", config}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// nodeServer is node-media-server, with TLS if it is given a certificate and its key.
func nodeServer(t *testing.T, files ...string) *rtmpServer {
	t.Helper()
	s := &rtmpServer{newOtherServer(t), t.TempDir()}
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.command = append([]string{"node", filepath.Join("..", "push", "server.mjs"), port, s.folder}, files...)
	s.start()
	t.Cleanup(s.stop)
	return s
}

func newOtherServer(t *testing.T) otherServer {
	t.Helper()
	return otherServer{t: t, addr: harness.FreeAddr(t), said: &harness.LockedBuffer{}}
}

func (s *otherServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.command[0], s.command[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	harness.Eventually(s.t, func() error {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			return fmt.Errorf("%s does not listen: %w\n%s", s.command[0], err, s.said)
		}
		return conn.Close()
	})
}

// stop ends the server without a goodbye.
func (s *otherServer) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// recordings returns the files of a key, oldest first.
func (s *rtmpServer) recordings(key string) (files []string) {
	s.t.Helper()
	err := filepath.WalkDir(s.folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, key) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	slices.Sort(files) // their names have the time in them
	return files
}

// waitRecorded waits until the server has so many files of a key, and more than a key
// frame in the last of them.
func (s *rtmpServer) waitRecorded(key string, count int) {
	s.t.Helper()
	harness.Eventually(s.t, func() error {
		files := s.recordings(key)
		if len(files) < count {
			return fmt.Errorf("%s has %d recordings of %s, want %d\n%s", s.command[0], len(files), key, count, s.said)
		}
		info, err := os.Stat(files[len(files)-1])
		if err == nil && info.Size() < 20_000 {
			err = fmt.Errorf("%s has %d bytes of %s", s.command[0], info.Size(), key)
		}
		return err
	})
}

// targetEvent is an event that tells of a multistream target.
type targetEvent struct {
	Event   string
	Stream  struct{ ID string }
	Payload struct {
		Target struct{ ID, Name, Profile string }
	}
}

// ofTarget returns the next event that tells of a target.
func ofTarget(l *harness.Listener, t *testing.T) (e targetEvent) {
	t.Helper()
	l.Next(t, "an event of a target", func(e harness.Event) bool { return strings.HasPrefix(e.Name, "multistream.") }).Read(t, &e)
	return e
}

// expect wants the next events of targets to be these, in any order: event and target.
func expect(l *harness.Listener, t *testing.T, s *liveStream, want ...string) {
	t.Helper()
	var got []string
	for range want {
		e := ofTarget(l, t)
		if e.Stream.ID != s.id || e.Payload.Target.Profile != "source" || e.Payload.Target.Name == "" {
			t.Errorf("event %+v, want one of stream %s, of a target with a name and the profile source", e, s.id)
		}
		got = append(got, e.Event+" "+e.Payload.Target.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// targetState is what the owner sees of a push.
type targetState struct {
	ID, Profile, Status, LastError string
	Bitrate                        float64
}

// target returns how the push to a target does.
func (s *liveStream) target(id string) (targetState, error) {
	s.w.T.Helper()
	var health struct{ Multistream []targetState }
	s.w.Must("GET", "/api/stream/"+s.id+"/health", nil, &health)
	for _, t := range health.Multistream {
		if t.ID == id {
			return t, nil
		}
	}
	return targetState{}, fmt.Errorf("target %s is not in %+v", id, health.Multistream)
}

// waitTarget waits until a push has a status, and returns it.
func (s *liveStream) waitTarget(id, status string) (state targetState) {
	s.w.T.Helper()
	harness.Eventually(s.w.T, func() (err error) {
		if state, err = s.target(id); err == nil && state.Status != status {
			err = fmt.Errorf("target is %+v, want %s", state, status)
		}
		return err
	})
	return state
}

// aim is what a target is to get, and where it is.
type aim struct{ profile, url string }

// newPushedStream makes a stream that is sent on to targets, and returns it with their
// ids. It has a rendition if one of them is to get it.
func newPushedStream(w *harness.Weir, rtmp string, aims ...aim) (*liveStream, []string) {
	w.T.Helper()
	refs, profiles := []any{}, []any{}
	for _, a := range aims {
		refs = append(refs, map[string]any{"profile": a.profile, "spec": map[string]any{"url": a.url}})
		if a.profile != "source" {
			profiles = append(profiles, map[string]any{"name": a.profile, "width": 228, "height": 128, "bitrate": 100_000, "fps": 0})
		}
	}
	var made struct {
		ID, StreamKey, PlaybackID string
		Multistream               struct{ Targets []struct{ ID string } }
	}
	w.Must("POST", "/api/stream", map[string]any{"name": "pushed", "profiles": profiles, "multistream": map[string]any{"targets": refs}}, &made)
	var ids []string
	for _, t := range made.Multistream.Targets {
		ids = append(ids, t.ID)
	}
	return &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}, ids
}

// show sends a picture with a number in each frame and a tone until it is stopped, and
// writes a copy of it.
func (s *liveStream) show(copied string) *encoder {
	s.w.T.Helper()
	return s.encode("-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-re", "-f", "lavfi", "-i", "sine=sample_rate=48000",
		"-map", "0:v", "-map", "1:a", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "25",
		"-c:a", "aac", "-flags", "+global_header", "-f", "tee", "[f=flv]"+s.ingest()+"|[f=flv]"+copied)
}

// liveMultistream sends a stream on to two servers of others. One is stopped and started
// again, which the other does not notice; a third is added and all are taken away while
// the stream is live.
func liveMultistream(t *testing.T) {
	nginx, node := nginxServer(t), nodeServer(t)
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	events := harness.Listen(t, w, "")
	s, ids := newPushedStream(w, rtmp, aim{"source", "rtmp://" + nginx.addr + "/live/hush-first"}, aim{"source", "rtmp://" + node.addr + "/live/hush-second?sign=hush"})
	sent := filepath.Join(t.TempDir(), "sent.flv")
	e := s.show(sent)
	nginx.waitRecorded("hush-first", 1)
	node.waitRecorded("hush-second", 1)
	expect(events, t, s, "multistream.connected "+ids[0], "multistream.connected "+ids[1])
	if state := s.waitTarget(ids[0], "connected"); state.Bitrate < 10_000 || state.LastError != "" || state.Profile != "source" {
		t.Errorf("a target that gets the stream is %+v", state)
	}

	nginx.stop()
	expect(events, t, s, "multistream.error "+ids[0])
	if state := s.waitTarget(ids[0], "error"); state.LastError == "" || state.Bitrate != 0 {
		t.Errorf("a target that is away is %+v", state)
	}
	nginx.start()
	nginx.waitRecorded("hush-first", 2)
	s.waitTarget(ids[0], "connected")

	began := time.Now()
	var added struct{ ID string }
	w.Must("POST", "/api/stream/"+s.id+"/create-multistream-target", map[string]any{
		"profile": "source", "videoOnly": true, "spec": map[string]any{"name": "late", "url": "rtmp://" + nginx.addr + "/live/hush-third"},
	}, &added)
	nginx.waitRecorded("hush-third", 1)
	t.Logf("a target that was added had 20 kB after %v", time.Since(began))
	w.Must("PATCH", "/api/multistream/target/"+ids[1], map[string]any{"disabled": true}, nil)
	expect(events, t, s, "multistream.disconnected "+ids[1])
	w.Must("DELETE", "/api/stream/"+s.id+"/multistream/"+added.ID, nil, nil)
	expect(events, t, s, "multistream.disconnected "+added.ID)
	w.Must("DELETE", "/api/multistream/target/"+ids[0], nil, nil)
	expect(events, t, s, "multistream.disconnected "+ids[0])
	if now := s.now(); !now.IsActive {
		t.Error("the stream went off air with its targets")
	}
	e.stop()

	// Each came in one piece, and what nginx did has left no mark on the other.
	for key, s := range map[string]struct {
		server *rtmpServer
		least  int
	}{"hush-second": {node, 200}, "hush-third": {nginx, 5}} {
		files := s.server.recordings(key)
		if len(files) != 1 {
			t.Fatalf("recordings of one connection: %q", files)
		}
		checkPushed(t, sent, files[0], s.least)
		if start := packets(harness.FFprobe(t, files[0], "-show_packets"), "video")[0].Time(); start < 0 || start > 0.2 {
			t.Errorf("what the target got starts at %.3f s, want 0", start)
		}
	}
	checkSilent(t, nginx.recordings("hush-third")[0])
	if said := w.Output.String(); strings.Contains(said, "hush") {
		t.Errorf("the log has the key of a target in it:\n%s", said)
	}
	w.Stop()
}

// checkPushed looks whether a target got a part of what was sent, of at least so many
// frames: every frame of it, as it was and when it was.
func checkPushed(t *testing.T, sent, got string, least int) {
	t.Helper()
	all := packets(harness.FFprobe(t, sent, "-show_packets", "-show_data_hash", "md5"), "video")
	came := packets(harness.FFprobe(t, got, "-show_packets", "-show_data_hash", "md5"), "video")
	first := slices.IndexFunc(all, func(p harness.Packet) bool { return len(came) > 0 && p.Hash == came[0].Hash })
	if first < 0 || len(came) < least || len(came) > len(all)-first {
		t.Errorf("the target got %d frames from frame %d of %d on", len(came), first, len(all))
		return
	}
	for i, p := range came {
		if p.Hash != all[first+i].Hash {
			t.Errorf("frame %d of the target is not frame %d of what was sent", i, first+i)
			return
		}
		at, want := p.Time()-came[0].Time(), all[first+i].Time()-all[first].Time()
		if at-want > 0.002 || at-want < -0.002 {
			t.Errorf("frame %d of the target is at %.3f s, want %.3f s", i, at, want)
			return
		}
	}
}

// checkSilent looks whether a file has audio, and nothing to hear.
func checkSilent(t *testing.T, file string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-i", file, "-map", "0:a", "-af", "volumedetect", "-f", "null", "-").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "max_volume: -91.0 dB") {
		t.Errorf("the sound of a target that shall have none: %v\n%s", err, out)
	}
}

// liveRelay sends a stream on over RTMPS, as it is and smaller, and to another weir over
// SRT.
func liveRelay(t *testing.T) {
	cert, key := certificate(t)
	node := nodeServer(t, cert, key)
	far := harness.NewWeir(t)
	srt := freeUDPAddr(t)
	far.Start("--srt", srt)
	other := newStream(far, "")

	w := harness.NewWeir(t)
	w.Env = []string{"SSL_CERT_FILE=" + cert}
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	s, ids := newPushedStream(w, rtmp, aim{"source", "rtmps://" + node.addr + "/live/hush-whole"}, aim{"small", "rtmps://" + node.addr + "/live/hush-less"},
		aim{"source", "srt://" + srt + "?streamid=" + other.key})
	sent := filepath.Join(t.TempDir(), "sent.flv")
	e := s.show(sent)
	for _, id := range ids {
		s.waitTarget(id, "connected")
	}
	node.waitRecorded("hush-whole", 1)
	node.waitRecorded("hush-less", 1)
	other.waitSegments(3)
	e.stop()
	checkPushed(t, sent, node.recordings("hush-whole")[0], 25)
	less := harness.FFprobe(t, node.recordings("hush-less")[0], "-show_packets", "-show_streams")
	var kinds []string
	for _, stream := range less.Streams {
		if stream.Type != "video" && stream.Type != "audio" {
			continue
		}
		kinds = append(kinds, fmt.Sprintf("%s %dx%d", stream.Codec, stream.Width, stream.Height))
	}
	slices.Sort(kinds)
	if n := len(packets(less, "video")); !slices.Equal(kinds, []string{"aac 0x0", "h264 228x128"}) || n < 25 {
		t.Errorf("the target of the rendition got %q, %d frames", kinds, n)
	}
	checkPushed(t, sent, other.download(t, "source", other.plainPlaylist("source").segments), 25)
	for _, key := range []string{"hush", other.key} {
		if strings.Contains(w.Output.String(), key) {
			t.Errorf("the log has the key of a target in it:\n%s", w.Output)
		}
	}
	w.Stop()
	far.Stop()
}

// certificate makes one for this machine.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return cert, key
}
