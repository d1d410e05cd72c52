package ingest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/guard"
	"weir/internal/wait"
	"weir/internal/weir"
)

// testPull is a pull that keeps its results.
type testPull struct {
	where weir.Pull

	mu       sync.Mutex
	position int64
	done     chan struct{}
	plays    bool
	ended    string // how
}

func newTestPull(source string) *testPull {
	return &testPull{where: weir.Pull{Source: source}, done: make(chan struct{})}
}

func (w *testPull) StreamID() string      { return "stream-1" }
func (w *testPull) Where() weir.Pull      { return w.where }
func (w *testPull) Done() <-chan struct{} { return w.done }
func (w *testPull) Playable() bool        { return true }

func (w *testPull) Position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.position
}

func (w *testPull) SetPosition(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.position = n
}

func (w *testPull) Plays(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plays = true
	return nil
}

func (w *testPull) end(how string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended += how
	return nil
}

func (w *testPull) Finish(context.Context) error           { return w.end("finished") }
func (w *testPull) Release(context.Context) error          { return w.end("released") }
func (w *testPull) Fail(_ context.Context, s string) error { return w.end(s) }

// loopback may be pulled from by these tests.
func loopback() *guard.Guard { return guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}) }

// pullAll pulls a source to its end and returns the result.
func pullAll(ctx context.Context, t *testing.T, w *testPull) (*testPublisher, *logBook) {
	t.Helper()
	hub, log := newTestHub(), &logBook{}
	to := &testPublisher{hub: hub, done: make(chan struct{})}
	hub.publishers = append(hub.publishers, to)
	g := loopback()
	t.Cleanup(func() { g.Client(0).CloseIdleConnections() })
	Puller{Guard: g, Log: log.logger()}.run(ctx, w, to)
	t.Cleanup(func() {
		if strings.Contains(log.String(), "panic") {
			t.Errorf("the log has a panic:\n%s", log)
		}
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return to, log
}

// pulledForms are the forms that a file may have, by what ffmpeg must be told to make them of a
// clip.
var pulledForms = []struct{ name, file, args string }{
	{"mp4", "x.mp4", "-movflags +faststart"},
	{"mp4 with its table at the end", "x.mp4", ""},
	{"fragmented mp4", "x.mp4", "-movflags frag_keyframe+delay_moov+default_base_moof"},
	{"flv", "x.flv", ""},
	{"ts", "x.ts", ""},
	{"hls of ts", "x.m3u8", "-f hls -hls_time 1 -hls_list_size 0"},
	{"hls of one file", "x.m3u8", "-f hls -hls_time 1 -hls_list_size 0 -hls_flags single_file"},
	{"hls of mp4", "x.m3u8", "-f hls -hls_time 1 -hls_list_size 0 -hls_segment_type fmp4"},
	{"hls, encrypted", "x.m3u8", "-f hls -hls_time 1 -hls_list_size 0 -hls_enc 1 -hls_enc_key 0123456789abcdef0123456789abcdef"},
	{"hls with separate audio", "master.m3u8", "-f hls -hls_time 1 -hls_list_size 0 -hls_segment_type fmp4 -master_pl_name master.m3u8 -var_stream_map v:0,agroup:a|a:0,agroup:a"},
}

// convert makes a file of a clip in one of the forms.
func convert(t *testing.T, clip, file, form string, coding ...string) {
	t.Helper()
	args := slices.Concat(strings.Fields("-v error -nostdin -y -i"), []string{clip}, strings.Fields("-map 0:v -map 0:a"), coding)
	for arg := range strings.FieldsSeq(form) {
		args = append(args, strings.ReplaceAll(arg, "|", " "))
	}
	if filepath.Base(file) == "master.m3u8" {
		file = filepath.Join(filepath.Dir(file), "x%v.m3u8")
	}
	run(t, "ffmpeg", append(args, file)...)
}

// TestPullFiles pulls a clip in all forms. All its frames must arrive.
func TestPullFiles(t *testing.T) {
	original := clip(t, "flv")
	want := map[cmaf.Kind][]sent{cmaf.Video: packetsOf(t, original, cmaf.Video), cmaf.Audio: packetsOf(t, original, cmaf.Audio)}
	for _, s := range pulledForms {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			convert(t, original, filepath.Join(dir, s.file), s.args, "-c", "copy")
			// The playlist of ffmpeg names the key with its whole path.
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.ServeFile(w, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
			}))
			t.Cleanup(server.Close)
			w := newTestPull(server.URL + "/" + s.file)
			began := time.Now()
			p, _ := pullAll(t.Context(), t, w)
			if w.ended != "finished" || !w.plays {
				t.Errorf("the pull ended with %q, plays %v", w.ended, w.plays)
			}
			if took := time.Since(began); took < time.Second {
				t.Errorf("two seconds were handed on in %v", took)
			}
			for kind, all := range want {
				checkPulled(t, kind, all, framesOf(p, kind))
			}
			if len(p.tracks) != 1 {
				t.Errorf("%d sets of tracks", len(p.tracks))
			}
		})
	}
}

