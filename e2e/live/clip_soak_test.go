//go:build soak

package live

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/wait"
	words "weir/internal/weir"
)

var (
	clipSeed  = flag.Uint64("clip-seed", 0, "of the random clips; 0 = any")
	clipPairs = flag.Int("clip-pairs", 200, "random clips, over all films")
)

// clipKinds are films of every kind.
func clipKinds() []harness.FilmKind {
	return []harness.FilmKind{
		{FPS: 30, BFrames: 2, Key: 2, Seconds: 12},
		{FPS: 30, BFrames: 0, Key: 1, Seconds: 10},
		{FPS: 24, BFrames: 3, Key: 1, Seconds: 10, Open: true},
		{FPS: 60, BFrames: 2, Key: 2, Seconds: 12, Open: true},
		{FPS: 60, BFrames: 0, Key: 1, Seconds: 10, VFR: true},
		{FPS: 30, BFrames: 3, Key: 2, Seconds: 12, VFR: true},
		{FPS: 24, BFrames: 0, Key: 2, Seconds: 12, HEVC: true},
		{FPS: 30, BFrames: 2, Key: 1, Seconds: 10, HEVC: true},
		{FPS: 60, BFrames: 3, Key: 1, Seconds: 10, HEVC: true, Open: true},
		{FPS: 30, BFrames: 2, Key: 2, Seconds: 12, HEVC: true, VFR: true},
	}
}

// TestClipSoak cuts clips at random out of assets, streams on air and recordings of films of every kind,
// plays them, cuts fifty at once beside live streams, and kills weir meanwhile. `make soak-clip` runs it.
func TestClipSoak(t *testing.T) {
	t.Run("files", clipFiles)
	t.Run("random", clipRandom)
	t.Run("players", clipPlayers)
	t.Run("crowd", clipCrowd)
	t.Run("kill", func(t *testing.T) {
		c := newClipper(t, 5, "")
		c.killed(harness.MakeFilm(t, harness.FilmKind{BFrames: 2, FPS: 60, Key: 2, Seconds: 20}), 3, atOnce, 1)
	})
}

// anySeed returns a seed and prints it.
func anySeed() uint64 {
	seed := *clipSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("# -clip-seed %d\n", seed)
	return seed
}

// clipFiles cuts clips at random with `weir clip`.
func clipFiles(t *testing.T) {
	c := &clipper{t: t, w: harness.NewWeir(t), log: newClipLog(t, anySeed())}
	t.Cleanup(func() { c.log.report(t) })
	kinds := clipKinds()
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) { c.in(t).cutFile(harness.MakeFilm(t, kind), *clipPairs/len(kinds)) })
	}
}

// clipRandom cuts clips at random.
func clipRandom(t *testing.T) {
	c := newClipper(t, anySeed(), "")
	kinds := clipKinds()
	for i, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			c, n := c.in(t), *clipPairs/len(kinds)
			film := harness.MakeFilm(t, kind)
			b := c.broadcast(film, i%2 == 0)
			b.cutLive(min(atOnce, n/3))
			b.cutRecording(n / 3)
			c.cutAsset(film, c.upload(film), n-n/3-min(atOnce, n/3))
		})
	}
}

