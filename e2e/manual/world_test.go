package manual

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/wait"
)

// world is what the blocks of the manual find: a weir with all its protocols, a film, a bucket, a
// receiver of webhooks, and a browser.
type world struct {
	*harness.Weir
	rtmp, srt string
	film      string
	short     string // film.mov, which pages transcode
	modules   string // npm packages
	bin       string // programs: weir
	curl      string // the folder with curl's settings
	bucket    s3test.Bucket
	server    *httptest.Server // /film.mp4, /hook, /npm/, /open

	browsing sync.Mutex // one page at a time
	browser  *harness.Browser
	pages    string // the folder of the pages that the browser opens
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Weir: harness.NewWeir(t), rtmp: harness.FreeAddr(t), srt: harness.FreeAddr(t), bucket: s3test.Start(t)}
	w.film = harness.SmallClip(t)
	w.short = harness.MakeClip(t, "short.mov", "-t", "6", "-i", w.film, "-c", "copy")
	w.modules, w.bin, w.curl, w.pages = t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{"../sdk/node_modules", "../player/node_modules"} {
		linkModules(t, dir, w.modules)
	}
	if err := os.Symlink(harness.Binary, filepath.Join(w.bin, "weir")); err != nil {
		t.Fatal(err)
	}
	// A response of 400 or more is a failure, as a reader would take it.
	if err := os.WriteFile(filepath.Join(w.curl, ".curlrc"), []byte("fail-with-body\nno-progress-meter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for name, path := range w.films() {
		mux.HandleFunc("GET /"+name, func(rw http.ResponseWriter, r *http.Request) { http.ServeFile(rw, r, path) })
	}
	mux.HandleFunc("POST /hook", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /open", w.open)
	w.server = httptest.NewServer(mux)
	t.Cleanup(w.server.Close)
	w.Start("--rtmp", w.rtmp, "--srt", w.srt, "--webrtc", harness.FreeAddr(t), "--ops", harness.FreeAddr(t))
	w.browser = harness.NewBrowser(t, w.pages)
	return w
}

// films are the films by the names that the manual has for them.
func (w *world) films() map[string]string {
	return map[string]string{"film.mp4": w.film, "film.mov": w.short}
}

// linkModules makes links to the packages of a node_modules folder.
func linkModules(t *testing.T, from, to string) {
	t.Helper()
	for _, pattern := range []string{"*", "@*/*"} {
		found, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil || len(found) == 0 && pattern == "*" {
			t.Fatalf("%s has no packages; run: make test (%v)", from, err)
		}
		for _, path := range found {
			name, err := filepath.Rel(from, path)
			if err != nil {
				t.Fatal(err)
			}
			absolute, err := filepath.Abs(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "@") && !strings.Contains(name, "/") {
				if err := os.MkdirAll(filepath.Join(to, name), 0o700); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := os.Symlink(absolute, filepath.Join(to, name)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
	}
}

// replace returns what puts the addresses of this test in the place of those that the manual
// has. The ports 4001 to 4009 are those of the reader's own programs.
func (w *world) replace(t *testing.T) *strings.Replacer {
	t.Helper()
	pairs := []string{
		"http://localhost:8080", w.URL,
		"rtmp://localhost/live", "rtmp://" + w.rtmp + "/live",
		"rtmp://live.example.com/app", "rtmp://" + w.rtmp + "/live",
		"srt://localhost:8890", "srt://" + w.srt,
		"https://example.com/", w.server.URL + "/",
		"https://s3.eu-west-1.amazonaws.com", w.bucket.Endpoint,
		"my-bucket", w.bucket.Name,
		"MY_ACCESS_KEY", s3test.Key,
		"MY_SECRET_KEY", s3test.Secret,
		"https://cdn.jsdelivr.net/npm/hls.js@1.7.4/", w.browser.URL + "/npm/hls.js/",
		"https://cdn.jsdelivr.net/npm/tus-js-client@4.3.1/", w.browser.URL + "/npm/tus-js-client/",
	}
	for port := 4001; port < 4010; port++ {
		_, free, _ := strings.Cut(harness.FreeAddr(t), ":")
		pairs = append(pairs, fmt.Sprint(port), free)
	}
	return strings.NewReplacer(pairs...)
}

// environment is that of a page: the reader's key, and the settings of the server for its commands.
func (w *world) environment(dir string) []string {
	cache, _ := exec.Command("go", "env", "GOCACHE").Output()
	return []string{
		"KEY=" + w.Key, "WEIR=" + w.URL, "CURL_HOME=" + w.curl, "MANUAL=" + w.server.URL, "HOME=" + dir, "GOCACHE=" + strings.TrimSpace(string(cache)),
		"GOFLAGS=-mod=mod", "PATH=" + w.bin + ":/usr/bin:" + os.Getenv("PATH"), // Debian's python3 has its packages
		"WEIR_DATA=" + w.Data, "WEIR_DATABASE=" + w.Database, "WEIR_HTTP=" + strings.TrimPrefix(w.URL, "http://"), "WEIR_RTMP=" + w.rtmp,
		"WEIR_ALLOW_NETWORKS=127.0.0.0/8",
	}
}

// open opens a page in the browser: a URL or a file. Words in
// it that are variables of the shell, such as PLAYBACK_ID, have their values.
func (w *world) open(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		shell := variables(body)
		err = w.browse(shell, shell["BROWSE_URL"], shell["BROWSE_UNTIL"])
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
	}
}

func (w *world) browse(shell map[string]string, url, until string) error {
	w.browsing.Lock()
	defer w.browsing.Unlock()
	if filepath.IsAbs(url) {
		name := filepath.Base(url)
		text, err := os.ReadFile(url)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(w.pages, name), []byte(substitute(string(text), shell)), 0o600); err != nil {
			return err
		}
		url = w.browser.URL + "/files/" + name
	}
	if until == "" {
		until = `document.querySelector("video").currentTime > 0.5`
	}
	ctx, cancel := context.WithTimeout(w.browser.Ctx, wait.Limit)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
		return err
	}
	defer func() { _ = chromedp.Do(w.browser.Ctx, chromedp.Navigate("about:blank")) }()
	if err := use(ctx, w.film); err != nil {
		return err
	}
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](until)); err != nil {
		shown, _ := chromedp.Run(w.browser.Ctx, chromedp.Evaluate[string]("document.body?.innerText ?? ''"))
		return fmt.Errorf("%s does not become true (%w); the page shows: %s", until, err, shown)
	}
	return nil
}

// use does what a person would do on a page: chooses a film, and presses the button.
func use(ctx context.Context, film string) error {
	inputs, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.querySelectorAll("input[type=file]").length`))
	if err != nil {
		return err
	}
	if inputs > 0 {
		if err := chromedp.Do(ctx, chromedp.SetUploadFiles("input[type=file]", []string{film})); err != nil {
			return err
		}
	}
	_, err = chromedp.Run(ctx, chromedp.Evaluate[any](`document.querySelector("button")?.click()`))
	return err
}

// substitute puts the values of variables in the place of their names, the longest name first.
func substitute(text string, shell map[string]string) string {
	var names []string
	for name := range shell {
		if regexp.MustCompile(`^[A-Z]+_[A-Z_]+$|^JWT$`).MatchString(name) {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	if len(names) == 0 {
		return text
	}
	sort.Slice(names, func(i, j int) bool { return len(names[i]) > len(names[j]) })
	return regexp.MustCompile(`\b(`+strings.Join(names, "|")+`)\b`).ReplaceAllStringFunc(text, func(name string) string { return shell[name] })
}
