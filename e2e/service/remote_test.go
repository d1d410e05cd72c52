package service

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
)

// line is the network between commands and weir: it can break.
type line struct {
	*httptest.Server
	to atomic.Pointer[url.URL]
	// patch is called before a PATCH, with its number from 1 on.
	patch func(n int64, r *http.Request)

	patches atomic.Int64
	mu      sync.Mutex
	offsets []string // of PATCH requests
}

func newLine(t *testing.T, w *harness.Weir) *line {
	l := &line{patch: func(int64, *http.Request) {}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(l.to.Load()) },
		FlushInterval: -1,
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, _ error) {
			// A client that asks at once how much has arrived interrupts the request that broke.
			for r.Method == http.MethodPatch && r.Context().Err() == nil && !strings.Contains(w.Log.String(), `"PATCH `) {
				time.Sleep(5 * time.Millisecond)
			}
			panic(http.ErrAbortHandler)
		},
	}
	l.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			l.mu.Lock()
			l.offsets = append(l.offsets, r.Header.Get("Upload-Offset"))
			l.mu.Unlock()
			l.patch(l.patches.Add(1), r)
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

func (l *line) connect(t *testing.T, w *harness.Weir) {
	t.Helper()
	to, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	l.to.Store(to)
}

// brokenBody is a body that ends too early.
type brokenBody struct{ io.Reader }

func (b brokenBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (brokenBody) Close() error { return nil }

// background runs a command beside the test.
func background(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, said *harness.LockedBuffer) {
	t.Helper()
	cmd, said = exec.Command(harness.Binary, args...), &harness.LockedBuffer{}
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, said
}

// interrupt ends a command like Ctrl-C and returns its exit status.
func interrupt(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}

// TestRemoteCommands uploads a file over a line that breaks, and listens to events all the while.
func TestRemoteCommands(t *testing.T) {
	w := harness.NewWeir(t)
	w.Start()
	l := newLine(t, w)
	l.connect(t, w)
	address := strings.TrimPrefix(w.URL, "http://")
	env := []string{"WEIR_API_KEY=" + w.Key, "WEIR_SERVER=" + l.URL, "XDG_CACHE_HOME=" + t.TempDir(), "WEIR_DATA=" + t.TempDir()}
	film := harness.TinyClip(t)

	received := make(chan *http.Request, 100)
	bodies := sync.Map{} // of the requests
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies.Store(r, body)
		received <- r
		rw.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(receiver.Close)
	listen, events := background(t, env, "webhook", "listen", "--forward", receiver.URL+"/hook", "--events", "asset.created,asset.ready")
	waitFor := func(said *harness.LockedBuffer, pattern string) []string {
		t.Helper()
		var found []string
		harness.Eventually(t, func() error {
			if found = regexp.MustCompile(pattern).FindStringSubmatch(said.String()); found == nil {
				return fmt.Errorf("%q is not in:\n%s", pattern, said)
			}
			return nil
		})
		return found
	}
	secret := waitFor(events, `signed with the secret (\S+)`)[1]

	// The first request breaks in the middle, the second one hangs, and the command is interrupted.
	hangs, over := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(over) })
	defer release()
	l.patch = func(n int64, r *http.Request) {
		switch n {
		case 1:
			r.Body = brokenBody{io.LimitReader(r.Body, r.ContentLength/2)}
		case 2:
			close(hangs)
			<-over
			panic(http.ErrAbortHandler)
		}
	}
	upload, said := background(t, env, "asset", "upload", film)
	select {
	case <-hangs:
	case <-t.Context().Done():
	}
	if status := interrupt(t, upload); status != 130 || !strings.Contains(said.String(), "give the same command again to continue") {
		t.Errorf("the upload ended with %d:\n%s", status, said)
	}

	release()

	// The same command continues.
	cmd := exec.CommandContext(t.Context(), harness.Binary, "asset", "upload", film, "--wait", "--json")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("weir asset upload: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var result struct{ Event, ID, PlaybackID, WatchURL, Phase string }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil || result.Event != "result" || result.Phase != "ready" || result.WatchURL != l.URL+"/play/"+result.PlaybackID {
		t.Errorf("the result is %+v, %v:\n%s", result, err, out)
	}
	l.mu.Lock()
	offsets := l.offsets
	l.mu.Unlock()
	if len(offsets) != 3 || offsets[0] != "0" || offsets[1] == "0" || offsets[2] != offsets[1] {
		t.Errorf("requests from the offsets %v, want 0 and twice where the first one broke", offsets)
	}

	// On the machine of the service, neither a key nor an address is needed.
	list := w.Run("asset", "list")
	if n := strings.Count(list, "\n"); n != 2 || !regexp.MustCompile(`(?m)^`+result.ID+` +tiny.mp4 +ready +0:02 .* `+result.PlaybackID+` `).MatchString(list) {
		t.Errorf("the list of assets:\n%s", list)
	}

	// Events arrived, signed, and each response was printed.
	for _, name := range []string{"asset.created", "asset.ready"} {
		r := <-received
		body, _ := bodies.Load(r)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body.([]byte))
		var event struct{ Event, ID string }
		if err := json.Unmarshal(body.([]byte), &event); err != nil || event.Event != name || r.URL.Path != "/hook" {
			t.Errorf("received %s %s, %v; want %s", r.URL, body, err, name)
		}
		if got := r.Header.Get("Livepeer-Signature"); !strings.HasSuffix(got, ",v1="+hex.EncodeToString(mac.Sum(nil))) {
			t.Errorf("%s has the signature %q", name, got)
		}
		waitFor(events, `\d\d:\d\d:\d\d  `+name+` +`+event.ID+`  asset `+result.ID+` "tiny.mp4"\n +-> 418 `)
	}

	// A restart of the server loses no event.
	w.Stop()
	w.Start()
	var asset struct{ Asset struct{ ID string } }
	w.Must("POST", "/api/asset/request-upload", map[string]any{"name": "while it was away"}, &asset)
	l.connect(t, w)
	waitFor(events, `asset.created .* asset `+asset.Asset.ID+` "while it was away"`)
	if status := interrupt(t, listen); status != 0 {
		t.Errorf("weir webhook listen ended with %d:\n%s", status, events)
	}

	for _, tt := range []struct {
		args, want string
		env        []string
		status     int
	}{
		{"asset upload", film + ".none: can't be read", env, 2},
		{"asset upload --server " + l.URL, "--server: needs an API key", nil, 2},
		{"asset upload --server ftp://x", "--server: must be the URL of a weir", env, 2},
		{"asset upload --http " + address, "there is no database at", []string{"WEIR_DATA=" + t.TempDir()}, 1},
		{"asset upload", "the server answers: API key not valid", append(env, "WEIR_API_KEY=wrong"), 2},
		{"asset upload --server http://127.0.0.1:1", "no weir answers at http://127.0.0.1:1", env, 1},
		{"webhook listen --events asset.raedy", `there is no event "asset.raedy"`, env, 2},
		{"webhook listen --forward localhost:3000", "--forward: must be a URL", env, 2},
	} {
		args := strings.Fields(tt.args)
		if args[0] == "asset" {
			file := film
			if tt.want == film+".none: can't be read" {
				file += ".none"
			}
			args = append(args, file)
		}
		cmd := exec.CommandContext(t.Context(), harness.Binary, args...)
		cmd.Env = append(os.Environ(), tt.env...)
		out, _ := cmd.CombinedOutput()
		if status := cmd.ProcessState.ExitCode(); status != tt.status || !strings.Contains(string(out), tt.want) {
			t.Errorf("weir %s: %d, %s\nwant %d, %q", strings.Join(args, " "), status, out, tt.status, tt.want)
		}
	}
	w.Stop()
}

