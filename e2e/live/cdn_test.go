package live

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/e2e/harness"
)

// TestCaches plays a live stream through the files of packaging/cdn, to viewers that know the rules and
// to hls.js. A crowd must not reach weir through them, and what one viewer may play is for no other.
func TestCaches(t *testing.T) {
	for name, start := range map[string]func(*testing.T, string) string{"nginx": nginxCache, "varnish": varnishCache} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := harness.NewWeir(t)
			rtmp := harness.FreeAddr(t)
			w.Start("--rtmp", rtmp)
			origin := newCountingOrigin(t, w.URL)
			address := start(t, origin.URL)
			s := newStream(w, rtmp)
			missing := origin.askedBy(t, 10, address+"/hls/"+s.playback+"/index.m3u8", http.StatusNotFound)
			if missing > 3 {
				t.Errorf("10 viewers who wait for the show ask weir %d times", missing)
			}
			e := s.send(liveClip(t))
			s.waitLive()
			var base atomic.Pointer[string]
			base.Store(&address)
			var viewers []*viewer
			for _, rendition := range []string{"source", "audio"} {
				for range 3 {
					viewers = append(viewers, s.watch(&base, rendition, -1)) // in a cache, other renditions are a second old
				}
			}
			b := harness.NewBrowser(t, t.TempDir())
			watch(b, address+"/hls/"+s.playback+"/index.m3u8")
			now := plays(b, e, watched{}, 5)
			if name == "varnish" && !now.LowLatency {
				t.Errorf("hls.js plays without parts: %+v", now)
			}
			w.Must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)
			_ = e.wait() // it was turned away
			for _, v := range viewers {
				v.wait()
			}
			origin.checkOnce(t)

			segment := address + "/hls/" + s.playback + "/source/0.m4s"
			for _, query := range []string{"", "?CMCD=bl%3D2100%2Csid%3D%22a%22", "?CMCD=bl%3D900%2Csid%3D%22b%22&x=y"} {
				if asked := origin.askedBy(t, 2, segment+query, http.StatusOK); asked > 0 {
					t.Errorf("a segment that the cache has, with the query %q, is asked for %d times", query, asked)
				}
			}
			w.Must("PATCH", "/api/stream/"+s.id, map[string]any{"playbackPolicy": map[string]any{"type": "jwt"}}, nil)
			e = s.send(liveClip(t))
			defer e.kill()
			permitted := address + "/hls/" + s.playback + "/index.m3u8?jwt=" + url.QueryEscape(newSigner(w).permit(s.playback, time.Hour))
			harness.Eventually(t, func() error {
				if status, _ := get(t, permitted); status != http.StatusOK {
					return fmt.Errorf("a viewer with a JWT gets %d", status)
				}
				return nil
			})
			plain, _, _ := strings.Cut(permitted, "?")
			if asked := origin.askedBy(t, 2, plain, http.StatusForbidden); asked < 2 { // the browser asks too
				t.Errorf("two viewers without a JWT are refused, and weir was asked %d times", asked)
			}
		})
	}
}

// countingOrigin stands before weir and counts what is asked for.
type countingOrigin struct {
	*httptest.Server
	mu    sync.Mutex
	count map[string]int // requests that got what they asked for, by address
	asked map[string]int // requests, by path
	weir  atomic.Pointer[url.URL]
}

func newCountingOrigin(t *testing.T, weir string) *countingOrigin {
	t.Helper()
	o := &countingOrigin{count: map[string]int{}, asked: map[string]int{}}
	o.moveTo(t, weir)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(o.weir.Load()) }, FlushInterval: -1}
	proxy.ModifyResponse = func(response *http.Response) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if response.StatusCode == http.StatusOK {
			o.count[response.Request.URL.String()]++
		}
		return nil
	}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.asked[r.URL.Path]++
		o.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// moveTo says where weir is after a restart.
func (o *countingOrigin) moveTo(t *testing.T, weir string) {
	t.Helper()
	to, err := url.Parse(weir)
	if err != nil {
		t.Fatal(err)
	}
	o.weir.Store(to)
}