// clipPlayers plays clips with two seams each, and clips of two frames, in Chromium and GStreamer.
func clipPlayers(t *testing.T) {
	c := newClipper(t, 3, "")
	for _, kind := range []harness.FilmKind{
		{FPS: 30, BFrames: 2, Key: 1, Seconds: 8},
		{FPS: 60, BFrames: 0, Key: 1, Seconds: 8},
		{FPS: 24, BFrames: 3, Key: 1, Seconds: 12, Open: true},
		{FPS: 30, BFrames: 2, Key: 1, Seconds: 8, VFR: true},
		{FPS: 30, BFrames: 3, Key: 2, Seconds: 12, VFR: true},
		{FPS: 30, BFrames: 2, Key: 1, Seconds: 8, HEVC: true},
		{FPS: 30, BFrames: 2, Key: 1, Seconds: 8, HEVC: true, VFR: true},
	} {
		t.Run(kind.String(), func(t *testing.T) {
			c := c.in(t)
			film := harness.MakeFilm(t, kind)
			var asset words.Asset
			var frames []harness.Frame
			if kind.HEVC { // an asset has H.264 only
				asset, frames = c.broadcast(film, false).recorded()
			} else {
				asset = c.upload(film)
				frames = c.frames(film, asset.PlaybackURL)
			}
			b := harness.NewBrowser(t, t.TempDir())
			page(b, "/clip.html")
			chromium := !kind.HEVC || decodesHEVC(t, b)
			if !chromium {
				t.Log("this Chromium does not decode HEVC: only ffmpeg and GStreamer play the clips")
			}
			key := 1 + slices.IndexFunc(frames[1:], func(f harness.Frame) bool { return f.IDR })
			// From the middle of a GOP to the middle of another one.
			want := harness.Window(frames, harness.FromStart, 700, float64(1000*kind.Seconds)-1300)
			k := c.cut(film, "asset", asset.PlaybackID, want[0].Start, want[len(want)-1].Start+2)
			k.check(want)
			for form, url := range map[string]string{"MP4": k.asset.DownloadURL, "HLS": k.asset.PlaybackURL} {
				gstreamerShows(t, film, want, form, url)
				if chromium {
					seams(t, b, film, want, form, asset, k.asset)
				}
			}
			for _, n := range []int{2, kind.FPS * 3 / 10} {
				// GStreamer does not always play so short a file over HTTP, also one made by ffmpeg.
				want := frames[key+5 : key+5+n]
				k := c.cut(film, "asset", asset.PlaybackID, want[0].Start, want[n-1].Start+2)
				k.check(want)
				if chromium {
					chromiumShows(t, b, film, want, "MP4", k.asset)
				}
				// With less than 0.2 s of audio Chromium waits for the end of the stream, which hls.js 1.7 tells
				// when Chromium has enough of it.
				if chromium && n > 2 {
					chromiumShows(t, b, film, want, "HLS", k.asset)
				}
			}
		})
	}
}

// decodesHEVC reports whether a browser does.
func decodesHEVC(t *testing.T, b *harness.Browser) bool {
	t.Helper()
	ok, err := chromedp.Run(b.Ctx, chromedp.Evaluate[bool](`MediaSource.isTypeSupported('video/mp4; codecs="hvc1.1.6.L60.B0"')`))
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// gstreamerShows lets GStreamer play a clip, which must show the frames that it has.
func gstreamerShows(t *testing.T, film *harness.Film, want []harness.Frame, name, url string) {
	t.Helper()
	pictures := filepath.Join(t.TempDir(), "pictures")
	const width, height = 64, 36
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "gst-launch-1.0", "-m", "playbin3", "uri="+url,
		fmt.Sprintf("video-sink=videoconvert ! videoscale ! video/x-raw,format=GRAY8,width=%d,height=%d ! filesink sync=false location=%s", width, height, pictures),
		"audio-sink=fakesink sync=false")
	cmd.Env = append(os.Environ(), "GST_DEBUG=1,libav:2", "GST_DEBUG_NO_COLOR=1")
	var said harness.LockedBuffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.String() != "" || strings.Contains(string(out), "WARNING") || strings.Contains(string(out), "ERROR") {
		t.Errorf("GStreamer plays the %s of %v: %v\n%s\n%s", name, film, err, said.String(), harness.Tail(string(out)))
	}
	data, err := os.ReadFile(pictures)
	if err != nil {
		t.Fatal(err)
	}
	var got, wanted []int
	for picture := range slices.Chunk(data, width*height) {
		got = append(got, harness.PictureNumber(picture, width))
	}
	for _, f := range want {
		wanted = append(wanted, f.Number)
	}
	if !slices.Equal(got, wanted) {
		t.Errorf("GStreamer shows of the %s of %v the frames %v, want %v", name, film, got, wanted)
	}
}

