package live

import (
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/e2e/harness"
)

// liveWatch makes a stream on the command line, opens its page before anybody sends,
// and never touches the page again: it must play when the stream starts, say that it
// ended, and play the next one. What is known of the stream meanwhile must be true.
func liveWatch(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp, ops := harness.FreeAddr(t), harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--ops", ops, "--session-timeout", "10m")
	said := w.Run("stream", "create", "The <show> of shows", "--profile", "none", "--rtmp", rtmp, "--public-url", w.URL)
	s := &liveStream{w: w, id: harness.Match(t, said, `(?m)^id +(\S+)`), key: harness.Match(t, said, `(?m)^stream key +(\S+)`), rtmp: rtmp}
	s.playback = harness.Match(t, said, `watch +`+regexp.QuoteMeta(w.URL)+`/play/(\S+)`)
	if server := harness.Match(t, said, `OBS server +(\S+)`); server+"/"+s.key != s.ingest() {
		t.Errorf("OBS is told %s, weir takes %s", server, s.ingest())
	}

	b := harness.NewBrowser(t, t.TempDir())
	b.Open(w.URL + "/play/" + s.playback)
	says(b, "Not on air yet")
	if title := b.Text("document.title"); title != "The <show> of shows" {
		t.Errorf("the page is called %q", title)
	}
	before := s.views()
	if len(before) != 1 || before[0].ViewCount != 0 {
		t.Errorf("somebody who waits counts as a viewer: %+v", before)
	}

	e := s.send(liveClip(t))
	b.Moves(e.running)
	harness.Eventually(t, func() error {
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
	saysEnded(b)
	b.Open(w.URL + "/play/" + s.playback)
	saysEnded(b)
	e = s.send(liveClip(t))
	b.Moves(e.running)

	// The session is closed, and its playlist says so.
	w.Must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)
	_ = e.wait() // it was turned away
	saysEnded(b)
	e = s.send(liveClip(t))
	b.Moves(e.running)

	w.Must("PATCH", "/api/stream/"+s.id, map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}, nil)
	b.Open(w.URL + "/play/" + s.playback)
	says(b, "This video is not open to everybody")
	if title := b.Text("document.title"); strings.Contains(title, "show") {
		t.Errorf("the name of a stream that is not public is on its page: %q", title)
	}
	b.Open(w.URL + "/play/" + s.playback + "?jwt=" + url.QueryEscape(newSigner(w).permit(s.playback, time.Hour)))
	b.Moves(e.running)
	b.Open(w.URL + "/play/0000000000000000")
	says(b, "Nothing is here")
	b.Stays()
	w.Stop()
}

// liveWatchClips makes a clip of a stream on its page, with the keys, and steps through the pictures of the
// clip on the page of that.
func liveWatchClips(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--public-clips")
	s := newStream(w, rtmp)
	e := s.send(liveClip(t))
	b := harness.NewBrowser(t, t.TempDir())
	text := func(id string) string { return b.Text(`document.getElementById('` + id + `').textContent`) }
	press := func(key string) {
		_ = b.Text(`document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '` + key + `', bubbles: true})); ''`)
	}
	marked := func(key, id string) {
		t.Helper()
		before := text(id)
		harness.Eventually(t, func() error {
			press(key)
			if now := text(id); now == before || now == "not marked" {
				return fmt.Errorf("the mark is %q: %s", now, text("clipState"))
			}
			return nil
		})
	}
	clip := func(name string) {
		t.Helper()
		b.Moves(e.running)
		marked("i", "inAt")
		harness.Eventually(t, func() error {
			press("o")
			if said := text("clipState"); !regexp.MustCompile(`has [1-9]\d*\.\d+ s`).MatchString(said) {
				return fmt.Errorf("the page says %q, want a clip of a second or more", said)
			}
			return nil
		})
		_ = b.Text(`document.getElementById('clipName').value = '` + name + `'; document.getElementById('make').click(); ''`)
		harness.Eventually(t, func() error {
			if b.Text(`String(document.getElementById('clipDone').hidden)`) == "true" {
				return fmt.Errorf("the page says %q", text("clipState"))
			}
			return nil
		})
		if link := text("clipLink"); link != "Watch "+name {
			t.Errorf("the link to the clip is %q", link)
		}
		b.Stays()
	}

	// The clip of a gated stream is gated.
	w.Must("PATCH", "/api/stream/"+s.id, map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}, nil)
	b.Open(w.URL + "/play/" + s.playback + "?jwt=" + url.QueryEscape(newSigner(w).permit(s.playback, time.Hour)))
	clip("a secret")
	if said := text("clipState"); !strings.Contains(said, "not open to everybody") {
		t.Errorf("the page says %q of the clip of a gated stream", said)
	}
	b.Open(b.Text(`document.getElementById('clipLink').href`))
	says(b, "This video is not open to everybody")

	w.Must("PATCH", "/api/stream/"+s.id, map[string]any{"playbackPolicy": map[string]any{"type": "public"}}, nil)
	b.Open(w.URL + "/play/" + s.playback)
	clip("the best")
	b.Open(b.Text(`document.getElementById('clipLink').href`))
	harness.Eventually(t, func() error {
		if title := b.Text("document.title"); title != "the best" {
			return fmt.Errorf("the page of the clip is called %q", title)
		}
		if shown := b.Text("String(document.getElementById('video').currentTime > 0.5)"); shown != "true" {
			return fmt.Errorf("the clip does not play")
		}
		return nil
	})

	// A step is a picture: 40 ms.
	millis := func() int {
		t.Helper()
		minutes, seconds, _ := strings.Cut(text("inAt"), ":")
		m, err := strconv.Atoi(minutes)
		s, err2 := strconv.ParseFloat(seconds, 64)
		if err != nil || err2 != nil {
			t.Fatalf("the mark is %q", text("inAt"))
		}
		return m*60000 + int(math.Round(s*1000))
	}
	press(",")
	marked("i", "inAt")
	for range 3 {
		before := millis()
		press(",")
		marked("i", "inAt")
		if step := before - millis(); step < 38 || step > 42 {
			t.Errorf("a step back is %d ms, want that of a picture", step)
		}
	}
	b.Stays()
	w.Stop()
}

