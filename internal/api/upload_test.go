package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/weir"
)

// uploads is a service to which files are sent over real connections.
type uploads struct {
	*fixture
	testing.TB
	web *httptest.Server
}

// newUploads changes the settings before the service is made.
func newUploads(t testing.TB, change func(*Options)) *uploads {
	t.Helper()
	u := &uploads{fixture: newFixture(t), TB: t}
	u.restart(change)
	return u
}

// restart starts the service again on the same store and storage.
func (u *uploads) restart(change func(*Options)) {
	u.Helper()
	options := u.server.Options
	options.MaxPendingTasks = 0
	if change != nil {
		change(&options)
	}
	s, err := newServer(options, u.server.contract)
	if err != nil {
		u.Fatal(err)
	}
	u.server = s
	u.web = httptest.NewServer(s)
	u.Cleanup(u.web.Close)
}

// requested is the response to a request for an upload.
type requested struct {
	URL, TusEndpoint string
	Asset            weir.Asset
	Task             taskID
}

// request asks for an upload.
func (u *uploads) request() requested {
	u.Helper()
	g := u.send("POST", u.web.URL+"/api/asset/request-upload", strings.NewReader(`{"name":"film"}`), "Authorization", "Bearer "+u.vars["ann.key"])
	var r requested
	if err := json.Unmarshal([]byte(g.body), &r); err != nil || g.StatusCode != http.StatusOK {
		u.Fatalf("%d %s %v", g.StatusCode, g.body, err)
	}
	here := func(address string) string { return strings.Replace(address, "http://weir.test", u.web.URL, 1) }
	r.URL, r.TusEndpoint = here(r.URL), here(r.TusEndpoint)
	return r
}

// uploadReply is a response.
type uploadReply struct {
	*http.Response
	body string
}

// send sends a request; headers are pairs of name and value. Every error is as all errors are.
func (u *uploads) send(method, url string, body io.Reader, headers ...string) uploadReply {
	u.Helper()
	r, err := http.NewRequestWithContext(u.Context(), method, url, body)
	if err != nil {
		u.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := u.web.Client().Do(r)
	if err != nil {
		u.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		u.Fatal(err)
	}
	if response.StatusCode >= 400 && method != "HEAD" {
		var shape struct{ Errors []string }
		if err := json.Unmarshal(text, &shape); err != nil || len(shape.Errors) != 1 || shape.Errors[0] == "" || response.Header.Get("Content-Type") != jsonType[0] {
			u.Errorf("%s answers %d %q %s", method, response.StatusCode, response.Header.Get("Content-Type"), text)
		}
	}
	return uploadReply{response, string(text)}
}

// phases checks how far the asset and its task are.
func (u *uploads) phases(r requested, asset weir.AssetPhase, task weir.TaskPhase) {
	u.Helper()
	a, err := u.store.Asset(u.Context(), r.Asset.ID)
	if err != nil {
		u.Fatal(err)
	}
	t, err := u.store.Task(u.Context(), r.Task.ID)
	if err != nil {
		u.Fatal(err)
	}
	if a.Status.Phase != asset || t.Status.Phase != task {
		u.Errorf("the asset is %s, its task %s; want %s and %s", a.Status.Phase, t.Status.Phase, asset, task)
	}
}

// kept returns the bytes of an upload in the storage, of all its parts.
func (u *uploads) kept(r requested) string {
	u.Helper()
	var all strings.Builder
	for offset := int64(0); ; offset = int64(all.Len()) {
		body, _, err := u.server.Media.Get(u.Context(), uploadPartKey(r.Asset.ID, offset), 0, -1)
		if weir.IsNotFound(err) {
			break
		}
		if err != nil {
			u.Fatal(err)
		}
		n, err := io.Copy(&all, body)
		if err = errors.Join(err, body.Close()); err != nil || n == 0 {
			u.Fatalf("part at %d has %d bytes, %v", offset, n, err)
		}
	}
	for info, err := range u.server.Media.List(u.Context(), uploadFolder(r.Asset.ID)) {
		if err != nil {
			u.Fatal(err)
		}
		if !strings.HasSuffix(info.Key, "info.json") && info.Key > uploadPartKey(r.Asset.ID, int64(all.Len())) {
			u.Errorf("there is a part beside the others: %s", info.Key)
		}
	}
	return all.String()
}

// film is what is uploaded.
func film(size int) string {
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, "%d ", i)
	}
	return text.String()[:size]
}

