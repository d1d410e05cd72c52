package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"weir/internal/rtc/rtctest"
)

// liveWebRTC lets Chromium publish its camera over WHIP, and watches that over HLS and
// over WHEP. It is recorded and sent on, with audio that everybody takes.
func liveWebRTC(t *testing.T) {
	const target = "hush-heard"
	nginx := nginxServer(t)
	w := newWeir(t)
	addr, rtmp := freeAddr(t), freeAddr(t)
	w.start("--webrtc", addr, "--rtmp", rtmp, "--session-timeout", "3s")
	events := listen(t, w, "")
	s := newHeardStream(w, nginx, target)
	whip, whep := w.url+"/webrtc/"+s.key, w.url+"/webrtc/"+s.playback
	refusedOverWebRTC(t, s, whep)

	publisher := newBrowser(t, t.TempDir())
	publisher.page("/webrtc.html")
	publisher.call("publish", whip)
	if e := events.ofStream(t); e.Event != "stream.started" || e.Stream.ID != s.id {
		t.Errorf("the first event is %+v, want stream.started of stream %s", e, s.id)
	}
	s.waitLive()
	publisher.exchanged("publisher", func(now exchanged) error {
		// A key frame at the start, and one for each segment.
		if now.Keys < 2 || now.SoundPackets == 0 {
			return fmt.Errorf("it sends %+v", now)
		}
		if now.Head != http.StatusOK || slices.ContainsFunc(now.Patched, func(status int) bool { return status != http.StatusNoContent }) {
			t.Errorf("HEAD or PATCH were answered wrongly: %+v", now)
		}
		return nil
	})

	viewer := newBrowser(t, t.TempDir())
	viewer.page("/webrtc.html")
	viewer.call("watch", s.url("index.m3u8"))
	viewer.call("view", whep)
	viewer.exchanged("viewer", func(now exchanged) error {
		if now.Frames < 40 || now.SoundPackets < 50 || now.SoundLevel <= 0 || now.Width == 0 || now.At < 2 {
			return fmt.Errorf("it sees and hears %+v", now)
		}
		return nil
	})
	eventually(t, func() error {
		now := viewer.watched()
		if len(now.Fatal) > 0 {
			t.Fatalf("hls.js gave up: %+v", now)
		}
		if now.Frames < 60 || now.SoundBytes == 0 || now.At < 3 {
			return fmt.Errorf("over HLS it sees %+v", now)
		}
		return nil
	})
	_, master := s.get("index.m3u8")
	if text := string(master); !strings.Contains(text, "avc1.") || !strings.Contains(text, "mp4a.40.2") {
		t.Errorf("the master playlist does not name H.264 and AAC:\n%s", text)
	}

	// The publisher says goodbye: the stream is idle, and viewers are let go with its session.
	if status := publisher.evaluate("leave('publisher')"); status != http.StatusOK {
		t.Errorf("DELETE was answered with %d", status)
	}
	if e := events.ofStream(t); e.Event != "stream.idle" {
		t.Errorf("the next event is %+v, want stream.idle", e)
	}
	viewer.exchanged("viewer", func(now exchanged) error {
		if now.State != "closed" && now.State != "failed" && now.State != "disconnected" {
			return fmt.Errorf("the stream has ended, and the viewer is %+v", now)
		}
		return nil
	})
	publisher.page("/webrtc.html") // and off goes the camera
	s.checkHeard(nginx, target)
	madeForBrowsers(w, rtmp, viewer)
	w.stop()
}

// madeForBrowsers sends B-frames and AAC over RTMP, neither of which browsers take over WebRTC:
// they get a rendition without B-frames, and Opus.
func madeForBrowsers(w *weir, rtmp string, viewer *browser) {
	w.t.Helper()
	var made struct{ ID, StreamKey, PlaybackID string }
	w.must("POST", "/api/stream", map[string]any{
		"name": "live", "profiles": []any{map[string]any{"name": "144p", "width": 256, "height": 144, "bitrate": 200_000, "fps": 15}},
	}, &made)
	s := &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}
	e := s.encode("-re", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=15", "-re", "-f", "lavfi", "-i", "sine=sample_rate=44100",
		"-map", "0:v", "-map", "1:a", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "15", "-c:a", "aac", "-f", "flv", s.ingest())
	eventually(w.t, func() error {
		if err := e.running(); err != nil {
			w.t.Fatal(err)
		}
		if status, text := s.get("144p/index.m3u8"); status != http.StatusOK || !strings.Contains(string(text), ".m4s") {
			return fmt.Errorf("the rendition for browsers: %d %s", status, text)
		}
		return nil
	})
	viewer.page("/webrtc.html")
	viewer.call("view", s.w.url+"/webrtc/"+s.playback)
	viewer.exchanged("viewer", func(now exchanged) error {
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
		"unknown key":    {s.w.url + "/webrtc/aaaa-bbbb-cccc-dddd", "application/sdp", "v=0\r\n", http.StatusNotFound},
		"unknown id":     {s.w.url + "/webrtc/nothing", "application/sdp", "v=0\r\n", http.StatusNotFound},
		"not live":       {whep, "application/sdp", "v=0\r\n", http.StatusNotFound},
		"not an offer":   {s.w.url + "/webrtc/" + s.key, "application/sdp", "hello", http.StatusBadRequest},
		"no form":        {s.w.url + "/webrtc/" + s.key, "text/plain", "hello", http.StatusUnsupportedMediaType},
		"unknown viewer": {whep + "/nobody", "application/sdp", "", http.StatusNotFound},
	} {
		if answer := rtctest.Request(t, http.MethodPost, tt.url, tt.contentType, tt.body); answer.StatusCode != tt.want || !strings.Contains(answer.Text, `"errors"`) {
			t.Errorf("%s: %d %s, want %d with a reason", name, answer.StatusCode, answer.Text, tt.want)
		}
	}
	if answer := rtctest.Request(t, http.MethodOptions, whep, "", "", "Access-Control-Request-Headers", "content-type"); answer.StatusCode != http.StatusNoContent ||
		answer.Header.Get("Access-Control-Allow-Headers") != "content-type" || !strings.Contains(answer.Header.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("OPTIONS: %d %v", answer.StatusCode, answer.Header)
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
func (b *browser) page(page string) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Navigate(b.url+page)); err != nil {
		b.t.Fatal(err)
	}
}

// call calls a function of the page with an address, and waits for its end.
func (b *browser) call(function, url string) {
	b.t.Helper()
	address, err := json.Marshal(url)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](function+"("+string(address)+")", chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatalf("%s: %v", function, err)
	}
}

// evaluate returns a number that the page tells.
func (b *browser) evaluate(expression string) int {
	b.t.Helper()
	n, err := chromedp.Run(b.ctx, chromedp.Evaluate[int](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return n
}

// exchanged waits until a connection of the page is as it shall be.
func (b *browser) exchanged(name string, good func(exchanged) error) {
	b.t.Helper()
	eventually(b.t, func() error {
		now, err := chromedp.Run(b.ctx, chromedp.Evaluate[exchanged]("exchanged('"+name+"')", chromedp.EvalAwaitPromise))
		if err != nil {
			b.t.Fatal(err)
		}
		return good(now)
	})
}
