package e2e

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

	"weir/internal/store/pgtest"
)

// TestFirstStart starts weir on nothing, as a newcomer does, and uses what it prints.
func TestFirstStart(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed; run: make test")
	}
	eachEngine(t, func(t *testing.T, w *weir) {
		w.key = ""
		if strings.HasPrefix(w.database, "sqlite:") { // and makes its own secret, too
			w.removeSecret()
		}
		w.start()
		greeting := w.printed()
		printed := func(pattern string) string {
			t.Helper()
			found := regexp.MustCompile(pattern).FindStringSubmatch(greeting)
			if found == nil {
				t.Fatalf("the first start does not print %q, but:\n%s", pattern, greeting)
			}
			return found[1]
		}
		if url := printed(`weir serves at (\S+)`); url != w.url {
			t.Errorf("it says that it serves at %s, want %s", url, w.url)
		}
		w.key = printed(`API key +(\S+)`)
		w.must("GET", "/api/stream", nil, nil)
		var did struct{ DID string }
		w.must("GET", "/api/did", nil, &did)
		if got := printed(`DID +(did:key:\S+)`); got != did.DID {
			t.Errorf("it prints the DID %s, the API has %s", got, did.DID)
		}
		if status, page := w.page(strings.TrimPrefix(printed(`set password +(\S+)`), w.url)); status != http.StatusOK || !strings.Contains(page, "<form") {
			t.Errorf("the set-password link answers %d %s", status, page)
		}
		if status, page := w.page(strings.TrimPrefix(printed(`account page +(\S+)`), w.url)); status != http.StatusOK {
			t.Errorf("the account page answers %d %s", status, page)
		}
		curl := exec.CommandContext(t.Context(), "sh", "-c", printed(`(curl .*)\n`))
		answer, err := curl.Output()
		if err != nil || string(answer) != "[]" {
			t.Errorf("%s: %v, %q, want an empty list", curl.Args[2], err, answer)
		}

		w.stop()
		w.output.Reset()
		key := w.key
		w.key = ""
		w.start()
		greeting = w.printed()
		w.key = key
		w.must("GET", "/api/stream", nil, nil)
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
	eachEngine(t, func(t *testing.T, w *weir) {
		w.start()
		if said := w.refuse(); !strings.Contains(said, "another weir serves from "+w.data) {
			t.Errorf("a second weir on the same folder says:\n%s", said)
		}
		w.must("GET", "/api/stream", nil, nil) // the first one did not notice
	})
}

func TestWrongMasterSecret(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *weir) {
		w.start()
		var did struct{ DID string }
		w.must("GET", "/api/did", nil, &did)
		w.stop()
		w.removeSecret()
		right := w.secret
		w.secret = []byte("another secret of 32 bytes size!")
		w.writeSecret()
		said := w.refuse()
		if !strings.Contains(said, "belongs to another master secret") || !strings.Contains(said, "--secret-file") {
			t.Errorf("with the wrong secret weir says:\n%s", said)
		}
		if strings.Contains(said, fmt.Sprintf("%x", w.secret)) {
			t.Errorf("it tells the secret:\n%s", said)
		}
		w.removeSecret()
		w.secret = right
		w.writeSecret()
		w.start()
		var again struct{ DID string }
		if w.must("GET", "/api/did", nil, &again); again != did {
			t.Errorf("the DID is %s, and was %s before", again.DID, did.DID)
		}
	})
}

func TestPostgreSQLNeedsSecret(t *testing.T) {
	w := newWeir(t)
	w.database = pgtest.Start(t)
	w.removeSecret()
	said := w.refuse()
	if !strings.Contains(said, "--secret-file") || !strings.Contains(said, "openssl rand -hex 32") {
		t.Errorf("without a secret weir says:\n%s", said)
	}
	if _, err := os.Stat(filepath.Join(w.data, "secret")); err == nil {
		t.Error("weir made a secret for PostgreSQL, which other machines would not have")
	}
}

// TestDrain holds a request open over SIGTERM.
func TestDrain(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *weir) {
		w.start()
		slow := w.beginRequest()
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
		w.untilDraining()
		select {
		case <-w.exited:
			t.Fatalf("weir ended before its last request did:\n%s", w.output)
		default:
		}
		if status, body := slow.finish(); status != http.StatusCreated {
			t.Errorf("the request that was in flight got %d %s, want 201", status, body)
		}
		w.wait()
	})
}

func TestSecondSignalEnds(t *testing.T) {
	w := newWeir(t)
	w.start("--drain", "10m")
	w.beginRequest()
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	w.untilDraining()
	eventually(t, func() error {
		// Again and again: the first ones may fall into the moment in which weir
		// still takes the first signal in.
		_ = w.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-w.exited:
			return nil
		default:
			return fmt.Errorf("weir goes on after a second SIGTERM:\n%s", w.output)
		}
	})
	w.cmd = nil
}

func TestHealth(t *testing.T) {
	eachEngine(t, func(t *testing.T, w *weir) {
		w.start()
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body := w.page(path); status != http.StatusOK || body != `{"ok":true}` {
				t.Errorf("GET %s: %d %s", path, status, body)
			}
		}
	})
}

