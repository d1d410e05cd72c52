package playback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/weir"
)

// files are paths of all kinds whose bytes can be asked for in ranges.
var files = []string{large + "/init.mp4", large + "/1.m4s", large + "/1.ts", large + ".mp4", "download/my video.mp4", "poster.jpg", "thumbnails/keyframes_0.jpg"}

func TestRanges(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(h *fixture) {
		a := h.newAsset(nil)
		for _, path := range files {
			url := h.at(a, path)
			whole := h.want(url)
			size, etag := len(whole.body), whole.Header.Get("ETag")
			if whole.ContentLength != int64(size) || etag == "" || whole.Header.Get("Accept-Ranges") != "bytes" {
				t.Errorf("%s: %d bytes, Content-Length %d, ETag %q, Accept-Ranges %q", path, size, whole.ContentLength, etag, whole.Header.Get("Accept-Ranges"))
			}
			if head := h.ask("HEAD", url); head.StatusCode != 200 || head.ContentLength != int64(size) || head.Header.Get("ETag") != etag || head.body != "" {
				t.Errorf("HEAD %s: %d, Content-Length %d", path, head.StatusCode, head.ContentLength)
			}
			for _, tt := range []struct {
				name    string
				headers []string
				status  int
				from    int
				to      int // of the bytes in the response
			}{
				{"first bytes", []string{"Range", "bytes=0-4"}, 206, 0, 5},
				{"from the middle", []string{"Range", fmt.Sprintf("bytes=%d-", size/2)}, 206, size / 2, size},
				{"in the middle", []string{"Range", fmt.Sprintf("bytes=%d-%d", size/2, size/2+2)}, 206, size / 2, size/2 + 3},
				{"last bytes", []string{"Range", "bytes=-3"}, 206, size - 3, size},
				{"more than there is", []string{"Range", fmt.Sprintf("bytes=1-%d", size+100)}, 206, 1, size},
				{"after the end", []string{"Range", fmt.Sprintf("bytes=%d-", size)}, 416, 0, 0},
				{"several", []string{"Range", "bytes=0-0,2-2"}, 200, 0, size},
				{"no range", []string{"Range", "chapters=1"}, 416, 0, 0},
				{"known", []string{"If-None-Match", etag}, 304, 0, 0},
				{"known among others", []string{"If-None-Match", `"x", W/` + etag}, 304, 0, 0},
				{"known as another", []string{"If-None-Match", `"x"`}, 200, 0, size},
				{"if it is the same", []string{"Range", "bytes=2-3", "If-Range", etag}, 206, 2, 4},
				{"if it were another", []string{"Range", "bytes=2-3", "If-Range", `"x"`}, 200, 0, size},
				{"only another", []string{"If-Match", `"x"`}, 412, 0, 0},
			} {
				g := h.get(url, tt.headers...)
				if g.StatusCode != tt.status {
					t.Errorf("%s: %s: %d, want %d", path, tt.name, g.StatusCode, tt.status)
					continue
				}
				if tt.status < 300 && (g.body != whole.body[tt.from:tt.to] || g.ContentLength != int64(tt.to-tt.from)) {
					t.Errorf("%s: %s: %d bytes with Content-Length %d, want bytes %d to %d", path, tt.name, len(g.body), g.ContentLength, tt.from, tt.to)
				}
				if tt.status == 206 && g.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", tt.from, tt.to-1, size) {
					t.Errorf("%s: %s: Content-Range %q", path, tt.name, g.Header.Get("Content-Range"))
				}
			}
		}
		if text := h.logged.String(); strings.Contains(text, "level=ERROR") {
			t.Errorf("the log has errors:\n%s", text)
		}
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	const forever = "public, max-age=3600, immutable"
	for path, want := range map[string][3]string{ // type, caching, disposition
		"index.m3u8":                 {"application/vnd.apple.mpegurl", "public, max-age=10"},
		large + "/index.m3u8":        {"application/vnd.apple.mpegurl", "public, max-age=10"},
		large + "/init.mp4":          {"video/mp4", forever},
		large + "/0.m4s":             {"video/mp4", forever},
		large + "/0.ts":              {"video/mp2t", forever},
		large + ".mp4":               {"video/mp4", forever},
		"thumbnails/thumbnails.vtt":  {"text/vtt; charset=utf-8", "public, max-age=10"},
		"thumbnails/keyframes_0.jpg": {"image/jpeg", forever},
		"poster.jpg":                 {"image/jpeg", forever},
		"download/a.html":            {"application/octet-stream", forever, "attachment; filename=a.html"},
		"download/ö \".mp4":          {"application/octet-stream", forever, "attachment; filename*=utf-8''%C3%B6%20%22.mp4"},
	} {
		g := h.want(h.at(a, path))
		got := [3]string{g.Header.Get("Content-Type"), g.Header.Get("Cache-Control"), g.Header.Get("Content-Disposition")}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin",
		} {
			if g.Header.Get(name) != value {
				t.Errorf("%s: %s is %q", path, name, g.Header.Get(name))
			}
		}
		if g := h.get(h.at(a, path), "If-None-Match", g.Header.Get("ETag")); g.StatusCode != http.StatusNotModified {
			t.Errorf("%s: %d when the viewer has it, want 304", path, g.StatusCode)
		}
	}
	g := h.ask("OPTIONS", h.at(a, "index.m3u8"), "Origin", "https://x.example", "Access-Control-Request-Headers", "livepeer-jwt, range")
	if g.StatusCode != 204 || g.Header.Get("Access-Control-Allow-Headers") != "livepeer-jwt, range" || !strings.Contains(g.Header.Get("Access-Control-Allow-Methods"), "GET") {
		t.Errorf("preflight: %d %v", g.StatusCode, g.Header)
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if g := h.ask(method, h.at(a, "index.m3u8")); g.StatusCode != 405 || g.Header.Get("Allow") == "" {
			t.Errorf("%s: %d", method, g.StatusCode)
		}
	}
}