// signer signs JWTs of viewers.
type signer struct {
	t       *testing.T
	public  string
	private *ecdsa.PrivateKey
}

// newSigner makes a signing key.
func newSigner(w *harness.Weir) signer {
	w.T.Helper()
	var key struct{ PublicKey, PrivateKey string }
	w.Must("POST", "/api/access-control/signing-key", map[string]any{"name": "of the page"}, &key)
	text, err := base64.StdEncoding.DecodeString(key.PrivateKey)
	if err != nil {
		w.T.Fatal(err)
	}
	private, err := jwt.ParseECPrivateKeyFromPEM(text)
	if err != nil {
		w.T.Fatal(err)
	}
	return signer{w.T, key.PublicKey, private}
}

// permit signs that somebody may play.
func (s signer) permit(playbackID string, life time.Duration) string {
	s.t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"sub": playbackID, "pub": s.public, "exp": time.Now().Add(life).Unix(),
	}).SignedString(s.private)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

// says waits until the watch page says something.
func says(b *harness.Browser, headline string) {
	b.T.Helper()
	harness.Eventually(b.T, func() error {
		if said := b.Text(`document.getElementById('state').hidden ? '' : document.getElementById('headline').textContent`); said != headline {
			return fmt.Errorf("the page says %q, want %q", said, headline)
		}
		return nil
	})
}

// saysEnded waits until the watch page says that the stream has ended, and looks whether it
// still does when it has asked for the stream again several times.
func saysEnded(b *harness.Browser) {
	b.T.Helper()
	const ended = "The stream has ended"
	says(b, ended)
	_ = b.Text("performance.clearResourceTimings(); ''")
	harness.Eventually(b.T, func() error {
		asked := b.Text(`String(performance.getEntriesByType('resource').filter((e) => e.name.includes('index.m3u8')).length)`)
		if n, err := strconv.Atoi(asked); err != nil || n < 4 {
			return fmt.Errorf("the page asked %s times for the stream: %v", asked, err)
		}
		return nil
	})
	says(b, ended)
	if live := b.Text(`document.getElementById('live')?.hidden ?? true ? '' : 'Live'`); live != "" {
		b.T.Errorf("the page says %q of a stream that has ended", live)
	}
}

type viewsNow struct{ ViewCount int }

// views returns who watches the stream at the moment.
func (s *liveStream) views() (now []viewsNow) {
	s.w.T.Helper()
	s.w.Must("GET", "/api/data/views/now?playbackId="+s.playback, nil, &now)
	return now
}

func (s *liveStream) totalViews() int {
	s.w.T.Helper()
	var total viewsNow
	s.w.Must("GET", "/api/data/views/query/total/"+s.playback, nil, &total)
	return total.ViewCount
}

// checkHealth looks at what is told of how the encoder does.
func (s *liveStream) checkHealth() {
	s.w.T.Helper()
	type sample struct {
		Time                                        int64
		Bitrate, FPS, Pace, KeyFrameInterval, Drift float64
		Gaps, Jumps                                 int
	}
	began := time.Now().UnixMilli()
	// The encoder makes 264 kb/s, 25 pictures a second and a key frame every 2 seconds. A sample of ten
	// seconds in which it was stopped tells of that.
	usual := func(one sample) bool {
		return one.Time > began && one.Bitrate > 50_000 && one.Bitrate < 600_000 && one.FPS > 15 && one.FPS < 35 && one.Pace > 0.6 && one.Pace < 1.5 &&
			one.KeyFrameInterval == 2 && one.Gaps+one.Jumps == 0 && one.Drift > -1 && one.Drift < 1
	}
	harness.Eventually(s.w.T, func() error {
		var now struct {
			IsHealthy   *bool
			Issues      []string
			Multistream []any
			Samples     []sample
		}
		s.w.Must("GET", "/api/stream/"+s.id+"/health", nil, &now)
		if now.IsHealthy == nil || !*now.IsHealthy || len(now.Issues) > 0 || !slices.ContainsFunc(now.Samples, usual) {
			return fmt.Errorf("the stream is not healthy, or no sample is usual: %+v", now)
		}
		return nil
	})
}

// checkLiveMetrics looks at what Prometheus is told of one stream and one viewer.
func checkLiveMetrics(t *testing.T, ops string) {
	t.Helper()
	_, text := get(t, "http://"+ops+"/metrics")
	number := func(name string) float64 {
		t.Helper()
		n, err := strconv.ParseFloat(harness.Match(t, text, `(?m)^`+name+` (\S+)$`), 64)
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

// TestWatchPagePlayer compares the version of hls.js in our pages with that of the tests.
func TestWatchPagePlayer(t *testing.T) {
	version := func(folder string) string {
		text, err := os.ReadFile(filepath.Join("..", folder, "package.json"))
		if err != nil {
			t.Fatal(err)
		}
		var packages struct{ Dependencies map[string]string }
		if err := json.Unmarshal(text, &packages); err != nil {
			t.Fatal(err)
		}
		return packages.Dependencies["hls.js"]
	}
	if ours, theirs := version(filepath.Join("..", "web")), version("player"); ours == "" || ours != theirs {
		t.Errorf("web/ has hls.js %q, the tests play with %q", ours, theirs)
	}
}