// checkPulled looks whether frames are those of a clip, as far apart as they were there.
func checkPulled(t *testing.T, kind cmaf.Kind, want, got []sent) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d frames of %s, want %d", len(got), kind, len(want))
	}
	type frame struct {
		Sync   bool
		Digest string
	}
	shape := func(all []sent) (frames []frame) {
		for _, f := range all {
			frames = append(frames, frame{f.Sync, f.Digest})
		}
		return frames
	}
	if diff := cmp.Diff(shape(want), shape(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", kind, diff)
	}
	for i := range want {
		wantAt, gotAt := want[i].PTS-want[0].PTS, got[i].PTS-got[0].PTS
		if off := (wantAt - gotAt).Abs(); off > 3*time.Millisecond {
			t.Fatalf("frame %d of %s is shown at %v, want %v", i, kind, gotAt, wantAt)
		}
	}
}

// TestPullWithoutAudio pulls a clip whose audio can't be taken. Its video is used, and the owner
// gets a note.
func TestPullWithoutAudio(t *testing.T) {
	original := clip(t, "flv")
	video := packetsOf(t, original, cmaf.Video)
	for _, s := range pulledForms {
		if !strings.Contains(s.name, "mp4") && s.file != "master.m3u8" {
			continue // the feed knows it, as of encoders
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			server := httptest.NewServer(http.FileServer(http.Dir(dir)))
			t.Cleanup(server.Close)
			convert(t, original, filepath.Join(dir, s.file), s.args, "-c:v", "copy", "-c:a", "ac3")
			w := newTestPull(server.URL + "/" + s.file)
			p, _ := pullAll(t.Context(), t, w)
			if w.ended != "finished" || !strings.HasPrefix(p.left, "the audio is left out: ") || !strings.Contains(p.left, "AAC") {
				t.Errorf("the pull ended with %q, and the note is %q", w.ended, p.left)
			}
			checkPulled(t, cmaf.Video, video, framesOf(p, cmaf.Video))
			if n := len(framesOf(p, cmaf.Audio)); n > 0 {
				t.Errorf("%d audio frames arrived", n)
			}
		})
	}
}

// TestPullRefused pulls from invalid sources. The owner gets the reason, without secrets of the URL.
func TestPullRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/text":
			fmt.Fprint(w, "<html>hello, this is no video</html>")
		case "/away":
			http.Redirect(w, r, "http://10.1.2.3/x.m3u8", http.StatusFound)
		case "/file.m3u8":
			fmt.Fprint(w, "#EXTM3U\n#EXTINF:2,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n")
		case "/inside.m3u8":
			fmt.Fprint(w, "#EXTM3U\n#EXTINF:2,\nhttp://10.1.2.3/x.ts\n#EXT-X-ENDLIST\n")
		case "/short.mp4":
			fmt.Fprint(w, "\x00\x00\x00\x10ftypisom\x00\x00\x00\x00\x00\x00\x10\x00moov")
		case "/endless":
			fmt.Fprint(w, "#EXTM3U\n")
			for range maxPlaylist >> 10 {
				fmt.Fprint(w, strings.Repeat("#", 1023)+"\n")
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	for _, test := range []struct{ source, want string }{
		{server.URL + "/none", "127.0.0.1 answers with status 404"},
		{server.URL + "/text", "neither HLS nor MP4, FLV or MPEG-TS"},
		{server.URL + "/away", "10.1.2.3 is a private address"},
		{server.URL + "/file.m3u8", "invalid address"},
		{server.URL + "/inside.m3u8", "10.1.2.3 is a private address"},
		{server.URL + "/short.mp4", "ends in the middle"},
		{server.URL + "/endless", "more than 8 MiB"},
		{"http://192.168.0.1/x.m3u8", "--allow-networks"},
		{"rtmp://10.0.0.1/live/hidden", "--allow-networks"},
		{"srt://10.0.0.1:9000?streamid=hidden", "--allow-networks"},
		{"rtmp://127.0.0.1/hidden", "rtmp://<host>/<application>/<stream>"},
		{"srt://127.0.0.1?streamid=hidden", "srt://<host>:<port>"},
		{"srt://127.0.0.1:9?mode=listener", "mode=caller"},
		{"ftp://127.0.0.1/x", "must begin with"},
		{"http://hidden:hidden@127.0.0.1:1/x?token=hidden", "can't be reached"},
	} {
		w := newTestPull(test.source)
		p, log := pullAll(t.Context(), t, w)
		if !strings.Contains(w.ended, test.want) || len(p.frames) > 0 {
			t.Errorf("%s: %q, want %q", test.source, w.ended, test.want)
		}
		if strings.Contains(w.ended+log.String(), "hidden") || strings.Contains(log.String(), server.URL) {
			t.Errorf("%s: a secret is shown: %q\n%s", test.source, w.ended, log)
		}
	}
}

