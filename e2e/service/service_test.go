package service

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"weir/e2e/harness"
	"weir/internal/store/pgtest"
	"weir/internal/wait"
)

// TestFirstStart starts weir on nothing, as a newcomer does, and uses what it prints.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed; run: make test")
	}
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Key = ""
		if strings.HasPrefix(w.Database, "sqlite:") { // and makes its own secret, too
			removeSecret(w)
		}
		w.Start()
		greeting := wholeGreeting(w)
		printed := func(pattern string) string {
			t.Helper()
			found := regexp.MustCompile(pattern).FindStringSubmatch(greeting)
			if found == nil {
				t.Fatalf("the first start does not print %q, but:\n%s", pattern, greeting)
			}
			return found[1]
		}
		if url := printed(`weir serves at (\S+)`); url != w.URL {
			t.Errorf("it says that it serves at %s, want %s", url, w.URL)
		}
		w.Key = printed(`API key +(\S+)`)
		w.Must("GET", "/api/stream", nil, nil)
		var did struct{ DID string }
		w.Must("GET", "/api/did", nil, &did)
		if got := printed(`DID +(did:key:\S+)`); got != did.DID {
			t.Errorf("it prints the DID %s, the API has %s", got, did.DID)
		}
		if status, page := page(w, strings.TrimPrefix(printed(`set password +(\S+)`), w.URL)); status != http.StatusOK || !strings.Contains(page, "<form") {
			t.Errorf("the set-password link answers %d %s", status, page)
		}
		if status, page := page(w, strings.TrimPrefix(printed(`console +(\S+)`), w.URL)); status != http.StatusOK {
			t.Errorf("the console answers %d %s", status, page)
		}
		curl := exec.CommandContext(t.Context(), "sh", "-c", printed(`(curl .*)\n`))
		response, err := curl.Output()
		if err != nil || string(response) != "[]" {
			t.Errorf("%s: %v, %q, want an empty list", curl.Args[2], err, response)
		}

		w.Stop()
		w.Output.Reset()
		key := w.Key
		w.Key = ""
		w.Start()
		greeting = wholeGreeting(w)
		w.Key = key
		w.Must("GET", "/api/stream", nil, nil)
		if got := printed(`DID +(did:key:\S+)`); got != did.DID {
			t.Errorf("the second start has the DID %s, want %s", got, did.DID)
		}
		for _, once := range []string{key, "set-password", "API key "} {
			if strings.Contains(greeting, once) {
				t.Errorf("the second start prints %q again:\n%s", once, greeting)
			}
		}
	})
}

func TestOneServiceAFolder(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Start()
		if said := w.Refuse(); !strings.Contains(said, "another weir serves from "+w.Data) {
			t.Errorf("a second weir on the same folder says:\n%s", said)
		}
		w.Must("GET", "/api/stream", nil, nil) // the first one did not notice
	})
}

func TestWrongMasterSecret(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Start()
		var did struct{ DID string }
		w.Must("GET", "/api/did", nil, &did)
		w.Stop()
		removeSecret(w)
		right := w.Secret
		w.Secret = []byte("another secret of 32 bytes size!")
		writeSecret(w)
		said := w.Refuse()
		if !strings.Contains(said, "belongs to another master secret") || !strings.Contains(said, "--secret-file") {
			t.Errorf("with the wrong secret weir says:\n%s", said)
		}
		if strings.Contains(said, fmt.Sprintf("%x", w.Secret)) {
			t.Errorf("it tells the secret:\n%s", said)
		}
		removeSecret(w)
		w.Secret = right
		writeSecret(w)
		w.Start()
		var again struct{ DID string }
		if w.Must("GET", "/api/did", nil, &again); again != did {
			t.Errorf("the DID is %s, and was %s before", again.DID, did.DID)
		}
	})
}

func TestPostgreSQLNeedsSecret(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Database = pgtest.Start(t)
	removeSecret(w)
	said := w.Refuse()
	if !strings.Contains(said, "--secret-file") || !strings.Contains(said, "openssl rand -hex 32") {
		t.Errorf("without a secret weir says:\n%s", said)
	}
	if _, err := os.Stat(filepath.Join(w.Data, "secret")); err == nil {
		t.Error("weir made a secret for PostgreSQL, which other machines would not have")
	}
}

// TestDrain holds a request open over SIGTERM.
func TestDrain(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Start("--drain", "10m")
		slow := beginRequest(w)
		_ = w.Cmd.Process.Signal(syscall.SIGTERM)
		untilDraining(w)
		select {
		case <-w.Exited:
			t.Fatalf("weir ended before its last request did:\n%s", w.Output)
		default:
		}
		if status, body := slow.finish(); status != http.StatusCreated {
			t.Errorf("the request that was in flight got %d %s, want 201", status, body)
		}
		w.Wait()
	})
}

