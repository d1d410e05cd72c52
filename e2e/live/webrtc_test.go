package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/rtc/rtctest"
)

// liveWebRTC lets Chromium publish its camera over WHIP, and watches that over HLS and
// over WHEP. It is recorded and sent on, with audio that everybody takes.
func liveWebRTC(t *testing.T) {
	const target = "hush-heard"
	nginx := nginxServer(t)
	w := harness.NewWeir(t)
	addr, rtmp := harness.FreeAddr(t), harness.FreeAddr(t)
	w.Start("--webrtc", addr, "--rtmp", rtmp, "--session-timeout", "3s")
	events := harness.Listen(t, w, "")
	s := newHeardStream(w, nginx, target)
	whip, whep := w.URL+"/webrtc/"+s.key, w.URL+"/webrtc/"+s.playback
	refusedOverWebRTC(t, s, whep)

	publisher := harness.NewBrowser(t, t.TempDir())
	page(publisher, "/webrtc.html")
	call(publisher, "publish", whip)
	if e := ofStream(events, t); e.Event != "stream.started" || e.Stream.ID != s.id {
		t.Errorf("the first event is %+v, want stream.started of stream %s", e, s.id)
	}
	s.waitLive()
	waitExchanged(publisher, "publisher", func(now exchanged) error {
		// A key frame at the start, and one for each segment.
		if now.Keys < 2 || now.SoundPackets == 0 {
			return fmt.Errorf("it sends %+v", now)
		}
		if now.Head != http.StatusOK || slices.ContainsFunc(now.Patched, func(status int) bool { return status != http.StatusNoContent }) {
			t.Errorf("HEAD or PATCH were answered wrongly: %+v", now)
		}
		return nil
	})

	viewer := harness.NewBrowser(t, t.TempDir())
	page(viewer, "/webrtc.html")
	call(viewer, "watch", s.url("index.m3u8"))
	call(viewer, "view", whep)
	waitExchanged(viewer, "viewer", func(now exchanged) error {
		if now.Frames < 40 || now.SoundPackets < 50 || now.SoundLevel <= 0 || now.Width == 0 || now.At < 2 {
			return fmt.Errorf("it sees and hears %+v", now)
		}
		return nil
	})
	harness.Eventually(t, func() error {
		now := watchState(viewer)
		if now.Frames < 60 || now.SoundBytes == 0 || now.Played < 3 {
			return fmt.Errorf("over HLS it sees %+v", now)
		}
		return nil
	})
	_, master := s.get("index.m3u8")
	if text := string(master); !strings.Contains(text, "avc1.") || !strings.Contains(text, "mp4a.40.2") {
		t.Errorf("the master playlist does not name H.264 and AAC:\n%s", text)
	}

	// The publisher says goodbye: the stream is idle, and viewers are let go with its session.
	if status := evaluate(publisher, "leave('publisher')"); status != http.StatusOK {
		t.Errorf("DELETE was answered with %d", status)
	}
	if e := ofStream(events, t); e.Event != "stream.idle" {
		t.Errorf("the next event is %+v, want stream.idle", e)
	}
	waitExchanged(viewer, "viewer", func(now exchanged) error {
		if now.State != "closed" && now.State != "failed" && now.State != "disconnected" {
			return fmt.Errorf("the stream has ended, and the viewer is %+v", now)
		}
		return nil
	})
	page(publisher, "/webrtc.html") // and off goes the camera
	s.checkHeard(nginx, target)
	madeForBrowsers(w, rtmp, viewer)
	w.Stop()
}