// askedBy lets so many viewers ask for the same at once, who must get a status, and returns how many of
// them reach the origin.
func (o *countingOrigin) askedBy(t *testing.T, viewers int, address string, status int) int {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	asked := func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.asked[parsed.Path]
	}
	before := asked()
	var together errgroup.Group
	for range viewers {
		together.Go(func() error {
			response, err := http.Get(address)
			if err != nil {
				return err
			}
			if _, err = io.Copy(io.Discard, response.Body); err == nil && response.StatusCode != status {
				err = fmt.Errorf("%s: %d, want %d", address, response.StatusCode, status)
			}
			return errors.Join(err, response.Body.Close())
		})
	}
	if err := together.Wait(); err != nil {
		t.Error(err)
	}
	return asked() - before
}

// checkOnce complains about parts, segments and awaited playlists that were asked for more than once.
func (o *countingOrigin) checkOnce(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	media := 0
	for address, n := range o.count {
		if strings.Contains(address, ".m4s") {
			media++
			if n > 1 {
				t.Errorf("%s is asked for %d times", address, n)
			}
		}
	}
	if media < 10 {
		t.Errorf("%d files were asked for: %v", media, o.count)
	}
}

// cacheFile returns a file of packaging/cdn, changed as its reader is told to.
func cacheFile(t *testing.T, name string, changes ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", "cdn", name))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(string(text), changes[i]) {
			t.Fatalf("%s has no %q", name, changes[i])
		}
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(strings.NewReplacer(changes...).Replace(string(text))), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func nginxCache(t *testing.T, origin string) string {
	t.Helper()
	return nginxWith(t, origin, "")
}

// nginxWith is nginxCache, with nginx-gated.conf if there is a secret.
func nginxWith(t *testing.T, origin, secret string) string {
	t.Helper()
	s, dir := newOtherServer(t), t.TempDir()
	gated := "/dev/null"
	if secret != "" {
		gated = cacheFile(t, "nginx-gated.conf", `"SECRET"`, `"`+secret+`"`)
	}
	server := cacheFile(t, "nginx.conf", "/var/cache/nginx/weir", dir+"/cache", "127.0.0.1:8080", strings.TrimPrefix(origin, "http://"), "listen 80;", "listen "+s.addr+";", "/etc/nginx/weir-gated*.conf", gated)
	return s.nginx(dir, server)
}

// nginx runs nginx with a file of its http section.
func (s otherServer) nginx(dir, server string) string {
	s.t.Helper()
	text := fmt.Sprintf("user root;\ndaemon off;\nmaster_process off;\npid %[1]s/pid;\nerror_log stderr warn;\nevents {}\nhttp {\naccess_log off;\ninclude %[2]s;\n}\n", dir, server)
	config := filepath.Join(dir, "main.conf")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.command = []string{"/usr/sbin/nginx", "-p", dir, "-c", config}
	return s.cache()
}

func varnishCache(t *testing.T, origin string) string {
	t.Helper()
	return varnishWith(t, origin, "")
}

// varnishWith is varnishCache with a secret for gated content.
func varnishWith(t *testing.T, origin, secret string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(origin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	s := newOtherServer(t)
	vcl := cacheFile(t, "varnish.vcl", `"8080"`, `"`+port+`"`, `Weir-Secret = ""`, `Weir-Secret = "`+secret+`"`)
	s.command = []string{"/usr/sbin/varnishd", "-F", "-j", "none", "-n", t.TempDir(), "-a", s.addr, "-f", vcl, "-s", "malloc,64m"}
	return s.cache()
}

// cache runs the server until the test ends, and returns its address.
func (s *otherServer) cache() string {
	s.t.Helper()
	s.start()
	s.t.Cleanup(func() {
		s.stop()
		if s.t.Failed() {
			s.t.Logf("%s says:\n%s", s.command[0], s.said)
		}
	})
	return "http://" + s.addr
}
