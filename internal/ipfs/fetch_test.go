package ipfs

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/blob"
	"weir/internal/guard"
	"weir/internal/ipld"
	"weir/internal/weir"
)

// fault responds in the place of a gateway.
type fault = func(w http.ResponseWriter, r *http.Request, real http.Handler)

// foreign is a gateway on the network, with faults.
type foreign struct {
	site  *site
	fault fault

	mu    sync.Mutex
	asked []string
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.RequestURI())
	f.mu.Unlock()
	if f.fault != nil {
		f.fault(w, r, f.site.handler)
		return
	}
	f.site.handler.ServeHTTP(w, r)
}

// count returns how many requests had a text in their URL.
func (f *foreign) count(text string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(f.asked), func(s string) bool { return !strings.Contains(s, text) }))
}

// serve starts gateways and returns a fetcher that uses them.
func serve(t *testing.T, local *Blocks, gateways ...*foreign) *blob.Fetcher {
	t.Helper()
	g := guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	t.Cleanup(g.Client(0).CloseIdleConnections)
	source := &Source{Blocks: local, Guard: g, May: func(_ context.Context, upload string) error {
		if upload == "gated" {
			return weir.Errorf(weir.Denied, "no")
		}
		return nil
	}}
	for _, f := range gateways {
		web := httptest.NewServer(f)
		t.Cleanup(web.Close)
		source.Gateways.IPFS = append(source.Gateways.IPFS, web.URL+"/ipfs")
	}
	return &blob.Fetcher{Guard: g, Gateways: source.Gateways, IPFS: source.Open}
}

func fetch(t *testing.T, f *blob.Fetcher, source string) ([]byte, error) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := f.Fetch(t.Context(), source, file, nil); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return data, nil
}

// flip changes a byte of the responses in a format.
func flip(formatName string) fault {
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		got := httptest.NewRecorder()
		real.ServeHTTP(got, r)
		body := got.Body.Bytes()
		if r.URL.Query().Get("format") == formatName && len(body) > 0 {
			body[len(body)*2/3] ^= 1
		}
		for name, values := range got.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(got.Code)
		_, _ = w.Write(body)
	}
}

// plainOnly is a gateway that knows no formats.
func plainOnly(w http.ResponseWriter, r *http.Request, real http.Handler) {
	r.URL.RawQuery = ""
	r.Header.Del("Accept")
	real.ServeHTTP(w, r)
}

func noCAR(w http.ResponseWriter, r *http.Request, real http.Handler) {
	if r.URL.Query().Get("format") == "car" {
		http.Error(w, "no", http.StatusNotAcceptable)
		return
	}
	real.ServeHTTP(w, r)
}

// firstBytes ignores the range of a CAR.
func firstBytes(w http.ResponseWriter, r *http.Request, real http.Handler) {
	q := r.URL.Query()
	q.Del("entity-bytes")
	r.URL.RawQuery = q.Encode()
	real.ServeHTTP(w, r)
}

func missing(w http.ResponseWriter, r *http.Request, _ http.Handler) { http.NotFound(w, r) }

