package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// Built has the scripts and styles that Vite built from web/src, and serves them below /_/. They are
// in one folder that is named after their content, so browsers may keep them for ever.
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
	plain       []byte
	zipped      func() []byte // made once, by the first request
}

// manifest is the part of Vite's manifest.json that is used: by source file, what was made of it.
type manifest map[string]struct {
	File    string   `json:"file"`
	Name    string   `json:"name"`
	IsEntry bool     `json:"isEntry"`
	Imports []string `json:"imports"` // keys of the manifest
	CSS     []string `json:"css"`
}

const manifestName = "manifest.json"

// ReadBuilt reads the folder dist/ of web/.
func ReadBuilt(dist fs.FS) (*Built, error) {
	text, err := fs.ReadFile(dist, manifestName)
	if err != nil {
		return nil, err
	}
	var made manifest
	if err := json.Unmarshal(text, &made); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	b := &Built{files: map[string]builtFile{}, entries: map[string]Entry{}}
	sum := sha256.New()
	types := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
	}
	names, err := fs.Glob(dist, "*") // sorted
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == manifestName {
			continue
		}
		content, err := fs.ReadFile(dist, name)
		if err != nil {
			return nil, err
		}
		kind := types[path.Ext(name)]
		if kind == "" {
			return nil, fmt.Errorf("%s: the type of this file is not known", name)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n", name, len(content))
		_, _ = sum.Write(content)
		b.files[name] = builtFile{kind, content, sync.OnceValue(func() []byte { return zip(content) })}
	}
	b.folder = hex.EncodeToString(sum.Sum(nil)[:6])
	for _, chunk := range made {
		if !chunk.IsEntry {
			continue
		}
		e := Entry{Script: b.path(chunk.File)}
		seen := map[string]bool{}
		var add func(css, imports []string)
		add = func(css, imports []string) {
			for _, name := range css {
				e.Styles = append(e.Styles, b.path(name))
			}
			for _, key := range imports {
				if imported := made[key]; !seen[key] {
					seen[key] = true
					e.Preload = append(e.Preload, b.path(imported.File))
					add(imported.CSS, imported.Imports)
				}
			}
		}
		add(chunk.CSS, chunk.Imports)
		b.entries[chunk.Name] = e
	}
	return b, nil
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
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache") // a page of another version of weir
	}
	content := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		content = f.zipped()
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(content) // an error means that the browser has disconnected
	}
}

func zip(plain []byte) []byte {
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // the level is valid
	_, _ = w.Write(plain)                                      // a bytes.Buffer takes everything
	_ = w.Close()
	return zipped.Bytes()
}
