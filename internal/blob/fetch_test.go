package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/blob/s3test"
	"weir/internal/guard"
	"weir/internal/weir"
)

// The tests stay on this machine: 127.0.0.2 stands for the public internet, which the guard of the
// tests allows, and 127.0.0.1 for the private network.
const (
	public  = "127.0.0.2"
	private = "127.0.0.1"
)

func testGuard(t *testing.T, networks ...string) *guard.Guard {
	allow := []netip.Prefix{netip.MustParsePrefix(public + "/32")}
	for _, n := range networks {
		allow = append(allow, netip.MustParsePrefix(n))
	}
	g := guard.New(allow)
	t.Cleanup(g.Client(0).CloseIdleConnections)
	return g
}

func testFetcher(t *testing.T) *Fetcher {
	return &Fetcher{Guard: testGuard(t), timing: quick, window: 64 << 10, fast: 1 << 60}
}

// serveAt starts a server at an address of this machine.
func serveAt(t *testing.T, addr string, h http.Handler) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// source is a web server with one file, which counts what it sends. Before it serves
// request number n it asks fault, which may answer by itself and return true.
type source struct {
	content  []byte
	etag     string
	modified string
	noRanges bool
	noLength bool
	fault    func(n int, w http.ResponseWriter, r *http.Request) bool

	requests atomic.Int64
	sent     atomic.Int64
	busy     atomic.Int64 // requests at this moment
	maxBusy  atomic.Int64
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(s.requests.Add(1))
	for busy := s.busy.Add(1); ; {
		limit := s.maxBusy.Load()
		if busy <= limit || s.maxBusy.CompareAndSwap(limit, busy) {
			break
		}
	}
	defer s.busy.Add(-1)
	out := &countingWriter{ResponseWriter: w, sent: &s.sent}
	if s.fault != nil && s.fault(n, out, r) {
		return
	}
	s.serve(out, r)
}

func (s *source) serve(w http.ResponseWriter, r *http.Request) {
	if s.etag != "" {
		w.Header().Set("ETag", s.etag)
	}
	if s.modified != "" {
		w.Header().Set("Last-Modified", s.modified)
	}
	if s.noRanges {
		r.Header.Del("Range")
		if !s.noLength {
			w.Header().Set("Content-Length", strconv.Itoa(len(s.content)))
		}
		_, _ = w.Write(s.content)
		return
	}
	modified, _ := http.ParseTime(s.modified)
	http.ServeContent(w, r, "video.mp4", modified, bytes.NewReader(s.content))
}

type countingWriter struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// breakOff sends the headers and the first bytes of the answer and cuts the connection.
func (s *source) breakOff(w http.ResponseWriter, r *http.Request, after int) {
	s.serve(&brokenWriter{w, after}, r)
}

// brokenWriter writes a few bytes and then ends the connection.
type brokenWriter struct {
	http.ResponseWriter
	left int
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	w.left -= n
	if err == nil && w.left == 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// ReadFrom keeps io.Copy from going around Write.
func (w *brokenWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w}, r)
}

// noise returns bytes that are the same for the same seed.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	content := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(content)
	return content
}

func spoolFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// checkFetched checks that a file has the content and that the fetcher says so.
func checkFetched(t *testing.T, f *os.File, got Fetched, want []byte) {
	t.Helper()
	content, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, want) {
		t.Errorf("the file has %d bytes, want %d, or others", len(content), len(want))
	}
	sum := sha256.Sum256(want)
	if got.Size != int64(len(want)) || got.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("fetched = %+v, want size %d, sha256 %x", got, len(want), sum)
	}
}

func TestFetchReadsEachByteOnce(t *testing.T) {
	const window = 64 << 10
	for _, size := range []int{0, 1, window - 1, window, window + 1, 3*window + 5, 4 * window, 20*window + 7} {
		for _, spool := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d bytes, spool %v", size, spool), func(t *testing.T) {
				t.Parallel()
				src := &source{content: noise(1, size), etag: `"v1"`}
				server := serveAt(t, public, src)
				f := spoolFile(t)
				var w io.Writer = f
				if !spool {
					w = struct{ io.Writer }{f}
				}
				var last int64
				got, err := testFetcher(t).Fetch(t.Context(), server.URL+"/video.mp4", w, func(done, total int64) {
					if done < last || total != int64(size) {
						t.Errorf("progress %d of %d after %d", done, total, last)
					}
					last = done
				})
				if err != nil {
					t.Fatal(err)
				}
				checkFetched(t, f, got, src.content)
				if last != int64(size) {
					t.Errorf("last progress %d", last)
				}
				server.Close() // when all handlers are done, all is counted
				if sent := src.sent.Load(); sent > int64(size)+100 || sent < int64(size) {
					t.Errorf("the server sent %d bytes, want %d", sent, size)
				}
			})
		}
	}
}

