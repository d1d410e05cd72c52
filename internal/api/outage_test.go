package api

import (
	"io"
	"strings"
	"testing"

	"weir/internal/store/pgtest"
	"weir/internal/wait"
	"weir/internal/weir"
)

// newUploadsOnPostgreSQL is newUploads on a database that can go away.
func newUploadsOnPostgreSQL(t *testing.T) (u *uploads, database string) {
	t.Helper()
	database = engines()["postgres"](t)
	f := openFixture(t, database)
	t.Cleanup(f.store.Close)
	f.addUser(t, f.server.Accounts, "ann")
	u = &uploads{fixture: f, TB: t}
	u.restart(nil)
	return u, database
}

// Without a database, every request that needs it says so in the end, and when to come again.
func TestRequestsWithoutDatabase(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(testing.TB, string) func(){"errs": pgtest.Cut, "hangs": pgtest.Hang} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "hangs" {
				t.Skip("slow")
			}
			t.Parallel()
			u, database := newUploadsOnPostgreSQL(t)
			r := u.request()
			at, other := u.begin(r, "Upload-Length", "10"), u.begin(u.request(), "Upload-Length", "10")
			back := fault(t, database)
			t.Run("away", func(t *testing.T) { requestsWithoutDatabase(t, u, r, at, other) })
			back()
			u.phases(r, weir.AssetUploading, weir.TaskPending)
			if g := u.add(at, 0, strings.NewReader("film is 10")); g.StatusCode != 204 || u.kept(r) != "film is 10" {
				t.Errorf("with a database: %d %s", g.StatusCode, g.body)
			}
		})
	}
}

// requestsWithoutDatabase sends requests, all at once. One of two at the same upload by tus would end
// the other.
func requestsWithoutDatabase(t *testing.T, u *uploads, r requested, at, other string) {
	below := func(address string) string { return strings.TrimPrefix(address, u.web.URL+"/api") }
	for _, tt := range []struct{ name, method, path, body string }{
		{"list of streams", "GET", "/stream", ""},
		{"stream", "GET", "/stream/" + weir.NewID(), ""},
		{"new stream", "POST", "/stream", `{"name":"x"}`},
		{"changed stream", "PATCH", "/stream/" + weir.NewID(), `{"record":true}`},
		{"deleted asset", "DELETE", "/asset/" + r.Asset.ID, ""},
		{"list of assets", "GET", "/asset", ""},
		{"new upload", "POST", "/asset/request-upload", `{"name":"x"}`},
		{"tasks", "GET", "/task", ""},
		{"webhooks", "GET", "/webhook", ""},
		{"log-in", "POST", "/user/token", `{"email":"ann@example.com","password":"correct horse battery"}`},
		{"upload", "PUT", below(r.URL), "film"},
		{"tus: begin", "POST", below(r.TusEndpoint), ""},
		{"tus: offset", "HEAD", below(other), ""},
		{"tus: bytes", "PATCH", below(at), "film"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			own := &uploads{fixture: u.fixture, TB: t, web: u.web}
			headers := []string{"Content-Type", "application/json", "Authorization", "Bearer " + u.vars["ann.key"]}
			switch {
			case !strings.Contains(tt.path, "/upload/tus"):
			case tt.method == "POST":
				headers = []string{"Tus-Resumable", "1.0.0", "Upload-Length", "10"}
			default:
				headers = []string{"Tus-Resumable", "1.0.0", "Upload-Offset", "0", "Content-Type", "application/offset+octet-stream"}
			}
			g := own.send(tt.method, u.web.URL+"/api"+tt.path, strings.NewReader(tt.body), headers...)
			if g.StatusCode != 503 || g.Header.Get("Retry-After") == "" || tt.method != "HEAD" && !strings.Contains(g.body, "database") {
				t.Errorf("%d %s, Retry-After %q", g.StatusCode, g.body, g.Header.Get("Retry-After"))
			}
		})
	}
}

// The database goes away while an upload arrives: what has come is kept, and the upload ends when the
// database is back.
func TestTusWithoutDatabase(t *testing.T) {
	t.Parallel()
	u, database := newUploadsOnPostgreSQL(t)
	r := u.request()
	whole := film(1000)
	at := u.begin(r, "Upload-Length", "1000")
	body, sent := io.Pipe()
	answered := make(chan uploadReply)
	go func() { answered <- u.add(at, 0, body) }()
	if _, err := io.WriteString(sent, whole[:600]); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the request is being read", func() bool {
		state, _, err := u.server.Media.Get(t.Context(), infoKey(r.Asset.ID), 0, -1)
		if err != nil {
			return false
		}
		defer state.Close()
		text, _ := io.ReadAll(state)
		return strings.Contains(string(text), "writer")
	})
	back := pgtest.Cut(t, database)
	if _, err := io.WriteString(sent, whole[600:]); err != nil {
		t.Fatal(err)
	}
	_ = sent.Close()
	if g := wait.Receive(t, "a response", answered); g.StatusCode != 503 || g.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	back()
	if n := u.offset(at); n != len(whole) || u.kept(r) != whole {
		t.Errorf("%d of %d bytes are kept", n, len(whole))
	}
	u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
}
