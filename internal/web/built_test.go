package web

import (
	"bytes"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDist builds web/src and compares the result with what is in the repository: `go build` needs no
// Node, so the built files are committed, and this holds them to their source.
func TestDist(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	source, built := filepath.Join("..", "..", "web"), t.TempDir()
	if _, err := os.Stat(filepath.Join(source, "node_modules")); err != nil {
		t.Fatal("the packages of web/ are not installed; run: make test")
	}
	cmd := exec.CommandContext(t.Context(), "npm", "run", "build", "--", "--outDir", built, "--emptyOutDir")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	committed, made := readAll(t, filepath.Join(source, "dist")), readAll(t, built)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(committed))); diff != "" {
		t.Errorf("web/dist does not have the files of its source (-built +committed); run: make web\n%s", diff)
	}
	for name, content := range made {
		if !bytes.Equal(content, committed[name]) {
			t.Errorf("web/dist/%s is not what its source makes; run: make web", name)
		}
	}
}

func readAll(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = os.ReadFile(filepath.Join(dir, name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// maxFirstLoad is the most that a browser may load before the console shows something, zipped.
const maxFirstLoad = 80 << 10

func TestBuilt(t *testing.T) {
	b, err := ReadBuilt(os.DirFS("../../web"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := b.Entry("console")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, address := range slices.Concat([]string{e.Script}, e.Styles, e.Preload) {
		r := httptest.NewRequest("GET", "/"+address, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		if w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %d, %v", address, w.Code, w.Header())
		}
		size += w.Body.Len()
	}
	t.Logf("the first load of the console is %d bytes", size)
	if size > maxFirstLoad {
		t.Errorf("the first load of the console is %d bytes, more than %d", size, maxFirstLoad)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest("GET", "/_/older/console.js", nil))
	if w.Code != 200 || strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("the folder of another version: %d, %v", w.Code, w.Header())
	}
	for _, name := range []string{"manifest.json", "console.json"} {
		w = httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequest("GET", "/_/"+name, nil))
		if w.Code != 404 {
			t.Errorf("%s: %d, want 404", name, w.Code)
		}
	}
}

func TestConsole(t *testing.T) {
	files := os.DirFS("../../web")
	built, err := ReadBuilt(files)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsole(files, built, nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, base := range map[string]string{"/": "./", "/streams": "./", "/streams/abc": "../", "/streams/abc/": "../../"} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if !strings.Contains(w.Body.String(), `<base href="`+base+`">`) {
			t.Errorf("%s: the base is not %s:\n%s", path, base, w.Body)
		}
		if policy := w.Header().Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: the policy is %s", path, policy)
		}
	}
	if patterns := c.Patterns(); !slices.Contains(patterns, "GET /streams/") {
		t.Errorf("it answers %q", patterns)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest("GET", "/keys/new", nil))
	if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != "../keys" {
		t.Errorf("the old page of a key leads to %d %q", w.Code, to)
	}
}
