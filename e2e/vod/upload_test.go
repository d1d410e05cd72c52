package vod

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
	words "weir/internal/weir"
)

// upload is the response to a request for an upload.
type upload struct {
	URL         string
	TusEndpoint string
	Asset       words.Asset
	Task        struct{ ID string }
}

// TestUpload sends a file to where weir says, plays it and reads all that there is
// of it.
func TestUpload(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	file := harness.SmallClip(t)
	u, took := sendUpload(w, file)
	t.Logf("the first segment plays %.2f s after the last byte", took.Seconds())
	w.Completed(u.Task.ID)
	a := ready(w, u.Asset.ID)
	sum := sum256(t, file)
	if len(a.Hash) != 1 || a.Hash[0].Algorithm != "sha256" || a.Hash[0].Hash != sum || a.Size != harness.FileSize(t, file) || a.Type != "video" {
		t.Errorf("the asset is %+v, want the sum %s", a, sum)
	}
	base := w.URL + "/hls/" + a.PlaybackID
	if a.PlaybackURL != base+"/index.m3u8" {
		t.Errorf("it plays at %s", a.PlaybackURL)
	}
	if response, body := get(w, a.DownloadURL); fmt.Sprintf("%x", sha256.Sum256(body)) != sum {
		t.Errorf("what can be downloaded is %d with %d bytes, not the source", response.StatusCode, len(body))
	}
	checkThumbnails(w, base)

	// Everything is read over HTTP once, and looked at as files. Those who watched it
	// grow see all of it a little later.
	const renditions = 2
	dir := t.TempDir()
	harness.Eventually(t, func() error {
		if _, text := get(w, base+"/index.m3u8"); strings.Count(string(text), "#EXT-X-STREAM-INF") != renditions {
			return fmt.Errorf("want %d renditions:\n%s", renditions, text)
		}
		return nil
	})
	mirror(w, base, "index.m3u8", dir)
	mirror(w, base, "ts.m3u8", dir)
	checks := newOutputs(t, dir, 250, 10)
	checks.hls("index.m3u8")
	checks.hls("ts.m3u8")
	source := harness.ReadMaster(t, dir, "index.m3u8").Variants[0]
	name := filepath.Dir(source.Uri)
	video, _, _ := strings.Cut(source.Codecs, ",")
	save(w, base+"/"+name+".mp4", filepath.Join(dir, name+".mp4"))
	checks.mp4(name+".mp4", video, true)
	checks.runParsers()

	player := harness.NewBrowser(t, dir)
	check(player, "hls.js", base+"/index.m3u8", "", 250, 10, renditions)
	check(player, "shaka", base+"/index.m3u8", "", 250, 10, renditions)
	check(player, "hls.js", base+"/ts.m3u8", "", 250, 10, renditions)
	check(player, "video", base+"/"+name+".mp4", "", 250, 10, 1)
	player.Open(w.URL + "/play/" + a.PlaybackID)
	player.Moves(nil)

	w.Must("DELETE", "/api/asset/"+a.ID, nil, nil)
	harness.Eventually(t, func() error {
		if response, _ := get(w, base+"/"+name+"/0.m4s"); response.StatusCode != http.StatusNotFound {
			return fmt.Errorf("a segment of a deleted asset is answered with %d", response.StatusCode)
		}
		return nil
	})
	w.Stop()
}

