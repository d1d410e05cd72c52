package blob

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob/s3test"
	"weir/internal/hls"
	"weir/internal/weir"
)

func TestParsePlaylist(t *testing.T) {
	all := span{0, -1}
	for _, tt := range []struct {
		name, text string
		want       []playlistFile
		best       string
		bad        string // in the error
	}{
		{
			name: "segments",
			text: "#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6.0,\n0.ts\n\n#EXTINF:6.0,title\r\n1.ts?a=b#c\r\n#EXT-X-ENDLIST\n",
			want: []playlistFile{{"0.ts", all}, {"1.ts?a=b#c", all}},
		},
		{
			name: "init section, given twice",
			text: "#EXTM3U\n#EXT-X-MAP:URI=\"init.mp4\"\n#EXTINF:6,\n0.m4s\n#EXT-X-MAP:URI=\"init.mp4\"\n#EXTINF:6,\n1.m4s\n#EXT-X-ENDLIST",
			want: []playlistFile{{"init.mp4", all}, {"0.m4s", all}, {"1.m4s", all}},
		},
		{
			name: "parts of one file become one",
			text: "#EXTM3U\n#EXT-X-MAP:URI=\"all.mp4\",BYTERANGE=\"100@0\"\n#EXT-X-BYTERANGE:50@100\n#EXTINF:6,\nall.mp4\n" +
				"#EXTINF:6,\n#EXT-X-BYTERANGE:20\nall.mp4\n#EXTINF:6,\n#EXT-X-BYTERANGE:5@500\nall.mp4\n#EXT-X-ENDLIST",
			want: []playlistFile{{"all.mp4", span{0, 170}}, {"all.mp4", span{500, 505}}},
		},
		{
			name: "byte order mark and a discontinuity before the start",
			text: "\ufeff#EXTM3U\n#EXT-X-DISCONTINUITY\n#EXT-X-KEY:METHOD=NONE\n#EXTINF:6,\n0.ts\n#EXT-X-ENDLIST",
			want: []playlistFile{{"0.ts", all}},
		},
		{
			name: "variants",
			text: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS=\"a,b\"\nlow.m3u8\n#EXT-X-STREAM-INF:CODECS=\"a,BANDWIDTH=900\",BANDWIDTH=50\nhigh.m3u8\n",
			best: "high.m3u8",
		},
		{
			name: "variants, the best without sound",
			text: "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"x\",URI=\"a.m3u8\"\n#EXT-X-STREAM-INF:BANDWIDTH=5\nlow.m3u8\n" +
				"#EXT-X-STREAM-INF:BANDWIDTH=50,AUDIO=\"g\"\nhigh.m3u8\n",
			best: "low.m3u8",
		},
		{name: "sound elsewhere", text: "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",URI=\"a\"\n#EXT-X-STREAM-INF:AUDIO=\"g\"\nx\n", bad: "audio and video"},
		{name: "a web page", text: "<html>", bad: "#EXTM3U"},
		{name: "nothing", text: "#EXTM3U\n", bad: "no segments"},
		{name: "live", text: "#EXTM3U\n#EXTINF:6,\n0.ts\n", bad: "not complete"},
		{name: "encrypted", text: "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXTINF:6,\n0.ts\n#EXT-X-ENDLIST", bad: "encrypted (AES-128)"},
		{name: "discontinuity", text: "#EXTM3U\n#EXTINF:6,\n0.ts\n#EXT-X-DISCONTINUITY\n#EXTINF:6,\n1.ts\n#EXT-X-ENDLIST", bad: "discontinuity"},
		{name: "two init sections", text: "#EXTM3U\n#EXT-X-MAP:URI=\"a\"\n#EXTINF:6,\n0\n#EXT-X-MAP:URI=\"b\"\n#EXTINF:6,\n1\n#EXT-X-ENDLIST", bad: "codec"},
		{name: "gap", text: "#EXTM3U\n#EXT-X-GAP\n#EXTINF:6,\n0\n#EXT-X-ENDLIST", bad: "gaps"},
		{name: "no EXTINF", text: "#EXTM3U\n0.ts\n#EXT-X-ENDLIST", bad: "#EXTINF"},
		{name: "range without a start", text: "#EXTM3U\n#EXT-X-BYTERANGE:5\n#EXTINF:6,\n0.ts\n#EXT-X-ENDLIST", bad: "range of bytes"},
		{name: "range that is none", text: "#EXTM3U\n#EXT-X-BYTERANGE:5@-1\n#EXTINF:6,\n0.ts\n#EXT-X-ENDLIST", bad: "range of bytes"},
		{name: "mixed", text: "#EXTM3U\n#EXT-X-STREAM-INF:A=B\nx\n#EXTINF:6,\n0.ts\n#EXT-X-ENDLIST", bad: "variants and segments"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, err := parsePlaylist([]byte(tt.text))
			if tt.bad != "" {
				if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), tt.bad) {
					t.Errorf("error = %v, want %q in it", err, tt.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, list.files, cmp.AllowUnexported(playlistFile{}, span{})); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if tt.best != "" && list.best.URI != tt.best {
				t.Errorf("best variant = %q, want %q", list.best.URI, tt.best)
			}
		})
	}
}

