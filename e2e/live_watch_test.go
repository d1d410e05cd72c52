package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/golang-jwt/jwt/v5"
)

// liveWatch makes a stream on the command line, opens its page before anybody sends,
// and never touches the page again: it must play when the stream starts, say that it
// ended, and play the next one. What is known of the stream meanwhile must be true.
func liveWatch(t *testing.T) {
	w := newWeir(t)
	rtmp, ops := freeAddr(t), freeAddr(t)
	w.start("--rtmp", rtmp, "--ops", ops, "--session-timeout", "10m")
	said := w.run("stream", "create", "The <show> of shows", "--profile", "none", "--rtmp", rtmp, "--public-url", w.url)
	s := &liveStream{w: w, id: match(t, said, `id +(\S+)`), key: match(t, said, `stream key +(\S+)`), rtmp: rtmp}
	s.playback = match(t, said, `watch +`+regexp.QuoteMeta(w.url)+`/play/(\S+)`)
	if server := match(t, said, `OBS server +(\S+)`); server+"/"+s.key != s.ingest() {
		t.Errorf("OBS is told %s, weir takes %s", server, s.ingest())
	}

	b := newBrowser(t, t.TempDir())
	b.open(w.url + "/play/" + s.playback)
	b.says("Not on air yet")
	if title := b.text("document.title"); title != "The <show> of shows" {
		t.Errorf("the page is called %q", title)
	}
	before := s.views()
	if len(before) != 1 || before[0].ViewCount != 0 {
		t.Errorf("somebody who waits counts as a viewer: %+v", before)
	}

	e := s.send(liveClip(t))
	b.moves(e.running)
	eventually(t, func() error {
		if now := s.views(); len(now) != 1 || now[0].ViewCount != 1 {
			return fmt.Errorf("views now are %+v, want one", now)
		}
		if total := s.totalViews(); total != 1 {
			return fmt.Errorf("%d views in all, want one", total)
		}
		return nil
	})
	s.checkHealth()
	checkLiveMetrics(t, ops)

	// The session stays open for an encoder that comes back, and its playlist says nothing of
	// an end.
	e.stop()
	b.saysEnded()
	b.open(w.url + "/play/" + s.playback)
	b.saysEnded()
	e = s.send(liveClip(t))
	b.moves(e.running)

	// The session is closed, and its playlist says so.
	w.must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)
	_ = e.wait() // it was turned away
	b.saysEnded()
	e = s.send(liveClip(t))
	b.moves(e.running)

	w.must("PATCH", "/api/stream/"+s.id, map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}, nil)
	b.open(w.url + "/play/" + s.playback)
	b.says("This video is not open to everybody")
	if title := b.text("document.title"); strings.Contains(title, "show") {
		t.Errorf("the name of a stream that is not public is on its page: %q", title)
	}
	b.open(w.url + "/play/" + s.playback + "?jwt=" + url.QueryEscape(w.permission(s.playback)))
	b.moves(e.running)
	b.open(w.url + "/play/0000000000000000")
	b.says("Nothing is here")
	b.stays()
	w.stop()
}

// permission makes a signing key, and signs with it that somebody may play.
func (w *weir) permission(playbackID string) string {
	w.t.Helper()
	var key struct{ PublicKey, PrivateKey string }
	w.must("POST", "/api/access-control/signing-key", map[string]any{"name": "of the page"}, &key)
	private, err := base64.StdEncoding.DecodeString(key.PrivateKey)
	if err != nil {
		w.t.Fatal(err)
	}
	signer, err := jwt.ParseECPrivateKeyFromPEM(private)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"sub": playbackID, "pub": key.PublicKey, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(signer)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// open shows a page of weir, and keeps what the browser complains of.
func (b *browser) open(url string) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, chromedp.Navigate(url)); err != nil {
		b.t.Fatal(err)
	}
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](`globalThis.violations = []; document.addEventListener('securitypolicyviolation',
		(e) => violations.push(e.effectiveDirective + ' ' + e.blockedURI)); null`)); err != nil {
		b.t.Fatal(err)
	}
}

