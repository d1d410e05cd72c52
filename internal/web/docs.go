package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/endpoint"
)

// docsPolicy lets the browser load from this server only.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'self'; form-action 'self'; frame-ancestors 'none'"

// DocsOptions are the inputs of the manual and the reference.
type DocsOptions struct {
	Files   fs.FS // the folder web/
	Built   *Built
	Manual  fs.FS  // the folder docs/
	OpenAPI []byte // the contract
	Log     *slog.Logger
	// Observe is called for every request, for metrics.
	Observe func(ctx context.Context, route string, status int, took time.Duration)
}

// Docs serves the manual at /docs and the reference at /docs/api. Pages are made at the first request,
// because most starts of weir need none.
type Docs struct {
	o         DocsOptions
	entry     Entry
	templates *template.Template
	manual    func() (*served, error)
	reference func() (*served, error)
	index     func() (index, error)
}

// served is a book with its pages as they are sent.
type served struct {
	book
	rendered map[string]rendered // by path
}

// rendered is a page as it is sent.
type rendered struct {
	zipped []byte
	tag    string
}

// docsView is what the template of a page gets.
type docsView struct {
	Base, Path, Here   string // Here is what links within the page start with
	Icon               string
	Entry              Entry
	Title, Description string
	Body               template.HTML
	Contents           []heading
	Groups, Cards      []group
	Calls              []call // of this page, for the sidebar of the reference
	Previous, Next     *link
	Query              string
	Hits               []hit
	Kind               string // manual, reference, search, missing
}

// NewDocs returns the handler of everything at and below /docs.
func NewDocs(o DocsOptions) (*Docs, error) {
	entry, err := o.Built.Entry("docs")
	if err != nil {
		return nil, err
	}
	d := &Docs{o: o, entry: entry}
	if d.templates, err = template.ParseFS(o.Files, "pages/docs.html"); err != nil {
		return nil, err
	}
	d.manual = sync.OnceValues(func() (*served, error) {
		made, err := readManual(o.Manual)
		if err != nil {
			return nil, err
		}
		return d.renderAll(made, "manual")
	})
	d.reference = sync.OnceValues(func() (*served, error) {
		made, err := readReference(o.OpenAPI, d.templates)
		if err != nil {
			return nil, fmt.Errorf("openapi.yaml: %w", err)
		}
		return d.renderAll(made, "reference")
	})
	d.index = sync.OnceValues(func() (index, error) {
		m, err := d.manual()
		if err != nil {
			return nil, err
		}
		r, err := d.reference()
		if err != nil {
			return nil, err
		}
		return newIndex(slices.Concat(m.inOrder(), r.inOrder())...), nil
	})
	return d, nil
}

