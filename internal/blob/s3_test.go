package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/blob/s3test"
	"weir/internal/weir"
)

// fragile stands in front of a real S3 server and misbehaves. Before it passes on
// request number n it asks fault, which may answer by itself and return true.
type fragile struct {
	proxy    *httputil.ReverseProxy
	requests atomic.Int64

	mu    sync.Mutex
	fault func(n int, w http.ResponseWriter, r *http.Request) bool
}

func (f *fragile) set(fault func(n int, w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
	f.requests.Store(0)
}

func (f *fragile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault, n := f.fault, int(f.requests.Add(1))
	f.mu.Unlock()
	if fault != nil && fault(n, w, r) {
		return
	}
	f.proxy.ServeHTTP(w, r)
}

// fragileBucket returns a bucket behind a fragile server, and the URL of it there.
func fragileBucket(t *testing.T) (*fragile, s3test.Bucket, string) {
	t.Helper()
	bucket := s3test.Start(t)
	target, err := url.Parse(bucket.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f := &fragile{proxy: &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
	}}
	server := serveAt(t, public, f)
	return f, bucket, strings.Replace(bucket.URL(), strings.TrimPrefix(bucket.Endpoint, "http://"), server.Listener.Addr().String(), 1)
}

func openStore(t *testing.T, url string, o Options) Store {
	t.Helper()
	if o.timing == (timing{}) {
		o.timing = quick
	}
	s, err := Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// s3Failure answers as S3 does when it fails.
func s3Failure(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>"+code+" for "+s3test.Key+"</Message></Error>")
}

// readSome reads a part of a body and ends the connection.
func readSome(r *http.Request) {
	_, _ = io.CopyN(io.Discard, r.Body, 100_000)
	panic(http.ErrAbortHandler)
}

// stall reads the body and does not answer until the client closes the connection.
func stall(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestS3Retries(t *testing.T) {
	large := noise(30, MinPart+100)
	for _, tt := range []struct {
		name  string
		fault func(n int, w http.ResponseWriter, r *http.Request) bool
	}{
		{"throttles", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n%3 != 0 {
				s3Failure(w, http.StatusServiceUnavailable, "SlowDown")
			}
			return n%3 != 0
		}},
		{"fails", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n%2 == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return n%2 == 1
		}},
		{"breaks off in the middle of what it is sent", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n%4 == 1 { // not every other: the transport may send a request twice by itself
				readSome(r)
			}
			return false
		}},
		{"breaks off before its answer", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n%2 == 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				panic(http.ErrAbortHandler)
			}
			return false
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			proxy, _, at := fragileBucket(t)
			s := openStore(t, at, Options{Guard: testGuard(t)})
			proxy.set(tt.fault)
			ctx := t.Context()
			for _, r := range []io.Reader{bytes.NewReader(large), onlyReader{bytes.NewReader(large)}} {
				if err := s.Put(ctx, "a/large", r, int64(len(large)), PutOptions{}); err != nil {
					t.Fatal(err)
				}
				if got := get(t, s, "a/large", 0, -1); got != string(large) {
					t.Errorf("got %d bytes, want %d, or others", len(got), len(large))
				}
			}
			if err := s.Copy(ctx, "a/large", "b/copy"); err != nil {
				t.Error(err)
			}
			if got := list(t, s, ""); len(got) != 2 {
				t.Errorf("there are %v", got)
			}
			if err := errors.Join(s.Delete(ctx, "a/large"), s.DeletePrefix(ctx, "b")); err != nil {
				t.Error(err)
			}
			proxy.set(nil)
			if got := list(t, s, ""); len(got) != 0 {
				t.Errorf("left: %v", got)
			}
			noLeftovers(t, s)
		})
	}
}