// TestPullHeaders looks to whom the headers of the owner go.
func TestPullHeaders(t *testing.T) {
	seen := make(chan string, 2)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- "other " + r.Header.Get("X-Auth") }))
	defer other.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- "home " + r.Header.Get("X-Auth")
		http.Redirect(w, r, other.URL, http.StatusFound)
	}))
	defer home.Close()
	w := newTestPull(home.URL)
	w.where.Headers = map[string]string{"x-auth": "secret", "Host": "elsewhere"}
	pullAll(t.Context(), t, w)
	if got := []string{<-seen, <-seen}; got[0] != "home secret" || got[1] != "other " {
		t.Errorf("requests %q, want the header at home only", got)
	}
}

// TestPullResumes pulls from where a pull was left.
func TestPullResumes(t *testing.T) {
	original := clip(t, "flv")
	for _, format := range []string{"x.mp4", "x.flv", "x.ts"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), format)
			run(t, "ffmpeg", "-v", "error", "-i", original, "-c", "copy", file)
			server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(file))))
			t.Cleanup(server.Close)
			w := newTestPull(server.URL + "/" + format)
			w.position = 900
			p, _ := pullAll(t.Context(), t, w)
			if n := len(p.of(cmaf.Video)); n < 25 || n > 30 || w.ended != "finished" || w.position < 1800 {
				t.Errorf("%d frames after 0.9 of 2 s at 25/s; ended %q at %d", n, w.ended, w.position)
			}
		})
	}
}

