package live

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
)

const cacheSecret = "0123456789abcdefghijklmnopqrstuvwxyz"

// TestGatedCaches plays a gated stream through the files of packaging/cdn, which keep it for all who may
// play it. What they keep opens for nobody else, however one asks.
func TestGatedCaches(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, origin, secret string) string{"nginx": nginxWith, "varnish": varnishWith} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGatedStream(t, cacheSecret)
			address := start(t, g.origin.URL, cacheSecret)
			g.send()
			defer g.encoder.kill()
			tokens := []string{g.enter(address), g.enter(address)}
			if tokens[0] == tokens[1] {
				t.Fatal("two viewers have the same token")
			}
			var base atomic.Pointer[string]
			base.Store(&address)
			var viewers []*viewer
			for _, token := range tokens {
				for _, rendition := range []string{"source", "audio"} {
					viewers = append(viewers, g.stream.watchBelow(&base, token, rendition, -1))
				}
			}
			b := harness.NewBrowser(t, t.TempDir())
			watch(b, address+g.master())
			plays(b, g.encoder, watched{}, 5)
			g.checkClosed(address, tokens[0])
			if status, _ := fetch(t, address+"/hls/"+g.stream.playback+"/source/0.m4s", "Weir-Cache", cacheSecret); status < 400 {
				t.Errorf("the cache forwards a proof that it was sent: %d", status)
			}

			g.w.Must("DELETE", "/api/stream/"+g.stream.id+"/terminate", nil, nil)
			_ = g.encoder.wait() // it was turned away
			for _, v := range viewers {
				v.wait()
			}
			g.origin.checkOnce(t)

			// Revocation ends it for all, also what the cache has.
			segment := address + "/hls/" + g.stream.playback + "/" + tokens[0] + "source/0.m4s"
			if status, header := fetch(t, segment); status != http.StatusOK || !strings.HasPrefix(header.Get("Cache-Control"), "private") {
				t.Errorf("a viewer gets %d with Cache-Control %q", status, header.Get("Cache-Control"))
			}
			g.w.Must("DELETE", "/api/access-control/signing-key/"+g.keyID(), nil, nil)
			revoked := time.Now()
			harness.Eventually(t, func() error {
				if status, _ := fetch(t, segment); status != http.StatusForbidden {
					return fmt.Errorf("after the key was revoked a viewer gets %d", status)
				}
				return nil
			})
			t.Logf("revoked after %.1f s", time.Since(revoked).Seconds())
		})
	}
}

// TestGatedThroughOthers asks for gated content through a cache that knows nothing of weir, and through
// the shipped files with the secret of another installation: nobody gets what another one may play.
func TestGatedThroughOthers(t *testing.T) {
	t.Parallel()
	const foreign = "zyxwvutsrqponmlkjihgfedcba9876543210"
	for name, start := range map[string]func(t *testing.T, origin string) string{
		"plain nginx":            plainNginx,
		"nginx, other secret":    func(t *testing.T, origin string) string { return nginxWith(t, origin, foreign) },
		"varnish, other secret":  func(t *testing.T, origin string) string { return varnishWith(t, origin, foreign) },
		"varnish without secret": varnishCache,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGatedStream(t, cacheSecret)
			address := start(t, g.origin.URL)
			g.send()
			defer g.encoder.kill()
			token := g.enter(address)
			want := http.StatusOK
			if strings.Contains(name, "other secret") {
				want = http.StatusForbidden // weir does not believe the cache
			}
			for range 2 {
				status, header := fetch(t, address+"/hls/"+g.stream.playback+"/"+token+"source/0.m4s")
				if status != want || strings.Contains(header.Get("Cache-Control"), "public") {
					t.Errorf("a viewer gets %d with Cache-Control %q, want %d", status, header.Get("Cache-Control"), want)
				}
			}
			g.checkClosed(address, token)
		})
	}
}

// gatedStream is a stream for viewers with a JWT, and another one.
type gatedStream struct {
	w             *harness.Weir
	rtmp          string
	origin        *countingOrigin
	stream, other *liveStream
	signer        signer
	encoder       *encoder
	viewers       int
}

