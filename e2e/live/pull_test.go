package live

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
)

// livePull lets weir fetch a live playlist that ffmpeg writes: it is watched, goes on
// after a kill and after a failure of the source, is pulled from itself once more, and ends
// when its owner wants it to.
func livePull(t *testing.T) {
	server := liveSource(t)
	w := harness.NewWeir(t)
	args := []string{"--session-timeout", "10m"}
	w.Start(args...)
	s := pulledStream(w, server.url+"/live.m3u8")
	s.waitAudio()
	if shown := framesShown(t, s.url("index.m3u8"), 3); shown["video"] < 60 || shown["audio"] < 100 {
		t.Errorf("three seconds of what is pulled have %v frames", shown)
	}

	// What is shown can be pulled like anything else: with audio in a playlist of its own.
	second := pulledStream(w, s.url("index.m3u8"))
	second.waitAudio()
	if shown := framesShown(t, second.url("index.m3u8"), 2); shown["video"] < 40 || shown["audio"] < 70 {
		t.Errorf("two seconds of what is pulled from weir have %v frames", shown)
	}
	w.Must("DELETE", "/api/stream/"+second.id, nil, nil)

	before := s.session()
	w.Kill()
	w.Start(args...)
	harness.Eventually(t, func() error {
		if now := s.session(); !s.now().IsActive || now.SourceSegments < before.SourceSegments+2 {
			return fmt.Errorf("after a kill: %+v, before it was %+v", now, before)
		}
		return nil
	})

	// The source fails for a while, and the owner is told.
	server.broken.Store(true)
	harness.Eventually(t, func() error {
		if text := s.issues(); !strings.Contains(text, "127.0.0.1 answers with status 503") {
			return fmt.Errorf("the source is broken, and the issues are %q", text)
		}
		return nil
	})
	server.broken.Store(false)
	harness.Eventually(t, func() error {
		if text := s.issues(); text != "" || !s.now().IsActive {
			return fmt.Errorf("the source is back, and the issues are %q", text)
		}
		return nil
	})
	if after := s.session(); after.ID != before.ID {
		t.Errorf("another session: %s, was %s", after.ID, before.ID)
	}

	w.Must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)
	harness.Eventually(t, func() error {
		if s.now().IsActive {
			return fmt.Errorf("it goes on after its end")
		}
		return nil
	})
	asked := server.asked.Load()
	server.broken.Store(true)
	if status, text := w.Do("POST", "/api/stream/"+s.id+"/start-pull", nil); status != http.StatusUnprocessableEntity || !strings.Contains(string(text), "status 503") {
		t.Errorf("start-pull of a broken source: %d %s", status, text)
	}
	if now := server.asked.Load(); now != asked+1 {
		t.Errorf("the source was asked %d times by one try", now-asked)
	}
	w.Stop()
}

// livePullNodes kills the node that pulls: another one goes on with the session.
func livePullNodes(t *testing.T) {
	server := liveSource(t)
	a, b := harness.TwoNodes(t)
	s := pulledStream(a, server.url+"/live.m3u8")
	before := s.session()
	b.Start()
	a.Kill()
	killed := time.Now()
	s.w = b
	harness.Eventually(t, func() error {
		if now := s.session(); !s.now().IsActive || now.ID != before.ID || now.LastSeen <= killed.UnixMilli() {
			return fmt.Errorf("nothing came since the kill at %d: %+v, before it was %+v", killed.UnixMilli(), now, before)
		}
		return nil
	})
	t.Logf("media came from the other node %.1f s after the kill", time.Since(killed).Seconds())
	b.Must("DELETE", "/api/stream/"+s.id, nil, nil)
	b.Stop()
}

// pullServer is where a live playlist is.
type pullServer struct {
	url    string
	broken atomic.Bool
	asked  atomic.Int64 // for the playlist
}

// liveSource has ffmpeg write a live playlist until the test ends. The playlist is long: on a busy
// machine ffmpeg may stand still for seconds, and then weir is as late as that.
func liveSource(t *testing.T) *pullServer {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source.mp4")
	harness.FFmpeg(t, slices.Concat(strings.Fields("-f lavfi -i testsrc2=size=160x90:rate=25:duration=10 -f lavfi -i sine=sample_rate=48000:duration=10"),
		strings.Fields("-c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 25 -c:a aac"), []string{source})...)
	cmd := exec.Command("ffmpeg", "-v", "error", "-nostdin", "-re", "-stream_loop", "-1", "-i", source, "-c", "copy",
		"-f", "hls", "-hls_time", "1", "-hls_list_size", "30", "-hls_flags", "delete_segments+temp_file", filepath.Join(dir, "live.m3u8"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &pullServer{}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live.m3u8" {
			s.asked.Add(1)
			w.Header().Set("Cache-Control", "no-store")
		}
		if s.broken.Load() {
			http.Error(w, "broken", http.StatusServiceUnavailable)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	harness.Eventually(t, func() error {
		response, err := http.Get(s.url + "/live.m3u8")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the source has no playlist yet: %d", response.StatusCode)
		}
		return nil
	})
	return s
}

// pulledStream makes a stream that weir fetches.
func pulledStream(w *harness.Weir, source string) *liveStream {
	w.T.Helper()
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("PUT", "/api/stream/pull", map[string]any{"name": "pulled", "profiles": []any{}, "pull": map[string]any{"source": source}}, &made)
	return &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, ""}
}

// issues returns what the API says is wrong.
func (s *liveStream) issues() string {
	s.w.T.Helper()
	var state struct{ Issues []string }
	s.w.Must("GET", "/api/stream/"+s.id, nil, &state)
	return strings.Join(state.Issues, "; ")
}

// waitAudio waits until video and audio have a whole segment each: ffmpeg 5.1 crashes
// when only one of them has.
func (s *liveStream) waitAudio() {
	s.w.T.Helper()
	s.waitSegments(1)
	harness.Eventually(s.w.T, func() error {
		if list := s.plainPlaylist("audio"); len(list.segments) == 0 {
			return fmt.Errorf("there is no segment of sound: %+v", list)
		}
		return nil
	})
}

// framesShown lets ffmpeg play so many seconds of a playlist, and returns how many frames
// of each kind there were.
func framesShown(t *testing.T, url string, seconds int) map[string]int {
	t.Helper()
	out := filepath.Join(t.TempDir(), "shown.mkv")
	harness.FFmpeg(t, "-i", url, "-t", fmt.Sprint(seconds), "-c", "copy", out)
	found := harness.FFprobe(t, out, "-show_packets")
	return map[string]int{"video": len(packets(found, "video")), "audio": len(packets(found, "audio"))}
}
