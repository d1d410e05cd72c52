// Package web has the pages for people: the console and the watch page. Their files (templates,
// scripts, styles) are in the folder web/ of the repository; the caller passes them.
//
// Start at [Console] and [WatchPage]; [Built] has the scripts and styles.
package web

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

// watchPolicy lets the browser only play from this server. Other sites may show the page in a
// frame.
const watchPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; media-src 'self' blob:; base-uri 'self'; form-action 'none'"

// Options are the inputs of a page.
type Options struct {
	Files       fs.FS // the folder web/
	Built       *Built
	Store       *store.Store
	PublicClips bool // viewers may make clips, unless the stream says otherwise
	Log         *slog.Logger
	// Base returns the address of weir as the client of a request sees it.
	Base func(*http.Request) string
	// Observe is called for every request, for metrics.
	Observe func(ctx context.Context, route string, status int, took time.Duration)
}

// WatchPage serves /play/<playbackId> and /oembed. The page is a template with a script that plays;
// this handler adds the title, and the text for a video that does not exist.
type WatchPage struct {
	o        Options
	template *template.Template
	entry    Entry
	known    store.Recent[pageData] // by playback id
}

// maxKnown is the number of pages that are remembered for the time in which the database is away.
const maxKnown = 10_000

type pageData struct {
	ID, Kind         string // kind: live, stored; "" = nothing to play
	Title            string
	Headline, Detail string
	Seen             bool   // the stream was live before
	Clips            bool   // viewers may make clips
	Signed           bool   // the video is signed, and the viewer can check it
	Public           bool   // everybody may play it
	OEmbed, Poster   string // addresses for pages that link to this one
	Icon             string
	Entry            Entry
}

// NewWatchPage reads the files of the page.
func NewWatchPage(o Options) (*WatchPage, error) {
	entry, err := o.Built.Entry("watch")
	if err != nil {
		return nil, err
	}
	t, err := template.ParseFS(o.Files, "pages/watch.html")
	return &WatchPage{o: o, template: t, entry: entry, known: store.Recent[pageData]{Store: o.Store, Max: maxKnown}}, err
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
	case r.URL.Path == "/oembed":
		route = "GET /oembed"
		status = p.serveOEmbed(w, r)
	default:
		status = p.servePage(w, r)
	}
	p.o.Observe(r.Context(), route, status, time.Since(start))
}

func (p *WatchPage) servePage(w http.ResponseWriter, r *http.Request) int {
	shown, status := p.find(r.Context(), strings.TrimPrefix(r.URL.Path, "/play/"))
	shown.Entry, shown.Icon = p.entry, p.o.Built.Icon()
	if shown.Kind != "" {
		base := p.o.Base(r)
		shown.OEmbed = base + "/oembed?" + url.Values{"url": {base + "/play/" + shown.ID}}.Encode()
		if shown.Public {
			shown.Poster = base + "/hls/" + url.PathEscape(shown.ID) + "/poster.jpg"
		}
	}
	var page bytes.Buffer
	if err := p.template.Execute(&page, shown); err != nil {
		p.o.Log.ErrorContext(r.Context(), "watch page failed", "err", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	endpoint.Revalidate.Set(h)
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = io.Copy(w, &page)
	}
	return status
}

// find returns the data of a playback id, and the status of the page. While the database is away, it is
// what was read last.
func (p *WatchPage) find(ctx context.Context, id string) (pageData, int) {
	shown, err := p.known.GetNow(ctx, id, func(ctx context.Context) (pageData, error) { return p.read(ctx, id) })
	switch kind := weir.KindOf(err); {
	case err == nil:
		return shown, http.StatusOK
	case kind == weir.NotFound:
		return pageData{
			ID: id, Title: "Not found", Headline: "Nothing is here",
			Detail: "No stream and no video has this address. Ask whoever gave it to you for the right one.",
		}, http.StatusNotFound
	case kind != weir.Outage:
		p.o.Log.ErrorContext(ctx, "watch page failed to read its content", "err", err)
	}
	return pageData{
		ID: id, Title: "Video", Headline: "It can’t be played at the moment",
		Detail: "The server has a problem. Load this page again in a while.",
	}, weir.KindOf(err).Status()
}

// read reads the data of a playback id. It has the name only if the video is public.
func (p *WatchPage) read(ctx context.Context, id string) (pageData, error) {
	shown := pageData{ID: id, Title: "Video", Headline: "Loading …"}
	name := func(name string, policy *weir.PlaybackPolicy) {
		if shown.Public = !policy.Private(); shown.Public {
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
		return shown, nil
	}
	var asset weir.Asset
	if err == nil || weir.KindOf(err) == weir.NotFound {
		if asset, err = p.o.Store.AssetByPlaybackID(ctx, id); err == nil {
			_, err = p.o.Store.User(ctx, asset.UserID)
		}
	}
	if err == nil && asset.Deleted {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return shown, err
	}
	name(asset.Name, asset.PlaybackPolicy)
	if asset.Status.Phase == weir.AssetFailed {
		shown.Headline, shown.Detail = "The video could not be processed", "Its owner can see why, and try again."
		return shown, nil
	}
	shown.Kind, shown.Signed = "stored", asset.C2PA != nil
	stream, err = p.o.Store.StreamOfRecording(ctx, asset) // NotFound = it is none, and the server's setting counts
	if shown.Clips = stream.MayClip(p.o.PublicClips); err != nil && weir.KindOf(err) != weir.NotFound {
		p.o.Log.ErrorContext(ctx, "watch page failed to read whether viewers may clip", "err", err)
		shown.Clips = false
	}
	return shown, nil
}