func newGatedStream(t *testing.T, secret string) *gatedStream {
	t.Helper()
	g := &gatedStream{w: harness.NewWeir(t), rtmp: harness.FreeAddr(t)}
	g.w.Start("--rtmp", g.rtmp, "--cache-secret", secret)
	g.origin = newCountingOrigin(t, g.w.URL)
	g.signer = newSigner(g.w)
	for _, s := range []**liveStream{&g.stream, &g.other} {
		*s = newStream(g.w, g.rtmp)
		g.w.Must("PATCH", "/api/stream/"+(*s).id, map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}, nil)
	}
	return g
}

func (g *gatedStream) keyID() string {
	g.w.T.Helper()
	var keys []struct{ ID string }
	g.w.Must("GET", "/api/access-control/signing-key", nil, &keys)
	return keys[0].ID
}

// master returns the path of the master playlist for another viewer.
func (g *gatedStream) master() string {
	g.viewers++
	life := time.Hour + time.Duration(g.viewers)*time.Second // each viewer has a JWT of their own
	return "/hls/" + g.stream.playback + "/index.m3u8?jwt=" + url.QueryEscape(g.signer.permit(g.stream.playback, life))
}

// send starts the encoder, and waits until its first segment can be played.
func (g *gatedStream) send() {
	g.w.T.Helper()
	g.encoder = g.stream.send(liveClip(g.w.T))
	harness.Eventually(g.w.T, func() error {
		first := strings.Replace(g.master(), "index.m3u8", "source/0.m4s", 1)
		if status, text := get(g.w.T, g.w.URL+first); status != http.StatusOK {
			return fmt.Errorf("the first segment is %d %.200s", status, text)
		}
		return nil
	})
}

// enter lets another viewer in through a cache, and returns the token, as it stands in paths.
func (g *gatedStream) enter(address string) string {
	g.w.T.Helper()
	status, text := get(g.w.T, address+g.master())
	_, after, ok := strings.Cut(string(text), "\nt/")
	token, _, _ := strings.Cut(after, "/")
	if status != http.StatusOK || !ok {
		g.w.T.Fatalf("a viewer with a JWT gets %d %s", status, text)
	}
	return "t/" + token + "/"
}

// checkClosed asks for what a cache may have, in all ways but the right one.
func (g *gatedStream) checkClosed(address, token string) {
	t := g.w.T
	t.Helper()
	below := "/hls/" + g.stream.playback + "/"
	host := strings.TrimPrefix(address, "http://")
	for _, file := range []string{"index.m3u8", "source/index.m3u8", "source/0.m4s", "source/init-0.mp4", "poster.jpg"} {
		for what, path := range map[string]string{
			"no token":              below + file,
			"no token, a query":     below + file + "?ll=%7Cgated",
			"a wrong token":         below + "t/x/" + file,
			"no token, but a place": below + "t//" + file,
			"a line in the token":   below + token[:len(token)-1] + "%20HTTP/1.1%0d%0aWeir-Cache:%20" + cacheSecret + "/" + file,
		} {
			for way, headers := range map[string][]string{
				"": nil, "a forged proof": {"Weir-Cache", "x"}, "a proof": {"Weir-Cache", ""},
				"an admission": {"Weir-Admitted", "yes", "Weir-File", below + file}, "a host": {"Host", "gated|" + host},
			} {
				if status, _ := fetch(t, address+path, headers...); status < 400 {
					t.Errorf("%s, with %q: %s answers %d", what, way, path, status)
				}
			}
		}
		path := "/hls/" + g.other.playback + "/" + token + file
		if status, _ := fetch(t, address+path); status < 400 {
			t.Errorf("the token of one stream opens another: %s answers %d", path, status)
		}
	}
}

// fetch asks for something, with headers as pairs of name and value.
func fetch(t *testing.T, address string, headers ...string) (int, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
		if pair[0] == "Host" {
			r.Host = pair[1]
		}
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
	return response.StatusCode, response.Header
}

// plainNginx is a cache that does what HTTP says, and knows nothing else.
func plainNginx(t *testing.T, origin string) string {
	t.Helper()
	s, dir := newOtherServer(t), t.TempDir()
	server := filepath.Join(dir, "server.conf")
	text := fmt.Sprintf("proxy_cache_path %s/cache keys_zone=all:1m;\nserver {\nlisten %s;\nlocation / {\nproxy_pass %s;\nproxy_cache all;\n}\n}\n", dir, s.addr, origin)
	if err := os.WriteFile(server, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.nginx(dir, server)
}