// browserShown is what player/clip.js tells.
type browserShown struct {
	Errors                      []string
	Shown                       [][2]float64 // when in the media, and on the screen
	Decoded, Dropped, Corrupted int
	From, End, Duration         float64
}

// showFrames plays something in Chromium.
func showFrames(t *testing.T, b *harness.Browser, engine, url string) (s browserShown) {
	t.Helper()
	request, err := json.Marshal(map[string]string{"engine": engine, "url": url})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = chromedp.Run(b.Ctx, chromedp.Evaluate[browserShown]("frames("+string(request)+")", chromedp.EvalAwaitPromise)); err != nil {
		t.Fatal(err)
	}
	return s
}

// freeze is how much longer than the media says the screen stood still around a time: the smallest of
// several plays, because a busy machine shows frames late at random. A frame that was never shown counts
// as one that the frame before stood for.
func freeze(plays []browserShown, from, to float64) float64 {
	least := math.Inf(1)
	for _, p := range plays {
		longest := 0.0
		for i := 1; i < len(p.Shown); i++ {
			before, at := p.Shown[i-1], p.Shown[i]
			if media := at[0] - p.From; media >= from && before[0]-p.From <= to {
				longest = max(longest, at[1]-before[1])
			}
		}
		least = min(least, longest)
	}
	return least
}

// chromiumShows plays a clip in Chromium, which must decode each of its frames.
func chromiumShows(t *testing.T, b *harness.Browser, film *harness.Film, want []harness.Frame, form string, clip words.Asset) (s browserShown, ok bool) {
	t.Helper()
	s = playForm(t, b, form, clip)
	ok = len(s.Errors) == 0 && s.Corrupted == 0 && s.Decoded == len(want) && s.Duration-s.End <= 0.05
	if !ok {
		t.Errorf("Chromium plays the %s of a clip of %v with %d frames: %d decoded, %d dropped, %d corrupted, to %.3f of %.3f: %q",
			form, film, len(want), s.Decoded, s.Dropped, s.Corrupted, s.End, s.Duration, s.Errors)
	}
	return s, ok
}

// playForm plays an asset in Chromium, as MP4 or HLS.
func playForm(t *testing.T, b *harness.Browser, form string, a words.Asset) browserShown {
	t.Helper()
	if form == "HLS" {
		return showFrames(t, b, "hls.js", a.PlaybackURL)
	}
	return showFrames(t, b, "video", a.DownloadURL)
}

// seams plays a clip in Chromium and looks how long the frames around its seams stand on the screen, beside
// those of the same frames in the film that it was cut from.
func seams(t *testing.T, b *harness.Browser, film *harness.Film, want []harness.Frame, name string, source, clip words.Asset) {
	t.Helper()
	var ofClip, ofSource []browserShown
	for range 4 {
		s, ok := chromiumShows(t, b, film, want, name, clip)
		if !ok {
			return
		}
		whole := playForm(t, b, name, source)
		if len(whole.Errors) > 0 {
			t.Errorf("Chromium plays the %s of %v: %q", name, film, whole.Errors)
			return
		}
		ofClip, ofSource = append(ofClip, s), append(ofSource, whole)
	}
	first := slices.IndexFunc(want, func(f harness.Frame) bool { return f.IDR })
	last := first
	for i, f := range want {
		if f.IDR {
			last = i
		}
	}
	frame := 1 / float64(film.FPS)
	for _, i := range []int{first, last} {
		at := (want[i].Start - want[0].Start) / 1000
		clipped := freeze(ofClip, at-2.5*frame, at+2.5*frame)
		whole := freeze(ofSource, want[i].Start/1000-2.5*frame, want[i].Start/1000+2.5*frame)
		t.Logf("%s of %v, seam at %.3f s: a frame stands at most %.1f ms, in the film %.1f ms, one lasts %.1f ms", name, film, at, 1000*clipped, 1000*whole, 1000*frame)
		// The browser paints at 60 Hz, so that any frame may stand for one refresh more.
		const refresh = 1 / 60.0
		if limit := max(1.5*frame, whole+max(0.5*frame, refresh)); clipped > limit+0.002 {
			t.Errorf("%s of %v: at the seam at %.3f s a frame stands for %.1f ms, want at most %.1f", name, film, at, 1000*clipped, 1000*limit)
		}
	}
}

