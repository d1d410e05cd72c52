package web

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pages of testdata again")

func newBuilt(t *testing.T) *Built {
	t.Helper()
	b, err := ReadBuilt(os.DirFS("../../web/dist"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newDocs(t *testing.T) *Docs {
	t.Helper()
	contract, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDocs(DocsOptions{
		Files: os.DirFS("../../web"), Manual: os.DirFS("../../docs"), OpenAPI: contract, Log: slog.New(slog.DiscardHandler),
		Built: newBuilt(t),
		Observe: func(context.Context, string, int, time.Duration) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.index(); err != nil {
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

func bodyOf(t *testing.T, answer *http.Response) string {
	t.Helper()
	content, err := io.ReadAll(answer.Body)
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
		answer := get(d, "/"+path)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, answer.Status)
		}
		pages[path] = bodyOf(t, answer)
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
	if diff := cmp.Diff([]group{{"Start", []link{{"docs/page", "The page", "what is on it."}, {"docs/api", "Reference", "every call."}}}}, m.groups); diff != "" {
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
