package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// liveBrowser watches a stream in Chromium with hls.js, whose encoder goes away without
// a word and comes back: the page must go on by itself.
func liveBrowser(t *testing.T) {
	w := newWeir(t)
	rtmp := freeAddr(t)
	w.start("--rtmp", rtmp)
	s := newStream(w, rtmp)
	e := s.send(liveClip(t))
	s.waitLive()
	b := newBrowser(t, t.TempDir())
	b.watch(s.url("index.m3u8"))
	before := b.plays(e, watched{}, 3)
	e.kill()

	gap := time.Now()
	eventually(t, func() error {
		if since := time.Since(gap); since < 5*time.Second {
			return fmt.Errorf("the gap is %v long", since)
		}
		return nil
	})
	back := time.Now()
	e = s.send(liveClip(t))
	// What is shown then was sent after the gap.
	after := b.plays(e, watched{Date: float64(back.UnixMilli()), Frames: b.watched().Frames, SoundBytes: b.watched().SoundBytes}, 3)
	t.Logf("before the gap %+v, after it %+v", before, after)
	if !after.LowLatency {
		t.Errorf("hls.js plays without parts: %+v", after)
	}
	e.stop()
	w.stop()
}

// watched is what the page tells of a stream that it plays.
type watched struct {
	Fatal      []string
	Others     map[string]int // errors that it got over
	At         float64        // seconds
	Date       float64        // milliseconds
	Latency    float64        // seconds
	Frames     int
	Corrupted  int
	SoundBytes int64
	LowLatency bool
	Height     int // of the picture
}

// watch lets the browser play a live stream from now on.
func (b *browser) watch(url string) {
	b.t.Helper()
	address, err := json.Marshal(url)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := chromedp.Do(b.ctx, chromedp.Navigate(b.url+"/live.html")); err != nil {
		b.t.Fatal(err)
	}
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[any]("watch("+string(address)+")")); err != nil {
		b.t.Fatal(err)
	}
}

// watched returns how that goes.
func (b *browser) watched() watched {
	b.t.Helper()
	state, err := chromedp.Run(b.ctx, chromedp.Evaluate[watched]("watched()"))
	if err != nil {
		b.t.Fatal(err)
	}
	return state
}

// plays waits until the browser shows something that is newer than the date and the
// frames of a former state, and plays on for some seconds from there.
func (b *browser) plays(e *encoder, since watched, seconds float64) (now watched) {
	b.t.Helper()
	from := -1.0
	eventually(b.t, func() error {
		now = b.watched()
		if err := e.running(); err != nil {
			b.t.Fatalf("%v; hls.js: %+v, since %+v", err, now, since)
		}
		if len(now.Fatal) > 0 {
			b.t.Fatalf("hls.js gave up: %+v", now)
		}
		if now.Date > since.Date && now.Frames > since.Frames && now.SoundBytes > since.SoundBytes && from < 0 {
			from = now.At
		}
		if from < 0 || now.At < from+seconds {
			return fmt.Errorf("hls.js does not go on: %+v", now)
		}
		return nil
	})
	return now
}