func TestSecondSignalEnds(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start("--drain", "10m")
	beginRequest(w)
	_ = w.Cmd.Process.Signal(syscall.SIGTERM)
	untilDraining(w)
	harness.Eventually(t, func() error {
		// Again and again: the first ones may fall into the moment in which weir
		// still takes the first signal in.
		_ = w.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-w.Exited:
			return nil
		default:
			return fmt.Errorf("weir goes on after a second SIGTERM:\n%s", w.Output)
		}
	})
	w.Cmd = nil
}

func TestHealth(t *testing.T) {
	t.Parallel()
	harness.EachEngine(t, func(t *testing.T, w *harness.Weir) {
		w.Start()
		for _, path := range []string{"/healthz", "/readyz", "/readyz?for=viewers", "/readyz?for=encoders", "/readyz?for=api"} {
			if status, body := page(w, path); status != http.StatusOK || body != `{"ok":true}` {
				t.Errorf("GET %s: %d %s", path, status, body)
			}
		}
	})
}

// TestNotReadyWithoutDatabase takes the database away and gives it back.
func TestNotReadyWithoutDatabase(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Database = pgtest.Start(t)
	w.Start()
	cfg, err := pgx.ParseConfig(w.Database)
	if err != nil {
		t.Fatal(err)
	}
	name := cfg.Database
	cfg.Database = "postgres"
	operator, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close(t.Context())
	ready := func(want int) {
		t.Helper()
		harness.Eventually(t, func() error {
			if status, body := page(w, "/readyz?for=api"); status != want {
				return fmt.Errorf("GET /readyz?for=api: %d %s, want %d", status, body, want)
			}
			return nil
		})
	}
	for _, statement := range []string{
		"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'",
	} {
		if _, err := operator.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	ready(http.StatusServiceUnavailable)
	for _, path := range []string{"/healthz", "/readyz", "/readyz?for=viewers", "/readyz?for=encoders"} {
		if status, body := page(w, path); status != http.StatusOK {
			t.Errorf("GET %s: %d %s without a database, want 200", path, status, body)
		}
	}
	if _, err := operator.Exec(t.Context(), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true"); err != nil {
		t.Fatal(err)
	}
	ready(http.StatusOK)
	w.Must("POST", "/api/stream", map[string]any{"name": "afterwards"}, nil)
	w.Stop()
}

// TestAccessLog finds each request in the log, once, by the id in its response.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start("--trusted-proxies", "127.0.0.1") // whose X-Request-Id counts
	var stream struct{ ID, StreamKey string }
	w.Must("POST", "/api/stream", map[string]any{"name": "logged"}, &stream)
	const given = "proxy-id_0123456789"
	type want struct {
		Route  string
		Status int
	}
	wants := map[string]want{}
	for _, request := range []struct {
		method, path, id string
		want
	}{
		{"GET", "/api/stream/" + stream.ID, "", want{"GET /api/stream/{id}", 200}},
		{"GET", "/api/stream/key/" + stream.StreamKey, "", want{"GET /api/stream/key/{streamKey}", 200}},
		{"GET", "/api/stream/" + w.Key, "", want{"GET /api/stream/{id}", 404}},
		{"GET", "/api/stream?token=" + w.Key, given, want{"GET /api/stream", 200}},
		{"GET", "/api/" + w.Key, "no id at all: " + w.Key, want{"unknown", 404}},
	} {
		header := http.Header{"Authorization": {"Bearer " + w.Key}}
		if request.id != "" {
			header.Set("X-Request-Id", request.id)
		}
		response, body := send(w, request.method, request.path, header, nil)
		if response.StatusCode != request.Status {
			t.Errorf("%s: %d %s", request.Route, response.StatusCode, body)
		}
		id := response.Header.Get("X-Request-Id")
		if id == "" || strings.Contains(id, w.Key) || request.id == given && id != given {
			t.Errorf("%s: request id %q", request.Route, id)
		}
		wants[id] = request.want
	}
	if len(wants) != 5 {
		t.Errorf("%d request ids for 5 requests", len(wants))
	}
	w.Stop()

	log := w.Log.String()
	for _, secret := range []string{w.Key, stream.StreamKey} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q:\n%s", secret, log)
		}
	}
	for line := range strings.Lines(log) {
		var entry struct {
			Time    time.Time
			Level   string
			Msg     string
			Route   string
			Status  int
			Request string
			User    string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time.IsZero() || entry.Level == "" {
			t.Errorf("not a log line in JSON (%v): %s", err, line)
		}
		if want, ok := wants[entry.Request]; ok && entry.Msg == "request" {
			if entry.Route != want.Route || entry.Status != want.Status || entry.User == "" {
				t.Errorf("log line %s, want %+v and a user", line, want)
			}
			delete(wants, entry.Request)
		}
	}
	if len(wants) > 0 {
		t.Errorf("requests that are not in the log: %v\n%s", wants, log)
	}
}