// TestStreamCommands makes, lists and deletes streams beside a running weir.
func TestStreamCommands(t *testing.T) {
	w := harness.NewWeirOn(t, "postgres") // the store suite has both
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	said := w.Run("stream", "create", "my show", "--record")
	for _, address := range []string{"rtmp://" + rtmp + "/live\n", w.URL + "/play/"} {
		if !strings.Contains(said, address) {
			t.Errorf("weir stream create does not say %q:\n%s", address, said)
		}
	}
	if !strings.Contains(w.Run("user", "create", "eve@example.com"), w.URL+"/") {
		t.Error("the link for eve does not lead to weir")
	}
	id, key := harness.Match(t, said, `id +(\S+)`), harness.Match(t, said, `stream key +(\S+)`)
	w.Run("stream", "create", "another")
	list := w.Run("stream", "list")
	if strings.Contains(list, key) || !regexp.MustCompile(`(?m)^`+id+` +my show +idle +\S+ +\S+ \S+ +never$`).MatchString(list) || strings.Count(list, "\n") != 3 {
		t.Errorf("the list of streams:\n%s", list)
	}
	w.Run("user", "create", "ada@example.com")
	if list := w.Run("stream", "list", "--user", "ada@example.com"); strings.Count(list, "\n") != 1 {
		t.Errorf("the list of ada's streams:\n%s", list)
	}
	if said := w.Run("stream", "delete", id); !strings.Contains(said, "deleted "+id+"  my show") {
		t.Errorf("weir stream delete says:\n%s", said)
	}
	if status, _ := w.Do("GET", "/api/stream/"+id, nil); status != http.StatusNotFound {
		t.Errorf("the deleted stream gets %d", status)
	}
	if list := w.Run("stream", "list"); strings.Contains(list, id) || !strings.Contains(list, "another") {
		t.Errorf("the list after the deletion:\n%s", list)
	}
	fails(w, "there is no stream with the id "+id, "stream", "delete", id)
	w.Stop()
}
