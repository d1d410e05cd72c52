package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// browser is Chromium in front of a page with players that others wrote
// (player/play.js).
type browser struct {
	t   *testing.T
	ctx context.Context
	url string // of the server that has the page
}

// newBrowser starts one. Below /files/ its server has the files of a folder.
func newBrowser(t *testing.T, files string) *browser {
	t.Helper()
	npm := filepath.Join("player", "node_modules")
	if found, err := filepath.Glob(filepath.Join(npm, "*", "package.json")); err != nil || len(found) == 0 {
		t.Fatalf("the players are not installed; run: make test")
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("player")))
	mux.Handle("/npm/", http.StripPrefix("/npm/", http.FileServer(http.Dir(npm))))
	mux.Handle("/files/", http.StripPrefix("/files/", mediaServer(files)))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Fatal("there is no browser; install chromium")
	}
	allocated, stop := chromedp.NewExecAllocator(
		context.WithoutCancel(t.Context()),
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("mute-audio", true),
		chromedp.Flag("autoplay-policy", "no-user-gesture-required"), chromedp.Flag("disable-features", "HardwareMediaKeyHandling,MediaSessionService"),
		chromedp.Flag("disable-background-media-suspend", true), chromedp.Flag("use-fake-device-for-media-stream", true), chromedp.Flag("use-fake-ui-for-media-stream", true),
		chromedp.WSURLReadTimeout(2*time.Minute),
	)
	ctx, cancel := chromedp.NewContext(allocated)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(800, 600), chromedp.Navigate(server.URL+"/")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the browser has ended
		cancel()
		stop()
	})
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		said, err := chromedp.Run(ctx, chromedp.Evaluate[string](`window.said?.() ?? ""`))
		t.Logf("what hls.js said last: %s %v", said, err)
	})
	return &browser{t, ctx, server.URL}
}

// mediaServer serves a folder as storage with a web address does.
func mediaServer(dir string) http.Handler {
	types := map[string]string{
		".m3u8": "application/vnd.apple.mpegurl", ".mpd": "application/dash+xml", ".ts": "video/mp2t",
		".mp4": "video/mp4", ".m4s": "video/mp4", ".m4a": "audio/mp4",
	}
	files := http.FileServer(http.Dir(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if kind := types[filepath.Ext(r.URL.Path)]; kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		// Not no-store: Chromium then lets requests for ranges of one file wait for one
		// that a player has broken off, for 20 seconds each.
		w.Header().Set("Cache-Control", "max-age=3600")
		files.ServeHTTP(w, r)
	})
}

// played is what a player tells of something that it played to the end.
type played struct {
	Errors     []string
	Changed    bool // from one rendition to another, in the middle
	Jumped     bool // to the middle
	Renditions []playedRendition
}

// playedRendition is one that was played from its start to its end.
type playedRendition struct {
	Name, Codecs            string
	Width, Height           int // as the manifest says
	ShownWidth, ShownHeight int
	Frames                  int // that were decoded
	Corrupted               int
	Holes                   int // in the buffer
	From, Duration, End     float64
	Apart                   float64 // how much later than the video the audio starts
	SoundBytes              int64
}

// play lets a player of the page (hls.js, shaka, video) play something. For shaka,
// codecs says which of several it shall play.
func (b *browser) play(engine, url, codecs string, frames int) played {
	b.t.Helper()
	if strings.HasPrefix(url, "/") {
		url = b.url + "/files" + url
	}
	request, err := json.Marshal(map[string]any{"engine": engine, "url": url, "codecs": codecs, "frames": frames})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Minute)
	defer cancel()
	result, err := chromedp.Run(ctx, chromedp.Evaluate[played]("play("+string(request)+")", chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s at %s: %v", engine, url, err)
	}
	return result
}
