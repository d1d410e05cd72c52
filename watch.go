package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

//go:embed web/watch.html web/watch.css web/watch.js web/hls.min.js web/hls.LICENSE
var webFiles embed.FS

// watchPolicy is what the browser may do on a watch page: play from here, and nothing
// else. Others may show the page in a frame of theirs.
const watchPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none'"

// watchPage is the page at /play/<playbackId>, on which people watch. It is a file with
// a script; all that is made here is the title, and what to say when there is nothing.
type watchPage struct {
	store    *store.Store
	log      *slog.Logger
	observe  func(route string, status int, took time.Duration)
	template *template.Template
	files    map[string]watchFile // by the end of their address
	folder   string               // of the files, beside the pages; changes with them
}

// watchFile is what the page loads.
type watchFile struct {
	kind          string
	plain, zipped []byte
}

// shownTitle is what the page tells of what is played.
type shownTitle struct {
	ID, Kind         string // live, stored; "" = there is nothing to play
	Title            string
	Headline, Detail string
	Assets           string // where its files are
}

func newWatchPage(st *store.Store, log *slog.Logger, observe func(string, int, time.Duration)) (*watchPage, error) {
	p := &watchPage{store: st, log: log, observe: observe, files: map[string]watchFile{}}
	var err error
	if p.template, err = template.ParseFS(webFiles, "web/watch.html"); err != nil {
		return nil, err
	}
	sum := sha256.New()
	for name, kind := range map[string]string{
		"watch.css": "text/css; charset=utf-8", "watch.js": "text/javascript; charset=utf-8", "hls.min.js": "text/javascript; charset=utf-8", "hls.LICENSE": "text/plain; charset=utf-8",
	} {
		f := watchFile{kind: kind}
		if f.plain, err = webFiles.ReadFile("web/" + name); err != nil {
			return nil, err
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		if _, err := w.Write(f.plain); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		f.zipped = zipped.Bytes()
		p.files[name] = f
	}
	for _, name := range []string{"watch.css", "watch.js", "hls.min.js"} {
		_, _ = sum.Write(p.files[name].plain) // a hash takes everything
	}
	p.folder = "_/" + hex.EncodeToString(sum.Sum(nil)[:6]) + "/"
	return p, nil
}

// ServeHTTP answers everything below /play/.
func (p *watchPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the address may carry a viewer's permission
	h.Set("Content-Security-Policy", watchPolicy)
	route, status := "GET /play/{id}", http.StatusMethodNotAllowed
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "use GET or HEAD", status)
	case strings.HasSuffix(r.URL.Path, "/") && r.URL.Path != "/play/":
		// Relative, like all addresses of the page: what is before them, a proxy may know.
		h.Set("Location", (&url.URL{Path: "../" + path.Base(r.URL.Path), RawQuery: r.URL.RawQuery}).String())
		status = http.StatusPermanentRedirect
		w.WriteHeader(status)
	case strings.HasPrefix(r.URL.Path, "/play/_/"):
		route = "GET /play/_/{file}"
		status = p.serveFile(w, r)
	default:
		status = p.servePage(w, r)
	}
	p.observe(route, status, time.Since(start))
}

func (p *watchPage) serveFile(w http.ResponseWriter, r *http.Request) int {
	f, ok := p.files[path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return http.StatusNotFound
	}
	h, content := w.Header(), f.plain
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(r.URL.Path, "/play/"+p.folder) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		content = f.zipped
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(content)
	}
	return http.StatusOK
}

func (p *watchPage) servePage(w http.ResponseWriter, r *http.Request) int {
	shown, status := p.find(r.Context(), strings.TrimPrefix(r.URL.Path, "/play/"))
	var page bytes.Buffer
	if err := p.template.Execute(&page, shown); err != nil {
		p.log.ErrorContext(r.Context(), "watch page not made", "err", err)
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

// find returns what there is under a playback id. The name of something is shown only
// if everybody may play it.
func (p *watchPage) find(ctx context.Context, id string) (shownTitle, int) {
	shown := shownTitle{ID: id, Title: "Video", Headline: "Loading …", Assets: p.folder}
	name := func(name string, policy *weir.PlaybackPolicy) {
		if !policy.Private() {
			shown.Title = cmp.Or(name, shown.Title)
		}
	}
	stream, err := p.store.StreamByPlaybackID(ctx, id)
	if err == nil && !stream.Deleted {
		shown.Kind = "live"
		name(stream.Name, stream.PlaybackPolicy)
		return shown, http.StatusOK
	}
	var asset weir.Asset
	if err == nil || weir.KindOf(err) == weir.NotFound {
		asset, err = p.store.AssetByPlaybackID(ctx, id)
	}
	switch {
	case err != nil && weir.KindOf(err) != weir.NotFound:
		p.log.ErrorContext(ctx, "watch page without its title", "err", err)
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
	shown.Kind = "stored"
	return shown, http.StatusOK
}