func TestFetchReadsLargeSourcesInParallel(t *testing.T) {
	t.Parallel()
	src := &source{content: noise(2, 40*64<<10), etag: `"v1"`}
	var both sync.WaitGroup
	both.Add(2)
	src.fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n == 2 || n == 3 {
			// Each of two requests waits for the other.
			both.Done()
			both.Wait()
		}
		return false
	}
	server := serveAt(t, public, src)
	f := spoolFile(t)
	got, err := testFetcher(t).Fetch(t.Context(), server.URL, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, f, got, src.content)
	server.Close()
	if sent := src.sent.Load(); sent != int64(len(src.content)) {
		t.Errorf("the server sent %d bytes, want %d", sent, len(src.content))
	}
	if limit := src.maxBusy.Load(); limit < 2 || limit > connections {
		t.Errorf("%d requests at the same time, want 2 to %d", limit, connections)
	}
}

// TestFetchFromFastServer checks that one connection is used where it is enough.
func TestFetchFromFastServer(t *testing.T) {
	t.Parallel()
	src := &source{content: noise(11, 40*64<<10), etag: `"v1"`}
	server := serveAt(t, public, src)
	fetcher, f := testFetcher(t), spoolFile(t)
	fetcher.fast = 1
	got, err := fetcher.Fetch(t.Context(), server.URL, f, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, f, got, src.content)
	server.Close()
	if n, sent := src.requests.Load(), src.sent.Load(); n != 2 || sent != int64(len(src.content)) {
		t.Errorf("%d requests and %d bytes, want 2 and %d", n, sent, len(src.content))
	}
}