// clipStall is how much later than usual a part may come: players have as much in their buffer.
const clipStall = 600 * time.Millisecond

// clipCrowd lets ten accounts cut five clips each at once while streams are live. Nobody who watches them
// notices.
func clipCrowd(t *testing.T) {
	c := newClipper(t, 4, harness.Shipped(t))
	film := harness.MakeFilm(t, harness.FilmKind{BFrames: 2, FPS: 30, Key: 2, Seconds: 20})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	var streams []*goodStream
	var publishing, watched sync.WaitGroup
	for i := range 5 {
		g := &goodStream{liveStream: newStream(c.w, c.rtmp), name: fmt.Sprintf("stream %d", i), size: 12_500}
		end, err := g.overRTMP(ctx, c.rtmp)
		if err != nil {
			t.Fatal(err)
		}
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		t.Cleanup(watched.Wait)
		t.Cleanup(stop)
		publishing.Go(func() { g.publish(ctx, end) })
		watched.Go(func() { g.watch(watching) })
		streams = append(streams, g)
	}
	var owners []*clipper
	assets := map[*clipper]words.Asset{}
	for i := range 10 {
		o := c.account(fmt.Sprintf("crowd%d@example.com", i))
		owners, assets[o] = append(owners, o), o.upload(film)
	}
	time.Sleep(10 * time.Second) // what is usual
	calm := map[*goodStream]int{}
	for _, g := range streams {
		calm[g] = int(g.sent.Load())
	}

	// The first account clips a stream, up to a moment that is still to come: so all five are in progress.
	air := owners[0].broadcast(film, false)
	frames := air.known()
	began := time.Now()
	end := float64(time.Now().Add(8 * time.Second).UnixMilli())
	var clips []*cutClip
	for i := range atOnce {
		clips = append(clips, owners[0].cut(film, "live", air.stream.playback, frames[i*7].Wall, end))
	}
	status, text := owners[0].w.Do("POST", "/api/clip", map[string]any{"playbackId": air.stream.playback, "startTime": frames[0].Wall, "endTime": end})
	if status != 403 || !strings.Contains(string(text), "Too many clips are being processed.") {
		t.Errorf("the sixth clip of an account: %d %s", status, text)
	}
	sources := map[*clipper][]harness.Frame{}
	for _, o := range owners[1:] {
		sources[o] = o.frames(film, assets[o].PlaybackURL)
		for range atOnce {
			start, end := o.pick(sources[o], harness.FromStart)
			clips = append(clips, o.cut(film, "asset", assets[o].PlaybackID, start, end))
		}
	}
	for _, k := range clips {
		k.c.ready(k.asset.ID)
	}
	t.Logf("%d clips are ready %.1f s after the first was asked for", len(clips), time.Since(began).Seconds())
	for _, g := range streams {
		before, during := g.since(0)[:calm[g]], g.since(calm[g])
		t.Logf("%s, calm: %s; beside clips: %s", g.name, late(before), late(during))
		slices.Sort(before)
		if worst := slices.Max(during); worst > before[len(before)/2]+clipStall {
			t.Errorf("%s: a picture came %v late beside clips, usually it is %v", g.name, worst, before[len(before)/2])
		}
	}
	cancel()
	publishing.Wait()
	for _, g := range streams {
		harness.Eventually(t, g.check) // what is in hand is written when the encoder is gone
	}
	if err := air.encoder.wait(); err != nil {
		t.Error(err)
	}
	sources[owners[0]] = harness.Frames(t, air.stream.url("source/dvr.m3u8"), false)
	for _, k := range clips {
		clock := harness.FromStart
		if k.of == "live" {
			clock = harness.ByWall
		}
		k.check(harness.Window(sources[k.c], clock, k.start, k.end))
	}
}
