package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"

	"weir/internal/endpoint"
)

// Built has the scripts and styles that Vite built from web/src and the validator in web/c2pa, and
// serves them below /_/. They are in one folder that is named after their content, so browsers may
// keep them for ever.
type Built struct {
	folder  string // below /_/
	files   map[string]builtFile
	entries map[string]Entry
}

// Entry is what a page loads.
type Entry struct {
	Script  string
	Styles  []string
	Preload []string // scripts that Script imports
}

type builtFile struct {
	contentType string
	plain       func() ([]byte, error)
	zipped      func() []byte // made once, by the first request: it takes a fifth of a start
}

// verifier is the worker that verifies what the watch page plays. Only there may WebAssembly be
// compiled.
const (
	verifier       = "verify.js"
	verifierPolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"
)

// manifest is the part of Vite's manifest.json that is used: by source file, what was made of it.
type manifest map[string]struct {
	File    string   `json:"file"`
	Name    string   `json:"name"`
	IsEntry bool     `json:"isEntry"`
	Imports []string `json:"imports"` // keys of the manifest
	CSS     []string `json:"css"`
}

const manifestName = "manifest.json"

// ReadBuilt reads the folders dist/ and c2pa/ of web/.
func ReadBuilt(files fs.FS) (*Built, error) {
	text, err := fs.ReadFile(files, "dist/"+manifestName)
	if err != nil {
		return nil, err
	}
	var made manifest
	if err := json.Unmarshal(text, &made); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	b := &Built{files: map[string]builtFile{}, entries: map[string]Entry{}}
	sum := sha256.New()
	for _, pattern := range []string{"c2pa/*", "dist/*"} {
		names, err := fs.Glob(files, pattern) // sorted
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			content, err := fs.ReadFile(files, name)
			if err != nil {
				return nil, err
			}
			if path.Ext(name) == ".json" {
				continue // is for the server
			}
			_, _ = fmt.Fprintf(sum, "%s %d\n", name, len(content))
			_, _ = sum.Write(content)
			if err := b.addFile(path.Base(name), content); err != nil {
				return nil, err
			}
		}
	}
	b.folder = hex.EncodeToString(sum.Sum(nil)[:6])
	for _, item := range made {
		if !item.IsEntry {
			continue
		}
		e := Entry{Script: b.path(item.File)}
		seen := map[string]bool{}
		var addNote func(css, imports []string)
		addNote = func(css, imports []string) {
			for _, name := range css {
				e.Styles = append(e.Styles, b.path(name))
			}
			for _, key := range imports {
				if imported := made[key]; !seen[key] {
					seen[key] = true
					e.Preload = append(e.Preload, b.path(imported.File))
					addNote(imported.CSS, imported.Imports)
				}
			}
		}
		addNote(item.CSS, item.Imports)
		b.entries[item.Name] = e
	}
	return b, nil
}

// addFile adds a file. Those that end in .gz are stored as gzip, because few browsers can't take that.
func (b *Built) addFile(name string, content []byte) error {
	f := builtFile{plain: func() ([]byte, error) { return content, nil }, zipped: sync.OnceValue(func() []byte { return zip(content) })}
	if plain, ok := strings.CutSuffix(name, ".gz"); ok {
		name, f.plain, f.zipped = plain, func() ([]byte, error) { return unzip(content) }, func() []byte { return content }
	}
	types := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".wasm": "application/wasm",
		".md": "text/plain; charset=utf-8", ".LICENSE": "text/plain; charset=utf-8",
	}
	if f.contentType = types[path.Ext(name)]; f.contentType == "" {
		return fmt.Errorf("web: %s has an unknown file type", name)
	}
	b.files[name] = f
	return nil
}

// path returns the address of a file, relative to the root of weir.
func (b *Built) path(name string) string { return "_/" + b.folder + "/" + name }

// Entry returns what the page with that name loads. Addresses are relative to the root of weir.
func (b *Built) Entry(name string) (Entry, error) {
	e, ok := b.entries[name]
	if !ok {
		return e, fmt.Errorf("web/dist has no entry %q", name)
	}
	return e, nil
}

// Icon is the address of the icon of the pages.
func (b *Built) Icon() string { return b.path("icon.svg") }

// ServeHTTP answers GET /_/{folder}/{name}.
func (b *Built) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	folder, name := path.Split(strings.TrimPrefix(r.URL.Path, "/_/"))
	f, ok := b.files[name]
	if !ok || (r.Method != http.MethodGet && r.Method != http.MethodHead) {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", f.contentType)
	h.Set("Vary", "Accept-Encoding")
	if folder == b.folder+"/" {
		endpoint.Immutable.Set(h)
	} else {
		endpoint.Revalidate.Set(h) // a page of another version of weir
	}
	h.Set("Content-Security-Policy", "default-src 'none'")
	if name == verifier {
		h.Set("Content-Security-Policy", verifierPolicy)
	}
	zipped := endpoint.AcceptsGzip(r)
	if zipped {
		h.Set("Content-Encoding", "gzip")
	}
	if r.Method == http.MethodHead {
		return
	}
	if zipped {
		_, _ = w.Write(f.zipped()) // an error means that the browser has disconnected
		return
	}
	content, err := f.plain()
	if err != nil {
		http.Error(w, "the file can't be read", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(content)
}

func unzip(zipped []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func zip(plain []byte) []byte {
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // the level is valid
	_, _ = w.Write(plain)                                      // a bytes.Buffer takes everything
	_ = w.Close()
	return zipped.Bytes()
}
