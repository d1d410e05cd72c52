package live

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
)

// liveLadder sends a stream that has renditions. Their segments must be those of the
// source, number by number, a strict viewer and ffmpeg must be able to watch them, and
// hls.js must be able to change between them.
func liveLadder(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--session-timeout", "3s")
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{"name": "ladder", "profiles": []any{
		map[string]any{"name": "144p", "width": 256, "height": 144, "bitrate": 200_000, "fps": 0},
		map[string]any{"name": "slow one", "width": 228, "height": 128, "bitrate": 100_000, "fps": 8, "profile": "H264Baseline"},
		map[string]any{"name": "720p", "width": 1280, "height": 720, "bitrate": 3_000_000, "fps": 0},
	}}, &made)
	s := &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}
	base := new(atomic.Pointer[string])
	base.Store(&w.URL)
	clip := harness.MakeClip(t, "ladder.mp4", append(harness.Pictures("320x180", 15, 120),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "30", "-b:v", "400k", "-c:a", "aac", "-b:a", "64k")...)
	e := s.send(clip)
	s.waitLive()
	s.checkLadder()
	strict := s.watch(base, "144p", 3)

	b := harness.NewBrowser(t, t.TempDir())
	watch(b, s.url("index.m3u8"))
	plays(b, e, watched{}, 1)
	for _, height := range []int{144, 128, 180} {
		changes(b, e, height)
	}
	e.stop()
	<-strict.done
	source := s.plainPlaylist("source")
	for _, name := range []string{"144p", "slow%20one"} {
		list := s.plainPlaylist(name)
		last := source.segments[len(source.segments)-1].number // ends where the encoder was stopped, perhaps before a B-frame
		// Dates are of decode times, and the renditions have no B-frames to be decoded early.
		later := list.segments[0].wall.Sub(source.segments[0].wall)
		same := slices.EqualFunc(source.segments, list.segments, func(a, b liveSegment) bool {
			return a.number == b.number && a.wall.Add(later).Equal(b.wall) && a.discontinuity == b.discontinuity && (a.seconds == b.seconds || a.number == last)
		})
		if !same || !list.ended || later < 0 || later > 3*time.Second/15 {
			t.Errorf("the segments of %s are %+v, those of the source %+v", name, list, source)
		}
	}
	if shown, sent := s.shown("144p"), s.shown("source"); shown != sent || sent == 0 {
		t.Errorf("ffmpeg shows %d frames of a rendition, and %d of the source", shown, sent)
	}
	w.Stop()
}

// shown returns how many frames ffmpeg shows of a rendition of a stream that has ended.
func (s *liveStream) shown(name string) int {
	s.w.T.Helper()
	file := filepath.Join(s.w.T.TempDir(), "frames")
	harness.FFmpeg(s.w.T, "-copyts", "-live_start_index", "0", "-i", s.url(name+"/index.m3u8"), "-map", "0:v", "-fps_mode", "passthrough", "-f", "framemd5", file)
	text, err := os.ReadFile(file)
	if err != nil {
		s.w.T.Fatal(err)
	}
	return len(harness.Sums(text))
}

// checkLadder waits until the master playlist has the source and the renditions that are
// not larger.
func (s *liveStream) checkLadder() {
	s.w.T.Helper()
	t := s.w.T
	var text []byte
	harness.Eventually(t, func() error {
		var status int
		status, text = s.get("index.m3u8")
		if status != http.StatusOK || !strings.Contains(string(text), "slow%20one/") || !strings.Contains(string(text), "144p/") {
			return fmt.Errorf("the master playlist does not have the renditions: %d\n%s", status, text)
		}
		return nil
	})
	file := filepath.Join(t.TempDir(), "index.m3u8")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m := harness.ReadMaster(t, filepath.Dir(file), "index.m3u8")
	want := map[string]struct {
		resolution, codec string
		rate              float64
		average           float64
	}{
		"source/index.m3u8":     {"320x180", "avc1.", 15, 0},
		"144p/index.m3u8":       {"256x144", "avc1.64", 15, 200_000},
		"slow%20one/index.m3u8": {"228x128", "avc1.42", 8, 100_000},
	}
	if len(m.Variants) != len(want) {
		t.Fatalf("the master playlist does not have the source and two renditions:\n%s", text)
	}
	for _, v := range m.Variants {
		w := want[v.Uri]
		if v.Resolution != w.resolution || v.Codecs[:len(w.codec)] != w.codec || v.FrameRate > w.rate+1.5 || v.FrameRate < w.rate-1.5 ||
			v.Average < w.average || v.Average > w.average+100_000 && w.average > 0 || v.Bandwidth < v.Average || m.Audio[v.Audio] != "audio/index.m3u8" {
			t.Errorf("%s should be %+v:\n%s", v.Uri, w, text)
		}
	}
}

// changes lets hls.js change to the rendition of a height, and waits until it shows that.
func changes(b *harness.Browser, e *encoder, height int) {
	b.T.Helper()
	var before watched
	harness.Eventually(b.T, func() error {
		// Again and again: hls.js leaves the level when a playlist times out, or when it starts anew.
		if _, err := chromedp.Run(b.Ctx, chromedp.Evaluate[any](fmt.Sprintf("change(%d)", height))); err != nil {
			b.T.Fatal(err)
		}
		now := watchState(b)
		if now.Height != height {
			return fmt.Errorf("hls.js does not change to %d: %+v", height, now)
		}
		before = now
		return nil
	})
	plays(b, e, before, 0.5)
}
