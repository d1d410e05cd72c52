package web

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pages of testdata again")

func newBuilt(t *testing.T) *Built {
	t.Helper()
	b, err := ReadBuilt(os.DirFS("../../web"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// madeDocs is shared by the tests, which only read it: to render all pages takes seconds under the race
// detector.
var madeDocs = sync.OnceValues(func() (*Docs, error) {
	contract, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		return nil, err
	}
	built, err := ReadBuilt(os.DirFS("../../web"))
	if err != nil {
		return nil, err
	}
	d, err := NewDocs(DocsOptions{
		Files: os.DirFS("../../web"), Manual: os.DirFS("../../docs"), OpenAPI: contract, Log: slog.New(slog.DiscardHandler),
		Built:   built,
		Observe: func(context.Context, string, int, time.Duration) {},
	})
	if err == nil {
		_, err = d.index()
	}
	return d, err
})

func newDocs(t *testing.T) *Docs {
	t.Helper()
	d, err := madeDocs()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// paths returns the addresses of all pages.
func (d *Docs) paths() []string {
	m, _ := d.manual()
	r, _ := d.reference()
	return slices.Concat(slices.Sorted(maps.Keys(m.pages)), slices.Sorted(maps.Keys(r.pages)))
}

func get(d http.Handler, path string, headers ...string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

var (
	hrefs = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	ids   = regexp.MustCompile(` id="([^"]*)"`)
)

// Every address on every page is relative to its base, and leads to a page and a heading that exist.
func TestDocsLinks(t *testing.T) {
	d := newDocs(t)
	anchors := map[string][]string{}
	pages := map[string]string{}
	for _, path := range d.paths() {
		response := get(d, "/"+path)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, response.Status)
		}
		pages[path] = bodyOf(t, response)
		for _, id := range ids.FindAllStringSubmatch(pages[path], -1) {
			if slices.Contains(anchors[path], id[1]) {
				t.Errorf("%s: has the id %s twice", path, id[1])
			}
			anchors[path] = append(anchors[path], id[1])
		}
	}
	others := []string{"./", "docs/search", "api/openapi.yaml", "api/openapi.json"}
	links := 0
	for path, page := range pages {
		if want := `<base href="` + strings.Repeat("../", strings.Count(path, "/")); !strings.Contains(page, want) {
			t.Errorf("%s: has no %s", path, want)
		}
		for _, match := range hrefs.FindAllStringSubmatch(page, -1) {
			address, anchor, _ := strings.Cut(match[1], "#")
			links++
			switch {
			case strings.HasPrefix(address, "https://"), strings.HasPrefix(address, "http://"):
			case strings.HasPrefix(address, "../"), strings.HasPrefix(address, "_/"), slices.Contains(others, address):
			case pages[address] == "":
				t.Errorf("%s: links to %q, which is no page", path, match[1])
			case anchor != "" && !slices.Contains(anchors[address], anchor):
				t.Errorf("%s: links to %q, which is no heading", path, match[1])
			}
		}
	}
	if links < 1000 {
		t.Errorf("only %d links were found; the pattern of this test is wrong", links)
	}
}

// Every page of the manual is in the list of index.md, which is the sidebar.
func TestDocsIndex(t *testing.T) {
	all, err := newDocs(t).manual()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{"docs": true}
	for _, g := range all.groups {
		for _, l := range g.Links {
			if listed[l.Path] {
				t.Errorf("docs/index.md has %s twice", l.Path)
			}
			listed[l.Path] = true
		}
	}
	for path := range all.pages {
		if !listed[path] {
			t.Errorf("docs/index.md does not have %s", path)
		}
	}
}

// Every operation of the contract is on exactly one page, with its four examples.
func TestReferenceIsComplete(t *testing.T) {
	d := newDocs(t)
	contract, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^      operationId: (\w+)$`).FindAllStringSubmatch(string(contract), -1)
	found := map[string]int{}
	for _, path := range d.paths() {
		page := bodyOf(t, get(d, "/"+path))
		for _, match := range regexp.MustCompile(`<div class="panel" data-call="(\w+)"`).FindAllStringSubmatch(page, -1) {
			found[match[1]]++
		}
	}
	for _, match := range want {
		if found[match[1]] != 4 {
			t.Errorf("%s has %d examples on the pages, want 4", match[1], found[match[1]])
		}
		delete(found, match[1])
	}
	if len(found) > 0 || len(want) < 100 {
		t.Errorf("%d operations in the contract; on pages only: %v", len(want), found)
	}
}

// The page that everything is tried on.
func TestManualPage(t *testing.T) {
	files := os.DirFS("testdata/manual")
	m, err := readManual(files)
	if err != nil {
		t.Fatal(err)
	}
	got := m.pages["docs/page"]
	if diff := cmp.Diff([]heading{{"live--stored", "Live & stored", 2}, {"code", "Code", 2}, {"in-it", "In it", 3}, {"code-1", "Code", 2}}, got.contents); diff != "" {
		t.Errorf("contents (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]group{{"Start", []link{{"docs/page", "The page", "What is on it."}, {"docs/api", "Reference", "Every call."}}}}, m.groups); diff != "" {
		t.Errorf("sidebar (-want +got):\n%s", diff)
	}
	golden(t, "testdata/page.html", string(got.body))
}

// An operation in all its forms, as its page and its examples show it.
func TestReferencePage(t *testing.T) {
	contract, err := os.ReadFile("testdata/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDocs(DocsOptions{Files: os.DirFS("../../web"), Built: newBuilt(t), Manual: os.DirFS("testdata/manual"), OpenAPI: contract})
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.reference()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/reference.html", string(all.pages["docs/api/stream"].body))
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestDocsSearch(t *testing.T) {
	d := newDocs(t)
	for _, tt := range []struct {
		query string
		first string // path of the best hit; "" = nothing is found
	}{
		{"backup", "docs/backup"},
		{"Create Webhook", "docs/api/webhook#createWebhook"},
		{"/api/stream/pull", "docs/api/stream#putPullStream"},
		{"xyzzy", ""},
		{"backup xyzzy", ""},
		{" ", ""},
		{strings.Repeat("ü", 300), ""},
	} {
		var hits []hit
		response := get(d, "/docs/search?q="+url.QueryEscape(tt.query), "Accept", "application/json")
		if err := json.Unmarshal([]byte(bodyOf(t, response)), &hits); err != nil {
			t.Fatal(err)
		}
		page := bodyOf(t, get(d, "/docs/search?q="+url.QueryEscape(tt.query)))
		switch {
		case tt.first == "" && len(hits) > 0:
			t.Errorf("%q finds %s", tt.query, hits[0].Path)
		case tt.first != "" && (len(hits) == 0 || hits[0].Path != tt.first):
			t.Errorf("%q finds %+v, want %s first", tt.query, hits, tt.first)
		case tt.first != "" && !strings.Contains(page, `<li><a href="`+tt.first+`">`):
			t.Errorf("the page for %q has no link to %s", tt.query, tt.first)
		}
	}
	if page := bodyOf(t, get(d, "/docs/search?q="+url.QueryEscape(`"><script>`))); strings.Contains(page, "<script>") {
		t.Error("what was searched for is on the page as it was sent")
	}
}

// Texts of the manual are escaped in what the search shows; only its own marks are HTML.
func TestExcerpt(t *testing.T) {
	got := excerpt("Send <key> & KEY to "+strings.Repeat("somebody ", 30), []string{"key", "<"})
	want := "Send <mark>&lt;</mark><mark>key</mark>&gt; &amp; <mark>KEY</mark> to " + strings.TrimSpace(strings.Repeat("somebody ", 15)) + " …"
	if string(got) != want {
		t.Errorf("the excerpt is\n%s, want\n%s", got, want)
	}
}

func TestDocsAnswers(t *testing.T) {
	d := newDocs(t)
	for _, tt := range []struct {
		path     string
		status   int
		location string
	}{
		{"/docs", 200, ""},
		{"/docs/", 308, "../docs"},
		{"/docs/index.md", 308, "../docs"},
		{"/docs/backup.md", 308, "./backup"},
		{"/docs/backup/?a=b", 308, "../backup?a=b"},
		{"/docs/api/", 308, "../api"},
		{"/docs/nothing", 404, ""},
		{"/docs/api/nothing/at/all", 404, ""},
	} {
		response := get(d, tt.path)
		if response.StatusCode != tt.status || response.Header.Get("Location") != tt.location {
			t.Errorf("%s: %d to %q, want %d to %q", tt.path, response.StatusCode, response.Header.Get("Location"), tt.status, tt.location)
		}
		if policy := response.Header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s: the policy is %s", tt.path, policy)
		}
		if page := bodyOf(t, response); strings.Contains(page, " style=") || strings.Contains(page, "<script>") {
			t.Errorf("%s: has a style or a script in it, which the policy refuses", tt.path)
		}
	}
	first := get(d, "/docs/backup", "Accept-Encoding", "gzip")
	if first.Header.Get("Content-Encoding") != "gzip" {
		t.Error("the page is not zipped")
	}
	again := get(d, "/docs/backup", "If-None-Match", first.Header.Get("ETag"))
	if again.StatusCode != http.StatusNotModified || bodyOf(t, again) != "" {
		t.Errorf("a page that the browser has: %s", again.Status)
	}
	if missing := bodyOf(t, get(d, "/docs/a/b/c")); !strings.Contains(missing, `<base href="../../../">`) {
		t.Error("the page for what does not exist has another base")
	}
}

// A page of the manual can't have the address of another one, and the index must have a list.
func TestManualIsRefused(t *testing.T) {
	for want, files := range map[string]fstest.MapFS{
		"docs/api.md: the address docs/api is another page's": {"api.md": {Data: []byte("# API")}},
		"docs/a.md: has no heading of the first level":        {"a.md": {Data: []byte("text")}},
		"docs/index.md has no list of pages":                  {"index.md": {Data: []byte("# Manual")}},
	} {
		if _, err := readManual(files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
