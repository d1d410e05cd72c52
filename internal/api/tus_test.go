package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// begin makes an upload by tus and returns its address.
func (u *uploads) begin(r requested, headers ...string) string {
	u.Helper()
	g := u.send("POST", r.TusEndpoint, nil, append([]string{"Tus-Resumable", "1.0.0"}, headers...)...)
	if g.StatusCode != 201 {
		u.Fatalf("%d %s", g.StatusCode, g.body)
	}
	at := g.Header.Get("Location")
	if !strings.HasPrefix(at, "http://weir.test/api/asset/upload/tus/"+r.Asset.ID) {
		u.Errorf("Location: %s", at)
	}
	return u.here(at)
}

// here is an address of the service as it can be reached now.
func (u *uploads) here(address string) string {
	_, path, _ := strings.Cut(address, "/api/")
	return u.web.URL + "/api/" + path
}

// add sends bytes of an upload.
func (u *uploads) add(at string, offset int, body io.Reader, headers ...string) uploadReply {
	u.Helper()
	return u.send("PATCH", u.here(at), body, append([]string{
		"Tus-Resumable", "1.0.0", "Upload-Offset", strconv.Itoa(offset), "Content-Type", "application/offset+octet-stream",
	}, headers...)...)
}

// offset asks how much is there.
func (u *uploads) offset(at string) int {
	u.Helper()
	g := u.send("HEAD", u.here(at), nil, "Tus-Resumable", "1.0.0")
	n, err := strconv.Atoi(g.Header.Get("Upload-Offset"))
	if g.StatusCode != 200 || err != nil || g.Header.Get("Cache-Control") != "no-store" {
		u.Fatalf("%d %v, %v", g.StatusCode, g.Header, err)
	}
	return n
}

// An upload is sent in parts, and continues after a restart of the service.
func TestTus(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	whole := film(100_000)
	at := u.begin(r, "Upload-Length", "100000", "Upload-Metadata", "filename ZmlsbQ==", "Origin", "https://page.example")
	if n := u.offset(at); n != 0 {
		t.Errorf("offset %d at the start", n)
	}
	for from := 0; from < len(whole); from += 30_000 {
		to := min(from+30_000, len(whole))
		u.phases(r, weir.AssetUploading, weir.TaskPending)
		g := u.add(at, from, strings.NewReader(whole[from:to]), "Origin", "https://page.example")
		if g.StatusCode != 204 || g.Header.Get("Upload-Offset") != strconv.Itoa(to) || g.Header.Get("Tus-Resumable") != "1.0.0" {
			t.Errorf("%d %s %v", g.StatusCode, g.body, g.Header)
		}
		if exposed := g.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(exposed, "Upload-Offset") || !strings.Contains(exposed, "Location") {
			t.Errorf("pages can read %s", exposed)
		}
		u.restart(nil)
		if n := u.offset(at); n != to {
			t.Errorf("offset %d, want %d", n, to)
		}
	}
	u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
	if u.kept(r) != whole {
		t.Error("other bytes are kept")
	}
	// The last response may have been lost.
	if g := u.add(at, len(whole), strings.NewReader("")); g.StatusCode != 204 {
		t.Errorf("once more: %d %s", g.StatusCode, g.body)
	}
	if g := u.send("DELETE", u.here(at), nil, "Tus-Resumable", "1.0.0"); g.StatusCode != 422 {
		t.Errorf("giving up what has ended: %d %s", g.StatusCode, g.body)
	}
	if g := u.send("POST", u.here(r.TusEndpoint), nil, "Tus-Resumable", "1.0.0", "Upload-Length", "5"); g.StatusCode != 422 {
		t.Errorf("another upload: %d %s", g.StatusCode, g.body)
	}
}

