package web

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
)

// watchFixture is a watch page with a public stream, a gated one and a deleted one.
type watchFixture struct {
	page   *WatchPage
	store  *store.Store
	ids    map[string]string // playback ids by name
	routes []string          // that were observed
}

func newWatchFixture(t *testing.T) *watchFixture {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "weir.db"), store.Options{Secret: bytes.Repeat([]byte{5}, 32), Stale: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	f := &watchFixture{ids: map[string]string{}, store: st}
	err = st.Tx(ctx, func(tx *store.Tx) error {
		for _, id := range []string{"u", "removed"} {
			if err := tx.CreateUser(ctx, &weir.User{ID: id, Email: id + "@example.com"}); err != nil {
				return err
			}
		}
		_, err := tx.DeleteUser(ctx, "removed", weir.Base{}, time.Now())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = st.Tx(ctx, func(tx *store.Tx) error {
		for name, policy := range map[string]*weir.PlaybackPolicy{
			"<b>open</b>": nil, "secret plans": {Type: weir.PolicyJWT}, "gone": nil, "ended": nil, "of a deleted account": nil,
		} {
			caller := &weir.Caller{UserID: "u", ProjectID: "p"}
			if name == "of a deleted account" {
				caller.UserID = "removed"
			}
			s, err := weir.NewStream{Name: name, PlaybackPolicy: policy}.Stream(caller, time.Now())
			if err != nil {
				return err
			}
			s.Deleted = name == "gone"
			if name == "ended" {
				s.LastSeen = weir.At(time.Now())
			}
			if err := tx.CreateStream(ctx, &s); err != nil {
				return err
			}
			f.ids[name] = s.PlaybackID
		}
		for name, phase := range map[string]weir.AssetPhase{"film": weir.AssetReady, "signed film": weir.AssetReady, "broken": weir.AssetFailed, "removed film": weir.AssetReady} {
			id := weir.NewID()
			a := weir.Asset{ID: id, Name: name, PlaybackID: weir.NewPlaybackID(id), UserID: "u", ProjectID: "p", Status: weir.AssetStatus{Phase: phase}}
			if name == "removed film" {
				a.UserID = "removed"
			}
			if name == "signed film" {
				a.Sign, a.C2PA = true, &weir.Provenance{Signed: true}
			}
			if err := tx.CreateAsset(ctx, &a); err != nil {
				return err
			}
			f.ids[name] = a.PlaybackID
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	files := os.DirFS("../../web")
	built, err := ReadBuilt(files)
	if err != nil {
		t.Fatal(err)
	}
	f.page, err = NewWatchPage(Options{
		Files: files, Built: built, Store: st, Log: slog.New(slog.DiscardHandler),
		Base:    func(*http.Request) string { return "https://weir.example.com/video" },
		Observe: func(_ context.Context, route string, _ int, _ time.Duration) { f.routes = append(f.routes, route) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *watchFixture) get(method, path string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	f.page.ServeHTTP(w, r)
	return w
}

func TestWatchPage(t *testing.T) {
	f := newWatchFixture(t)
	for _, tt := range []struct {
		name      string
		id        string
		status    int
		kind      string
		has, none string
	}{
		{"stream", f.ids["<b>open</b>"], http.StatusOK, "live", "&lt;b&gt;open&lt;/b&gt;", "<b>"},
		{"stream that was on air", f.ids["ended"], http.StatusOK, "live", `data-seen="true"`, `data-seen="false"`},
		{"stream that was not", f.ids["<b>open</b>"], http.StatusOK, "live", `data-seen="false"`, `data-seen="true"`},
		{"gated stream", f.ids["secret plans"], http.StatusOK, "live", "<title>Video</title>", "secret"},
		{"deleted stream", f.ids["gone"], http.StatusNotFound, "", "Nothing is here", "<script"},
		{"stream of a deleted account", f.ids["of a deleted account"], http.StatusNotFound, "", "Nothing is here", "<script"},
		{"asset of a deleted account", f.ids["removed film"], http.StatusNotFound, "", "Nothing is here", "<script"},
		{"asset", f.ids["film"], http.StatusOK, "stored", "<title>film</title>", "Nothing"},
		{"unsigned asset", f.ids["film"], http.StatusOK, "stored", "<title>film</title>", `data-signed="true"`},
		{"signed asset", f.ids["signed film"], http.StatusOK, "stored", `data-signed="true"`, "Nothing"},
		{"failed asset", f.ids["broken"], http.StatusOK, "", "could not be processed", "<script"},
		{"unknown", `0000"><script>alert(1)</script>`, http.StatusNotFound, "", "Nothing is here", "<script>"},
		{"none", "", http.StatusNotFound, "", "Nothing is here", "<script"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/play/x", nil)
			r.URL.Path = "/play/" + tt.id
			w := httptest.NewRecorder()
			f.page.ServeHTTP(w, r)
			body := w.Body.String()
			if w.Code != tt.status || !strings.Contains(body, `data-kind="`+tt.kind+`"`) || !strings.Contains(body, tt.has) || strings.Contains(body, tt.none) {
				t.Errorf("status %d, want %d; kind %q, with %q, without %q:\n%s", w.Code, tt.status, tt.kind, tt.has, tt.none, body)
			}
			if csp := w.Header().Get("Content-Security-Policy"); csp != watchPolicy || w.Header().Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("headers %v", w.Header())
			}
		})
	}
	for _, route := range f.routes {
		if route != "GET /play/{id}" {
			t.Errorf("observed as %q", route)
		}
	}
}

// TestWatchPageFiles fetches what the page names.
func TestWatchPageFiles(t *testing.T) {
	f := newWatchFixture(t)
	built := f.page.o.Built
	get := func(address, encoding string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/"+address, nil)
		r.Header.Set("Accept-Encoding", encoding)
		w := httptest.NewRecorder()
		built.ServeHTTP(w, r)
		return w
	}
	body := f.get(http.MethodGet, "/play/"+f.ids["film"], nil).Body.String()
	named := regexp.MustCompile(`(?:src|href)="(_/[^"]+)"`).FindAllStringSubmatch(body, -1)
	if len(named) < 3 {
		t.Fatalf("the page names %v, want an icon, a style and a script", named)
	}
	for _, name := range named {
		plain, zipped := get(name[1], ""), get(name[1], "gzip, br")
		if plain.Code != http.StatusOK || !strings.Contains(plain.Header().Get("Cache-Control"), "immutable") || plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %d %v", name[1], plain.Code, plain.Header())
		}
		if zipped.Header().Get("Content-Encoding") != "gzip" || zipped.Body.Len() >= plain.Body.Len() || zipped.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %d bytes as gzip of %d, %v", name[1], zipped.Body.Len(), plain.Body.Len(), zipped.Header())
		}
	}
	// What verifies signatures: only its worker may compile WebAssembly.
	if w := get(built.path("verify.js"), ""); w.Code != http.StatusOK || w.Header().Get("Content-Security-Policy") != verifierPolicy {
		t.Errorf("the worker: %d %v", w.Code, w.Header())
	}
	plain, zipped := get(built.path("c2pa.wasm"), ""), get(built.path("c2pa.wasm"), "gzip")
	if plain.Header().Get("Content-Type") != "application/wasm" || !strings.HasPrefix(plain.Body.String(), "\x00asm") || 2*zipped.Body.Len() > plain.Body.Len() {
		t.Errorf("the validator: %d bytes, %d as gzip, %v", plain.Body.Len(), zipped.Body.Len(), plain.Header())
	}
	if w := f.get(http.MethodGet, "/play/"+f.ids["film"]+"/?jwt=x", nil); w.Code != http.StatusPermanentRedirect || w.Header().Get("Location") != "../"+f.ids["film"]+"?jwt=x" {
		t.Errorf("with a slash at its end: %d %v", w.Code, w.Header())
	}
	if w := f.get(http.MethodPost, "/play/"+f.ids["film"], nil); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	if w := f.get(http.MethodHead, "/play/"+f.ids["film"], nil); w.Code != http.StatusOK || w.Body.Len() > 0 {
		t.Errorf("HEAD: %d with %d bytes", w.Code, w.Body.Len())
	}
}

// The page has the panel for clips where viewers may make them: by the server's setting, or by that of the
// stream, which counts for its recordings too.
func TestWatchPageClips(t *testing.T) {
	f := newWatchFixture(t)
	ctx := t.Context()
	stream, err := f.store.StreamByPlaybackID(ctx, f.ids["ended"])
	if err != nil {
		t.Fatal(err)
	}
	session := weir.NewSession(&stream, time.Now())
	recording := weir.NewRecording(&session, &stream, time.Now())
	recording.Status.Phase = weir.AssetReady
	err = f.store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CreateSession(ctx, &session); err != nil {
			return err
		}
		return tx.CreateAsset(ctx, &recording)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		setting                 bool
		own                     *bool // of the stream
		stream, recording, film bool
	}{
		{false, nil, false, false, false},
		{true, nil, true, true, true},
		{false, new(true), true, true, false},
		{true, new(false), false, false, true},
	} {
		f.page.o.PublicClips = tt.setting
		err := f.store.Tx(ctx, func(tx *store.Tx) error {
			_, err := tx.UpdateStream(ctx, stream.ID, func(s *weir.Stream) error {
				s.PublicClips = tt.own
				return nil
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]bool{stream.PlaybackID: tt.stream, recording.PlaybackID: tt.recording, f.ids["film"]: tt.film, f.ids["broken"]: false} {
			if got := strings.Contains(f.get(http.MethodGet, "/play/"+id, nil).Body.String(), `data-clips="true"`); got != want {
				t.Errorf("setting %t, of the stream %v: %s has the panel: %t", tt.setting, tt.own, id, got)
			}
		}
	}
}

// While the database is away, a page that was shown lately is shown again.
func TestWatchPageWithoutDatabase(t *testing.T) {
	f := newWatchFixture(t)
	film, unknown := "/play/"+f.ids["film"], "/play/unknown"
	before := f.get(http.MethodGet, film, nil)
	f.get(http.MethodGet, unknown, nil)
	f.store.Close()
	if w := f.get(http.MethodGet, film, nil); w.Code != http.StatusOK || w.Body.String() != before.Body.String() {
		t.Errorf("%d %s, want it as before", w.Code, w.Body)
	}
	if w := f.get(http.MethodGet, unknown, nil); w.Code != http.StatusNotFound {
		t.Errorf("what did not exist: %d", w.Code)
	}
	if w := f.get(http.MethodGet, "/play/"+f.ids["ended"], nil); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "Load this page again") {
		t.Errorf("what was not shown: %d %s", w.Code, w.Body)
	}
}

func TestOEmbed(t *testing.T) {
	f := newWatchFixture(t)
	const page = "https://weir.example.com/video/play/"
	ask := func(query url.Values) (int, oEmbed) {
		w := f.get(http.MethodGet, "/oembed?"+query.Encode(), nil)
		var response oEmbed
		if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		return w.Code, response
	}
	status, response := ask(url.Values{"url": {page + f.ids["film"]}, "maxwidth": {"640"}})
	want := oEmbed{
		Version: "1.0", Type: "video", ProviderName: "weir", ProviderURL: "https://weir.example.com/video/", Title: "film", Width: 640, Height: 360,
		HTML: `<iframe src="` + page + f.ids["film"] + `" title="film" width="640" height="360" frameborder="0" ` +
			`allow="autoplay; picture-in-picture" allowfullscreen></iframe>`,
		ThumbnailURL: "https://weir.example.com/video/hls/" + f.ids["film"] + "/poster.jpg",
	}
	if diff := cmp.Diff(want, response); status != http.StatusOK || diff != "" {
		t.Errorf("%d (-want +got)\n%s", status, diff)
	}
	status, response = ask(url.Values{"url": {page + f.ids["secret plans"]}})
	if status != http.StatusOK || response.Title != "Video" || response.ThumbnailURL != "" || response.Width != embedWidth {
		t.Errorf("of a gated stream: %d %+v", status, response)
	}
	for query, want := range map[string]int{
		"url=" + url.QueryEscape(page+"unknown"):                     http.StatusNotFound,
		"url=" + url.QueryEscape(page+f.ids["broken"]):               http.StatusNotFound,
		"url=" + url.QueryEscape("https://other.example.com/play/x"): http.StatusNotFound,
		"url=" + url.QueryEscape("https://weir.example.com/play/x"):  http.StatusNotFound,
		"": http.StatusNotFound,
		"format=xml&url=" + url.QueryEscape(page+f.ids["film"]): http.StatusNotImplemented,
	} {
		if w := f.get(http.MethodGet, "/oembed?"+query, nil); w.Code != want {
			t.Errorf("%s: %d %s, want %d", query, w.Code, w.Body, want)
		}
	}
}