// TestS3Resumes checks that a broken transfer is resumed, and that two objects are never mixed.
func TestS3Resumes(t *testing.T) {
	t.Parallel()
	content := noise(31, 500_000)
	proxy, bucket, at := fragileBucket(t)
	s := openStore(t, at, Options{Guard: testGuard(t)})
	if err := s.Put(t.Context(), "x", bytes.NewReader(content), int64(len(content)), PutOptions{}); err != nil {
		t.Fatal(err)
	}
	breaks := func(_ int, w http.ResponseWriter, r *http.Request) bool {
		proxy.proxy.ServeHTTP(&brokenWriter{w, 100_000}, r)
		return true
	}
	proxy.set(breaks)
	if got := get(t, s, "x", 1000, 450_000); got != string(content[1000:451_000]) {
		t.Errorf("got %d bytes, want 450000, or others", len(got))
	}
	proxy.set(func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 2 {
			// Another client replaces the object.
			other := openStore(t, bucket.URL(), Options{})
			if err := other.Put(t.Context(), "x", strings.NewReader("new"), 3, PutOptions{}); err != nil {
				t.Error(err)
			}
		}
		return breaks(n, w, r)
	})
	r, _, err := s.Get(t.Context(), "x", 0, -1)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		_ = r.Close()
	}
	if weir.KindOf(err) != weir.Upstream || !strings.Contains(fmt.Sprint(err), "changed while it was read") {
		t.Errorf("error = %v, want that it changed", err)
	}
}

func TestS3Failures(t *testing.T) {
	t.Parallel()
	bucket := s3test.Start(t)
	host := strings.TrimPrefix(bucket.Endpoint, "http://")
	proxy, _, fragileURL := fragileBucket(t)
	proxy.set(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/denied"):
			s3Failure(w, http.StatusForbidden, "AccessDenied")
		case strings.HasSuffix(r.URL.Path, "/full"):
			s3Failure(w, http.StatusInsufficientStorage, "QuotaExceeded")
		case strings.HasSuffix(r.URL.Path, "/odd"):
			s3Failure(w, http.StatusBadRequest, "Odd\x01Reason"+strings.Repeat("é", 1000))
		case strings.HasSuffix(r.URL.Path, "/moved"):
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusMovedPermanently)
		case strings.HasSuffix(r.URL.Path, "/page"):
			http.Error(w, "<html>not a store", http.StatusTeapot)
		case strings.HasSuffix(r.URL.Path, "/still"):
			stall(r)
		}
		return true
	})
	for _, tt := range []struct {
		name, url, key string
		kind           weir.Kind
		want           string
	}{
		{"wrong secret", strings.Replace(bucket.URL(), "%40signs", "%40signz", 1), "x", weir.Denied, "SignatureDoesNotMatch"},
		{"wrong key", strings.Replace(bucket.URL(), "test%2Bkey", "nobody", 1), "x", weir.Denied, "access key ID"},
		{"no such bucket", strings.TrimSuffix(bucket.URL(), bucket.Name) + "other", "x", weir.Invalid, `has no bucket "other" (NoSuchBucket`},
		{"nobody there", strings.Replace(bucket.URL(), host, "127.0.0.2:1", 1), "x", weir.Upstream, "the connection to 127.0.0.2:1 failed"},
		{"not allowed", strings.Replace(bucket.URL(), host, "10.0.0.1", 1), "x", weir.Invalid, "10.0.0.1 is a private address"},
		{"denied", fragileURL, "denied", weir.Denied, "AccessDenied: AccessDenied for ***"},
		{"full", fragileURL, "full", weir.Upstream, "QuotaExceeded"},
		{"odd", fragileURL, "odd", weir.Invalid, "Odd"},
		{"moved", fragileURL, "moved", weir.Invalid, "301"},
		{"page", fragileURL, "page", weir.Invalid, "418 I'm a teapot: the answer is a web page"},
		{"keeps still", fragileURL, "still", weir.Upstream, "stopped answering"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Guard: testGuard(t, "127.0.0.0/8"), timing: quick}
			if tt.name == "keeps still" {
				o.timing.stall = 500 * time.Millisecond
			}
			o.timing.tries = 2
			s := openStore(t, tt.url, o)
			err := s.Put(t.Context(), tt.key, strings.NewReader("x"), 1, PutOptions{})
			if weir.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v of kind %q, want %q in it, %q", err, weir.KindOf(err), tt.want, tt.kind)
			}
			checkNoSecret(t, err)
			if err != nil && (len(err.Error()) > 700 || strings.Contains(err.Error(), "\x01") || strings.Contains(err.Error(), "<html")) {
				t.Errorf("the error repeats too much of what the store says: %q", err)
			}
		})
	}
}