func TestTusAbilities(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	g := u.send("OPTIONS", r.TusEndpoint, nil, "Origin", "https://page.example", "Access-Control-Request-Method", "PATCH", "Access-Control-Request-Headers", "upload-offset")
	if g.StatusCode != 204 || g.Header.Get("Tus-Version") != "1.0.0" || g.Header.Get("Tus-Max-Size") != "1048576" ||
		g.Header.Get("Access-Control-Allow-Headers") != "upload-offset" || !strings.Contains(g.Header.Get("Access-Control-Allow-Methods"), "PATCH") {
		t.Errorf("%d %v", g.StatusCode, g.Header)
	}
	if got, want := g.Header.Get("Tus-Extension"), u.server.tus.SupportedExtensions(); got != want {
		t.Errorf("Tus-Extension: %s, want %s", got, want)
	}
}

// Bytes can come with the request that begins the upload.
func TestTusAtOnce(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	g := u.send("POST", r.TusEndpoint, strings.NewReader("film"), "Tus-Resumable", "1.0.0", "Upload-Length", "4", "Content-Type", "application/offset+octet-stream")
	if g.StatusCode != 201 || g.Header.Get("Upload-Offset") != "4" || u.kept(r) != "film" {
		t.Errorf("%d %s %v", g.StatusCode, g.body, g.Header)
	}
	u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
}