func TestNothingElseIsServed(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	h.put("asset/"+a.ID+"/thumbnails/secret.txt", "secret")
	for _, path := range []string{
		"", "video", "presentation.json", large, large + "/", large + "/index", large + "/0", large + "/00.m4s", large + "/-1.m4s", large + "/+1.m4s",
		large + "/9.m4s", large + "/9999999999999999999.m4s", large + "/0.m4s/x", large + "/0.mp4", "x/index.m3u8", "x/0.m4s", "x.mp4", ".mp4",
		"thumbnails", "thumbnails/", "thumbnails/secret.txt", "thumbnails/x.jpg", "thumbnails/../poster.jpg", "thumbnails/..%2fposter.jpg",
		"thumbnails/a/b.jpg", "thumbnails/\x00.jpg", "download", "download/", "download/a/b", "poster.jpeg", "t", "audio0", "source/index.m3u8",
	} {
		// Not by http.Client or a mux, which clean paths.
		r, err := http.NewRequest("GET", "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path = "/hls/" + a.PlaybackID + "/" + path
		w := &memory{header: http.Header{}}
		h.server.ServeHTTP(w, r)
		if w.status != http.StatusNotFound || strings.Contains(w.body.String(), a.ID) {
			t.Errorf("%q: %d %s", path, w.status, w.body.String())
		}
	}
	for _, id := range []string{"", "nobody", a.ID} {
		if g := h.get(h.web.URL + "/hls/" + id + "/index.m3u8"); g.StatusCode != http.StatusNotFound {
			t.Errorf("id %q: %d", id, g.StatusCode)
		}
	}
}

// memory is a response that stays here.
type memory struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (m *memory) Header() http.Header         { return m.header }
func (m *memory) WriteHeader(status int)      { m.status = status }
func (m *memory) Write(b []byte) (int, error) { return m.body.Write(b) }

// unreadable is a file that can't be read.
type unreadable struct{ io.Seeker }

func (unreadable) Read([]byte) (int, error) { return 0, errors.New("planted") }

// A file of which nothing can be read is a failure, and no empty success.
func TestUnreadableFile(t *testing.T) {
	s := &Server{Options: Options{Log: slog.New(slog.DiscardHandler)}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	sent := &memory{header: http.Header{"Content-Type": {typeMP4}}}
	w := s.response(sent, r)
	if err := serveFile(w, &request{Request: r}, unreadable{strings.NewReader("0123456789")}); err != nil {
		s.fail(w, &request{Request: r}, routeSegment, err)
	}
	w.End()
	if sent.status != http.StatusInternalServerError || w.Status() != sent.status || strings.Contains(sent.body.String(), "planted") {
		t.Errorf("status %d was sent, %d recorded: %s", sent.status, w.Status(), &sent.body)
	}
}

// failing is a storage whose objects can't be read, or only so many bytes of each.
type failing struct {
	blob.Store
	mu    sync.Mutex
	err   error
	after int64
	open  int
}

func (f *failing) Path(string) (string, bool) { return "", false }

func (f *failing) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil && f.after == 0 {
		return nil, blob.Info{}, f.err
	}
	body, info, err := f.Store.Get(ctx, key, offset, length)
	if err != nil {
		return nil, info, err
	}
	f.open++
	return &failingBody{body, f, f.after, f.err}, info, nil
}

func (f *failing) set(err error, after int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.after = err, after
}

func (f *failing) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

type failingBody struct {
	io.ReadCloser
	storage *failing
	left    int64
	err     error
}

func (b *failingBody) Read(p []byte) (int, error) {
	if b.err != nil {
		if b.left == 0 {
			return 0, b.err
		}
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

func (b *failingBody) Close() error {
	b.storage.mu.Lock()
	b.storage.open--
	b.storage.mu.Unlock()
	return b.ReadCloser.Close()
}

func TestStorageFails(t *testing.T) {
	t.Parallel()
	storage := &failing{Store: newDisk(t)}
	h := newFixture(t, storage)
	a := h.newAsset(nil)
	h.want(h.at(a, large+".mp4"))
	title, err := h.server.titles.find(t.Context(), a.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		err     error
		status  int
		caching string
	}{
		{weir.Errorf(weir.Upstream, "planted: bucket of somebody"), http.StatusServiceUnavailable, "public, max-age=1"},
		{weir.Errorf(weir.NotFound, "planted: bucket of somebody"), http.StatusNotFound, "public, max-age=1"},
		{errors.New("planted"), http.StatusInternalServerError, "public, max-age=1"},
	} {
		storage.set(tt.err, 0)
		for _, path := range []string{large + "/0.m4s", large + "/0.ts", "download/x", "poster.jpg"} {
			g := h.get(h.at(a, path))
			if g.StatusCode != tt.status || strings.Contains(g.body, "planted") || g.Header.Get("Cache-Control") != tt.caching || g.Header.Get("ETag") != "" {
				t.Errorf("%s: %d %s %v, want %d, %s", path, g.StatusCode, g.body, g.Header, tt.status, tt.caching)
			}
		}
		// A title that is not known yet.
		h.server.titles.forget(a.PlaybackID)
		if g := h.get(h.at(a, "index.m3u8")); g.StatusCode != tt.status || strings.Contains(g.body, "planted") {
			t.Errorf("index.m3u8: %d %s, want %d", g.StatusCode, g.body, tt.status)
		}
		storage.set(nil, 0)
		h.want(h.at(a, "index.m3u8"))
	}
	if !strings.Contains(h.logged.String(), "planted") {
		t.Error("the log does not say why")
	}
	// In the middle: the viewer notices that the response is too short.
	size := title.video[0].Index().Segments[0].Size()
	storage.set(weir.Errorf(weir.Upstream, "planted"), size/2)
	for _, path := range []string{large + "/0.m4s", large + ".mp4"} {
		response, err := h.web.Client().Get(h.at(a, path))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil || response.StatusCode != 200 || int64(len(body)) >= response.ContentLength {
			t.Errorf("%s: %d, %d bytes of %d, error %v", path, response.StatusCode, len(body), response.ContentLength, err)
		}
	}
	storage.set(nil, 0)
	if n := storage.left(); n != 0 {
		t.Errorf("%d objects are still open", n)
	}
}

// bigSize is more than the buffers of a connection take.
const bigSize = 24 << 20

// bigAsset is an asset whose source is too big for the buffers of a connection.
func (h *fixture) bigAsset() weir.Asset {
	h.Helper()
	a := h.newRow(nil, weir.AssetReady)
	h.present(a, media.Presentation{Complete: true})
	data := bytes.Repeat([]byte("0123456789abcdef"), bigSize/16)
	if err := h.media.Put(h.Context(), "asset/"+a.ID+"/video", bytes.NewReader(data), int64(len(data)), blob.PutOptions{}); err != nil {
		h.Fatal(err)
	}
	return a
}

// dial asks for something and returns the connection, with nothing of the response read.
func (h *fixture) dial(a weir.Asset, path string) net.Conn {
	h.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.web.URL, "http://"))
	if err != nil {
		h.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /hls/%s/%s HTTP/1.1\r\nHost: x\r\n\r\n", a.PlaybackID, path); err != nil {
		h.Fatal(err)
	}
	return conn
}

// The connection of a viewer who does not read is closed, and a viewer who leaves leaks nothing.
func TestViewersWhoDoNotRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		leave   bool
	}{
		{"idle", 50 * time.Millisecond, false},
		{"closed", time.Hour, true},
	} {
		for _, kind := range []string{"disk", "elsewhere"} {
			t.Run(tt.name+" "+kind, func(t *testing.T) {
				disk := newDisk(t)
				storage := &failing{Store: disk}
				h := newFixture(t, disk)
				if kind != "disk" {
					h.server.Media = storage
				}
				ended := make(chan int64, 1)
				h.server.timeout = tt.timeout
				h.server.Observe = func(context.Context, string, int, time.Duration) { ended <- 0 }
				a := h.bigAsset()
				conn := h.dial(a, "download/x")
				defer conn.Close()
				var first [1]byte
				if _, err := io.ReadFull(conn, first[:]); err != nil {
					t.Fatal(err)
				}
				if tt.leave {
					conn.Close()
				}
				<-ended
				if n := storage.left(); n != 0 {
					t.Errorf("%d objects are still open", n)
				}
			})
		}
	}
}