// TestFetchFromOddServers is about servers that do less than they could, or do it
// strangely, but whose bytes can be had.
func TestFetchFromOddServers(t *testing.T) {
	const date = "Mon, 02 Jan 2006 15:04:05 GMT"
	big := noise(3, 10*64<<10+17)
	for _, tt := range []struct {
		name     string
		src      *source
		requests int64 // 0 = any number
		overhead int64 // bytes that may be sent beside the content
	}{
		{name: "no ranges", src: &source{noRanges: true, etag: `"v"`}, requests: 1},
		{name: "no ranges and no length", src: &source{noRanges: true, noLength: true}, requests: 1},
		{name: "ranges without a version", src: &source{}, requests: 2, overhead: 64 << 10},
		{name: "ranges with a weak tag", src: &source{etag: `W/"v"`}, requests: 2, overhead: 64 << 10},
		{name: "ranges with a date", src: &source{modified: date}},
		{name: "whole when asked for more parts", src: &source{etag: `"v"`}, overhead: 10 * 655377},
		{name: "breaks off", src: &source{etag: `"v"`}},
		{name: "breaks off, no ranges, version", src: &source{noRanges: true, etag: `"v"`}, requests: 2, overhead: 100_000},
		{name: "breaks off, no ranges, no version", src: &source{noRanges: true}, requests: 2, overhead: 100_000},
		{name: "breaks off, no length", src: &source{noRanges: true, noLength: true}, requests: 2, overhead: 100_000},
		{name: "refuses ranges", src: &source{noRanges: true}, requests: 2, overhead: 1000},
		{name: "unknown total", src: &source{noRanges: true, noLength: true}, requests: 2, overhead: 1000},
		{name: "answers 503 twice", src: &source{etag: `"v"`}, overhead: 100},
		{name: "too many connections", src: &source{etag: `"v"`}, overhead: 10_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := tt.src
			src.content = big
			breaks := strings.HasPrefix(tt.name, "breaks off")
			src.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
				switch {
				case breaks && n == 1:
					src.breakOff(w, r, 50_000)
				case breaks && n == 3:
					src.breakOff(w, r, 10_000)
				case tt.name == "refuses ranges" && r.Header.Get("Range") != "":
					http.Error(w, "no ranges here", http.StatusRequestedRangeNotSatisfiable)
				case tt.name == "unknown total" && r.Header.Get("Range") != "":
					w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/*", 64<<10-1))
					w.WriteHeader(http.StatusPartialContent)
					_ = http.NewResponseController(w).Flush()
				case tt.name == "whole when asked for more parts" && n > 1:
					r.Header.Del("Range")
					return false
				case tt.name == "answers 503 twice" && n <= 2:
					http.Error(w, "later", http.StatusServiceUnavailable)
				case tt.name == "too many connections" && src.busy.Load() > 1:
					http.Error(w, "one at a time", http.StatusTooManyRequests)
				default:
					return false
				}
				return true
			}
			server := serveAt(t, public, src)
			f := spoolFile(t)
			got, err := testFetcher(t).Fetch(t.Context(), server.URL+"/a.mp4?token=secret", f, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkFetched(t, f, got, big)
			if n := src.requests.Load(); tt.requests > 0 && n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
			server.Close()
			if extra := src.sent.Load() - int64(len(big)); extra < 0 || extra > tt.overhead {
				t.Errorf("%d bytes were sent beside the content, want at most %d", extra, tt.overhead)
			}
		})
	}
}

// TestFetchErrors is about sources that can't be had: the kind says whether trying
// again helps, the sentence what is wrong.
func TestFetchErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		serve func(src *source, n int, w http.ResponseWriter, r *http.Request)
		kind  weir.Kind
		want  string // in the sentence
		tries int64  // requests; 0 = any number
	}{
		{name: "404", kind: weir.Invalid, want: "answered 404 Not Found", tries: 1, serve: status(404)},
		{name: "403", kind: weir.Invalid, want: "answered 403 Forbidden", tries: 1, serve: status(403)},
		{name: "410", kind: weir.Invalid, want: "answered 410 Gone", tries: 1, serve: status(410)},
		{name: "204", kind: weir.Invalid, want: "answered 204 No Content", tries: 1, serve: status(204)},
		{name: "300", kind: weir.Invalid, want: "answered 300", tries: 1, serve: status(300)},
		{name: "500", kind: weir.Upstream, want: "answered 500", tries: 6, serve: status(500)},
		{name: "503", kind: weir.Upstream, want: "answered 503", tries: 6, serve: status(503)},
		{name: "429", kind: weir.Upstream, want: "answered 429", tries: 6, serve: status(429)},
		{name: "501", kind: weir.Invalid, want: "answered 501", serve: status(501)},
		{name: "599", kind: weir.Upstream, want: "answered 599", serve: status(599)},
		{
			name: "redirects to itself", kind: weir.Invalid, want: "redirects more than",
			serve: func(_ *source, _ int, w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/again", http.StatusFound)
			},
		},
		{
			name: "breaks off always at the same place", kind: weir.Upstream, want: "broke off after 1000 of 655377 bytes",
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "bytes=0-65535" {
					panic(http.ErrAbortHandler)
				}
				src.breakOff(w, r, 1000)
			},
		},
		{
			name: "promises more than it sends, no ranges", kind: weir.Upstream, want: "broke off after 50000 of 655377 bytes",
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				src.noRanges, src.etag = true, ""
				src.breakOff(w, r, 50_000)
			},
		},
		{
			name: "changes and breaks off always", kind: weir.Upstream, want: "changed while it was read",
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", fmt.Sprintf(`"v%d"`, n))
				http.ServeContent(&brokenWriter{w, 50_000}, r, "", time.Time{}, bytes.NewReader(src.content))
			},
		},
		{
			name: "sends another part", kind: weir.Upstream, want: "sent another byte range than requested", tries: 1 + maxRestarts,
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Range", "bytes 5-9/100")
				w.WriteHeader(http.StatusPartialContent)
			},
		},
		{
			name: "compressed", kind: weir.Invalid, want: "compressed (gzip)",
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
			},
		},
		{
			name: "compressed part", kind: weir.Invalid, want: "compressed (br)",
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "br")
				src.serve(w, r)
			},
		},
		{
			name: "too large", kind: weir.Invalid, want: "at most 1.0 MiB are allowed", tries: 1,
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(5<<20))
			},
		},
		{
			name: "too large in parts", kind: weir.Invalid, want: "at most 1.0 MiB are allowed", tries: 1,
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"v"`)
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(make([]byte, 2<<20)))
			},
		},
		{
			name: "too large and does not say so", kind: weir.Invalid, want: "more than the 1.0 MiB that are allowed", tries: 1,
			serve: func(src *source, n int, w http.ResponseWriter, r *http.Request) {
				for range 2 << 10 {
					_, _ = w.Write(make([]byte, 1<<10))
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := &source{content: noise(4, 10*64<<10+17), etag: `"v"`}
			src.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
				tt.serve(src, n, w, r)
				return true
			}
			server := serveAt(t, public, src)
			fetcher := testFetcher(t)
			fetcher.MaxSize = 1 << 20
			_, err := fetcher.Fetch(t.Context(), server.URL+"/v.mp4?token=geheim", spoolFile(t), nil)
			if got := weir.KindOf(err); got != tt.kind {
				t.Errorf("kind = %q, want %q", got, tt.kind)
			}
			checkSentence(t, err, tt.want)
			if n := src.requests.Load(); tt.tries > 0 && n != tt.tries {
				t.Errorf("%d requests, want %d", n, tt.tries)
			}
		})
	}
}

func status(code int) func(*source, int, http.ResponseWriter, *http.Request) {
	return func(_ *source, _ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// checkSentence checks the message for the caller.
func checkSentence(t *testing.T, err error, want string) {
	t.Helper()
	e, ok := errors.AsType[*weir.Error](err)
	if !ok {
		t.Errorf("error = %v, want one for callers", err)
		return
	}
	text := strings.Join(e.Messages, "; ")
	if !strings.HasPrefix(text, notAccessible+": ") || !strings.Contains(text, want) {
		t.Errorf("sentence = %q, want %q in it", text, want)
	}
	if strings.Contains(err.Error(), "geheim") {
		t.Errorf("the error shows the query of the URL: %v", err)
	}
}

func TestFetchStalls(t *testing.T) {
	for _, tt := range []struct {
		name string
		body int // bytes before it stalls; -1 = not even headers
		drip bool
	}{
		{"before the headers", -1, false},
		{"in the middle", 40_000, false},
		{"nearly", 40_000, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := &source{content: noise(5, 300_000), etag: `"v"`}
			over := make(chan struct{})
			src.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
				if n > 2 {
					return false
				}
				if tt.body >= 0 {
					w.Header().Set("ETag", `"v"`)
					w.Header().Set("Content-Length", strconv.Itoa(len(src.content)))
					_, _ = w.Write(src.content[:tt.body])
					_ = http.NewResponseController(w).Flush()
				}
				tick := time.Tick(10 * time.Millisecond)
				for i := tt.body; ; i++ {
					select {
					case <-r.Context().Done(): // the fetcher gave up
						return true
					case <-over:
						return true
					case <-tick:
					}
					if tt.drip {
						_, _ = w.Write(src.content[i : i+1])
						_ = http.NewResponseController(w).Flush()
					}
				}
			}
			server := serveAt(t, public, src)
			defer close(over)
			fetcher := testFetcher(t)
			fetcher.timing.stall = 500 * time.Millisecond
			f := spoolFile(t)
			got, err := fetcher.Fetch(t.Context(), server.URL, f, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkFetched(t, f, got, src.content)

			// When it stays so, that is the error.
			src.requests.Store(-1000)
			_, err = fetcher.Fetch(t.Context(), server.URL, spoolFile(t), nil)
			if weir.KindOf(err) != weir.Upstream {
				t.Errorf("error = %v, want one of kind upstream", err)
			}
			checkSentence(t, err, public)
		})
	}
}

func TestFetchIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	src := &source{content: noise(6, 100_000)}
	src.fault = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	server := serveAt(t, public, src)
	fetcher := testFetcher(t)
	fetcher.timing = timing{} // with the timeout of every day, this would take long
	_, err := fetcher.Fetch(ctx, server.URL, spoolFile(t), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that of the context", err)
	}
}

func TestFetchIsGuarded(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	inner := serveAt(t, private, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	front := serveAt(t, public, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL, http.StatusFound)
	}))
	bucket := s3test.Start(t) // at 127.0.0.1, too
	for _, url := range []string{inner.URL, front.URL, bucket.URL() + "/video.mp4", "http://[::ffff:127.0.0.1]/", front.URL + "/x.m3u8"} {
		_, err := testFetcher(t).Fetch(t.Context(), url, spoolFile(t), nil)
		if weir.KindOf(err) != weir.Invalid {
			t.Errorf("error = %v, want one of kind invalid", err)
		}
		checkSentence(t, err, "is a loopback address; start weir with --allow-networks")
		if err := testFetcher(t).Check(url); (err == nil) != strings.HasPrefix(url, front.URL) {
			t.Errorf("%s: error = %v by the URL alone", url, err)
		}
	}
	if reached.Load() {
		t.Error("the inner server was reached")
	}
}

func TestFetchOfBadURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "x", "file:///etc/passwd", "ftp://host/x", "http://", "https:///x", "http://ho st/", "s3+https://host/bucket/x",
		"s3+https://key:geheim@host/bucket", "s3+https://key:gehe%zzim@host/bucket/x", "s3+https://:geheim@/bucket/x",
		"ipfs://", "ipfs://nonsense/x", "ar://x", "ipfs://QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG/../x",
	} {
		_, err := testFetcher(t).Fetch(t.Context(), url, spoolFile(t), nil)
		checked := testFetcher(t).Check(url)
		if weir.KindOf(err) != weir.Invalid || weir.KindOf(checked) != weir.Invalid {
			t.Errorf("%s: errors = %v and %v, want them of kind invalid", url, err, checked)
		}
		if strings.Contains(fmt.Sprint(err, checked), "geheim") {
			t.Errorf("%s: the error shows the secret: %v", url, err)
		}
	}
}

func TestFetchChecksFreeSpace(t *testing.T) {
	t.Parallel()
	full := weir.Errorf(weir.Full, "the disk is full")
	for _, src := range []*source{
		{content: noise(7, 400_000), etag: `"v"`},
		{content: noise(7, 400_000), noRanges: true, noLength: true},
	} {
		server := serveAt(t, public, src)
		fetcher := testFetcher(t)
		asked := int64(0)
		fetcher.FreeSpace = func(need int64) error { asked = need; return full }
		_, err := fetcher.Fetch(t.Context(), server.URL, spoolFile(t), nil)
		if !errors.Is(err, full) || asked < 400_000 {
			t.Errorf("error = %v after room for %d bytes, want that of the disk", err, asked)
		}
	}
}

func TestFetchToWriterThatFails(t *testing.T) {
	t.Parallel()
	server := serveAt(t, public, &source{content: noise(8, 20*64<<10), etag: `"v"`})
	f := spoolFile(t)
	_ = f.Close()
	for _, w := range []io.Writer{f, struct{ io.Writer }{f}} {
		if _, err := testFetcher(t).Fetch(t.Context(), server.URL, w, nil); !errors.Is(err, os.ErrClosed) {
			t.Errorf("error = %v, want that of the file", err)
		}
	}
}

// TestFetchToWriter checks that without a file to go back in, what can't be continued
// is an error, and not bytes twice.
func TestFetchToWriter(t *testing.T) {
	t.Parallel()
	src := &source{content: noise(9, 100_000), noRanges: true}
	src.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		src.breakOff(w, r, 50_000)
		return true
	}
	server := serveAt(t, public, src)
	var out bytes.Buffer
	_, err := testFetcher(t).Fetch(t.Context(), server.URL, &out, nil)
	if weir.KindOf(err) != weir.Upstream || out.Len() > 50_000 {
		t.Errorf("error = %v after %d bytes, want one of kind upstream after 50000", err, out.Len())
	}
	checkSentence(t, err, "broke off after 50000 of 100000 bytes")
}

func TestFetchFromBucket(t *testing.T) {
	t.Parallel()
	bucket := s3test.Start(t)
	content := noise(10, 5*64<<10+3)
	if err := os.MkdirAll(filepath.Join(bucket.Dir, "in put"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bucket.Dir, "in put", "vidéo 1.mp4"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	fetcher := testFetcher(t)
	fetcher.Guard = testGuard(t, "127.0.0.0/8")
	f := spoolFile(t)
	got, err := fetcher.Fetch(t.Context(), bucket.URL()+"/in%20put/vid%C3%A9o%201.mp4", f, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, f, got, content)

	wrong := strings.Replace(bucket.URL(), "%40signs", "%40signz", 1)
	for url, want := range map[string]string{
		bucket.URL() + "/nothing": "NoSuchKey",
		strings.TrimSuffix(bucket.URL(), bucket.Name) + "no-such-bucket/x": "NoSuchBucket",
		wrong + "/x": "SignatureDoesNotMatch",
	} {
		_, err := fetcher.Fetch(t.Context(), url, spoolFile(t), nil)
		if weir.KindOf(err) != weir.Invalid {
			t.Errorf("error = %v, want one of kind invalid", err)
		}
		checkSentence(t, err, want)
		checkNoSecret(t, err)
	}
}

func checkNoSecret(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{s3test.Secret, s3test.Key, "secret%2Fwith"} {
		if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, secret) {
			t.Errorf("the error shows a credential: %s", text)
		}
	}
}
