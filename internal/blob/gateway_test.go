package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

const (
	cidV0 = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"
	// The same content, as other programs write the first one in version 1.
	cidV0as1 = "bafybeie5nqv6kd3qnfjupgvz34woh3oksc3iau6abmyajn7qvtf6d2ho34"
	txID     = "bNbA3TEQVL60xlgCcqdz4ZPHFZ711cZ3hmkpGttDt_U"
)

func TestGatewayURL(t *testing.T) {
	for _, tt := range []struct {
		entry, folder, id, path string
		want                    string
	}{
		{"ipfs.io", "/ipfs", cidV0, "", "https://ipfs.io/ipfs/" + cidV0},
		{"ipfs.io", "/ipfs", cidV0, "a/b%20c.mp4", "https://ipfs.io/ipfs/" + cidV0 + "/a/b%20c.mp4"},
		{"https://gw.example.com/ipfs", "/ipfs", cidV0, "a", "https://gw.example.com/ipfs/" + cidV0 + "/a"},
		{"http://gw.example.com:8080/x/", "/ipfs", cidV0, "a", "http://gw.example.com:8080/x/" + cidV0 + "/a"},
		{"https://{id}.ipfs.dweb.link/{path}", "/ipfs", cidV0as1, "a", "https://" + cidV0as1 + ".ipfs.dweb.link/a"},
		{"https://{id}.ipfs.dweb.link", "/ipfs", cidV0as1, "a", "https://" + cidV0as1 + ".ipfs.dweb.link/a"},
		{"{id}.ipfs.dweb.link", "/ipfs", cidV0, "", "https://" + cidV0as1 + ".ipfs.dweb.link"},
		{"https://gw.example.com/get/{path}?of={id}", "/ipfs", cidV0, "a", "https://gw.example.com/get/a?of=" + cidV0},
		{"arweave.net", "", txID, "", "https://arweave.net/" + txID},
		{"arweave.net", "", txID, "a/b", "https://arweave.net/" + txID + "/a/b"},
		{"https://{id}.arweave.example", "", txID, "", ""}, // it has capital letters, which a host name loses
		{"{id}.ipfs.dweb.link", "/ipfs", "b" + strings.Repeat("a", 63), "", ""},
	} {
		if got := gatewayURL(tt.entry, tt.folder, tt.id, tt.path); got != tt.want {
			t.Errorf("%s of %s = %q, want %q", tt.id, tt.entry, got, tt.want)
		}
	}
}

