package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"

	"weir/internal/endpoint"
)

// consolePolicy lets the browser load only from this server. Nobody may show the console in a frame.
// The console shows the watch page in one, and plays what the browser records.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"media-src 'self' blob:; worker-src 'self' blob:; frame-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"

// Console serves the pages of the console. All are one file with a script that does the rest through
// the API, so this handler knows no data.
type Console struct {
	template *template.Template
	folders  []string // the first segments of its paths
	entry    Entry
	icon     string
	log      *slog.Logger
}

// NewConsole reads the page of the console from the folder web/.
func NewConsole(files fs.FS, built *Built, log *slog.Logger) (*Console, error) {
	entry, err := built.Entry("console")
	if err != nil {
		return nil, err
	}
	c := &Console{entry: entry, icon: built.Icon(), log: log}
	text, err := fs.ReadFile(files, "dist/console.json") // of web/src/console/routes.ts
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &c.folders); err != nil {
		return nil, fmt.Errorf("console.json: %w", err)
	}
	c.template, err = template.ParseFS(files, "pages/console.html")
	return c, err
}

// Patterns returns what the console answers, for an http.ServeMux.
func (c *Console) Patterns() []string {
	all := []string{"GET /{$}"}
	for _, folder := range c.folders {
		all = append(all, "GET /"+folder, "GET /"+folder+"/")
	}
	return all
}

func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if strings.HasPrefix(r.URL.Path, "/keys/") { // keys had pages of their own before there was a console
		h.Set("Location", baseOf(r.URL.Path)+"keys")
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	endpoint.Revalidate.Set(h)
	h.Set("Content-Type", "text/html; charset=utf-8")
	var page bytes.Buffer
	err := c.template.Execute(&page, struct {
		Base, Icon string
		Entry      Entry
	}{baseOf(r.URL.Path), c.icon, c.entry})
	if err != nil {
		c.log.ErrorContext(r.Context(), "console page failed", "err", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, &page)
	}
}

// baseOf returns the root of weir relative to a path. weir does not know whether a proxy serves it
// below a prefix, so all addresses in its pages are relative to this one.
func baseOf(path string) string {
	depth := strings.Count(strings.TrimPrefix(path, "/"), "/")
	if depth == 0 {
		return "./"
	}
	return strings.Repeat("../", depth)
}
