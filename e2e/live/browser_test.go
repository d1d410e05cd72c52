package live

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
)

// liveBrowser watches a stream in Chromium with hls.js, whose encoder goes away without
// a word and comes back: the page must go on by itself.
func liveBrowser(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	s := newStream(w, rtmp)
	e := s.send(liveClip(t))
	s.waitLive()
	b := harness.NewBrowser(t, t.TempDir())
	watch(b, s.url("index.m3u8"))
	before := plays(b, e, watched{}, 3)
	e.kill()

	gap := time.Now()
	harness.Eventually(t, func() error {
		if since := time.Since(gap); since < 5*time.Second {
			return fmt.Errorf("the gap is %v long", since)
		}
		return nil
	})
	back := time.Now()
	e = s.send(liveClip(t))
	// What is shown then was sent after the gap.
	after := plays(b, e, watched{Date: float64(back.UnixMilli()), Frames: watchState(b).Frames, SoundBytes: watchState(b).SoundBytes}, 3)
	t.Logf("before the gap %+v, after it %+v", before, after)
	if !after.LowLatency {
		t.Errorf("hls.js plays without parts: %+v", after)
	}
	e.stop()
	w.Stop()
}

// watched is what the page tells of a stream that it plays.
type watched struct {
	Errors     map[string]int // that it got over, some of them by starting anew
	Played     float64        // seconds
	Date       float64        // milliseconds
	Latency    float64        // seconds
	Frames     int
	Corrupted  int
	SoundBytes int64
	LowLatency bool
	Height     int // of the picture
}

// watch lets the browser play a live stream from now on.
func watch(b *harness.Browser, url string) {
	b.T.Helper()
	address, err := json.Marshal(url)
	if err != nil {
		b.T.Fatal(err)
	}
	if err := chromedp.Do(b.Ctx, chromedp.Navigate(b.URL+"/live.html")); err != nil {
		b.T.Fatal(err)
	}
	if _, err := chromedp.Run(b.Ctx, chromedp.Evaluate[any]("watch("+string(address)+")")); err != nil {
		b.T.Fatal(err)
	}
}

// watchState returns how that goes.
func watchState(b *harness.Browser) watched {
	b.T.Helper()
	state, err := chromedp.Run(b.Ctx, chromedp.Evaluate[watched]("watched()"))
	if err != nil {
		b.T.Fatal(err)
	}
	return state
}

// plays waits until the browser shows something that is newer than the date and the
// frames of a former state, and plays on for some seconds from there.
func plays(b *harness.Browser, e *encoder, since watched, seconds float64) (now watched) {
	b.T.Helper()
	from := -1.0
	harness.Eventually(b.T, func() error {
		now = watchState(b)
		if err := e.running(); err != nil {
			b.T.Fatalf("%v; hls.js: %+v, since %+v", err, now, since)
		}
		if now.Date > since.Date && now.Frames > since.Frames && now.SoundBytes > since.SoundBytes && from < 0 {
			from = now.Played
		}
		if from < 0 || now.Played < from+seconds {
			return fmt.Errorf("hls.js does not go on: %+v", now)
		}
		return nil
	})
	return now
}