// TestPullEnds: the pull of an endless source ends when it is withdrawn, and when the node stops.
func TestPullEnds(t *testing.T) {
	data, err := os.ReadFile(clip(t, "flv"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(data)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	for _, how := range []string{"unwanted", "stopping", "ended by the hub"} {
		ctx, cancel := context.WithCancel(t.Context())
		w := newTestPull(server.URL)
		hub, log := newTestHub(), &logBook{}
		to := &testPublisher{hub: hub, done: make(chan struct{})}
		hub.publishers = append(hub.publishers, to)
		var pulling sync.WaitGroup
		g := loopback()
		pulling.Go(func() { Puller{Guard: g, Log: log.logger()}.run(ctx, w, to) })
		hub.wait(t, "the first frames", func() bool { return hub.count() > 10 })
		want := "released"
		switch how {
		case "unwanted":
			want = "finished"
			close(w.done)
		case "stopping":
			cancel()
		case "ended by the hub":
			close(to.done)
			want = "the pull source failed: the stream was ended by its owner"
		}
		pulling.Wait()
		cancel()
		g.Client(0).CloseIdleConnections()
		if w.ended != want {
			t.Errorf("%s: the pull ended with %q, want %q\n%s", how, w.ended, want, log)
		}
	}
}

// TestPullServers pulls from ffmpeg as a server of RTMP and SRT.
func TestPullServers(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, test := range []struct{ name, url, form, options string }{
		{"rtmp", "rtmp://127.0.0.1:%d/live/key?token=hidden", "flv", "-listen 1"},
		{"srt", "srt://127.0.0.1:%d?streamid=hidden&latency=200", "mpegts", "-mode listener"},
		{"srt with a passphrase", "srt://127.0.0.1:%d?passphrase=hiddenhidden", "mpegts", "-mode listener -passphrase hiddenhidden"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			original := clip(t, "flv")
			port := freePort(t, test.form == "mpegts")
			address := fmt.Sprintf(test.url, port)
			base, _, _ := strings.Cut(address, "?")
			args := slices.Concat(strings.Fields("-v error -nostdin -re -i"), []string{original}, strings.Fields("-c copy -f "+test.form+" "+test.options), []string{base})
			cmd := exec.CommandContext(t.Context(), "ffmpeg", args...)
			var said bytes.Buffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var w *testPull
			var p *testPublisher
			var log *logBook
			waitListens(t, port, test.form == "mpegts")
			for range 10 { // it has the port, and listens a moment later
				w = newTestPull(address)
				if p, log = pullAll(t.Context(), t, w); len(p.frames) > 0 {
					break
				}
			}
			err := cmd.Wait()
			// Packets that wait for delivery are lost when the sender ends.
			if len(p.of(cmaf.Video)) < 40 || len(p.of(cmaf.Audio)) < 70 || len(p.tracks) != 1 {
				t.Errorf("%d video and %d audio frames of 50 and 95; %d sets of tracks; %v\n%s",
					len(p.of(cmaf.Video)), len(p.of(cmaf.Audio)), len(p.tracks), err, said.String())
			}
			if !strings.Contains(w.ended, "ended") || strings.Contains(w.ended+log.String(), "hidden") {
				t.Errorf("it ended with %q\n%s", w.ended, log)
			}
		})
	}
}

// freePort returns a free port.
func freePort(t *testing.T, udp bool) int {
	t.Helper()
	used, port := take(0, udp)
	if used {
		t.Fatal("no port is free")
	}
	return port
}

// waitListens waits until a port is in use.
func waitListens(t *testing.T, port int, udp bool) {
	t.Helper()
	wait.Until(t, fmt.Sprintf("somebody listens at port %d", port), func() bool {
		used, _ := take(port, udp)
		return used
	})
}

// take takes a port for a moment, unless it is used; 0 = any.
func take(port int, udp bool) (used bool, taken int) {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	if udp {
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			return true, 0
		}
		defer conn.Close()
		return false, conn.LocalAddr().(*net.UDPAddr).Port
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return true, 0
	}
	defer l.Close()
	return false, l.Addr().(*net.TCPAddr).Port
}

// TestPullLive pulls a live playlist, which starts again and then ends.
func TestPullLive(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	dir := t.TempDir()
	run(t, "ffmpeg", slices.Concat(strings.Fields("-v error -nostdin -i"), []string{clip(t, "flv")},
		strings.Fields("-c copy -f hls -hls_time 1 -hls_list_size 0"), []string{filepath.Join(dir, "x.m3u8")})...)
	// The two segments repeat, with a discontinuity before each pair. Every second request finds a
	// new one.
	began := time.Now()
	var asked, before atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/live.m3u8" {
			http.ServeFile(w, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
			return
		}
		last := 4 + int(asked.Add(1)-1)/2
		now := time.Since(began)
		if pause := now - time.Duration(before.Swap(int64(now))); last > 4 && pause < minReload {
			t.Errorf("the playlist was asked for after %v again", pause)
		}
		first := max(0, last-5)
		fmt.Fprintf(w, "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:%d\n#EXT-X-DISCONTINUITY-SEQUENCE:%d\n", first, (first+1)/2)
		for n := first; n <= min(last, 8); n++ {
			if n%2 == 0 && n > 0 {
				fmt.Fprint(w, "#EXT-X-DISCONTINUITY\n")
			}
			fmt.Fprintf(w, "#EXTINF:1,\nx%d.ts\n", n%2)
		}
		if last >= 8 {
			fmt.Fprint(w, "#EXT-X-ENDLIST\n")
		}
	}))
	defer server.Close()
	w := newTestPull(server.URL + "/live.m3u8")
	p, _ := pullAll(t.Context(), t, w)
	if !strings.Contains(w.ended, "the stream at 127.0.0.1 has ended") || w.position != 9 {
		t.Errorf("the pull ended with %q at %d, want the end of the stream at 9", w.ended, w.position)
	}
	// From the third segment before the end of the first playlist on: 2 to 8.
	frames := p.of(cmaf.Video)
	if len(frames) != 7*25 || len(p.tracks) != 1 {
		t.Errorf("%d frames, want those of 7 s; %d sets of tracks", len(frames), len(p.tracks))
	}
	for i := 1; i < len(frames); i++ {
		if step := frames[i].DTS - frames[i-1].DTS; step <= 0 || step > 250*time.Millisecond {
			t.Errorf("frame %d comes %v after the one before it", i, step)
		}
	}
}