func TestOps(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	ops := harness.FreeAddr(t)
	w.Start("--ops", ops)
	var stream struct{ ID string }
	w.Must("POST", "/api/stream", map[string]any{"name": "counted"}, &stream)
	w.Must("GET", "/api/stream/"+stream.ID, nil, nil)
	public := w.URL
	w.URL = "http://" + ops
	status, metrics := page(w, "/metrics")
	for _, want := range []string{
		"weir_build_info{", "go_goroutines ", "weir_webhook_deliveries_pending 0\n",
		`weir_http_requests_total{route="GET /api/stream/{id}",status="200"} 1` + "\n",
		`weir_http_requests_total{route="POST /api/stream",status="201"} 1` + "\n",
		`weir_http_request_duration_seconds_count{route="GET /api/stream/{id}"} 1` + "\n",
	} {
		if status != http.StatusOK || !strings.Contains(metrics, want) {
			t.Errorf("GET /metrics: %d, without %q:\n%s", status, want, metrics)
		}
	}
	if strings.Contains(metrics, stream.ID) {
		t.Error("the metrics have a series per stream")
	}
	if status, body := page(w, "/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("GET /debug/pprof/goroutine: %d %s", status, body)
	}
	if status, body := page(w, "/debug/pprof/cmdline"); strings.Contains(body, "serve") {
		t.Errorf("GET /debug/pprof/cmdline: %d %s, want no command line", status, body)
	}
	w.URL = public
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		if status, body := page(w, path); status != http.StatusNotFound {
			t.Errorf("GET %s in public: %d %s", path, status, body)
		}
	}
	w.Stop()
}

// wholeGreeting waits for the greeting and returns it.
func wholeGreeting(w *harness.Weir) string {
	w.T.Helper()
	harness.Eventually(w.T, func() error {
		if text := w.Output.String(); !strings.Contains(text, "Try it:") && !strings.Contains(text, "A new API key:") {
			return fmt.Errorf("weir does not greet:\n%s", text)
		}
		return nil
	})
	return w.Output.String()
}

func removeSecret(w *harness.Weir) {
	w.T.Helper()
	if err := os.Remove(filepath.Join(w.Data, "secret")); err != nil {
		w.T.Fatal(err)
	}
}

func writeSecret(w *harness.Weir) {
	w.T.Helper()
	if err := os.WriteFile(filepath.Join(w.Data, "secret"), fmt.Appendf(nil, "%x\n", w.Secret), 0o600); err != nil {
		w.T.Fatal(err)
	}
}

// page gets a page without a credential.
func page(w *harness.Weir, path string) (int, string) {
	w.T.Helper()
	response, body := send(w, "GET", path, nil, nil)
	return response.StatusCode, string(body)
}

// send sends a request as it is given.
func send(w *harness.Weir, method, path string, header http.Header, body io.Reader) (*http.Response, []byte) {
	w.T.Helper()
	r, err := http.NewRequestWithContext(w.T.Context(), method, w.URL+path, body)
	if err != nil {
		w.T.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	return response, text
}

// slowRequest is a request of which the handler has begun to read the body.
type slowRequest struct {
	t    *testing.T
	conn net.Conn
	read *bufio.Reader
	rest string
}

// beginRequest sends the first half of a request. It returns when weir has begun
// to answer: it asks for the body, which the client holds back until then.
func beginRequest(w *harness.Weir) *slowRequest {
	w.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = conn.Close() })
	const first, rest = `{"name":`, `"slow"}`
	_, err = fmt.Fprintf(conn, "POST /api/stream HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		w.Key, len(first+rest))
	if err != nil {
		w.T.Fatal(err)
	}
	r := &slowRequest{t: w.T, conn: conn, read: bufio.NewReader(conn), rest: rest}
	_ = conn.SetReadDeadline(time.Now().Add(wait.Limit))
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := r.read.ReadString('\n'); err != nil || line != want {
			w.T.Fatalf("weir answers %q, %v, want it to ask for the body", line, err)
		}
	}
	if _, err := io.WriteString(conn, first); err != nil {
		w.T.Fatal(err)
	}
	return r
}

// finish sends the second half and returns the response.
func (r *slowRequest) finish() (int, string) {
	r.t.Helper()
	_ = r.conn.SetDeadline(time.Now().Add(wait.Limit))
	if _, err := io.WriteString(r.conn, r.rest); err != nil {
		r.t.Fatal(err)
	}
	response, err := http.ReadResponse(r.read, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// untilDraining waits until weir says that it takes no more requests.
func untilDraining(w *harness.Weir) {
	w.T.Helper()
	harness.Eventually(w.T, func() error {
		response, err := http.Get(w.URL + "/readyz")
		if err != nil {
			return fmt.Errorf("while a request is in flight, /readyz must say that weir drains: %w", err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable {
			return errors.New("weir drains, but /readyz answers " + response.Status)
		}
		return nil
	})
}