// gatewayHosts is a server for several gateways, which differ by their paths.
type gatewayHosts struct {
	content []byte
	fault   map[string]func(s *source, w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	asked []string
}

func (g *gatewayHosts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	g.mu.Lock()
	g.asked = append(g.asked, r.URL.EscapedPath())
	g.mu.Unlock()
	s := &source{content: g.content, etag: `"of ` + name + `"`}
	if fault := g.fault[name]; fault != nil && fault(s, w, r) {
		return
	}
	s.serve(w, r)
}

func TestFetchThroughGateways(t *testing.T) {
	content := noise(40, 300_000)
	answer := func(status int) func(*source, http.ResponseWriter, *http.Request) bool {
		return func(_ *source, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
	}
	type faults = map[string]func(*source, http.ResponseWriter, *http.Request) bool
	for _, tt := range []struct {
		name   string
		source string // %s = address of the server
		fault  faults
		asked  []string // in this order; nil = does not matter
		kind   weir.Kind
		want   string
	}{
		{
			name: "first works", source: "ipfs://" + cidV0 + "/dir/my%20video.mp4?x#y",
			asked: []string{"/a/" + cidV0 + "/dir/my%20video.mp4"},
		},
		{name: "with a word too many", source: "ipfs://ipfs/" + cidV0, asked: []string{"/a/" + cidV0}},
		{
			name: "next one on any error", source: "ipfs://" + cidV0, fault: faults{"a": answer(404), "b": answer(500)},
			asked: []string{"/a/" + cidV0, "/b/" + cidV0, "/c/" + cidV0},
		},
		{
			name: "another one goes on", source: "ipfs://" + cidV0,
			fault: faults{"a": func(s *source, w http.ResponseWriter, r *http.Request) bool { s.breakOff(w, r, 40_000); return true }},
		},
		{
			name: "another one goes on, without ranges", source: "ipfs://" + cidV0,
			fault: faults{
				"a": func(s *source, w http.ResponseWriter, r *http.Request) bool {
					s.noRanges = true
					s.breakOff(w, r, 40_000)
					return true
				},
				"b": func(s *source, _ http.ResponseWriter, _ *http.Request) bool { s.noRanges = true; return false },
			},
		},
		{
			name: "one has something else", source: "ipfs://" + cidV0,
			fault: faults{
				"a": func(s *source, w http.ResponseWriter, r *http.Request) bool { s.breakOff(w, r, 40_000); return true },
				"b": func(s *source, _ http.ResponseWriter, _ *http.Request) bool {
					s.content = s.content[:1000]
					return false
				},
			},
		},
		{
			name: "nobody has it", source: "ipfs://" + cidV0, fault: faults{"a": answer(404), "b": answer(410), "c": answer(403)},
			kind: weir.Invalid, want: "answered 404 Not Found; 127.0.0.2 answered 410 Gone; 127.0.0.2 answered 403",
		},
		{
			name: "one may have it later", source: "ipfs://" + cidV0, fault: faults{"a": answer(404), "b": answer(504), "c": answer(403)},
			kind: weir.Upstream, want: "answered 504",
		},
		{name: "arweave", source: "ar://" + txID + "/a/b.mp4", asked: []string{"/ar/" + txID + "/a/b.mp4"}},
		{
			name: "the URL of a gateway", source: "http://%s/ipfs/" + cidV0 + "/v.mp4", fault: faults{"ipfs": answer(502), "a": answer(404)},
			asked: []string{"/ipfs/" + cidV0 + "/v.mp4", "/a/" + cidV0 + "/v.mp4", "/b/" + cidV0 + "/v.mp4"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := &gatewayHosts{content: content, fault: tt.fault}
			at := serveAt(t, public, server)
			fetcher := testFetcher(t)
			fetcher.window = defaultWindow
			fetcher.Gateways = Gateways{IPFS: []string{at.URL + "/a", at.URL + "/b", at.URL + "/c/"}, Arweave: []string{at.URL + "/ar"}}
			from := tt.source
			if strings.Contains(from, "http:") {
				from = fmt.Sprintf(from, at.Listener.Addr())
			}
			f := spoolFile(t)
			got, err := fetcher.Fetch(t.Context(), from, f, nil)
			if tt.kind != "" {
				if weir.KindOf(err) != tt.kind {
					t.Errorf("error = %v, want one of kind %q", err, tt.kind)
				}
				checkSentence(t, err, tt.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkFetched(t, f, got, content)
			if diff := cmp.Diff(tt.asked, server.asked); tt.asked != nil && diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultGateways(t *testing.T) {
	for source, want := range map[string][]string{
		"ipfs://" + cidV0 + "/x":                         {"https://ipfs.io/ipfs/" + cidV0 + "/x", "https://gateway.ipfs.io/ipfs/" + cidV0 + "/x"},
		"https://dweb.link/ipfs/" + cidV0:                {"https://dweb.link/ipfs/" + cidV0, "https://ipfs.io/ipfs/" + cidV0},
		"https://" + cidV0as1 + ".ipfs.w3s.link/x":       {"https://" + cidV0as1 + ".ipfs.w3s.link/x", "https://ipfs.io/ipfs/" + cidV0as1 + "/x"},
		"ar://" + txID:                                   {"https://arweave.net/" + txID, "https://gateway.arweave.net/" + txID},
		"https://somewhere.arweave.net/" + txID + "/a":   {"https://somewhere.arweave.net/" + txID + "/a", "https://arweave.net/" + txID + "/a"},
		"https://elsewhere.example.com/ipfs/" + cidV0:    nil,
		"https://arweave.net/graphql":                    nil,
		"https://user:geheim@ipfs.io/ipfs/" + cidV0:      nil,
		"https://ipfs.io.example.com/ipfs/" + cidV0:      nil,
		"https://" + cidV0as1 + ".ipfs.example.com/x":    nil,
		"https://gateway.arweave.net/" + txID + "?a=b#c": {"https://gateway.arweave.net/" + txID + "?a=b#c", "https://arweave.net/" + txID},
	} {
		o, err := testFetcher(t).origin(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		g, ok := o.(*gateways)
		if !ok {
			if want != nil {
				t.Errorf("%s is read from one place, want %v", source, want)
			}
			continue
		}
		var got []string
		for _, w := range g.origins {
			got = append(got, w.url)
		}
		if diff := cmp.Diff(want, got[:min(2, len(got))]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", source, diff)
		}
	}
}

func TestNoGateway(t *testing.T) {
	fetcher := testFetcher(t)
	fetcher.Gateways.Arweave = []string{"https://{id}.arweave.example"}
	_, err := fetcher.Fetch(t.Context(), "ar://"+txID, spoolFile(t), nil)
	if weir.KindOf(err) != weir.Unavailable {
		t.Errorf("error = %v, want that there is no gateway", err)
	}
}

func FuzzNamed(f *testing.F) {
	for _, seed := range []string{"ipfs://" + cidV0 + "/a%2fb", "ar://" + txID + "/../x", "ipfs://ipfs/" + cidV0, "IPFS://x", "ar://"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		fetcher := &Fetcher{Guard: testGuard(t), Gateways: Gateways{
			IPFS: []string{"ipfs.io", "{id}.ipfs.dweb.link"}, Arweave: []string{"arweave.net"},
		}}
		o, err := fetcher.named(name, "")
		if err != nil {
			if e, ok := errors.AsType[*weir.Error](err); !ok || e.Kind == weir.Internal {
				t.Errorf("error = %v, want one for callers", err)
			}
			return
		}
		for _, w := range o.(*gateways).origins {
			if host := w.host; host != "ipfs.io" && host != "arweave.net" && !strings.HasSuffix(host, ".ipfs.dweb.link") {
				t.Errorf("%q leads to %s", name, host)
			}
		}
	})
}

// memory is a Content.
type memory struct {
	data []byte

	mu     sync.Mutex
	opened []span
	broken int // times that reading breaks off in the middle
}

func (m *memory) Size() int64 { return int64(len(m.data)) }

func (m *memory) Open(_ context.Context, offset, length int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened = append(m.opened, span{offset, offset + length})
	r := io.Reader(bytes.NewReader(m.data[offset : offset+length]))
	if m.broken > 0 {
		m.broken--
		r = io.MultiReader(io.LimitReader(r, length/2), iotest.ErrReader(weir.Errorf(weir.Upstream, "broken")))
	}
	return io.NopCloser(r), nil
}

func TestFetchVerified(t *testing.T) {
	for _, broken := range []int{0, 2} {
		m := &memory{data: noise(41, 300_000), broken: broken}
		f := testFetcher(t)
		f.IPFS = func(_ context.Context, cid, path string) (Content, error) {
			if cid != cidV0 || path != "dir/my video.mp4" {
				return nil, weir.Errorf(weir.Invalid, "there is no %s in %s", path, cid)
			}
			return m, nil
		}
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		got, err := f.Fetch(t.Context(), "ipfs://"+cidV0+"/dir/my%20video.mp4", file, nil)
		if err != nil || got.Size != 300_000 || got.SHA256 != fmt.Sprintf("%x", sha256.Sum256(m.data)) {
			t.Errorf("%+v, %v", got, err)
		}
		if len(m.opened) < 2 { // it was read in windows
			t.Errorf("%v", m.opened)
		}
		_, err = f.Fetch(t.Context(), "ipfs://"+cidV0+"/other", io.Discard, nil)
		if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "there is no other in "+cidV0) {
			t.Errorf("%v", err)
		}
	}
}

func TestOnIPFS(t *testing.T) {
	g := Gateways{IPFS: []string{"ipfs.io", "https://{id}.ipfs.dweb.link", "http://127.0.0.1:8080/ipfs/"}}
	want := []string{"https://ipfs.io/ipfs/" + cidV0, "https://" + cidV0as1 + ".ipfs.dweb.link", "http://127.0.0.1:8080/ipfs/" + cidV0}
	if diff := cmp.Diff(want, g.OnIPFS(cidV0)); diff != "" {
		t.Error(diff)
	}
}