func TestFetchVerified(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	long := strings.Repeat("x", 200)
	tree := files{"dir/film.mp4": 20<<20 + 77, "dir/small.ts": 500, "dir/a b%.ts": 10, "empty": 0}.numbered("many/"+long, 1200, 20)
	root := s.add(t, "1", tree).String()
	for _, c := range []struct {
		name   string
		path   string
		faults []fault
		err    string // "" = it works
		kind   weir.Kind
	}{
		{"large", "dir/film.mp4", []fault{nil}, "", ""},
		{"small", "dir/small.ts", []fault{nil}, "", ""},
		{"odd name", "dir/a%20b%25.ts", []fault{nil}, "", ""},
		{"empty", "empty", []fault{nil}, "", ""},
		{"large directory", "many/" + long + "-0777.ts", []fault{nil}, "", ""},
		{"flipped in the CAR", "dir/film.mp4", []fault{flip("car")}, "", ""},
		{"flipped in blocks", "dir/film.mp4", []fault{flip("raw")}, "do not have the hash", weir.Invalid},
		{"next one is right", "dir/film.mp4", []fault{flip("raw"), missing, nil}, "", ""},
		{"without CAR", "dir/film.mp4", []fault{noCAR}, "", ""},
		{"CAR of all", "dir/film.mp4", []fault{firstBytes}, "", ""},
		{"plain bytes", "dir/film.mp4", []fault{plainOnly}, "not the blocks that are needed", weir.Invalid},
		{"plain bytes, then blocks", "dir/film.mp4", []fault{plainOnly, nil}, "", ""},
		{"not there", "dir/other.mp4", []fault{nil}, "there is no file", weir.Invalid},
		{"a directory", "dir", []fault{nil}, "add the path of a file", weir.Invalid},
		{"nowhere", "dir/film.mp4", []fault{missing, missing}, "answered 404", weir.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			var gateways []*foreign
			for _, fault := range c.faults {
				gateways = append(gateways, &foreign{site: s, fault: fault})
			}
			got, err := fetch(t, serve(t, nil, gateways...), "ipfs://"+root+"/"+c.path)
			name := strings.NewReplacer("%20", " ", "%25", "%").Replace(c.path)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) || weir.KindOf(err) != c.kind {
					t.Errorf("%v; want %s, %q", err, c.kind, c.err)
				}
			case err != nil:
				t.Error(err)
			case !bytes.Equal(got, content(name, tree[name])):
				t.Errorf("%d other bytes", len(got))
			}
			if raw := gateways[0].count("format=raw"); c.name == "large" && raw > 5 {
				t.Errorf("%d blocks were asked for one by one: %v", raw, gateways[0].asked)
			}
		})
	}
}

