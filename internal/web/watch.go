// Package web has the pages for people: the console and the watch page. Their files (templates,
// scripts, styles) are in the folder web/ of the repository; the caller passes them.
//
// Start at [Console] and [WatchPage]; [Built] has the scripts and styles.
package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// watchPolicy lets the browser only play from this server. Other sites may show the page in a
// frame.
const watchPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none'"

// verifierPolicy is that of the worker that verifies what the page plays. Only there may WebAssembly
// be compiled.
const verifierPolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"

// Options are the inputs of a page.
type Options struct {
	Files       fs.FS // the folder web/
	Store       *store.Store
	PublicClips bool // viewers may make clips, unless the stream says otherwise
	Log         *slog.Logger
	// Observe is called for every request, for metrics.
	Observe func(ctx context.Context, route string, status int, took time.Duration)
}

// WatchPage serves everything below /play/. The page at /play/<playbackId> is a file with a script
// that plays; this handler adds the title, and the text for a video that does not exist.
type WatchPage struct {
	o        Options
	template *template.Template
	files    map[string]file // by name
	folder   string          // of the files, relative to the pages; named after their content
}

type file struct {
	contentType string
	policy      string
	plain       func() ([]byte, error)
	zipped      func() []byte // made once, by the first request: it takes a fifth of a start
}

type pageData struct {
	ID, Kind         string // kind: live, stored; "" = nothing to play
	Title            string
	Headline, Detail string
	Seen             bool   // the stream was live before
	Clips            bool   // viewers may make clips
	Signed           bool   // the video is signed, and the viewer can check it
	Assets           string // folder of the files
}

// NewWatchPage reads the files of the page.
func NewWatchPage(o Options) (*WatchPage, error) {
	p := &WatchPage{o: o, files: map[string]file{}}
	var err error
	if p.template, err = template.ParseFS(o.Files, "watch.html"); err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, f := range []struct{ name, contentType string }{
		{"watch.css", "text/css"},
		{"watch.js", "text/javascript"},
		{"hls.min.js", "text/javascript"},
		{"hls.LICENSE", "text/plain"},
		{"verify.js", "text/javascript"},
		{"c2pa.js", "text/javascript"},
		{"c2pa.wasm.gz", "application/wasm"},
		{"c2pa.LICENSE", "text/plain"},
	} {
		stored, err := fs.ReadFile(o.Files, f.name)
		if err != nil {
			return nil, err
		}
		sum.Write(stored)
		if name, ok := strings.CutSuffix(f.name, ".gz"); ok {
			p.files[name] = file{f.contentType, watchPolicy, func() ([]byte, error) { return unzip(stored) }, func() []byte { return stored }}
			continue
		}
		made := file{
			contentType: f.contentType + "; charset=utf-8", policy: watchPolicy,
			plain: func() ([]byte, error) { return stored, nil }, zipped: sync.OnceValue(func() []byte { return zip(stored) }),
		}
		if f.name == "verify.js" {
			made.policy = verifierPolicy
		}
		p.files[f.name] = made
	}
	p.folder = "_/" + hex.EncodeToString(sum.Sum(nil)[:6]) + "/"
	return p, nil
}

func unzip(zipped []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func (p *WatchPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the URL may carry a viewer's token
	h.Set("Content-Security-Policy", watchPolicy)
	route, status := "GET /play/{id}", http.StatusMethodNotAllowed
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "use GET or HEAD", status)
	case strings.HasSuffix(r.URL.Path, "/") && r.URL.Path != "/play/":
		// Relative, like all addresses of the page: a proxy may serve it below another path.
		h.Set("Location", (&url.URL{Path: "../" + path.Base(r.URL.Path), RawQuery: r.URL.RawQuery}).String())
		status = http.StatusPermanentRedirect
		w.WriteHeader(status)
	case strings.HasPrefix(r.URL.Path, "/play/_/"):
		route = "GET /play/_/{file}"
		status = p.serveFile(w, r)
	default:
		status = p.servePage(w, r)
	}
	p.o.Observe(r.Context(), route, status, time.Since(start))
}