func FuzzParsePlaylist(f *testing.F) {
	for _, seed := range []string{
		"#EXTM3U\n#EXTINF:6,\n0.ts\n#EXT-X-ENDLIST",
		"#EXTM3U\n#EXT-X-MAP:URI=\"a\",BYTERANGE=\"9@1\"\n#EXT-X-BYTERANGE:5@10\n#EXTINF:6,\na\n#EXT-X-BYTERANGE:5\n#EXTINF:6,\na\n#EXT-X-ENDLIST",
		"#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",URI=\"x\"\n#EXT-X-STREAM-INF:BANDWIDTH=5,AUDIO=\"g\"\nlow.m3u8\n",
		"#EXTM3U\n#EXT-X-BYTERANGE:4611686018427387903@4611686018427387903\n#EXTINF:6,\na\n#EXT-X-ENDLIST",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parsePlaylist(data)
		if err != nil {
			if weir.KindOf(err) != weir.Invalid {
				t.Errorf("error = %v, want one of kind invalid", err)
			}
			return
		}
		if (len(list.files) == 0) == (list.best == nil) || len(list.files) > 1+hls.MaxEntries {
			t.Errorf("%d files and the variant %v", len(list.files), list.best)
		}
		for _, p := range list.files {
			if p.uri == "" || p.from < 0 || p.to >= 0 && p.to <= p.from {
				t.Errorf("file %+v", p)
			}
			if at, err := resolve("https://host/a/b.m3u8", p.uri); err == nil && strings.HasPrefix(at, "s3") {
				t.Errorf("%q leads to a bucket", p.uri)
			}
		}
	})
}

// hlsServer serves the files of a map and counts the requests for each.
type hlsServer struct {
	files map[string][]byte
	fault func(path string, n int, w http.ResponseWriter) bool

	mu       sync.Mutex
	requests map[string]int
}

func (s *hlsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests[r.URL.Path]++
	n := s.requests[r.URL.Path]
	s.mu.Unlock()
	if s.fault != nil && s.fault(r.URL.Path, n, w) {
		return
	}
	content, ok := s.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	(&source{content: content, etag: `"v"`}).serve(w, r)
}

