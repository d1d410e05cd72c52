package live

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/e2e/harness"
)

// liveSRT sends over SRT, encrypted. What viewers get must be what was sent, up to the
// last frame, and those who must not publish are refused at the handshake.
func liveSRT(t *testing.T) {
	w := harness.NewWeir(t)
	secret := filepath.Join(t.TempDir(), "passphrase")
	const passphrase = "the-quick-brown-fox"
	if err := os.WriteFile(secret, []byte(passphrase+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Env = append(w.Env, "WEIR_SRT_PASSPHRASE_FILE="+secret)
	srt := freeUDPAddr(t)
	w.Start("--srt", srt, "--session-timeout", "3s")
	events := harness.Listen(t, w, "")
	address := func(key string) string {
		return "srt://" + srt + "?linger=2&passphrase=" + passphrase + "&streamid=" + key
	}

	s := newStream(w, "")
	sent := filepath.Join(t.TempDir(), "sent.ts")
	began := time.Now()
	e := s.encode("-re", "-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=6", "-re", "-f", "lavfi", "-i", "sine=sample_rate=48000:duration=6",
		"-map", "0:v", "-map", "1:a", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "50",
		"-c:a", "aac", "-f", "tee", "[f=mpegts]"+address("publish:"+s.key)+"|[f=mpegts]"+sent)
	started := ofStream(events, t)
	if started.Event != "stream.started" || started.Stream.ID != s.id || started.Payload.Session.ID == "" {
		t.Errorf("the first event is %+v, want stream.started of stream %s with a session", started, s.id)
	}
	s.waitSegments(1)
	seen := time.Now()
	s.checkMaster()
	shown := ffmpegReads(t, s.url("index.m3u8")) // returns at the end of the stream
	if err := e.wait(); err != nil {
		t.Errorf("the encoder ended with %v", err)
	}
	source := harness.FFprobe(t, sent, "-show_packets")
	recorded := map[string]string{}
	for kind, name := range map[string]string{"video": "source", "audio": "audio"} {
		list := s.plainPlaylist(name)
		checkWalls(t, name, list, began, seen)
		recorded[kind] = s.download(t, name, list.segments)
		count := len(packets(source, kind))
		if got := len(packets(harness.FFprobe(t, recorded[kind], "-show_packets"), kind)); got != count || shown[kind] != count {
			t.Errorf("%s has %d frames, ffmpeg read %d, and %d were sent", name, got, shown[kind], count)
		}
	}
	if diff := cmp.Diff(harness.FrameSums(t, sent), harness.FrameSums(t, recorded["video"])); diff != "" {
		t.Errorf("the pictures are not those that were sent (-sent +recorded):\n%s", diff)
	}
	checkStep(t, source, recorded)
	if idle := ofStream(events, t); idle.Event != "stream.idle" || idle.Payload.Session.ID != started.Payload.Session.ID {
		t.Errorf("the second event is %+v, want stream.idle with session %s", idle, started.Payload.Session.ID)
	}

	srtRefused(t, w, srt, address)
	srtTransmitted(t, newStream(w, ""), address)
	srtSuspended(t, newStream(w, ""), address)
	if text := w.Output.String(); strings.Contains(text, passphrase) || strings.Contains(text, s.key) {
		t.Error("the log has the passphrase or a stream key")
	}
	w.Stop()
}

// srtRefused sends to streams that do not take anything.
func srtRefused(t *testing.T, w *harness.Weir, srt string, address func(key string) string) {
	t.Helper()
	open, suspended, deleted := newStream(w, ""), newStream(w, ""), newStream(w, "")
	w.Must("PATCH", "/api/stream/"+suspended.id, map[string]any{"suspended": true}, nil)
	w.Must("DELETE", "/api/stream/"+deleted.id, nil, nil)
	for name, tt := range map[string]struct {
		s       *liveStream
		address string
	}{
		"unknown":          {open, address("0000-0000-0000-0000")},
		"suspended":        {suspended, address(suspended.key)},
		"deleted":          {deleted, address(deleted.key)},
		"to watch":         {open, address("#!::r=" + open.key + ",m=request")},
		"not encrypted":    {open, "srt://" + srt + "?streamid=" + open.key},
		"other passphrase": {open, "srt://" + srt + "?passphrase=0123456789&streamid=" + open.key},
	} {
		e := tt.s.encode("-re", "-i", liveClip(t), "-c", "copy", "-f", "mpegts", tt.address)
		if err := e.wait(); err == nil || e.frames.Load() > 0 {
			t.Errorf("%s: the encoder ended with %v after %d frames, want that it was refused", name, err, e.frames.Load())
		}
		if status, _ := tt.s.get("index.m3u8"); status < 400 {
			t.Errorf("%s: there is something to watch: %d", name, status)
		}
	}
}

// srtTransmitted sends with srt-live-transmit, which is what encoders in hardware are
// like: it repeats a transport stream that somebody else has made.
func srtTransmitted(t *testing.T, s *liveStream, address func(key string) string) {
	t.Helper()
	said := transmit(t, address("#!::r="+s.key+",m=publish"))
	s.waitSegments(1)
	if status, text := s.get("index.m3u8"); status != http.StatusOK || !strings.Contains(string(text), "avc1.") {
		t.Errorf("master playlist: %d %s\n%s", status, text, said.String())
	}
}

// transmit sends a film with srt-live-transmit until the test ends, and returns what it says.
func transmit(t *testing.T, address string) *harness.LockedBuffer {
	t.Helper()
	encoder := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i", liveClip(t), "-c", "copy", "-f", "mpegts", "-")
	sender := exec.CommandContext(t.Context(), "srt-live-transmit", "-q", "-chunk:1316", "-autoreconnect:no", "file://con", address)
	var err error
	if sender.Stdin, err = encoder.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	said := &harness.LockedBuffer{}
	sender.Stderr = said
	for _, cmd := range []*exec.Cmd{encoder, sender} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return said
}

// srtSuspended sends with an encoder that waits for weir longer than weir waits for encoders. weir
// stands still meanwhile, and keeps the connection: the encoder would not connect again.
func srtSuspended(t *testing.T, s *liveStream, address func(key string) string) {
	t.Helper()
	said := transmit(t, address(s.key)+"&peeridletimeo=60000")
	s.waitSegments(2)
	session := s.session().ID
	harness.Suspend(t, s.w.Cmd.Process.Pid)
	time.Sleep(7 * time.Second)
	harness.Resume(t, s.w.Cmd.Process.Pid)
	before := len(s.plainPlaylist("source").segments)
	s.waitSegments(before + 2)
	if now := s.session(); now.ID != session {
		t.Errorf("session %s is followed by %+v; the encoder said %q", session, now, said.String())
	}
}

// freeUDPAddr returns an address that nobody listens on.
func freeUDPAddr(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().String()
}
