package blob

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// TestFetchFromLyingServers is about servers whose parts can't be trusted, though they have the whole
// file: the fetcher asks for it by one plain request.
func TestFetchFromLyingServers(t *testing.T) {
	const window = 64 << 10
	content := noise(12, 10*window+17)
	// part sends bytes under any description.
	part := func(w http.ResponseWriter, description string, data []byte) {
		w.Header().Set("ETag", `"v"`)
		w.Header().Set("Content-Range", description)
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(data)
	}
	// honest answers a request for a part, with another total.
	honest := func(w http.ResponseWriter, from, to int64, total int) {
		to = min(to, int64(len(content)))
		part(w, fmt.Sprintf("bytes %d-%d/%d", from, to-1, total), content[from:to])
	}
	for _, tt := range []struct {
		name string
		lie  func(w http.ResponseWriter, r *http.Request, from, to int64) // of a request for a part
	}{
		{"a range beyond the file", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			part(w, fmt.Sprintf("bytes %d-%d/%d", from, len(content)+1000, len(content)), content[from:to])
		}},
		{"a range beyond the request", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			part(w, fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)), content[from:])
		}},
		{"no range", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(content[from:to])
		}},
		{"another range from the start", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			part(w, fmt.Sprintf("bytes %d-%d/%d", from+1, to-1, len(content)), content[from+1:to])
		}},
		{"another range later", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			if from > 0 {
				from, to = 0, to-from
			}
			honest(w, from, to, len(content))
		}},
		{"two lengths", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			part(w, fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(content)), content[from:from+10])
		}},
		{"several parts", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			w.Header().Set("Content-Type", "multipart/byteranges; boundary=b")
			part(w, fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(content)), content[from:to])
		}},
		{"a total beyond the file", func(w http.ResponseWriter, r *http.Request, from, to int64) {
			if from >= int64(len(content)) {
				http.Error(w, "no such part", http.StatusRequestedRangeNotSatisfiable)
				return
			}
			honest(w, from, to, len(content)+3*window)
		}},
		{"a total that grows", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			honest(w, from, to, len(content)+int(from))
		}},
		{"a total that is too small at first", func(w http.ResponseWriter, _ *http.Request, from, to int64) {
			if from == 0 {
				honest(w, from, to, 3*window)
				return
			}
			honest(w, from, to, len(content))
		}},
		{"another version each time", func(w http.ResponseWriter, r *http.Request, from, to int64) {
			r.Header.Del("If-Range")
			w.Header().Set("ETag", fmt.Sprintf(`"%d"`, from))
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}},
		{"the whole file later", func(w http.ResponseWriter, r *http.Request, from, to int64) {
			if from > 0 {
				w.Header().Set("ETag", `"v"`)
				_, _ = w.Write(content)
				return
			}
			honest(w, from, to, len(content))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			src := &source{content: content, etag: `"v"`}
			var wholes atomic.Int64
			src.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
				var from, to int64
				if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); n != 2 {
					wholes.Add(1)
					return false
				}
				tt.lie(w, r, from, to+1)
				return true
			}
			server := serveAt(t, public, src)
			f := spoolFile(t)
			got, err := testFetcher(t).Fetch(t.Context(), server.URL+"/a.mp4", f, nil)
			if err != nil {
				t.Fatal(err)
			}
			checkFetched(t, f, got, content)
			if n := wholes.Load(); n != 1 {
				t.Errorf("%d plain requests, want 1", n)
			}
		})
	}
}

// TestFetchReadsAChangedSourceAgain has a source that becomes another one while it is read.
func TestFetchReadsAChangedSourceAgain(t *testing.T) {
	t.Parallel()
	before, after := noise(13, 10*64<<10), noise(14, 9*64<<10)
	src := &source{content: before, etag: `"v1"`}
	src.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			return false
		}
		(&source{content: after, etag: `"v2"`}).serve(w, r)
		return true
	}
	server := serveAt(t, public, src)
	f := spoolFile(t)
	got, err := testFetcher(t).Fetch(t.Context(), server.URL+"/a.mp4", f, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, f, got, after)
}