// A slow viewer gets the whole file.
func TestTimeout(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.timeout = 5 * time.Second
	a := h.bigAsset()
	g := h.want(h.at(a, "download/x"))
	if len(g.body) != bigSize || g.ContentLength != bigSize {
		t.Errorf("%d bytes came, Content-Length %d", len(g.body), g.ContentLength)
	}
}

// filesConn counts the bytes of files that the kernel copies to a connection.
type filesConn struct {
	*net.TCPConn
	sent *atomic.Int64
}

func (c filesConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	if limited, ok := r.(*io.LimitedReader); ok {
		if _, ok := limited.R.(syscall.Conn); ok {
			c.sent.Add(n)
		}
	}
	return n, err
}

type filesListener struct {
	net.Listener
	sent *atomic.Int64
}

func (l filesListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return filesConn{c.(*net.TCPConn), l.sent}, nil
}

// The kernel copies what is a file on this disk to the connection, except for its first bytes.
func TestFilesAreSentByTheKernel(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a, big := h.newAsset(nil), h.bigAsset()
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	var sent atomic.Int64
	ended := make(chan struct{}, 1)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.server.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	web.Listener = filesListener{web.Listener, &sent}
	web.Start()
	t.Cleanup(web.Close)
	const first = 1024 // at most, because they are needed before the status is sent
	for _, path := range []string{
		a.PlaybackID + "/" + large + "/0.m4s", a.PlaybackID + "/" + large + "/0.ts", big.PlaybackID + "/download/x", s.PlaybackID + "/source/0.m4s",
	} {
		before := sent.Load()
		g := h.want(web.URL + "/hls/" + path)
		<-ended
		if n := sent.Load() - before; n < int64(len(g.body))-first || len(g.body) <= first {
			t.Errorf("%s: the kernel sent %d of %d bytes", path, n, len(g.body))
		}
	}
}