func TestFetchLocalFirst(t *testing.T) {
	s := newSite(t)
	f := files{"film.mp4": 3 << 20, "a.ts": 50}
	root := s.add(t, "1", f).String()
	away := &foreign{site: s}
	got, err := fetch(t, serve(t, s.blocks, away), "ipfs://"+root+"/film.mp4")
	if err != nil || !bytes.Equal(got, content("film.mp4", 3<<20)) || len(away.asked) != 0 {
		t.Errorf("%d bytes, %v, asked %v", len(got), err, away.asked)
	}
	// A damaged local block is read elsewhere.
	here := newSite(t)
	here.add(t, "1", f)
	for _, places := range here.index.places {
		places[0].Offset++
	}
	got, err = fetch(t, serve(t, here.blocks, away), "ipfs://"+root+"/film.mp4")
	if err != nil || !bytes.Equal(got, content("film.mp4", 3<<20)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// What is not for everybody can't be read as a source.
func TestFetchGated(t *testing.T) {
	s := newSite(t)
	root := s.add(t, "gated", files{"film.mp4": 3 << 20}).String()
	empty := &foreign{site: newSite(t)}
	if _, err := fetch(t, serve(t, s.blocks, empty), "ipfs://"+root+"/film.mp4"); err == nil || weir.KindOf(err) != weir.Invalid {
		t.Errorf("%v", err)
	}
}

func TestFetchRanges(t *testing.T) {
	s := newSite(t)
	const size = 5<<20 + 3
	root := s.add(t, "1", files{"film.mp4": size})
	want := content("film.mp4", size)
	away := &foreign{site: s}
	web := httptest.NewServer(away)
	defer web.Close()
	g := guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	defer g.Client(0).CloseIdleConnections()
	source := &Source{Guard: g, Gateways: blob.Gateways{IPFS: []string{web.URL + "/ipfs"}}}
	c, err := source.Open(t.Context(), root.String(), "film.mp4")
	if err != nil || c.Size() != size {
		t.Fatal(err)
	}
	for _, at := range [][2]int64{{0, 0}, {0, 1}, {size - 1, 1}, {size, 0}, {1 << 20, 1}, {1<<20 - 1, 2}, {100, 3 << 20}, {0, size}, {4 << 20, 1<<20 + 3}} {
		r, err := c.Open(t.Context(), at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want[at[0]:at[0]+at[1]]) || r.Close() != nil {
			t.Errorf("%v: %d bytes, %v", at, len(got), err)
		}
	}
	for _, at := range [][2]int64{{-1, 1}, {0, size + 1}, {size, 1}, {size + 1, 0}, {0, -1}} {
		if _, err := c.Open(t.Context(), at[0], at[1]); weir.KindOf(err) != weir.Invalid {
			t.Errorf("%v: %v", at, err)
		}
	}
}

// Nodes that contradict themselves are refused.
func TestFetchLyingNodes(t *testing.T) {
	leaf := ipld.Sum(ipld.Raw, []byte("abc"))
	make := func(sizes []uint64, links int, total uint64) []byte {
		n := unixNode{kind: kindFile, blockSizes: sizes, fileSize: total}
		for range links {
			n.links = append(n.links, unixLink{cid: leaf})
		}
		return n.encode()
	}
	for name, block := range map[string][]byte{
		"leaf is shorter":    make([]uint64{4}, 1, 4),
		"leaf is longer":     make([]uint64{2}, 1, 2),
		"other total":        make([]uint64{3, 3}, 2, 7),
		"sizes without link": make([]uint64{3, 3}, 1, 6),
		"link without size":  make([]uint64{3}, 2, 3),
		"huge":               make([]uint64{1 << 62, 1 << 62}, 2, 1<<63),
		"no node":            []byte("abcd"),
		"nothing":            {},
	} {
		s := newSite(t)
		s.plant(t, "1", ipld.Raw, []byte("abc"))
		s.plant(t, "2", ipld.DagPB, block)
		if got, err := fetch(t, serve(t, s.blocks, &foreign{site: s}), "ipfs://"+ipld.Sum(ipld.DagPB, block).String()); err == nil || weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func FuzzNode(f *testing.F) {
	shard := unixNode{kind: kindShard, hashType: shardHash, fanout: shardFanout, links: []unixLink{{"00a", emptyCID, 0}}}
	folder := unixNode{kind: kindDirectory, links: []unixLink{{"a", emptyCID, 0}}}
	for _, block := range [][]byte{{}, smallFile("abc"), folder.encode(), shard.encode()} {
		f.Add(block)
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		id := ipld.Sum(ipld.DagPB, block)
		if n, err := decodeNode(block); err == nil {
			get := func(context.Context, ipld.CID) ([]byte, error) { return nil, weir.ErrNotFound() }
			_ = eachEntry(t.Context(), get, n, func(unixLink) error { return nil })
			_, _ = findEntry(t.Context(), get, n, "a")
		}
		n, err := parseNode(id, block)
		if err != nil {
			return
		}
		size := int64(len(n.data))
		for _, c := range n.children {
			if size += c.size; c.size < 0 {
				t.Fatalf("a part of %d bytes", c.size)
			}
		}
		if size != n.size || size < 0 {
			t.Fatalf("%d bytes in parts, %d in all", size, n.size)
		}
	})
}

// FuzzGateway requests any path, with any bytes as a node.
func FuzzGateway(f *testing.F) {
	f.Add("", "format=car", smallFile("abc"))
	f.Add("/a/b", "", []byte("\x0a\x02\x08\x01"))
	f.Add("/", "format=raw", []byte{})
	f.Add("", "format=car&dag-scope=entity&entity-bytes=-3:9", []byte("\x0a\x02\x08\x05"))
	f.Fuzz(func(t *testing.T, path, query string, block []byte) {
		x := &index{}
		name := ipld.Sum(ipld.DagPB, block)
		place := weir.IPFSBlock{Hash: name.Hash(), Offset: int64(len(name)), Size: int64(len(block))}
		if err := x.AddIPFSBlocks(t.Context(), "1", []weir.IPFSBlock{place}); err != nil {
			t.Fatal(err)
		}
		handler := NewGateway(NewBlocks(shardStore{data: append([]byte(name), block...)}, x), func(context.Context, string) error { return nil }, func(*http.Request) bool { return true })
		r := httptest.NewRequest(http.MethodGet, "/ipfs/x", nil)
		r.URL.Path = "/ipfs/" + name.String() + path
		r.URL.RawQuery = query
		r.RequestURI = r.URL.RequestURI()
		handler.ServeHTTP(httptest.NewRecorder(), r)
	})
}

// shardStore is a store with one shard.
type shardStore struct {
	blob.Store
	data []byte
}

func (s shardStore) Get(_ context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	return io.NopCloser(bytes.NewReader(s.data[offset : offset+length])), blob.Info{Key: key, Size: int64(len(s.data))}, nil
}