// TestS3RefusalOfLargeBody checks that the error has the store's reason although the store does not read
// the body.
func TestS3RefusalOfLargeBody(t *testing.T) {
	t.Parallel()
	wrong := strings.Replace(s3test.Start(t).URL(), "%40signs", "%40signz", 1)
	s := openStore(t, wrong, Options{})
	large := noise(32, 20<<20)
	err := s.Put(t.Context(), "x", bytes.NewReader(large), int64(len(large)), PutOptions{})
	if weir.KindOf(err) != weir.Denied || !strings.Contains(err.Error(), "SignatureDoesNotMatch") {
		t.Errorf("error = %v, want the reason of the store", err)
	}
}

func TestS3PutIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	proxy, _, at := fragileBucket(t)
	ctx, cancel := context.WithCancel(t.Context())
	proxy.set(func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		cancel()
		stall(r)
		return true
	})
	s := openStore(t, at, Options{Guard: testGuard(t), timing: timing{tries: 6, stall: time.Hour}})
	err := s.Put(ctx, "x", bytes.NewReader(noise(33, 100_000)), 100_000, PutOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want that of the context", err)
	}
}

// TestS3LargeFile sends a file that needs several parts, some at the same time.
func TestS3LargeFile(t *testing.T) {
	t.Parallel()
	bucket := s3test.Start(t)
	s := openStore(t, bucket.URL(), Options{})
	f := spoolFile(t)
	const size = maxPut + filePart/2 // sparse, so it costs little
	if _, err := f.WriteAt([]byte("end"), size-3); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "large", f, size, PutOptions{ContentType: "video/mp4", CacheControl: "no-store"}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "large", size-4, -1); got != "\x00end" {
		t.Errorf("the end = %q", got)
	}
	stored, err := os.Stat(filepath.Join(bucket.Dir, "large"))
	if err != nil || stored.Size() != size {
		t.Errorf("stored = %v, %v, want %d bytes", stored, err, size)
	}
	resp := s.(*s3)
	info, err := resp.stat(t.Context(), "large")
	if err != nil || info.ContentType != "video/mp4" || info.Metadata.Get("Cache-Control") != "no-store" {
		t.Errorf("type %q, cache %q, %v", info.ContentType, info.Metadata.Get("Cache-Control"), err)
	}
	noLeftovers(t, s)
}

// TestS3CompleteWithLostResponse checks that a completed upload is recognised.
func TestS3CompleteWithLostResponse(t *testing.T) {
	t.Parallel()
	proxy, _, at := fragileBucket(t)
	s := openStore(t, at, Options{Guard: testGuard(t)})
	up, err := s.Upload(t.Context(), "x", PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	part, err := up.Part(t.Context(), 1, strings.NewReader("abc"), 3)
	if err != nil {
		t.Fatal(err)
	}
	lost := false
	proxy.set(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || lost {
			return false
		}
		lost = true
		proxy.proxy.ServeHTTP(&brokenWriter{w, 1}, r)
		return true
	})
	if err := up.Complete(t.Context(), []PartInfo{part}); err != nil {
		t.Errorf("complete: %v", err)
	}
	if got := get(t, s, "x", 0, -1); got != "abc" || !lost {
		t.Errorf("object = %q, lost %v", got, lost)
	}
}