// The token can be in the metadata, for clients that lose queries.
func TestTusTokenInMetadata(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	endpoint, query, _ := strings.Cut(r.TusEndpoint, "?token=")
	g := u.send("POST", endpoint, nil, "Tus-Resumable", "1.0.0", "Upload-Length", "4", "Upload-Metadata", "uploadToken "+base64.StdEncoding.EncodeToString([]byte(query)))
	if g.StatusCode != 201 {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
}

// How long a file is can be said late.
func TestTusDeferredLength(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	at := u.begin(r, "Upload-Defer-Length", "1")
	if g := u.add(at, 0, strings.NewReader("one ")); g.StatusCode != 204 {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	u.restart(nil)
	u.phases(r, weir.AssetUploading, weir.TaskPending)
	if g := u.send("HEAD", u.here(at), nil, "Tus-Resumable", "1.0.0"); g.Header.Get("Upload-Defer-Length") != "1" || g.Header.Get("Upload-Offset") != "4" {
		t.Errorf("%d %v", g.StatusCode, g.Header)
	}
	if g := u.add(at, 4, strings.NewReader("two"), "Upload-Length", "7"); g.StatusCode != 204 {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
	if kept := u.kept(r); kept != "one two" {
		t.Errorf("%q is kept", kept)
	}
}

func TestTusRefuses(t *testing.T) {
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
	endpoint, _, _ := strings.Cut(r.TusEndpoint, "?")
	tus := []string{"Tus-Resumable", "1.0.0"}
	long := append(tus, "Upload-Length", "10")
	patch := append(tus, "Content-Type", "application/offset+octet-stream", "Upload-Offset", "0")
	at := u.begin(r, "Upload-Length", "10")
	for _, tt := range []struct {
		name, method, url string
		body              string
		headers           []string
		full              bool
		status            int
		message           string
	}{
		{"no token", "POST", endpoint, "", long, false, 401, "Missing uploadToken metadata from /request-upload API"},
		{"bad token", "POST", endpoint + "?token=x", "", long, false, 403, "Invalid signed upload URL"},
		{"no length", "POST", r.TusEndpoint, "", tus, false, 400, "Upload-Length"},
		{"too long", "POST", r.TusEndpoint, "", append(tus, "Upload-Length", "1048577"), false, 413, "size"},
		{"another version", "POST", r.TusEndpoint, "", []string{"Tus-Resumable", "0.1.0"}, false, 412, "Tus-Resumable"},
		{"disk full at the start", "POST", r.TusEndpoint, "", long, true, 507, "the disk of this server is full"},
		{"wrong offset", "PATCH", at, "x", append(tus, "Content-Type", "application/offset+octet-stream", "Upload-Offset", "3"), false, 409, "offset"},
		{"no offset", "PATCH", at, "x", append(tus, "Content-Type", "application/offset+octet-stream"), false, 400, "Upload-Offset"},
		{"wrong type", "PATCH", at, "x", append(tus, "Upload-Offset", "0"), false, 400, "Content-Type"},
		{"more than promised", "PATCH", at, "more than ten bytes", patch, false, 413, "size"},
		{"disk full later", "PATCH", at, "x", patch, true, 507, "the disk of this server is full"},
		{"foreign id", "PATCH", at[:len(at)-4] + "0000", "x", patch, false, 404, "not found"},
		{"no id", "PATCH", endpoint + "/x", "x", patch, false, 404, "not found"},
		{"path for an id", "PATCH", endpoint + "/..%2f..%2fx", "x", patch, false, 404, "not found"},
		{"giving up a foreign one", "DELETE", at[:len(at)-4] + "0000", "", tus, false, 404, "not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			full = tt.full
			g := u.send(tt.method, tt.url, strings.NewReader(tt.body), tt.headers...)
			full = false
			if g.StatusCode != tt.status || !strings.Contains(g.body, tt.message) {
				t.Errorf("%d %s, want %d %s", g.StatusCode, g.body, tt.status, tt.message)
			}
			u.phases(r, weir.AssetUploading, weir.TaskPending)
		})
	}
	if n := u.offset(at); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
	if g := u.send("HEAD", at[:len(at)-4]+"0000", nil, tus...); g.StatusCode != 404 {
		t.Errorf("HEAD of a foreign upload: %d", g.StatusCode)
	}
	if g := u.send("GET", at, nil, tus...); g.StatusCode != 404 {
		t.Errorf("what is uploaded can be read: %d", g.StatusCode)
	}
	empty := u.request()
	if g := u.send("POST", empty.TusEndpoint, nil, append(tus, "Upload-Length", "0")...); g.StatusCode != 422 {
		t.Errorf("an empty file: %d %s", g.StatusCode, g.body)
	}
	u.phases(empty, weir.AssetUploading, weir.TaskPending)
}

// An upload can be deleted and started again; the new one has no bytes of the old.
func TestTusRestart(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	first := u.begin(r, "Upload-Length", "10")
	u.add(first, 0, strings.NewReader("12345"))
	if g := u.send("DELETE", first, nil, "Tus-Resumable", "1.0.0"); g.StatusCode != 204 {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	if g := u.send("HEAD", first, nil, "Tus-Resumable", "1.0.0"); g.StatusCode != 404 {
		t.Errorf("after it was given up: %d", g.StatusCode)
	}
	u.phases(r, weir.AssetUploading, weir.TaskPending)
	second := u.begin(r, "Upload-Length", "10")
	u.add(second, 0, strings.NewReader("1234567"))
	third := u.begin(r, "Upload-Length", "4")
	if g := u.add(second, 7, strings.NewReader("890")); g.StatusCode != 404 {
		t.Errorf("an upload that another took the place of: %d %s", g.StatusCode, g.body)
	}
	if g := u.add(third, 0, strings.NewReader("film")); g.StatusCode != 204 || u.kept(r) != "film" {
		t.Errorf("%d %s, %q is kept", g.StatusCode, g.body, u.kept(r))
	}
	// A file that comes at once takes the place of one that came in parts.
	r = u.request()
	u.add(u.begin(r, "Upload-Length", "10"), 0, strings.NewReader("1234"))
	u.add(u.begin(r, "Upload-Length", "10"), 0, strings.NewReader("1234"))
	if g := u.send("PUT", r.URL, strings.NewReader("film")); g.StatusCode != 200 || u.kept(r) != "film" {
		t.Errorf("%d %s, %q is kept", g.StatusCode, g.body, u.kept(r))
	}
}

// What came before a connection broke is kept, and a part that came whole is not written again.
func TestTusBroken(t *testing.T) {
	u := newUploads(t, nil)
	r := u.request()
	at := u.begin(r, "Upload-Length", "1000")
	ended := make(chan int, 10)
	u.restart(func(o *Options) {
		o.Observe = func(_ context.Context, route string, status int, _ time.Duration) {
			if strings.HasPrefix(route, "PATCH") {
				ended <- status
			}
		}
	})
	conn := u.dial("PATCH", u.here(at), "Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\nContent-Length: 1000\r\n", film(500))
	conn.Close()
	<-ended
	there := u.offset(at)
	if there == 0 || there > 500 {
		t.Fatalf("%d bytes are there", there)
	}
	u.phases(r, weir.AssetUploading, weir.TaskPending)
	if g := u.add(at, there, strings.NewReader(film(1000)[there:])); g.StatusCode != 204 || u.kept(r) != film(1000) {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
}

// A client that sends nothing, or next to nothing, is given up on.
func TestTusSlowly(t *testing.T) {
	u := newUploads(t, func(o *Options) { o.timeout = 300 * time.Millisecond })
	for name, trickle := range map[string]bool{"nothing": false, "next to nothing": true} {
		t.Run(name, func(t *testing.T) {
			r := u.request()
			at := u.begin(r, "Upload-Length", "100000")
			g := u.slowly("PATCH", at, "Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\nContent-Length: 100000\r\n", trickle)
			if g.StatusCode != 408 || !strings.Contains(g.body, "the upload is too slow: less than 65536 bytes arrived in 300ms; continue it") {
				t.Errorf("%d %s", g.StatusCode, g.body)
			}
			u.phases(r, weir.AssetUploading, weir.TaskPending)
		})
	}
}

// A client that lost its connection may come back before that is noticed, also on
// another node: the bytes of the two don't mix.
func TestTusTwice(t *testing.T) {
	for _, where := range []string{"the same node", "another node"} {
		t.Run(where, func(t *testing.T) {
			u := newUploads(t, nil)
			r := u.request()
			at := u.begin(r, "Upload-Length", "9")
			reader, writer := io.Pipe()
			slow := make(chan uploadReply, 1)
			first := *u
			go func() { slow <- first.add(at, 0, reader) }()
			if _, err := io.WriteString(writer, "AAAA"); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the first request is at work", func() bool {
				info, err := (&tusUpload{s: u.server, assetID: r.Asset.ID}).load(t.Context())
				return err == nil && info.Writer != ""
			})
			if where == "another node" {
				u.restart(nil)
			}
			there := u.offset(at)
			rest := strings.Repeat("B", 9-there)
			g := u.add(at, there, strings.NewReader(rest))
			if g.StatusCode != 204 {
				t.Errorf("%d %s", g.StatusCode, g.body)
			}
			writer.Close()
			if g := <-slow; g.StatusCode < 400 {
				t.Errorf("the first request: %d %s", g.StatusCode, g.body)
			}
			if kept, want := u.kept(r), strings.Repeat("A", there)+rest; kept != want {
				t.Errorf("%q is kept, want %q", kept, want)
			}
			u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
		})
	}
}

// An upload that came too late does not look as if it had come.
func TestTusTooLate(t *testing.T) {
	u := newUploads(t, nil)
	for name, change := range map[string]func(*weir.Asset){
		"expired": func(a *weir.Asset) { a.Fail("the file was not uploaded", time.Now()) },
		"deleted": func(a *weir.Asset) { a.Delete(time.Now()) },
	} {
		r := u.request()
		at := u.begin(r, "Upload-Length", "8")
		u.add(at, 0, strings.NewReader("1234"))
		err := u.store.Tx(t.Context(), func(tx *store.Tx) error {
			_, err := tx.UpdateAsset(t.Context(), r.Asset.ID, func(a *weir.Asset) error {
				change(a)
				return nil
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if g := u.add(at, 4, strings.NewReader("5678")); g.StatusCode != 422 && g.StatusCode != 404 {
			t.Errorf("%s: %d %s", name, g.StatusCode, g.body)
		}
	}
}

// What is wrong inside is for the log, not for the client.
func TestTusErrorsAreOurs(t *testing.T) {
	u := newUploads(t, nil)
	for _, err := range []error{errors.New("planted"), fmt.Errorf("x: %w", weir.Wrap(weir.Upstream, errors.New("planted"), "the storage does not answer"))} {
		got := u.server.tusError(t.Context(), err)
		if got == nil || strings.Contains(got.Error(), "planted") {
			t.Errorf("tusError(%v) = %v", err, got)
		}
	}
}