func TestReceiveFile(t *testing.T) {
	u := newUploads(t, nil)
	whole := film(1 << 20) // just as much as is allowed
	for name, body := range map[string]io.Reader{
		"of known length":   strings.NewReader(whole),
		"of unknown length": struct{ io.Reader }{strings.NewReader(whole)},
	} {
		r := u.request()
		u.phases(r, weir.AssetUploading, weir.TaskPending)
		g := u.send("PUT", r.URL, body, "Origin", "https://page.example")
		if g.StatusCode != 200 || g.body != "" || g.Header.Get("Access-Control-Allow-Origin") != "https://page.example" {
			t.Errorf("%s: %d %s %v", name, g.StatusCode, g.body, g.Header)
		}
		u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
		if u.kept(r) != whole {
			t.Errorf("%s: other bytes are kept", name)
		}
		if g := u.send("PUT", r.URL, strings.NewReader("other")); g.StatusCode != 422 || !strings.Contains(g.body, "asset has already been uploaded") {
			t.Errorf("%s: a second time: %d %s", name, g.StatusCode, g.body)
		}
		if u.kept(r) != whole {
			t.Errorf("%s: the second time counts", name)
		}
	}
}

func TestReceiveFileRefuses(t *testing.T) {
	full := false
	u := newUploads(t, func(o *Options) {
		o.FreeSpace = func() error {
			if full {
				return weir.Errorf(weir.Full, "the disk of this server is full")
			}
			return nil
		}
	})
	r := u.request()
	key, err := u.server.uploadKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old, err := signUpload(key, r.Asset, time.Now().Add(-uploadValid-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	forged, err := signUpload([]byte("another key that is long enough."), r.Asset, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	direct := u.web.URL + "/api/asset/upload/direct"
	for _, tt := range []struct {
		name, url string
		body      io.Reader
		full      bool
		status    int
		message   string
	}{
		{"no token", direct, strings.NewReader("x"), false, 403, "Invalid signed upload URL"},
		{"bad token", direct + "?token=x.y.z", strings.NewReader("x"), false, 403, "Invalid signed upload URL"},
		{"forged token", direct + "?token=" + forged, strings.NewReader("x"), false, 403, "Invalid signed upload URL"},
		{"token of a person", direct + "?token=" + u.vars["ann.jwt"], strings.NewReader("x"), false, 403, "Invalid signed upload URL"},
		{"expired token", direct + "?token=" + old, strings.NewReader("x"), false, 403, "it has expired, request a new upload"},
		{"empty", r.URL, strings.NewReader(""), false, 422, "the file is empty"},
		{"empty, of unknown length", r.URL, struct{ io.Reader }{strings.NewReader("")}, false, 422, "the file is empty"},
		{"too large", r.URL, strings.NewReader(film(1<<20 + 1)), false, 413, "larger than 1048576 bytes"},
		{"too large, of unknown length", r.URL, struct{ io.Reader }{strings.NewReader(film(1<<20 + 1))}, false, 413, "larger than 1048576 bytes"},
		{"disk full", r.URL, strings.NewReader("x"), true, 507, "the disk of this server is full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			full = tt.full
			g := u.send("PUT", tt.url, tt.body)
			full = false
			if g.StatusCode != tt.status || !strings.Contains(g.body, tt.message) {
				t.Errorf("%d %s, want %d %s", g.StatusCode, g.body, tt.status, tt.message)
			}
			u.phases(r, weir.AssetUploading, weir.TaskPending)
			if kept := u.kept(r); kept != "" {
				t.Errorf("%d bytes are kept", len(kept))
			}
		})
	}
	if g := u.send("PUT", r.URL, strings.NewReader("x")); g.StatusCode != 200 {
		t.Errorf("after all that: %d %s", g.StatusCode, g.body)
	}
}

// The disk can become full while a file arrives.
func TestReceiveFileUntilFull(t *testing.T) {
	asked := 0
	u := newUploads(t, func(o *Options) {
		o.MaxUpload = 1 << 30
		o.FreeSpace = func() error {
			if asked++; asked > 2 {
				return weir.Errorf(weir.Full, "the disk of this server is full")
			}
			return nil
		}
	})
	r := u.request()
	g := u.send("PUT", r.URL, struct{ io.Reader }{io.LimitReader(endless{}, 3*spaceStep)})
	if g.StatusCode != 507 || asked != 3 {
		t.Errorf("%d %s, asked %d times", g.StatusCode, g.body, asked)
	}
	u.phases(r, weir.AssetUploading, weir.TaskPending)
	if kept := u.kept(r); kept != "" {
		t.Errorf("%d bytes are kept", len(kept))
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// dial sends the head of a request and some of its body.
func (u *uploads) dial(method, url, headers, body string) net.Conn {
	u.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(u.web.URL, "http://"))
	if err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() { _ = conn.Close() })
	path := strings.TrimPrefix(url, u.web.URL)
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: weir.test\r\n%s\r\n%s", method, path, headers, body); err != nil {
		u.Fatal(err)
	}
	return conn
}

// slowly sends a request and the first byte of its body, then nothing, or next to nothing,
// until there is a response. It is no http.Client, which may notice that the server does not listen any
// more before it reads what was said.
func (u *uploads) slowly(method, url, headers string, trickle bool) (g uploadReply) {
	u.Helper()
	conn := u.dial(method, url, headers, "x")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for trickle {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if _, err := conn.Write([]byte("x")); err != nil {
					return
				}
			}
		}
	}()
	defer func() {
		close(stop)
		<-done
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		u.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		u.Fatal(err)
	}
	return uploadReply{response, string(body)}
}

