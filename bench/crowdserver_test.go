//go:build bench

package bench

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/store/pgtest"
	"weir/internal/wait"
)

const crowdSecret = "0123456789abcdefghijklmnopqrstuvwxyz"

type crowdBench struct {
	*vodBench
	film *film
}

func newCrowdBench(t *testing.T) *crowdBench {
	t.Helper()
	b := &crowdBench{vodBench: newVODBench(t)}
	file := b.clip(t, "crowd-60.flv", func(file string) []string {
		return []string{
			"-stream_loop", "-1", "-i", b.bunny(t), "-t", "60", "-vf", "fps=30,scale=320:180", "-c:v", "libx264", "-preset", "fast", "-pix_fmt", "yuv420p",
			"-b:v", "150k", "-maxrate", "150k", "-bufsize", "150k", "-g", "60", "-keyint_min", "60", "-sc_threshold", "0", "-an",
			"-flvflags", "no_duration_filesize", "-f", "flv", file,
		}
	})
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.film, err = parseFLV(data, 30); err != nil {
		t.Fatal(err)
	}
	return b
}

// crowdServers are the origin and what stands before it.
type crowdServers struct {
	bench          *crowdBench
	origin         *process
	caches         []*process
	originWeb, ops string
	web            []string // where viewers come
	varnish        bool
	edge           bool
	rtmp, key, id  string
	gated          bool
	master         string // path of the master playlist
	permit         func() string
	sending        context.CancelFunc
	publishers     publishers
	dead           *countingListener
}

func (b *crowdBench) start(t *testing.T, cache string, gated bool) *crowdServers {
	t.Helper()
	dir := t.TempDir()
	s := &crowdServers{bench: b, gated: gated, varnish: cache == "varnish", edge: cache == "edge", publishers: publishers{film: b.film}}
	secret := filepath.Join(dir, "secret")
	writeFile(t, secret, strings.Repeat("05", 32)+"\n")
	database := "sqlite:" + filepath.Join(dir, "weir.db")
	if s.edge {
		database = pgtest.Start(t)
	}
	node := func(name, web, rtmp, ops string) *process {
		return startProcess(t, filepath.Join(dir, name+".log"), b.weir, "serve", "--data", filepath.Join(dir, name), "--database", database,
			"--storage", "file:"+filepath.Join(dir, "media"), "--secret-file", secret, "--http", web, "--node-url", "http://"+web, "--ops", ops,
			"--rtmp", rtmp, "--srt", "", "--webrtc", "", "--api-key", apiKey, "--part-duration", fmt.Sprintf("%gs", *crowdPart),
			"--cache-secret", crowdSecret, "--max-connections-per-address", "20000")
	}
	s.originWeb, s.ops, s.rtmp = freeAddr(t), freeAddr(t), freeAddr(t)
	s.origin = node("origin", s.originWeb, s.rtmp, s.ops)
	waitFor(t, "http://"+s.originWeb+"/readyz?for=api")
	switch {
	case s.edge:
		for i := range *crowdEdges {
			web := freeAddr(t)
			s.caches, s.web = append(s.caches, node(fmt.Sprintf("edge%d", i), web, "", freeAddr(t))), append(s.web, web)
			waitFor(t, "http://"+web+"/readyz?for=api")
		}
	case s.varnish:
		s.web = []string{freeAddr(t)}
		s.startVarnish(t, dir)
	default:
		s.web = []string{s.originWeb}
	}
	var made struct{ ID, StreamKey, PlaybackID string }
	body := map[string]any{"name": "crowd", "profiles": []any{}}
	if gated {
		body["playbackPolicy"] = map[string]any{"type": "jwt"}
	}
	post(t, http.MethodPost, "http://"+s.originWeb+"/api/stream", body, &made)
	s.key, s.id, s.master = made.StreamKey, made.PlaybackID, "/hls/"+made.PlaybackID+"/index.m3u8"
	if gated {
		s.sign(t)
		s.master += "?jwt=" + url.QueryEscape(s.permit())
	}
	return s
}

func (s *crowdServers) startVarnish(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile("../packaging/cdn/varnish.vcl")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(s.originWeb)
	if err != nil {
		t.Fatal(err)
	}
	vcl := filepath.Join(dir, "weir.vcl")
	writeFile(t, vcl, strings.NewReplacer(`"8080"`, `"`+port+`"`, `Weir-Secret = ""`, `Weir-Secret = "`+crowdSecret+`"`).Replace(string(text)))
	varnish := startProcess(t, filepath.Join(dir, "varnish.log"), "/usr/sbin/varnishd", "-F", "-j", "none", "-n", filepath.Join(dir, "varnish"), "-a", s.web[0], "-f", vcl, "-s", "malloc,256m")
	s.caches = []*process{varnish}
	waitForPort(t, s.web[0])
}