func (p *WatchPage) serveFile(w http.ResponseWriter, r *http.Request) int {
	f, ok := p.files[path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return http.StatusNotFound
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", f.policy)
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(r.URL.Path, "/play/"+p.folder) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	zipped := strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	if zipped {
		h.Set("Content-Encoding", "gzip")
	}
	if r.Method != http.MethodGet {
		return http.StatusOK
	}
	if zipped {
		_, _ = w.Write(f.zipped())
		return http.StatusOK
	}
	content, err := f.plain()
	if err != nil {
		p.o.Log.ErrorContext(r.Context(), "file of the watch page not read", "err", err)
		http.Error(w, "the file can't be read", http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	_, _ = w.Write(content)
	return http.StatusOK
}

func (p *WatchPage) servePage(w http.ResponseWriter, r *http.Request) int {
	shown, status := p.find(r.Context(), strings.TrimPrefix(r.URL.Path, "/play/"))
	var page bytes.Buffer
	if err := p.template.Execute(&page, shown); err != nil {
		p.o.Log.ErrorContext(r.Context(), "watch page not made", "err", err)
		http.Error(w, "the page can't be made", http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = io.Copy(w, &page)
	}
	return status
}

// find returns the data of a playback id. It has the name only if the video is public.
func (p *WatchPage) find(ctx context.Context, id string) (pageData, int) {
	shown := pageData{ID: id, Title: "Video", Headline: "Loading …", Assets: p.folder}
	name := func(name string, policy *weir.PlaybackPolicy) {
		if !policy.Private() {
			shown.Title = cmp.Or(name, shown.Title)
		}
	}
	stream, err := p.o.Store.StreamByPlaybackID(ctx, id)
	if err == nil {
		_, err = p.o.Store.User(ctx, stream.UserID) // NotFound = the account is deleted
	}
	if err == nil && !stream.Deleted {
		shown.Kind, shown.Seen, shown.Clips = "live", stream.LastSeen > 0, stream.MayClip(p.o.PublicClips)
		name(stream.Name, stream.PlaybackPolicy)
		return shown, http.StatusOK
	}
	var asset weir.Asset
	if err == nil || weir.KindOf(err) == weir.NotFound {
		if asset, err = p.o.Store.AssetByPlaybackID(ctx, id); err == nil {
			_, err = p.o.Store.User(ctx, asset.UserID)
		}
	}
	switch {
	case err != nil && weir.KindOf(err) != weir.NotFound:
		p.o.Log.ErrorContext(ctx, "watch page without its title", "err", err)
		shown.Headline, shown.Detail = "It can’t be played at the moment", "The server has a problem. Load this page again in a while."
		return shown, http.StatusInternalServerError
	case err != nil || asset.Deleted:
		shown.Title, shown.Headline = "Not found", "Nothing is here"
		shown.Detail = "No stream and no video has this address. Ask whoever gave it to you for the right one."
		return shown, http.StatusNotFound
	}
	name(asset.Name, asset.PlaybackPolicy)
	if asset.Status.Phase == weir.AssetFailed {
		shown.Headline, shown.Detail = "The video could not be made", "Its owner can see why, and try again."
		return shown, http.StatusOK
	}
	shown.Kind, shown.Signed = "stored", asset.C2PA != nil
	stream, err = p.o.Store.StreamOfRecording(ctx, asset) // NotFound = it is none, and the server's setting counts
	if shown.Clips = stream.MayClip(p.o.PublicClips); err != nil && weir.KindOf(err) != weir.NotFound {
		p.o.Log.ErrorContext(ctx, "watch page without clips", "err", err)
		shown.Clips = false
	}
	return shown, http.StatusOK
}