// sendUpload sends a file in one request, and returns how long after its last byte the
// first segment could be played.
func sendUpload(w *harness.Weir, file string) (upload, time.Duration) {
	w.T.Helper()
	var u upload
	w.Must("POST", "/api/asset/request-upload", map[string]any{"name": filepath.Base(file)}, &u)
	f, err := os.Open(file)
	if err != nil {
		w.T.Fatal(err)
	}
	defer f.Close()
	last := &lastRead{r: f}
	r, err := http.NewRequestWithContext(w.T.Context(), http.MethodPut, u.URL, last)
	if err != nil {
		w.T.Fatal(err)
	}
	r.ContentLength = harness.FileSize(w.T, file)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		w.T.Fatalf("the upload is answered with %d", response.StatusCode)
	}
	base := w.URL + "/hls/" + u.Asset.PlaybackID
	var segment []byte
	harness.Eventually(w.T, func() error {
		if segment = firstSegment(w, base); segment == nil {
			return fmt.Errorf("it does not play; weir says:\n%s", harness.Tail(harness.WithoutRequests(w.Log.String())))
		}
		return nil
	})
	took := time.Since(last.at)
	name := filepath.Join(w.T.TempDir(), "first.mp4")
	if err := os.WriteFile(name, segment, 0o600); err != nil {
		w.T.Fatal(err)
	}
	if n := len(harness.FrameSums(w.T, name)); n < 25 {
		w.T.Errorf("the first segment has %d frames", n)
	}
	return u, took
}

// lastRead is a body that knows when it was read to the end.
type lastRead struct {
	r  io.Reader
	at time.Time
}

func (l *lastRead) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.at = time.Now()
	return n, err
}

// firstSegment returns what a player needs to play the first segment of an asset; nil
// = it can't be played yet.
func firstSegment(w *harness.Weir, base string) []byte {
	w.T.Helper()
	response, text := get(w, base+"/index.m3u8")
	if response.StatusCode != http.StatusOK {
		return nil
	}
	media := strings.TrimSpace(string(text[bytes.LastIndexByte(bytes.TrimSpace(text), '\n')+1:]))
	response, text = get(w, base+"/"+media)
	first := regexp.MustCompile(`(?m)^#EXTINF:.*\n(.*)$`).FindStringSubmatch(string(text))
	if response.StatusCode != http.StatusOK || first == nil {
		return nil
	}
	folder := base + "/" + media[:strings.LastIndexByte(media, '/')+1]
	_, init := get(w, folder+"init.mp4")
	response, segment := get(w, folder+first[1])
	if response.StatusCode != http.StatusOK {
		return nil
	}
	return append(init, segment...)
}