func TestFetchPlaylist(t *testing.T) {
	t.Parallel()
	segments := [][]byte{noise(20, 150_000), noise(21, 100), noise(22, 70_000)}
	whole := bytes.Join(segments, nil)
	server := &hlsServer{requests: map[string]int{}, files: map[string][]byte{
		"/v/master.m3u8": []byte("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlow/none.m3u8\n#EXT-X-STREAM-INF:BANDWIDTH=2\nhigh/list.m3u8\n"),
		"/v/high/list.m3u8": []byte("#EXTM3U\n#EXT-X-MAP:URI=\"/other/init\"\n#EXTINF:6,\nseg%20one?sig=geheim\n#EXTINF:6,\n../two\n" +
			"#EXT-X-ENDLIST\n"),
		"/v/one.m3u8": fmt.Appendf(nil, "#EXTM3U\n#EXT-X-BYTERANGE:%d@0\n#EXTINF:6,\nall\n#EXT-X-BYTERANGE:%d\n#EXTINF:6,\nall\n#EXT-X-ENDLIST\n",
			len(whole)-5000, 4000),
		"/other/init": segments[0], "/v/high/seg one": segments[1], "/v/two": segments[2], "/v/all": whole,
	}}
	// The second segment breaks off, the third is not there at first.
	server.fault = func(path string, n int, w http.ResponseWriter) bool {
		switch {
		case path == "/v/high/seg one" && n == 1:
			panic(http.ErrAbortHandler)
		case path == "/v/two" && n == 1:
			w.WriteHeader(http.StatusBadGateway)
			return true
		case path == "/moved.m3u8":
			w.Header().Set("Location", "/v/master.m3u8")
			w.WriteHeader(http.StatusFound)
			return true
		}
		return false
	}
	at := serveAt(t, public, server).URL
	for _, path := range []string{"/moved.m3u8", "/v/master.m3u8?x=y", "/v/one.m3u8"} {
		clear(server.requests)
		f := spoolFile(t)
		got, err := testFetcher(t).Fetch(t.Context(), at+path, f, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		want := whole
		if path == "/v/one.m3u8" {
			want = whole[:len(whole)-1000]
		}
		checkFetched(t, f, got, want)
		server.mu.Lock()
		if n := server.requests["/other/init"] + server.requests["/v/all"]; n != 1 {
			t.Errorf("%s: the first file was asked for %d times, want once", path, n)
		}
		server.mu.Unlock()
	}
}

func TestFetchPlaylistErrors(t *testing.T) {
	t.Parallel()
	list := func(lines ...string) []byte {
		return []byte("#EXTM3U\n" + strings.Join(lines, "\n") + "\n#EXT-X-ENDLIST\n")
	}
	server := &hlsServer{requests: map[string]int{}, files: map[string][]byte{
		"/seg.ts":      noise(23, 1000),
		"/gone.m3u8":   list("#EXTINF:6,", "seg.ts", "#EXTINF:6,", "gone.ts?token=geheim"),
		"/inside.m3u8": list("#EXTINF:6,", "http://127.0.0.1:1/x"),
		"/file.m3u8":   list("#EXTINF:6,", "file:///etc/passwd"),
		"/bucket.m3u8": list("#EXTINF:6,", "s3+http://a:geheim@127.0.0.1/b/c"),
		"/short.m3u8":  list("#EXT-X-BYTERANGE:2000@0", "#EXTINF:6,", "seg.ts"),
		"/loop.m3u8":   []byte("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nloop.m3u8\n"),
		"/large.m3u8":  list(slices.Repeat([]string{"#EXTINF:6,", "seg.ts"}, 200)...),
		"/many.m3u8":   list(slices.Repeat([]string{"#EXTINF:1,", "a"}, 1_000_000)...),
		"/huge.m3u8":   list(slices.Repeat([]string{"#EXTINF:6.000,", "segment.ts"}, 1_000_000)...),
		"/days.m3u8":   list(slices.Repeat([]string{"#EXTINF:3600,", "seg.ts"}, 25)...),
	}}
	at := serveAt(t, public, server).URL
	for path, want := range map[string]string{
		"/nothing.m3u8": "answered 404 Not Found",
		"/gone.m3u8":    "file 2 of 2 of the HLS playlist: " + public + " answered 404 Not Found",
		"/inside.m3u8":  "is a loopback address",
		"/file.m3u8":    `has a URI with the scheme "file"`,
		"/bucket.m3u8":  `has a URI with the scheme "s3+http"`,
		"/short.m3u8":   "has 1000 bytes, but the HLS playlist has a byte range of it up to 2000",
		"/loop.m3u8":    "is a master playlist itself",
		"/large.m3u8":   "more than the 97.7 KiB that are allowed",
		"/many.m3u8":    "the HLS playlist has more than 86400 segments, which can't be imported",
		"/huge.m3u8":    "the HLS playlist has more than 16.0 MiB, which can't be imported",
		"/days.m3u8":    "the HLS playlist lasts 25h0m0s; at most 24h0m0s are allowed",
	} {
		fetcher := testFetcher(t)
		fetcher.MaxSize = 100_000
		_, err := fetcher.Fetch(t.Context(), at+path, spoolFile(t), nil)
		if weir.KindOf(err) != weir.Invalid {
			t.Errorf("%s: error = %v, want one of kind invalid", path, err)
		}
		checkSentence(t, err, want)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if n := server.requests["/a"] + server.requests["/segment.ts"]; n > 0 {
		t.Errorf("%d segments of refused playlists were read", n)
	}
}

// TestFetchPlaylistFromLyingServer has a server whose parts are others than it was asked for: the
// fetcher reads the whole file and takes the part.
func TestFetchPlaylistFromLyingServer(t *testing.T) {
	t.Parallel()
	all := noise(24, 3000)
	at := serveAt(t, public, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/list.m3u8":
			_, _ = w.Write([]byte("#EXTM3U\n#EXT-X-BYTERANGE:500@1000\n#EXTINF:6,\nall.ts\n#EXT-X-BYTERANGE:100@2500\n#EXTINF:6,\nall.ts\n#EXT-X-ENDLIST\n"))
		case r.Header.Get("Range") != "":
			w.Header().Set("Content-Range", "bytes 0-3999/3000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(all)
		default:
			_, _ = w.Write(all)
		}
	}))
	f := spoolFile(t)
	got, err := testFetcher(t).Fetch(t.Context(), at.URL+"/list.m3u8", f, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, f, got, slices.Concat(all[1000:1500], all[2500:2600]))
}

func TestFetchPlaylistFromBucket(t *testing.T) {
	t.Parallel()
	bucket := s3test.Start(t)
	for name, content := range map[string]string{
		"a/list.m3u8": "#EXTM3U\n#EXTINF:6,\n0.ts\n#EXTINF:6,\n../b/1.ts\n#EXT-X-ENDLIST", "a/0.ts": "zero", "b/1.ts": "one",
	} {
		file := filepath.Join(bucket.Dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fetcher := testFetcher(t)
	fetcher.Guard = testGuard(t, "127.0.0.0/8")
	f := spoolFile(t)
	got, err := fetcher.Fetch(t.Context(), bucket.URL()+"/a/list.m3u8", f, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, f, got, []byte("zeroone"))
}