// A client that goes away in the middle leaves the asset as it was.
func TestReceiveFileBroken(t *testing.T) {
	ended := make(chan int, 10)
	u := newUploads(t, nil)
	r := u.request()
	u.restart(func(o *Options) {
		o.Observe = func(_ context.Context, _ string, status int, _ time.Duration) { ended <- status }
	})
	_, path, _ := strings.Cut(r.URL, "/api")
	conn := u.dial("PUT", u.web.URL+"/api"+path, "Content-Length: 1000\r\n", film(500))
	conn.Close()
	<-ended
	u.phases(r, weir.AssetUploading, weir.TaskPending)
	if kept := u.kept(r); kept != "" {
		t.Errorf("%d bytes are kept", len(kept))
	}
}

// A client that sends nothing, or next to nothing, is given up on.
func TestReceiveFileSlowly(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	u := newUploads(t, func(o *Options) { o.timeout = 300 * time.Millisecond })
	for name, trickle := range map[string]bool{"nothing": false, "next to nothing": true} {
		t.Run(name, func(t *testing.T) {
			r := u.request()
			if g := u.slowly("PUT", r.URL, "Content-Length: 1000000\r\n", trickle); g.StatusCode != 400 {
				t.Errorf("%d %s", g.StatusCode, g.body)
			}
			u.phases(r, weir.AssetUploading, weir.TaskPending)
			if kept := u.kept(r); kept != "" {
				t.Errorf("%d bytes are kept", len(kept))
			}
		})
	}
}

// A client that takes its time is not given up on.
func TestReceiveFileInBursts(t *testing.T) {
	newFixture(t) // the first one logs in, which should not be in the year 2000
	synctest.Test(t, func(t *testing.T) {
		u := newUploads(t, nil)
		r := u.request()
		u.web.Close() // time does not pass while it listens
		whole := film(10 * uploadStep)
		body := &bursts{text: whole, pause: uploadTimeout - time.Second}
		w := httptest.NewRecorder()
		u.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "PUT", r.URL, body))
		if w.Code != 200 || u.kept(r) != whole {
			t.Errorf("a slow client: %d %s", w.Code, w.Body)
		}
	})
}

// bursts is a body that comes a step at a time, with pauses.
type bursts struct {
	text  string
	pause time.Duration
}

func (b *bursts) Read(p []byte) (int, error) {
	if b.text == "" {
		return 0, io.EOF
	}
	time.Sleep(b.pause)
	n := copy(p[:min(len(p), uploadStep)], b.text)
	b.text = b.text[n:]
	return n, nil
}

// Of two who send at the same time, the first to end counts.
func TestReceiveFileTwice(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	reader, writer := io.Pipe()
	slow := make(chan uploadReply, 1)
	go func() { slow <- u.send("PUT", r.URL, reader) }()
	if _, err := io.WriteString(writer, "the slow "); err != nil {
		t.Fatal(err)
	}
	if g := u.send("PUT", r.URL, strings.NewReader("the fast one")); g.StatusCode != 200 {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	if _, err := io.WriteString(writer, "one"); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if g := <-slow; g.StatusCode != 422 || !strings.Contains(g.body, "asset has already been uploaded") {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	if kept := u.kept(r); kept != "the fast one" {
		t.Errorf("%q is kept", kept)
	}
}

// Subscribers get the events of an upload.
func TestUploadEvents(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	count := func() int {
		t.Helper()
		events, err := u.store.Events(t.Context(), u.vars["ann.id"], u.vars["ann.project"], 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return len(events)
	}
	before := count()
	u.send("PUT", r.URL, strings.NewReader("bytes"))
	if after := count(); after != before+2 { // of the task and of the asset
		t.Errorf("%d events before, %d after", before, after)
	}
}