// renderAll renders all pages of a book.
func (d *Docs) renderAll(b *book, kind string) (*served, error) {
	all := &served{*b, map[string]rendered{}}
	for path, p := range b.pages {
		var err error
		if all.rendered[path], err = d.render(b.view(p, kind)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// inOrder returns the pages as the sidebar has them, each once.
func (b *book) inOrder() (all []*page) {
	for _, g := range b.groups {
		for _, l := range g.Links {
			if p, ok := b.pages[l.Path]; ok && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// view returns a page with what is around it.
func (b *book) view(p *page, kind string) docsView {
	v := docsView{
		Base: baseOf("/" + p.path), Path: p.path, Here: p.path, Title: p.title, Description: p.description, Body: p.body,
		Contents: p.contents, Cards: p.cards, Calls: p.calls, Groups: b.groups, Kind: kind,
	}
	var links []link
	for _, g := range b.groups {
		links = append(links, g.Links...)
	}
	i := slices.IndexFunc(links, func(l link) bool { return l.Path == p.path })
	switch {
	case i < 0: // the first page of the manual, which is the list of the others
		v.Next = &links[0]
	case i > 0:
		v.Previous = &links[i-1]
	}
	if i >= 0 && i+1 < len(links) {
		v.Next = &links[i+1]
	}
	return v
}

func (d *Docs) render(v docsView) (rendered, error) {
	v.Entry, v.Icon = d.entry, d.o.Built.Icon()
	var out bytes.Buffer
	if err := d.templates.ExecuteTemplate(&out, "docs.html", v); err != nil {
		return rendered{}, err
	}
	sum := sha256.Sum256(out.Bytes())
	return rendered{zip(out.Bytes()), `"` + hex.EncodeToString(sum[:8]) + `"`}, nil
}

func (d *Docs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", docsPolicy)
	route, status := "GET /docs/{page}", http.StatusMethodNotAllowed
	place := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "use GET or HEAD", status)
	case moved(place) != "":
		h.Set("Location", (&url.URL{Path: moved(place), RawQuery: r.URL.RawQuery}).String())
		status = http.StatusPermanentRedirect
		w.WriteHeader(status)
	case place == "docs/search":
		route = "GET /docs/search"
		status = d.serveSearch(w, r)
	default:
		status = d.servePage(w, r, place)
	}
	d.o.Observe(r.Context(), route, status, time.Since(start))
}

// moved returns where a page is that was asked for as a folder or as the file it is made of, relative
// to what was asked for; "" = it is here.
func moved(place string) string {
	name := path.Base(place)
	switch {
	case strings.HasSuffix(place, "/"):
		return "../" + name
	case name == "index.md" || name == "index":
		return "../docs"
	case path.Ext(name) == ".md":
		return "./" + strings.TrimSuffix(name, ".md")
	}
	return ""
}

func (d *Docs) servePage(w http.ResponseWriter, r *http.Request, place string) int {
	part := d.manual
	if place == referencePath || strings.HasPrefix(place, referencePath+"/") {
		part = d.reference
	}
	all, err := part()
	if err != nil {
		return d.fail(w, r, err)
	}
	if made, ok := all.rendered[place]; ok {
		return d.send(w, r, http.StatusOK, made)
	}
	here := r.URL.EscapedPath()
	made, err := d.render(docsView{Base: baseOf(here), Here: strings.TrimPrefix(here, "/"), Title: "Not found", Groups: all.groups, Kind: "missing"})
	if err != nil {
		return d.fail(w, r, err)
	}
	return d.send(w, r, http.StatusNotFound, made)
}

// serveSearch answers what was found as a page, or as JSON for the script of the pages.
func (d *Docs) serveSearch(w http.ResponseWriter, r *http.Request) int {
	all, err := d.index()
	if err != nil {
		return d.fail(w, r, err)
	}
	query := strings.ToValidUTF8(r.URL.Query().Get("q"), "")
	hits := all.search(query)
	w.Header().Add("Vary", "Accept")
	if strings.HasPrefix(r.Header.Get("Accept"), "application/json") {
		response, err := json.Marshal(append([]hit{}, hits...)) // never null
		if err != nil {
			return d.fail(w, r, err)
		}
		w.Header().Set("Content-Type", "application/json")
		endpoint.Revalidate.Set(w.Header())
		_, _ = w.Write(response)
		return http.StatusOK
	}
	m, err := d.manual()
	if err != nil {
		return d.fail(w, r, err)
	}
	made, err := d.render(docsView{
		Base: baseOf("/docs/search"), Here: "docs/search?" + url.Values{"q": {query}}.Encode(), Title: "Search",
		Groups: m.groups, Kind: "search", Query: query, Hits: hits,
	})
	if err != nil {
		return d.fail(w, r, err)
	}
	return d.send(w, r, http.StatusOK, made)
}

func (d *Docs) fail(w http.ResponseWriter, r *http.Request, err error) int {
	d.o.Log.ErrorContext(r.Context(), "manual page failed", "err", err)
	http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
	return http.StatusInternalServerError
}

func (d *Docs) send(w http.ResponseWriter, r *http.Request, status int, made rendered) int {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	endpoint.Revalidate.Set(h)
	h.Add("Vary", "Accept-Encoding")
	if status == http.StatusOK {
		h.Set("ETag", made.tag)
		if slices.Contains(strings.Split(r.Header.Get("If-None-Match"), ", "), made.tag) {
			w.WriteHeader(http.StatusNotModified)
			return http.StatusNotModified
		}
	}
	content := made.zipped
	if endpoint.AcceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
	} else {
		var err error
		if content, err = unzip(made.zipped); err != nil {
			return d.fail(w, r, err)
		}
	}
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		_, _ = w.Write(content)
	}
	return status
}