// madeForBrowsers sends B-frames and AAC over RTMP, neither of which browsers take over WebRTC:
// they get a rendition without B-frames, and Opus.
func madeForBrowsers(w *harness.Weir, rtmp string, viewer *harness.Browser) {
	w.T.Helper()
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{
		"name": "live", "profiles": []any{map[string]any{"name": "144p", "width": 256, "height": 144, "bitrate": 200_000, "fps": 15}},
	}, &made)
	s := &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}
	e := s.encode("-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=15", "-re", "-f", "lavfi", "-i", "sine=sample_rate=44100",
		"-map", "0:v", "-map", "1:a", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "15", "-c:a", "aac", "-f", "flv", s.ingest())
	harness.Eventually(w.T, func() error {
		if err := e.running(); err != nil {
			w.T.Fatal(err)
		}
		if status, text := s.get("144p/index.m3u8"); status != http.StatusOK || !strings.Contains(string(text), ".m4s") {
			return fmt.Errorf("the rendition for browsers: %d %s", status, text)
		}
		return nil
	})
	page(viewer, "/webrtc.html")
	call(viewer, "view", s.w.URL+"/webrtc/"+s.playback)
	waitExchanged(viewer, "viewer", func(now exchanged) error {
		if now.Frames < 15 || now.SoundPackets < 50 || now.SoundLevel <= 0 || now.Width != 256 || now.At < 1 {
			return fmt.Errorf("of B-frames and AAC it sees and hears %+v", now)
		}
		return nil
	})
	e.stop()
}

// refusedOverWebRTC asks for what can't be had.
func refusedOverWebRTC(t *testing.T, s *liveStream, whep string) {
	t.Helper()
	for name, tt := range map[string]struct {
		url, contentType, body string
		want                   int
	}{
		"unknown key":    {s.w.URL + "/webrtc/aaaa-bbbb-cccc-dddd", "application/sdp", "v=0\r\n", http.StatusNotFound},
		"unknown id":     {s.w.URL + "/webrtc/nothing", "application/sdp", "v=0\r\n", http.StatusNotFound},
		"not live":       {whep, "application/sdp", "v=0\r\n", http.StatusNotFound},
		"not an offer":   {s.w.URL + "/webrtc/" + s.key, "application/sdp", "hello", http.StatusBadRequest},
		"no form":        {s.w.URL + "/webrtc/" + s.key, "text/plain", "hello", http.StatusUnsupportedMediaType},
		"unknown viewer": {whep + "/nobody", "application/sdp", "", http.StatusNotFound},
	} {
		if response := rtctest.Request(t, http.MethodPost, tt.url, tt.contentType, tt.body); response.StatusCode != tt.want || !strings.Contains(response.Text, `"errors"`) {
			t.Errorf("%s: %d %s, want %d with a reason", name, response.StatusCode, response.Text, tt.want)
		}
	}
	if response := rtctest.Request(t, http.MethodOptions, whep, "", "", "Access-Control-Request-Headers", "content-type"); response.StatusCode != http.StatusNoContent ||
		response.Header.Get("Access-Control-Allow-Headers") != "content-type" || !strings.Contains(response.Header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("OPTIONS: %d %v", response.StatusCode, response.Header)
	}
}

// exchanged is what the page tells of a connection over WebRTC.
type exchanged struct {
	State        string
	States       []string
	Head         int
	Patched      []int
	Frames, Keys int
	SoundPackets int
	SoundLevel   float64
	Width        int
	At           float64
}

// page goes to a page of the browser's own server.
func page(b *harness.Browser, page string) {
	b.T.Helper()
	if err := chromedp.Do(b.Ctx, chromedp.Navigate(b.URL+page)); err != nil {
		b.T.Fatal(err)
	}
}

// call calls a function of the page with an address, and waits for its end.
func call(b *harness.Browser, function, url string) {
	b.T.Helper()
	address, err := json.Marshal(url)
	if err != nil {
		b.T.Fatal(err)
	}
	if _, err := chromedp.Run(b.Ctx, chromedp.Evaluate[any](function+"("+string(address)+")", chromedp.EvalAwaitPromise)); err != nil {
		b.T.Fatalf("%s: %v", function, err)
	}
}

// evaluate returns a number that the page tells.
func evaluate(b *harness.Browser, expression string) int {
	b.T.Helper()
	n, err := chromedp.Run(b.Ctx, chromedp.Evaluate[int](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.T.Fatalf("%s: %v", expression, err)
	}
	return n
}

// waitExchanged waits until a connection of the page is as it shall be.
func waitExchanged(b *harness.Browser, name string, good func(exchanged) error) {
	b.T.Helper()
	harness.Eventually(b.T, func() error {
		now, err := chromedp.Run(b.Ctx, chromedp.Evaluate[exchanged]("exchanged('"+name+"')", chromedp.EvalAwaitPromise))
		if err != nil {
			b.T.Fatal(err)
		}
		return good(now)
	})
}