// TestNotReadyWithoutDatabase takes the database away and gives it back.
func TestNotReadyWithoutDatabase(t *testing.T) {
	w := newWeir(t)
	w.database = pgtest.Start(t)
	w.start()
	cfg, err := pgx.ParseConfig(w.database)
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
		eventually(t, func() error {
			if status, body := w.page("/readyz"); status != want {
				return fmt.Errorf("GET /readyz: %d %s, want %d", status, body, want)
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
	if status, _ := w.page("/healthz"); status != http.StatusOK {
		t.Errorf("GET /healthz: %d without a database, want 200: the process serves", status)
	}
	if _, err := operator.Exec(t.Context(), "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true"); err != nil {
		t.Fatal(err)
	}
	ready(http.StatusOK)
	w.must("POST", "/api/stream", map[string]any{"name": "afterwards"}, nil)
	w.stop()
}

// TestAccessLog finds each request in the log, once, by the id in its answer.
func TestAccessLog(t *testing.T) {
	w := newWeir(t)
	w.start("--trusted-proxies", "127.0.0.1") // whose X-Request-Id counts
	var stream struct{ ID, StreamKey string }
	w.must("POST", "/api/stream", map[string]any{"name": "logged"}, &stream)
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
		{"GET", "/api/stream/" + w.key, "", want{"GET /api/stream/{id}", 404}},
		{"GET", "/api/stream?token=" + w.key, given, want{"GET /api/stream", 200}},
		{"GET", "/api/" + w.key, "no id at all: " + w.key, want{"unknown", 404}},
	} {
		header := http.Header{"Authorization": {"Bearer " + w.key}}
		if request.id != "" {
			header.Set("X-Request-Id", request.id)
		}
		answer, body := w.send(request.method, request.path, header, nil)
		if answer.StatusCode != request.Status {
			t.Errorf("%s: %d %s", request.Route, answer.StatusCode, body)
		}
		id := answer.Header.Get("X-Request-Id")
		if id == "" || strings.Contains(id, w.key) || request.id == given && id != given {
			t.Errorf("%s: request id %q", request.Route, id)
		}
		wants[id] = request.want
	}
	if len(wants) != 5 {
		t.Errorf("%d request ids for 5 requests", len(wants))
	}
	w.stop()

	log := w.log.String()
	for _, secret := range []string{w.key, stream.StreamKey} {
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
	w := newWeir(t)
	ops := freeAddr(t)
	w.start("--ops", ops)
	var stream struct{ ID string }
	w.must("POST", "/api/stream", map[string]any{"name": "counted"}, &stream)
	w.must("GET", "/api/stream/"+stream.ID, nil, nil)
	public := w.url
	w.url = "http://" + ops
	status, metrics := w.page("/metrics")
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
	if status, body := w.page("/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("GET /debug/pprof/goroutine: %d %s", status, body)
	}
	if status, body := w.page("/debug/pprof/cmdline"); strings.Contains(body, "serve") {
		t.Errorf("GET /debug/pprof/cmdline: %d %s, want no command line", status, body)
	}
	w.url = public
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		if status, body := w.page(path); status != http.StatusNotFound {
			t.Errorf("GET %s in public: %d %s", path, status, body)
		}
	}
	w.stop()
}

// printed waits for the greeting and returns it.
func (w *weir) printed() string {
	w.t.Helper()
	eventually(w.t, func() error {
		if text := w.output.String(); !strings.Contains(text, "Try it:") && !strings.Contains(text, "A new API key:") {
			return fmt.Errorf("weir does not greet:\n%s", text)
		}
		return nil
	})
	return w.output.String()
}

func (w *weir) removeSecret() {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.data, "secret")); err != nil {
		w.t.Fatal(err)
	}
}

func (w *weir) writeSecret() {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.data, "secret"), fmt.Appendf(nil, "%x\n", w.secret), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// page gets a page without a credential.
func (w *weir) page(path string) (int, string) {
	w.t.Helper()
	answer, body := w.send("GET", path, nil, nil)
	return answer.StatusCode, string(body)
}

// send sends a request as it is given.
func (w *weir) send(method, path string, header http.Header, body io.Reader) (*http.Response, []byte) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer, text
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
func (w *weir) beginRequest() *slowRequest {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	const first, rest = `{"name":`, `"slow"}`
	_, err = fmt.Fprintf(conn, "POST /api/stream HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		w.key, len(first+rest))
	if err != nil {
		w.t.Fatal(err)
	}
	r := &slowRequest{t: w.t, conn: conn, read: bufio.NewReader(conn), rest: rest}
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := r.read.ReadString('\n'); err != nil || line != want {
			w.t.Fatalf("weir answers %q, %v, want it to ask for the body", line, err)
		}
	}
	if _, err := io.WriteString(conn, first); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// finish sends the second half and returns the answer.
func (r *slowRequest) finish() (int, string) {
	r.t.Helper()
	_ = r.conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(r.conn, r.rest); err != nil {
		r.t.Fatal(err)
	}
	answer, err := http.ReadResponse(r.read, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// untilDraining waits until weir says that it takes no more requests.
func (w *weir) untilDraining() {
	w.t.Helper()
	eventually(w.t, func() error {
		answer, err := http.Get(w.url + "/readyz")
		if err != nil {
			return fmt.Errorf("while a request is in flight, /readyz must say that weir drains: %w", err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusServiceUnavailable {
			return errors.New("weir drains, but /readyz answers " + answer.Status)
		}
		return nil
	})
}