// text evaluates an expression on the page.
func (b *browser) text(expression string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// says waits until the watch page says something.
func (b *browser) says(headline string) {
	b.t.Helper()
	eventually(b.t, func() error {
		if said := b.text(`document.getElementById('state').hidden ? '' : document.getElementById('headline').textContent`); said != headline {
			return fmt.Errorf("the page says %q, want %q", said, headline)
		}
		return nil
	})
}

// saysEnded waits until the watch page says that the stream has ended, and looks whether it
// still does when it has asked for the stream again several times.
func (b *browser) saysEnded() {
	b.t.Helper()
	const ended = "The stream has ended"
	b.says(ended)
	_ = b.text("performance.clearResourceTimings(); ''")
	eventually(b.t, func() error {
		asked := b.text(`String(performance.getEntriesByType('resource').filter((e) => e.name.includes('index.m3u8')).length)`)
		if n, err := strconv.Atoi(asked); err != nil || n < 4 {
			return fmt.Errorf("the page asked %s times for the stream: %v", asked, err)
		}
		return nil
	})
	b.says(ended)
	if live := b.text(`document.getElementById('live').hidden ? '' : 'Live'`); live != "" {
		b.t.Errorf("the page says %q of a stream that has ended", live)
	}
}

// stays looks whether the page was allowed all that it tried.
func (b *browser) stays() {
	b.t.Helper()
	if broken := b.text("violations.join(', ')"); broken != "" {
		b.t.Errorf("the page does what its policy forbids: %s", broken)
	}
}

// moves waits until the watch page has shown pictures for two seconds, with nothing
// written over them. e is the encoder, nil for what is stored.
func (b *browser) moves(running func() error) {
	b.t.Helper()
	type shown struct {
		At     float64
		Frames int
		Hidden bool
		Muted  bool
	}
	var first *shown
	eventually(b.t, func() error {
		if running != nil {
			if err := running(); err != nil {
				b.t.Fatal(err)
			}
		}
		now, err := chromedp.Run(b.ctx, chromedp.Evaluate[shown](`(() => { const v = document.getElementById('video');
			return {At: v.currentTime, Frames: v.getVideoPlaybackQuality().totalVideoFrames, Hidden: document.getElementById('state').hidden, Muted: v.muted}; })()`))
		if err != nil {
			b.t.Fatal(err)
		}
		if first == nil && now.Frames > 0 && now.Hidden {
			first = &now
		}
		if first == nil || now.At < first.At+2 || now.Frames < first.Frames+40 || !now.Hidden {
			return fmt.Errorf("the page shows %+v, first %+v", now, first)
		}
		return nil
	})
	b.stays()
}

type viewsNow struct{ ViewCount int }

// views returns who watches the stream at the moment.
func (s *liveStream) views() (now []viewsNow) {
	s.w.t.Helper()
	s.w.must("GET", "/api/data/views/now?playbackId="+s.playback, nil, &now)
	return now
}

func (s *liveStream) totalViews() int {
	s.w.t.Helper()
	var total viewsNow
	s.w.must("GET", "/api/data/views/query/total/"+s.playback, nil, &total)
	return total.ViewCount
}

// checkHealth looks at what is told of how the encoder does.
func (s *liveStream) checkHealth() {
	s.w.t.Helper()
	type health struct {
		IsHealthy   *bool
		Issues      []string
		Multistream []any
		Samples     []struct {
			Time                                        int64
			Bitrate, FPS, Pace, KeyFrameInterval, Drift float64
			Gaps, Jumps                                 int
		}
	}
	var now health
	eventually(s.w.t, func() error {
		now = health{}
		s.w.must("GET", "/api/stream/"+s.id+"/health", nil, &now)
		if len(now.Samples) == 0 {
			return fmt.Errorf("no sample of the health: %+v", now)
		}
		return nil
	})
	if now.IsHealthy == nil || !*now.IsHealthy || len(now.Issues) > 0 {
		s.w.t.Errorf("the stream is not healthy: %+v", now)
	}
	one := now.Samples[0]
	// The encoder makes 264 kb/s, 25 pictures a second and a key frame every 2 seconds.
	if one.Bitrate < 50_000 || one.Bitrate > 600_000 || one.FPS < 15 || one.FPS > 35 || one.Pace < 0.6 || one.Pace > 1.5 || one.KeyFrameInterval != 2 ||
		one.Gaps+one.Jumps > 0 || one.Drift < -1 || one.Drift > 1 || time.Since(time.UnixMilli(one.Time)) > time.Minute {
		s.w.t.Errorf("the first sample is %+v", one)
	}
}

// checkLiveMetrics looks at what Prometheus is told of one stream and one viewer.
func checkLiveMetrics(t *testing.T, ops string) {
	t.Helper()
	_, text := get(t, "http://"+ops+"/metrics")
	number := func(name string) float64 {
		t.Helper()
		n, err := strconv.ParseFloat(match(t, text, `(?m)^`+name+` (\S+)$`), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, want := range map[string]float64{
		"weir_live_streams": 1, "weir_live_sessions": 1, "weir_live_streams_unhealthy": 0, "weir_ingest_connections": 1, "weir_ingest_admitted_total": 1,
		"weir_ingest_refused_total": 0, "weir_viewers": 1,
	} {
		if got := number(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"weir_live_received_bytes_total", "weir_live_parts_total"} {
		if number(name) <= 0 {
			t.Errorf("%s is %v after a stream", name, number(name))
		}
	}
}

// TestWatchPagePlayer holds the player of the watch page against the one of the tests.
func TestWatchPagePlayer(t *testing.T) {
	for ours, theirs := range map[string]string{"hls.min.js": "dist/hls.min.js", "hls.LICENSE": "LICENSE"} {
		have, err := os.ReadFile(filepath.Join("..", "web", ours))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join("player", "node_modules", "hls.js", theirs))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("web/%s is not that of the hls.js that the tests play with", ours)
		}
	}
}