// sign makes a key that permits viewers.
func (s *crowdServers) sign(t *testing.T) {
	t.Helper()
	var key struct{ PublicKey, PrivateKey string }
	post(t, http.MethodPost, "http://"+s.originWeb+"/api/access-control/signing-key", map[string]any{"name": "crowd"}, &key)
	text, err := base64.StdEncoding.DecodeString(key.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := jwt.ParseECPrivateKeyFromPEM(text)
	if err != nil {
		t.Fatal(err)
	}
	var viewers atomic.Int64
	s.permit = func() string {
		claims := jwt.MapClaims{"sub": s.id, "pub": key.PublicKey, "exp": time.Now().Add(time.Hour + time.Duration(viewers.Add(1))*time.Second).Unix()}
		signed, err := jwt.NewWithClaims(jwt.SigningMethodES256, claims).SignedString(private)
		if err != nil {
			t.Error(err)
		}
		return signed
	}
}

// crowd returns viewers who are not there yet.
func (s *crowdServers) crowd(t *testing.T, n int) *crowd {
	t.Helper()
	folder := "/hls/" + s.id + "/"
	if !s.gated {
		return newCrowd(t, s.web, n, func() (string, error) { return folder + "source/", nil })
	}
	// Those who come after each other have tokens of their own.
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	return newCrowd(t, s.web, n, func() (string, error) {
		response, err := client.Get("http://" + s.web[0] + folder + "index.m3u8?jwt=" + url.QueryEscape(s.permit()))
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return "", err
		}
		_, after, ok := strings.Cut(string(text), "\nt/")
		token, _, _ := strings.Cut(after, "/")
		if !ok {
			return "", fmt.Errorf("%s: %s", response.Status, text)
		}
		return folder + "t/" + token + "/source/", nil
	})
}

// publish begins to send, and waits for the first segment.
func (s *crowdServers) publish(t *testing.T) {
	t.Helper()
	var ctx context.Context
	ctx, s.sending = context.WithCancel(t.Context())
	began := s.publishers.publish(ctx, t, broadcast{rtmp: "rtmp://" + s.rtmp + "/live#" + s.key})
	wait.NoError(t, func() error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.originWeb+"/hls/"+s.id+"/source/index.m3u8", nil)
		if err != nil {
			return err
		}
		r.Header.Set("Weir-Cache", crowdSecret)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK || time.Since(began) < 3*time.Second {
			return fmt.Errorf("the stream is not there yet: %s", response.Status)
		}
		return nil
	})
}

// pause stops the encoder.
func (s *crowdServers) pause() {
	s.sending()
	s.publishers.group.Wait()
}

// kill ends the origin, and counts who comes there after.
func (s *crowdServers) kill(t *testing.T) {
	t.Helper()
	_ = s.origin.cmd.Process.Kill()
	_ = s.origin.cmd.Wait()
	wait.NoError(t, func() error {
		l, err := net.Listen("tcp", s.originWeb)
		if err != nil {
			return err
		}
		s.dead = &countingListener{Listener: l}
		go s.dead.run()
		return nil
	})
}

func (s *crowdServers) stop() {
	if s.sending != nil {
		s.pause()
	}
	for _, cache := range s.caches {
		cache.stop()
	}
	if s.dead != nil {
		_ = s.dead.Close()
		return
	}
	s.origin.stop()
}

// arrived returns how many requests have come to the origin, or connections since it is dead.
func (s *crowdServers) arrived(t *testing.T) float64 {
	t.Helper()
	if s.dead != nil {
		return float64(s.dead.count.Load())
	}
	return countOf(t, s.ops, "weir_http_requests_total")
}

func (s *crowdServers) originCPU(t *testing.T) float64 {
	t.Helper()
	return cpuOf(t, strconv.Itoa(s.origin.cmd.Process.Pid))
}

func (s *crowdServers) cacheCPU(t *testing.T) float64 {
	t.Helper()
	switch {
	case s.varnish:
		return cpuOfName(t, "varnishd") + cpuOfName(t, "cache-main")
	case s.edge:
		sum := 0.0
		for _, edge := range s.caches {
			sum += edge.cpuSeconds(t)
		}
		return sum
	}
	return 0
}

// countingListener closes every connection that comes, and counts them.
type countingListener struct {
	net.Listener
	count atomic.Int64
}

func (l *countingListener) run() {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		l.count.Add(1)
		_ = conn.Close()
	}
}
