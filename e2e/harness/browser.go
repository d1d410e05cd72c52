package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"weir/internal/wait"
)

// Browser is Chromium in front of a page with players that others wrote
// (player/play.js).
type Browser struct {
	T   *testing.T
	Ctx context.Context
	URL string // of the server that has the page
}

// NewBrowser starts one. Below /files/ its server has the files of a folder.
func NewBrowser(t *testing.T, files string) *Browser {
	t.Helper()
	npm := filepath.Join("..", "player", "node_modules")
	if found, err := filepath.Glob(filepath.Join(npm, "*", "package.json")); err != nil || len(found) == 0 {
		t.Fatalf("the players are not installed; run: make test")
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join("..", "player"))))
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
		chromedp.WSURLReadTimeout(wait.Limit),
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
	return &Browser{t, ctx, server.URL}
}

// Bundle makes one script of a module in player/ and the packages that it imports. Pages load it from
// /files/, if files is the folder that NewBrowser got.
func Bundle(t *testing.T, module, files string) {
	t.Helper()
	player := filepath.Join("..", "player")
	cmd := exec.CommandContext(t.Context(), filepath.Join(player, "node_modules", ".bin", "esbuild"), filepath.Join(player, module),
		"--bundle", "--format=iife", "--log-level=error", "--outfile="+filepath.Join(files, module))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("esbuild: %v\n%s", err, out)
	}
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

// Play lets a player of the page (hls.js, shaka, video) play something. For shaka,
// codecs says which of several it shall play.
func (b *Browser) Play(engine, url, codecs string, frames int) played {
	b.T.Helper()
	if strings.HasPrefix(url, "/") {
		url = b.URL + "/files" + url
	}
	request, err := json.Marshal(map[string]any{"engine": engine, "url": url, "codecs": codecs, "frames": frames})
	if err != nil {
		b.T.Fatal(err)
	}
	result, err := chromedp.Run(b.Ctx, chromedp.Evaluate[played]("play("+string(request)+")", chromedp.EvalAwaitPromise))
	if err != nil {
		b.T.Fatalf("%s at %s: %v", engine, url, err)
	}
	return result
}

// Open shows a page of weir, and keeps what the browser complains of.
func (b *Browser) Open(url string) {
	b.T.Helper()
	if err := chromedp.Do(b.Ctx, chromedp.Navigate(url)); err != nil {
		b.T.Fatal(err)
	}
	if _, err := chromedp.Run(b.Ctx, chromedp.Evaluate[any](`globalThis.violations = []; document.addEventListener('securitypolicyviolation',
		(e) => violations.push(e.effectiveDirective + ' ' + e.blockedURI)); null`)); err != nil {
		b.T.Fatal(err)
	}
}

// Text evaluates an expression on the page.
func (b *Browser) Text(expression string) string {
	b.T.Helper()
	text, err := chromedp.Run(b.Ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.T.Fatal(err)
	}
	return text
}

// Stays looks whether the page was allowed all that it tried.
func (b *Browser) Stays() {
	b.T.Helper()
	if broken := b.Text("violations.join(', ')"); broken != "" {
		b.T.Errorf("the page does what its policy forbids: %s", broken)
	}
}

// Moves waits until the watch page has shown pictures for two seconds, with nothing
// written over them. e is the encoder, nil for what is stored.
func (b *Browser) Moves(running func() error) {
	b.T.Helper()
	type shown struct {
		At     float64
		Frames int
		Hidden bool
		Muted  bool
	}
	var first *shown
	Eventually(b.T, func() error {
		if running != nil {
			if err := running(); err != nil {
				b.T.Fatal(err)
			}
		}
		now, err := chromedp.Run(b.Ctx, chromedp.Evaluate[shown](`(() => { const v = document.getElementById('video');
			return {At: v.currentTime, Frames: v.getVideoPlaybackQuality().totalVideoFrames, Hidden: document.getElementById('state').hidden, Muted: v.muted}; })()`))
		if err != nil {
			b.T.Fatal(err)
		}
		if first == nil && now.Frames > 0 && now.Hidden {
			first = &now
		}
		if first == nil || now.At < first.At+2 || now.Frames < first.Frames+40 || !now.Hidden {
			return fmt.Errorf("the page shows %+v, first %+v", now, first)
		}
		return nil
	})
	b.Stays()
}
