package live

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
)

// TestPlayerDates plays a recording with B-frames. Players must date its pictures as the manual says
// (docs/clips.md), from the decode times, and show them together with the audio. Shaka puts a track
// where the date of its segments says: with dates of the first picture that is shown, its audio would
// be ahead by as much as that is decoded early.
func TestPlayerDates(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	w, rtmp := harness.NewWeir(t), harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	var stream struct{ ID, StreamKey string }
	w.Must("POST", "/api/stream", map[string]any{"name": "dates", "profiles": []any{}, "record": true, "recordingSpec": map[string]any{"profiles": []any{}}}, &stream)
	film := harness.MakeClip(t, "dates.mp4", "-f", "lavfi", "-i", "testsrc2=size=256x144:rate=30:duration=6", "-f", "lavfi", "-i", "sine=duration=6",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "60", "-sc_threshold", "0", "-c:a", "aac")
	const ahead = 2.0 / 30 // of decoding, with two B-frames
	harness.FFmpeg(t, "-re", "-i", film, "-c", "copy", "-f", "flv", "rtmp://"+rtmp+"/live/"+stream.StreamKey)
	w.Must("DELETE", "/api/stream/"+stream.ID+"/terminate", nil, nil)
	var sessions []struct{ RecordingURL, RecordingStatus string }
	harness.Eventually(t, func() error {
		w.Must("GET", "/api/stream/"+stream.ID+"/sessions", nil, &sessions)
		if len(sessions) != 1 || sessions[0].RecordingStatus != "ready" {
			return fmt.Errorf("the sessions are %+v", sessions)
		}
		return nil
	})
	date := firstDate(t, sessions[0].RecordingURL)
	b := harness.NewBrowser(t, t.TempDir())
	for _, engine := range []string{"hls.js", "shaka"} {
		page(b, "/")
		request, err := json.Marshal(map[string]any{"engine": engine, "url": sessions[0].RecordingURL})
		if err != nil {
			t.Fatal(err)
		}
		type shown struct{ At, Date, Start, Video, Audio float64 }
		got, err := chromedp.Run(b.Ctx, chromedp.Evaluate[shown]("dates("+string(request)+")", chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatalf("%s: %v", engine, err)
		}
		decoded := got.Start - ahead // of the first picture
		if off := got.Date/1000 - date - (got.At - decoded); math.Abs(off) > 0.003 {
			t.Errorf("%s dates its pictures %.0f ms after the formula: %+v", engine, off*1000, got)
		}
		if apart := got.Video - got.Audio; math.Abs(apart) > 0.003 {
			t.Errorf("%s shows the video %.0f ms after its audio: %+v", engine, apart*1000, got)
		}
	}
	w.Stop()
}

// firstDate returns the date of the first segment of video, in seconds since 1970.
func firstDate(t *testing.T, master string) float64 {
	t.Helper()
	base, err := url.Parse(master)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(harness.Fetch(t, master))), "\n")
	if base, err = base.Parse(lines[len(lines)-1]); err != nil {
		t.Fatal(err)
	}
	text := string(harness.Fetch(t, base.String()))
	_, after, _ := strings.Cut(text, "#EXT-X-PROGRAM-DATE-TIME:")
	line, _, _ := strings.Cut(after, "\n")
	at, err := time.Parse(time.RFC3339, line)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return float64(at.UnixMilli()) / 1000
}