// TestS3WrongRegion checks that a wrong guess of the region is corrected.
func TestS3WrongRegion(t *testing.T) {
	t.Parallel()
	b, err := parseBucket(s3test.Start(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	b.region = "storage"
	open := func() Store {
		s, err := newS3(b, Options{timing: quick})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s := open()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { put(t, s, fmt.Sprintf("a/%d", i), "content") })
	}
	wg.Wait()
	if got := get(t, open(), "a/7", 0, -1); got != "content" {
		t.Errorf("got %q", got)
	}
	if got := list(t, open(), "a"); len(got) != 8 {
		t.Errorf("there are %v", got)
	}
}

// A server that keeps files in folders may remove the folder of a deleted file: nothing is deleted
// before everything was put.
func TestCheckDeletesAtTheEnd(t *testing.T) {
	t.Parallel()
	proxy, _, url := fragileBucket(t)
	var deleted atomic.Bool
	proxy.set(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			deleted.Store(true)
		}
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/hls/") {
			time.Sleep(200 * time.Millisecond) // the others are put meanwhile
			if deleted.Load() {
				t.Error("a file was deleted while another one was put")
			}
		}
		return false
	})
	o := Options{Guard: testGuard(t, "127.0.0.0/8"), timing: quick}
	o.timing.probe = time.Minute
	if err := Check(t.Context(), url, []string{"/out", "/out/hls", "/out/mp4/"}, "task-1", o); err != nil || !deleted.Load() {
		t.Errorf("error = %v, deleted = %v", err, deleted.Load())
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	bucket := s3test.Start(t)
	theirs := filepath.Join(bucket.Dir, "v1/hls/metadata.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(theirs), 0o755), os.WriteFile(theirs, []byte("theirs"), 0o644)); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(bucket.Endpoint, "http://")
	proxy, _, fragileURL := fragileBucket(t)
	proxy.set(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.Contains(r.URL.Path, "/fails/"):
			w.WriteHeader(http.StatusBadGateway)
		case strings.Contains(r.URL.Path, "/still/"):
			stall(r)
		case strings.Contains(r.URL.Path, "/kept/") && r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusForbidden)
		default:
			return false
		}
		return true
	})
	for _, tt := range []struct {
		name, url string
		paths     []string
		want      string // in the error; "" = none
		warn      bool
	}{
		{name: "works", url: bucket.URL(), paths: []string{"/", "", "/v1/hls", "/v1/mp4/"}},
		{name: "may not delete", url: fragileURL, paths: []string{"/kept"}},
		{name: "wrong secret", url: strings.Replace(bucket.URL(), "%40signs", "%40signz", 1), paths: []string{"/a", "/b"}, want: "SignatureDoesNotMatch"},
		{name: "wrong key", url: strings.Replace(bucket.URL(), "test%2Bkey", "nobody", 1), paths: []string{"/a"}, want: "access key ID"},
		{name: "no bucket", url: strings.TrimSuffix(bucket.URL(), bucket.Name) + "other", paths: []string{"/a"}, want: "NoSuchBucket"},
		{name: "not allowed", url: strings.Replace(bucket.URL(), host, "10.0.0.1", 1), paths: []string{"/a"}, want: "--allow-networks 10.0.0.0/8"},
		{name: "bad path", url: bucket.URL(), paths: []string{"/a/../b"}, want: "has an empty name, . or .. in it"},
		{name: "a file", url: "file:/tmp", paths: []string{"/a"}, want: "use a bucket"},
		{name: "bad URL", url: "s3+https://key:geheim@/bucket", paths: []string{"/a"}, want: "has no host"},
		{name: "nobody there", url: strings.Replace(bucket.URL(), host, "127.0.0.2:1", 1), paths: []string{"/a"}, warn: true},
		{name: "fails", url: fragileURL, paths: []string{"/works", "/fails"}, warn: true},
		{name: "keeps still", url: fragileURL, paths: []string{"/still"}, warn: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			o := Options{Guard: testGuard(t, "127.0.0.0/8"), Log: slog.New(slog.NewTextHandler(&log, nil)), timing: quick}
			o.timing.probe = time.Minute
			if tt.warn {
				o.timing.probe = time.Second
			}
			err := Check(t.Context(), tt.url, tt.paths, "task-1", o)
			if tt.want == "" && err != nil || tt.want != "" && (weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error = %v, want %q in it", err, tt.want)
			}
			if warned := strings.Contains(log.String(), "storage could not be checked; the task will try it again"); warned != tt.warn {
				t.Errorf("warned = %v, want %v: %s", warned, tt.warn, log.String())
			}
			checkNoSecret(t, errors.Join(err, errors.New(log.String())))
		})
	}
	t.Cleanup(func() { // when all have written
		err := filepath.WalkDir(bucket.Dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Base(path) != "metadata.json" {
				t.Errorf("%s stays in the bucket", path)
			}
			return err
		})
		if content, readErr := os.ReadFile(theirs); err != nil || readErr != nil || string(content) != "theirs" {
			t.Errorf("metadata.json of the caller = %s, %v, %v", content, readErr, err)
		}
	})
}
