package ipfs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/blob"
	"weir/internal/ipld"
	"weir/internal/weir"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a gateway with uploads.
type site struct {
	store   blob.Store
	index   *index
	blocks  *Blocks
	handler http.Handler
	refuse  map[string]error // results of may, by upload
	gated   map[string]bool  // uploads that are not for everybody
	alone   bool             // its host serves nothing else
	log     bytes.Buffer
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{store: newStore(t), index: &index{}, refuse: map[string]error{}, gated: map[string]bool{}}
	s.blocks = NewBlocks(s.store, s.index)
	s.blocks.Log = slog.New(slog.NewTextHandler(&s.log, nil))
	s.handler = NewGateway(s.blocks, func(ctx context.Context, upload string) error {
		if s.gated[upload] {
			Private(ctx)
		}
		return s.refuse[upload]
	}, func(*http.Request) bool { return s.alone })
	return s
}

// add stores an upload and returns its root.
func (s *site) add(t *testing.T, upload string, f files) ipld.CID {
	t.Helper()
	all := map[string][]byte{}
	for name, size := range f {
		all[name] = content(name, size)
	}
	return s.put(t, upload, all)
}

// put is add for given contents.
func (s *site) put(t *testing.T, upload string, all map[string][]byte) ipld.CID {
	t.Helper()
	d := NewDest(DestOptions{
		Staging: s.store, Prefix: "work/" + upload, Scratch: t.TempDir(), Remote: NewLocal(s.store, s.index, upload), shardSize: 5 << 20,
	})
	for name, data := range all {
		if err := d.Put(t.Context(), name, bytes.NewReader(data), int64(len(data)), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	base, err := d.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.DeletePrefix(t.Context(), "work"); err != nil {
		t.Fatal(err)
	}
	root, err := ipld.ParseCID(strings.TrimPrefix(base, "ipfs://"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// plant stores blocks with a codec, as a shard that weir would not make.
func (s *site) plant(t *testing.T, upload string, codec uint64, all ...[]byte) {
	t.Helper()
	f, err := newShardFile(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.file.Close()
	for _, data := range all {
		c := ipld.Sum(codec, data)
		if err := f.write(ipld.AppendCARSection(nil, c, len(data)), data, c.Hash()); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.w.Flush(); err != nil {
		t.Fatal(err)
	}
	err = NewLocal(s.store, s.index, upload).PutShard(t.Context(), f.Shard, func() (io.ReadCloser, error) {
		return section{io.NewSectionReader(f.file, 0, f.Size)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// get sends a request with headers like "Range: bytes=0-1".
func (s *site) get(method, target string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Result()
}

// describe writes a response in a form that can be compared and read.
func describe(t *testing.T, w io.Writer, resp *http.Response) {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	fmt.Fprintf(w, "%d\n", resp.StatusCode)
	for _, name := range []string{
		"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Cache-Control", "Etag", "Location", "Content-Disposition",
		"Content-Location", "Ipfs-Uri", "X-Ipfs-Path", "X-Ipfs-Roots", "X-Content-Type-Options", "Content-Security-Policy", "Allow",
		"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Expose-Headers",
	} {
		if values := resp.Header.Values(name); values != nil {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, ", "))
		}
	}
	switch kind := resp.Header.Get("Content-Type"); {
	case len(body) == 0:
	case strings.HasPrefix(kind, carType):
		describeCAR(t, w, body)
	case kind == "application/x-tar":
		fmt.Fprintf(w, "| %d bytes\n", len(body)) // it has the time in it
	case strings.HasPrefix(kind, "text/html"):
		for line := range strings.Lines(string(body)) {
			if i := strings.Index(line, "<a href=\"/"); i >= 0 {
				fmt.Fprintf(w, "| %s\n", strings.TrimSpace(line[i:]))
			}
		}
	case len(body) > 400:
		fmt.Fprintf(w, "| %d bytes, %s\n", len(body), ipld.Sum(ipld.Raw, body))
	default:
		fmt.Fprintf(w, "| %q\n", body)
	}
	fmt.Fprintln(w)
}

func describeCAR(t *testing.T, w io.Writer, body []byte) {
	t.Helper()
	r, err := ipld.NewCARReader(bytes.NewReader(body), carSectionLimit)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(w, "| roots %v\n", r.Roots)
	for {
		c, block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || !c.Verify(block) {
			t.Fatal(c, err)
		}
		fmt.Fprintf(w, "| %s %d\n", c, len(block))
	}
}

// smallFile is a node with a file inside of it, which weir does not make.
func smallFile(content string) []byte {
	n := unixNode{kind: kindFile, data: []byte(content), fileSize: uint64(len(content))}
	return n.encode()
}

// The points of the path gateway and the trustless gateway specification.
func TestGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	root := s.add(t, "1", files{
		"hls/index.m3u8": 300, "hls/720p/0.ts": 2<<20 + 100, "hls/720p/init.mp4": 50, "hls/720p/1.m4s": 50, "subs/en.vtt": 20,
		"site/index.html": 100, "film.mp4": 3 << 20, "odd/ä b#.txt": 12, "noext": 10, "_redirects": 30,
	}).String()
	// Long names make a directory large.
	long := strings.Repeat("x", 200)
	large := s.add(t, "2", files{}.numbered("many/"+long, 1200, 20)).String()
	s.gated["4"] = true
	gated := s.add(t, "4", files{"film.ts": 100}).String()
	s.refuse["5"] = weir.Errorf(weir.Denied, "this video needs a token")
	denied := s.add(t, "5", files{"film.ts": 101}).String()
	s.refuse["6"] = weir.Errorf(weir.Unauthenticated, "log in")
	hidden := s.add(t, "6", files{"film.ts": 102}).String()
	film := strings.Trim(s.get("HEAD", "/ipfs/"+root+"/film.mp4").Header.Get("Etag"), `"`)
	twice := s.add(t, "3", files{"a/same": 0, "b/same": 0}).String()

	document := []byte(`{"a":{"/":"bafkqaddimvwgy3zao5xxe3debi"},"b":[1,2]}`)
	s.plant(t, "7", ipld.DagJSON, document)
	json := ipld.Sum(ipld.DagJSON, document).String()

	var golden bytes.Buffer
	names := strings.NewReplacer("LONG", long, "ROOT", root, "LARGE", large, "GATED", gated, "DENIED", denied, "HIDDEN", hidden, "FILM", film, "TWICE", twice, "JSON", json)
	for _, c := range strings.Split(strings.TrimSpace(cases), "\n") {
		if c = strings.TrimSpace(c); c == "" || c[0] == '#' {
			fmt.Fprintf(&golden, "%s\n\n", c)
			continue
		}
		fields := strings.Split(names.Replace(c), " | ")
		method, target, _ := strings.Cut(fields[0], " ")
		fmt.Fprintf(&golden, "> %s\n", c)
		describe(t, &golden, s.get(method, target, fields[1:]...))
	}
	compareGolden(t, "testdata/gateway.txt", golden.Bytes())
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// cases are requests: method, path, headers.
const cases = `
# files
GET /ipfs/ROOT/hls/index.m3u8
HEAD /ipfs/ROOT/hls/index.m3u8
GET /ipfs/ROOT/hls/720p/0.ts
GET /ipfs/ROOT/hls/720p/init.mp4
GET /ipfs/ROOT/hls/720p/1.m4s
GET /ipfs/ROOT/subs/en.vtt
GET /ipfs/ROOT/noext
GET /ipfs/ROOT/odd/%C3%A4%20b%23.txt
GET /ipfs/ROOT/odd/%C3%A4%20b%23.txt?filename=t%C3%A4st.txt&download=true
GET /ipfs/FILM
GET /ipfs/LARGE/many/LONG-0999.ts
# ranges
GET /ipfs/ROOT/film.mp4 | Range: bytes=0-9
GET /ipfs/ROOT/film.mp4 | Range: bytes=1048570-1048585
GET /ipfs/ROOT/film.mp4 | Range: bytes=-5
GET /ipfs/ROOT/film.mp4 | Range: bytes=3145720-
GET /ipfs/ROOT/film.mp4 | Range: bytes=0-1,5-6
GET /ipfs/ROOT/film.mp4 | Range: bytes=99999999-
GET /ipfs/ROOT/film.mp4 | Range: lines=1-2
GET /ipfs/ROOT/hls/720p/init.mp4 | Range: bytes=10-19
HEAD /ipfs/ROOT/film.mp4 | Range: bytes=0-9
GET /ipfs/ROOT/hls/720p/init.mp4 | Range: bytes=10-19 | If-Range: "other"
GET /ipfs/TWICE/a/same | Range: bytes=-3
# conditions
GET /ipfs/FILM | If-None-Match: "FILM"
GET /ipfs/FILM | If-None-Match: W/"FILM"
GET /ipfs/FILM | If-None-Match: *
GET /ipfs/FILM | If-None-Match: "other"
GET /ipfs/FILM?format=raw | If-None-Match: "FILM.raw"
GET /ipfs/FILM | Cache-Control: only-if-cached
HEAD /ipfs/bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy | Cache-Control: only-if-cached
# directories
GET /ipfs/ROOT
GET /ipfs/ROOT/
GET /ipfs/ROOT/hls
GET /ipfs/ROOT/hls/
HEAD /ipfs/ROOT/hls/
GET /ipfs/ROOT/site/
GET /ipfs/ROOT/site
GET /ipfs/ROOT/hls/ | If-None-Match: *
GET /ipfs/ROOT/hls?filename=a%20b
GET /ipfs/ROOT | Service-Worker: script
GET /ipfs/?uri=ipfs%3A%2F%2FROOT%2Fhls%2Findex.m3u8%3Fformat%3Draw
# blocks
GET /ipfs/FILM?format=raw
HEAD /ipfs/FILM?format=raw
GET /ipfs/FILM | Accept: application/vnd.ipld.raw
GET /ipfs/FILM?format=raw | Range: bytes=0-9
GET /ipfs/ROOT/hls/720p/init.mp4?format=raw
GET /ipfs/ROOT/missing?format=raw
# an inline block
GET /ipfs/bafkqaddimvwgy3zao5xxe3debi
GET /ipfs/bafkqaddimvwgy3zao5xxe3debi?format=raw
GET /ipfs/bafkqaddimvwgy3zao5xxe3debi?filename=a.js
# that of no bytes, with which clients try gateways
GET /ipfs/bafkqaaa?format=raw
# CAR
GET /ipfs/FILM?format=car
HEAD /ipfs/FILM?format=car
GET /ipfs/FILM | Accept: application/vnd.ipld.car
GET /ipfs/FILM | Accept: application/vnd.ipld.car; version=1; order=dfs; dups=y
GET /ipfs/FILM?format=car&car-order=unk&car-dups=n
GET /ipfs/FILM?format=car&car-order=bad
GET /ipfs/FILM?format=car&car-dups=bad
GET /ipfs/FILM?format=car&car-version=2
GET /ipfs/FILM?format=car | Range: bytes=0-9
GET /ipfs/ROOT/hls?format=car
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=block
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=entity
GET /ipfs/ROOT/hls/?format=car&dag-scope=entity
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=all
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=bad
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=entity&entity-bytes=0:*
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=entity&entity-bytes=0:10
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=entity&entity-bytes=1048576:1048580
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=entity&entity-bytes=-10:*
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=entity&entity-bytes=-10:-5
GET /ipfs/ROOT/film.mp4?format=car&dag-scope=entity&entity-bytes=9:1
GET /ipfs/ROOT/film.mp4?format=car&entity-bytes=x
GET /ipfs/LARGE/many/LONG-0999.ts?format=car&dag-scope=entity
GET /ipfs/TWICE?format=car&car-dups=n
GET /ipfs/TWICE?format=car&car-dups=y
GET /ipfs/ROOT/missing/file?format=car
# documents
GET /ipfs/JSON
GET /ipfs/JSON/a
GET /ipfs/JSON/b
GET /ipfs/JSON?format=dag-json
GET /ipfs/JSON?format=dag-cbor
GET /ipfs/JSON?format=car
# what is not there
GET /ipfs/ROOT/missing
GET /ipfs/ROOT/hls/index.m3u8/deeper
GET /ipfs/LARGE/many/LONG-9999.ts
GET /ipfs/bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy
GET /ipfs/bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy?format=car
GET /ipfs/QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn
# what can't be
GET /ipfs/notacid
GET /ipfs/bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzd
GET /ipfs/
GET /ipfs/z2Drjgb
GET /ipfs/bafyrgqhai26anf3i7pips7q22coa4sz2fr4gk4q4sqdtymvvjyginfzaqewveaeqdh524nsktaq43j65v22xxrybrtertmcfxufdam3da3hbk
GET /ipfs/baf4bcfg4ep767tjp5lxyanx5urpjjgx5q2volvy
GET /ipns/example.com
GET /ipfs/ipfs/ROOT/noext
GET /ipfs/FILM?format=tar
GET /ipfs/FILM?format=json
GET /ipfs/FILM?format=dag-json
GET /ipfs/FILM?format=ipns-record
GET /ipfs/FILM | Accept: application/vnd.ipld.unknown
POST /ipfs/FILM
OPTIONS /ipfs/FILM | Origin: https://example.com | Access-Control-Request-Method: GET
OPTIONS /ipfs/DENIED/film.ts | Origin: https://example.com
# uploads that are not for everybody
GET /ipfs/GATED/film.ts
GET /ipfs/GATED?format=car
GET /ipfs/GATED | If-None-Match: *
GET /ipfs/DENIED/film.ts
GET /ipfs/DENIED | If-None-Match: *
GET /ipfs/DENIED?format=car
GET /ipfs/DENIED?format=raw
HEAD /ipfs/HIDDEN/film.ts
GET /ipfs/HIDDEN/film.ts
`

// TestActiveContent: what a page could run, or a browser would show as one, is only a download on a host
// that has other pages. On a host of its own it has its type, and no rights of that host.
func TestActiveContent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	root := s.put(t, "1", map[string][]byte{
		"page.html": []byte("<script>alert(1)</script>"), "index.html": []byte("<p>hello"), "a.js": []byte("alert(1)"), "a.mjs": []byte("alert(1)"),
		"a.css": []byte("p{}"), "a.svg": []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`), "a.xml": []byte("<a/>"), "a.xhtml": []byte("<a/>"),
		"a.wasm": []byte("\x00asm"), "untyped": []byte("<html><script>alert(1)</script></html>"),
		"a.m3u8": []byte("#EXTM3U"), "a.mpd": []byte("<MPD/>"), "a.vtt": []byte("WEBVTT"), "a.mp4": []byte("film"), "a.ts": []byte("film"), "a.jpg": []byte("picture"),
		"a.txt": []byte("text"), "a.json": []byte("{}"),
	}).String()
	const download = "application/octet-stream"
	for target, types := range map[string][2]string{ // on the host of other pages, and on its own
		"page.html":           {download, "text/html"},
		"":                    {download, "text/html"},
		"a.js":                {download, "text/javascript; charset=utf-8"},
		"a.mjs":               {download, "text/javascript; charset=utf-8"},
		"a.css":               {download, "text/css; charset=utf-8"},
		"a.svg":               {download, "image/svg+xml"},
		"a.xml":               {download, "text/xml; charset=utf-8"},
		"a.xhtml":             {download, "application/xhtml+xml"},
		"a.wasm":              {download, "application/wasm"},
		"untyped":             {download, "text/html"},
		"a.txt?filename=a.js": {download, "text/javascript; charset=utf-8"},
		"a.m3u8":              {"application/vnd.apple.mpegurl", "application/vnd.apple.mpegurl"},
		"a.mpd":               {"application/dash+xml", "application/dash+xml"},
		"a.vtt":               {"text/vtt; charset=utf-8", "text/vtt; charset=utf-8"},
		"a.mp4":               {"video/mp4", "video/mp4"},
		"a.mp4?filename=a.js": {"video/mp4", "video/mp4"},
		"a.ts":                {"video/mp2t", "video/mp2t"},
		"a.jpg":               {"image/jpeg", "image/jpeg"},
		"a.txt":               {"text/plain; charset=utf-8", "text/plain; charset=utf-8"},
		"a.json":              {"application/json", "application/json"},
	} {
		for i, policy := range []string{"sandbox", "sandbox allow-scripts"} {
			s.alone = i == 1
			got := s.get("GET", "/ipfs/"+root+"/"+target)
			if kind := got.Header.Get("Content-Type"); got.StatusCode != http.StatusOK || kind != types[i] {
				t.Errorf("%q, host of its own: %t: %d %s, want %s", target, s.alone, got.StatusCode, kind, types[i])
			}
			saved := strings.HasPrefix(got.Header.Get("Content-Disposition"), "attachment")
			if saved != (types[i] == download) || got.Header.Get("X-Content-Type-Options") != "nosniff" || got.Header.Get("Content-Security-Policy") != policy {
				t.Errorf("%q, host of its own: %t: %v", target, s.alone, got.Header)
			}
		}
	}
}

// A directory of many nodes is listed, and sent without the files in it.
func TestLargeDirectory(t *testing.T) {
	s := newSite(t)
	const count = 1500
	root := s.add(t, "1", files{}.numbered("many/"+strings.Repeat("x", 200), count, 20)).String()
	body, err := io.ReadAll(s.get("GET", "/ipfs/"+root+"/many/").Body)
	if n := bytes.Count(body, []byte(".ts</a>")); err != nil || n != count {
		t.Errorf("%d files in the page, %v", n, err)
	}
	archive := tar.NewReader(s.get("GET", "/ipfs/"+root+"/many?format=tar").Body)
	n := 0
	for header, err := archive.Next(); !errors.Is(err, io.EOF); header, err = archive.Next() {
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		got, err := io.ReadAll(archive)
		if n++; err != nil || header.Typeflag == tar.TypeReg && !bytes.Equal(got, content("many/"+name, 20)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if n != count+1 {
		t.Errorf("%d files and folders in the archive", n)
	}
	r, err := ipld.NewCARReader(s.get("GET", "/ipfs/"+root+"/many?format=car&dag-scope=entity").Body, carSectionLimit)
	nodes := 0
	for err == nil {
		var c ipld.CID
		if c, _, err = r.Next(); err == nil {
			nodes++
			if c.Codec() != ipld.DagPB {
				t.Errorf("%s is a file", c)
			}
		}
	}
	if !errors.Is(err, io.EOF) || nodes < 10 {
		t.Errorf("%d nodes, %v", nodes, err)
	}
	// Names with the same hash would make shards without an end.
	if _, _, err := encodeShard([]unixLink{{name: "a"}, {name: "b"}}, shardLevels); weir.KindOf(err) != weir.Invalid {
		t.Error(err)
	}
}

// A block that is also in an upload for everybody can be read.
func TestSharedBlocks(t *testing.T) {
	s := newSite(t)
	f := files{"a.ts": 100}
	root := s.add(t, "gated", f)
	s.refuse["gated"] = weir.Errorf(weir.Denied, "no")
	if got := s.get("GET", "/ipfs/"+root.String()+"/a.ts"); got.StatusCode != http.StatusForbidden {
		t.Errorf("%s", got.Status)
	}
	s.add(t, "open", f)
	if got := s.get("GET", "/ipfs/"+root.String()+"/a.ts"); got.StatusCode != http.StatusOK {
		t.Errorf("%s", got.Status)
	}
}

// Every byte of the shards is flipped in turn, in steps: the response is an error or the right bytes.
func TestFlippedByte(t *testing.T) {
	s := newSite(t)
	f := files{"dir/film.mp4": 5000, "dir/a.ts": 300}
	root := s.add(t, "1", f).String()
	key := shardFileKey("1", 0)
	r, info, err := s.store.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	good, err := io.ReadAll(r)
	if err != nil || int64(len(good)) != info.Size || r.Close() != nil {
		t.Fatal(err)
	}
	failed := 0
	for at := 0; at < len(good); at += 37 {
		bad := slices.Clone(good)
		bad[at] ^= 0x10
		if err := s.store.Put(t.Context(), key, bytes.NewReader(bad), info.Size, blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		for name, size := range f {
			resp := s.get("GET", "/ipfs/"+root+"/"+name)
			body, err := io.ReadAll(resp.Body)
			switch {
			case err != nil:
				t.Fatal(err)
			case resp.StatusCode == http.StatusOK && bytes.Equal(body, content(name, size)):
			case resp.StatusCode == http.StatusInternalServerError && bytes.Contains(body, []byte("can't be read")):
				failed++
			default:
				t.Errorf("byte %d flipped: %s, %.200q", at, resp.Status, body)
			}
		}
	}
	if failed < len(good)/37/2 {
		t.Errorf("only %d responses failed", failed)
	}
	// Each damaged block is in the log once: two files, three directories at most.
	if n := strings.Count(s.log.String(), "stored block is damaged"); n < 3 || n > 5 {
		t.Errorf("%d lines in the log:\n%s", n, s.log.String())
	}
}

// A CAR that breaks off in the middle is not a complete CAR.
func TestDamagedCAR(t *testing.T) {
	s := newSite(t)
	root := s.add(t, "1", files{"film.mp4": 3<<20 + 5}).String()
	leaf := ipld.Sum(ipld.Raw, content("film.mp4", 3<<20+5)[2<<20:3<<20])
	s.index.places[string(leaf.Hash())][0].Offset++
	resp := s.get("GET", "/ipfs/"+root+"?format=car")
	r, err := ipld.NewCARReader(resp.Body, carSectionLimit)
	for err == nil {
		_, _, err = r.Next()
	}
	if errors.Is(err, io.EOF) {
		t.Error("the CAR is complete")
	}
}

// bomb stores nodes: each links the one before a thousand times, and the first a leaf. It returns the
// CID of the last one.
func (s *site) bomb(t *testing.T, leaf []byte, height int) ipld.CID {
	t.Helper()
	below, size := ipld.Sum(ipld.Raw, leaf), uint64(len(leaf))
	s.put(t, "leaf", map[string][]byte{"leaf": leaf})
	var nodes [][]byte
	for range height {
		n := unixNode{kind: kindFile, fileSize: size * 1000}
		for range 1000 {
			n.blockSizes = append(n.blockSizes, size)
			n.links = append(n.links, unixLink{cid: below, stored: size})
		}
		block := n.encode()
		nodes = append(nodes, block)
		below, size = ipld.Sum(ipld.DagPB, block), size*1000
	}
	s.plant(t, "bomb", ipld.DagPB, nodes...)
	return below
}

// A graph of 60 kB whose file has 10^15 bytes is sent as long as the client reads, and stops when the
// client goes.
func TestBombStopsWithTheClient(t *testing.T) {
	s := newSite(t)
	root := s.bomb(t, content("x", 1000), 4)
	ended := make(chan struct{}, 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handler.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	defer web.Close()
	for _, query := range []string{"", "?format=car&car-dups=y", "?format=car&dag-scope=entity&car-dups=y"} {
		t.Run(query, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			resp, err := client.Get(web.URL + "/ipfs/" + root.String() + query)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.CopyN(io.Discard, resp.Body, 4<<20); err != nil {
				t.Errorf("%s: %d bytes, %v", resp.Status, n, err)
			}
			_ = resp.Body.Close()
			<-ended
		})
	}
}

// A graph that makes endless work and sends nothing, because a CAR has each block once, ends with the
// client too.
func TestBombThatSendsNothing(t *testing.T) {
	s := newSite(t)
	root := s.bomb(t, nil, 6)
	began, ended := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/ipfs/"+root.String()+"?format=car&dag-scope=entity", nil)
		s.handler.ServeHTTP(&firstWrite{ResponseRecorder: httptest.NewRecorder(), first: began}, r)
	}()
	<-began
	cancel()
	<-ended
}

// firstWrite closes a channel when something is written.
type firstWrite struct {
	*httptest.ResponseRecorder
	once  sync.Once
	first chan struct{}
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.first) })
	return w.ResponseRecorder.Write(p)
}

// A file can't be read as a node, whatever is in it.
func TestLeafIsNoNode(t *testing.T) {
	s := newSite(t)
	node := smallFile("abc")
	deep := bytes.Repeat([]byte{0x81}, 1<<20)    // CBOR: arrays in arrays
	exact := bytes.Repeat([]byte{0x0a}, 0x55-34) // with a length that looks like the codec of a leaf
	for i, block := range [][]byte{node, deep, exact, {}} {
		s.put(t, fmt.Sprint(i), map[string][]byte{"file": block})
		if resp := s.get("GET", "/ipfs/"+ipld.Sum(ipld.Raw, block).String()); resp.StatusCode != http.StatusOK {
			t.Errorf("block %d: %s", i, resp.Status)
		}
		for _, c := range []ipld.CID{
			version0(block), ipld.Sum(ipld.DagPB, block), ipld.Sum(ipld.DagCBOR, block), ipld.Sum(ipld.DagJSON, block),
			ipld.Sum(ipld.CBOR, block), ipld.Sum(ipld.JSON, block), ipld.Sum(0x78, block),
		} {
			for _, path := range []string{"", "/a", "?format=raw", "?format=car", "?format=dag-json"} {
				if resp := s.get("GET", "/ipfs/"+c.String()+path); resp.StatusCode != http.StatusNotFound {
					t.Errorf("block %d as %s%s: %s", i, c, path, resp.Status)
				}
			}
		}
	}
	if s.log.Len() > 0 {
		t.Errorf("log: %s", s.log.String())
	}
}

// version0 returns the CID of a node in the form without a codec.
func version0(block []byte) ipld.CID { return ipld.CID(ipld.Sum(ipld.DagPB, block).Hash()) }

// CIDs of version 0 are in CAR files of others.
func TestVersion0(t *testing.T) {
	s := newSite(t)
	block := smallFile("abc")
	hash := ipld.Sum(ipld.DagPB, block).Hash()
	shard := ipld.AppendCARBlock(carHeader[:len(carHeader):len(carHeader)], version0(block), block)
	if err := s.store.Put(t.Context(), shardFileKey("1", 0), bytes.NewReader(shard), int64(len(shard)), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	place := weir.IPFSBlock{Hash: hash, Offset: int64(len(shard) - len(block)), Size: int64(len(block))}
	if err := s.index.AddIPFSBlocks(t.Context(), "1", []weir.IPFSBlock{place}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []ipld.CID{version0(block), ipld.Sum(ipld.DagPB, block)} {
		resp := s.get("GET", "/ipfs/"+c.String())
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "abc" {
			t.Errorf("%s: %s, %q", c, resp.Status, body)
		}
	}
}