// get reads an address as a viewer does, without a key.
func get(w *harness.Weir, url string) (*http.Response, []byte) {
	w.T.Helper()
	r, err := http.NewRequestWithContext(w.T.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	return response, body
}

// save reads an address to a file.
func save(w *harness.Weir, url, file string) []byte {
	w.T.Helper()
	response, body := get(w, url)
	if response.StatusCode != http.StatusOK {
		w.T.Fatalf("%s: %d %s", url, response.StatusCode, body)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		w.T.Fatal(err)
	}
	if err := os.WriteFile(file, body, 0o600); err != nil {
		w.T.Fatal(err)
	}
	return body
}

// mirror saves a playlist and all that it names, on its way down.
func mirror(w *harness.Weir, base, name, dir string) {
	w.T.Helper()
	text := save(w, base+"/"+name, filepath.Join(dir, name))
	seen := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^([^#\n]+)$|URI="([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
		child := filepath.Join(filepath.Dir(name), found[1]+found[2])
		switch {
		case seen[child]:
		case strings.HasSuffix(child, ".m3u8"):
			mirror(w, base, child, dir)
		default:
			save(w, base+"/"+child, filepath.Join(dir, child))
		}
		seen[child] = true
	}
}

// ready waits until an asset is.
func ready(w *harness.Weir, id string) (a words.Asset) {
	w.T.Helper()
	harness.Eventually(w.T, func() error {
		w.Must("GET", "/api/asset/"+id, nil, &a)
		if a.Status.Phase != words.AssetReady {
			return fmt.Errorf("the asset is %+v", a.Status)
		}
		return nil
	})
	return a
}

// checkThumbnails reads the list of pictures, the pictures, and the poster.
func checkThumbnails(w *harness.Weir, base string) {
	w.T.Helper()
	response, vtt := get(w, base+"/thumbnails/thumbnails.vtt")
	cues := regexp.MustCompile(`(?m)^(\S+) --> (\S+)\n(\S+)$`).FindAllStringSubmatch(string(vtt), -1)
	if response.StatusCode != http.StatusOK || len(cues) == 0 || cues[0][1] != "00:00:00.000" || cues[len(cues)-1][2] != "00:00:10.000" {
		w.T.Fatalf("thumbnails: %d\n%s", response.StatusCode, vtt)
	}
	dir := w.T.TempDir()
	pictures := []string{"poster.jpg"}
	for _, cue := range cues {
		pictures = append(pictures, "thumbnails/"+cue[3])
	}
	for _, name := range pictures {
		save(w, base+"/"+name, filepath.Join(dir, name))
		if s := harness.FFprobe(w.T, filepath.Join(dir, name)).Streams; len(s) != 1 || s[0].Codec != "mjpeg" || s[0].Width == 0 {
			w.T.Errorf("%s is no picture: %+v", name, s)
		}
	}
}

func sum256(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// TestTus uploads with the client that browsers use, and kills weir in the middle:
// the client goes on where it was.
func TestTus(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	front := newFront(t)
	w.Start("--public-url", front.URL)
	front.to(w.URL)
	const partSize = 1 << 20
	file := harness.MakeClip(t, "tus.mkv", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=6,noise=alls=100:allf=t",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-qp", "8")
	size := harness.FileSize(t, file)
	if size < 6*partSize {
		t.Fatalf("the file has only %d bytes", size)
	}
	var u upload
	w.Must("POST", "/api/asset/request-upload", map[string]any{"name": "resumed"}, &u)
	if !strings.HasPrefix(u.TusEndpoint, front.URL+"/") {
		t.Fatalf("the address is %s, want it at %s", u.TusEndpoint, front.URL)
	}
	client := exec.CommandContext(t.Context(), "node", "tus.mjs", file, u.TusEndpoint, fmt.Sprint(partSize))
	client.Dir = "../player"
	said := &harness.LockedBuffer{}
	client.Stdout, client.Stderr = said, said
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	front.wait(size / 2)
	w.Kill()
	front.to("")
	w.Start("--public-url", front.URL)
	front.to(w.URL)
	if err := client.Wait(); err != nil || !strings.Contains(said.String(), "done") {
		t.Fatalf("the client: %v\n%s", err, said)
	}
	if !regexp.MustCompile(`HEAD 200 [1-9]`).MatchString(said.String()) {
		t.Errorf("the upload did not go on, but began again:\n%s", said)
	}
	if sent := front.sent.Load(); sent > size+2*partSize {
		t.Errorf("%d bytes were sent of a file of %d", sent, size)
	}
	w.Completed(u.Task.ID)
	if a := ready(w, u.Asset.ID); a.Size != size || a.Hash[0].Hash != sum256(t, file) {
		t.Errorf("the asset has %d bytes with the sum %v", a.Size, a.Hash)
	}
	w.Stop()
}

// front is what stands before weir and stays when weir is restarted. It counts what
// is sent by PATCH.
type front struct {
	*httptest.Server
	t      *testing.T
	target atomic.Pointer[url.URL]
	sent   atomic.Int64
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{t: t}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			target := f.target.Load()
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, r.In.Host
		},
		// The client sees a connection that breaks, as it would without us.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if f.target.Load() == nil {
			panic(http.ErrAbortHandler)
		}
		if r.Method == http.MethodPatch {
			r.Body = &countingBody{r.Body, &f.sent}
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// to says where weir is now; "" = nowhere.
func (f *front) to(base string) {
	f.t.Helper()
	if base == "" {
		f.target.Store(nil)
		return
	}
	u, err := url.Parse(base)
	if err != nil {
		f.t.Fatal(err)
	}
	f.target.Store(u)
}

// wait waits until so many bytes were sent.
func (f *front) wait(n int64) {
	f.t.Helper()
	harness.Eventually(f.t, func() error {
		if sent := f.sent.Load(); sent < n {
			return fmt.Errorf("%d of %d bytes were sent", sent, n)
		}
		return nil
	})
}

type countingBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}
