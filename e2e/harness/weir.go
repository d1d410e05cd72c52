package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/blob/s3test"
	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/wait"
)

var (
	// Binary is the built weir: the one that WEIR_TEST_BINARY or WEIR_PLAIN_BINARY names, or one
	// that Main or MainPlain builds.
	Binary string
	clips  string // the folder of the media that MakeClip has made
)

// Main is the TestMain of a package: it runs the tests with what they need and returns the exit
// code.
func Main(m *testing.M) int {
	return pgtest.Main(s3test.Runner{M: build{m, "WEIR_TEST_BINARY", buildRace}})
}

// MainPlain is Main with a weir without the race detector, for packages that show
// what pages, examples and files are like: races are found by those that show what it does at the
// same time, and the detector takes half of the CPU.
func MainPlain(m *testing.M) int {
	return pgtest.Main(s3test.Runner{M: build{m, "WEIR_PLAIN_BINARY", buildShipped}})
}

// build builds weir before the tests run, unless a variable of the environment names one.
type build struct {
	m     *testing.M
	name  string
	build func(path string) *exec.Cmd
}

func buildRace(path string) *exec.Cmd {
	return exec.Command("go", "build", "-race", "-buildvcs=false", "-o", path, "weir")
}

func buildShipped(path string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", path, "weir")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

func (b build) Run() int {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	clips = filepath.Join(dir, "clips")
	// The race detector watches the service too, not only the test: a race ends the
	// process. At the end of each it would wait a second for more of them.
	if err := os.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=20"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if Binary = os.Getenv(b.name); Binary == "" {
		Binary = filepath.Join(dir, "weir")
		if out, err := b.build(Binary).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build weir: %v\n%s", err, out)
			return 1
		}
	}
	return b.m.Run()
}

// Shipped returns weir as it is shipped, for tests that measure: the race detector costs several
// times the memory and the time. It is the one that WEIR_PLAIN_BINARY names, or built here.
func Shipped(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("WEIR_PLAIN_BINARY"); named != "" {
		return named
	}
	path := filepath.Join(t.TempDir(), "weir")
	if out, err := buildShipped(path).CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	return path
}

// EachEngine runs a test on both databases, in parallel; the URL is that of a fresh one. Tests do
// not run beside others: more than two services at once are late with everything.
func EachEngine(t *testing.T, test func(t *testing.T, w *Weir)) {
	t.Helper()
	for _, engine := range Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, NewWeirOn(t, engine))
		})
	}
}

// Engines are the databases that weir runs on.
func Engines() []string { return []string{"sqlite", "postgres"} }

// NewWeirOn prepares a weir on a fresh database.
func NewWeirOn(t *testing.T, engine string) *Weir {
	t.Helper()
	w := NewWeir(t)
	if engine == "postgres" {
		w.Database = pgtest.Start(t)
	}
	return w
}

// Weir is a data folder, a database, and the process that serves them.
type Weir struct {
	T        *testing.T
	Binary   string // "" = the one that TestMain built
	Data     string
	Database string
	Key      string // of the first account
	URL      string
	Secret   []byte
	Env      []string      // of the process, beside that of the test
	Trust    *tls.Config   // what clients trust, of a weir that is started with a certificate; nil = it serves HTTP
	Networks string        // that callers' URLs may reach; "" = all of this machine
	Output   *LockedBuffer // what the process printed
	Greeting *LockedBuffer // of it, what went to standard output
	Log      *LockedBuffer // and to standard error
	Cmd      *exec.Cmd
	Exited   chan struct{}
}

// NewWeir prepares a weir on SQLite that has not been started yet.
func NewWeir(t *testing.T) *Weir {
	t.Helper()
	data := t.TempDir()
	w := &Weir{
		T: t, Data: data, Database: "sqlite:" + filepath.Join(data, "weir.db"), Key: "e2e-key-0123456789abcdef0123456789abcdef",
		Secret: bytes.Repeat([]byte{3}, 32), Output: &LockedBuffer{}, Greeting: &LockedBuffer{}, Log: &LockedBuffer{},
	}
	if err := os.WriteFile(filepath.Join(data, "secret"), fmt.Appendf(nil, "%x\n", w.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("weir's log ends with\n%s", Tail(w.Log.String()))
		}
	})
	return w
}

// Start runs `weir serve` and waits until it is ready.
func (w *Weir) Start(args ...string) {
	w.T.Helper()
	addr := FreeAddr(w.T)
	w.URL = "http://" + addr
	if w.Trust != nil {
		w.URL = "https://" + addr
	}
	w.Cmd = w.serve(addr, args...)
	w.Cmd.Stdout, w.Cmd.Stderr = io.MultiWriter(w.Output, w.Greeting), io.MultiWriter(w.Output, w.Log)
	if err := w.Cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	exited := make(chan struct{})
	w.Exited = exited
	cmd := w.Cmd
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	w.T.Cleanup(func() { w.Kill() })
	Eventually(w.T, func() error {
		select {
		case <-exited:
			w.T.Fatalf("weir ended at once:\n%s", w.Output)
		default:
		}
		response, err := w.client().Get(w.URL + "/readyz")
		if err == nil {
			response.Body.Close()
		}
		if err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("weir is not ready: %v\n%s", err, w.Output)
		}
		return nil
	})
}

// client returns a client for this weir.
func (w *Weir) client() *http.Client {
	if w.Trust == nil {
		return http.DefaultClient
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: w.Trust, DisableKeepAlives: true}}
}

// serve is the `weir serve` that start runs.
func (w *Weir) serve(addr string, args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(w.Binary, Binary), append([]string{
		"serve", "--data", w.Data, "--http", addr, "--rtmp", "", "--srt", "", "--webrtc", "", "--ops", "", "--allow-networks", cmp.Or(w.Networks, "127.0.0.0/8"), "--rate-limit", "0", "--account-rate-limit", "0",
	}, args...)...)
	cmd.Env = append(os.Environ(), "WEIR_DATABASE="+w.Database, "WEIR_API_KEY="+w.Key)
	cmd.Env = append(cmd.Env, w.Env...)
	return cmd
}

// Refuse runs a `weir serve` that must not start, and returns what it printed.
func (w *Weir) Refuse(args ...string) string {
	w.T.Helper()
	cmd := w.serve(FreeAddr(w.T), args...)
	output := &LockedBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	guard := time.AfterFunc(wait.Limit, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		w.T.Fatalf("weir ended with %d, want a refusal (1):\n%s", code, output)
	}
	return output.String()
}

// Kill ends the process at once, as a power cut does.
func (w *Weir) Kill() {
	if w.Cmd != nil {
		_ = w.Cmd.Process.Kill()
		<-w.Exited
		w.Cmd = nil
	}
}

// Dump ends the process and returns the stacks of its goroutines: where it hangs.
func (w *Weir) Dump() string {
	before := len(w.Output.String())
	_ = w.Cmd.Process.Signal(syscall.SIGQUIT)
	<-w.Exited
	w.Cmd = nil
	return w.Output.String()[before:]
}

// Stop ends the process with SIGTERM, waits for it and checks how it ended.
func (w *Weir) Stop() {
	w.T.Helper()
	_ = w.Cmd.Process.Signal(syscall.SIGTERM)
	w.Wait()
}

// Wait waits until a process that was told to end has ended, and checks how.
func (w *Weir) Wait() {
	w.T.Helper()
	Eventually(w.T, func() error {
		select {
		case <-w.Exited:
			return nil
		default:
			return fmt.Errorf("weir does not end:\n%s", w.Output)
		}
	})
	if code := w.Cmd.ProcessState.ExitCode(); code != 0 {
		w.T.Errorf("weir ended with %d:\n%s", code, w.Output)
	}
	w.Cmd = nil
}

// Command runs a weir command on the same data and returns what it printed.
func (w *Weir) Command(args ...string) (string, error) {
	w.T.Helper()
	cmd := exec.CommandContext(w.T.Context(), Binary, append(args, "--data", w.Data)...)
	cmd.Env = append(append(os.Environ(), "WEIR_DATABASE="+w.Database), w.Env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// OpenStore opens the database that weir uses, beside it or before it starts.
func (w *Weir) OpenStore() *store.Store {
	w.T.Helper()
	st, err := store.Open(w.T.Context(), w.Database, store.Options{Secret: w.Secret})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(st.Close)
	return st
}

// Do sends a request with the first account's key and returns status and body. The body of the
// request is sent as JSON, one of bytes as it is.
func (w *Weir) Do(method, path string, body any) (int, []byte) {
	w.T.Helper()
	var reader io.Reader
	if raw, ok := body.([]byte); ok {
		reader = bytes.NewReader(raw)
	} else if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			w.T.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(w.T.Context(), method, w.URL+path, reader)
	if err != nil {
		w.T.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.Key)
	response, err := w.client().Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	return response.StatusCode, text
}

// Must is do for requests that have to succeed; the response is read into v.
func (w *Weir) Must(method, path string, body, v any) {
	w.T.Helper()
	status, text := w.Do(method, path, body)
	if status >= 300 {
		w.T.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if v != nil {
		if err := json.Unmarshal(text, v); err != nil {
			w.T.Fatal(err)
		}
	}
}

// Eventually calls check until it returns nil. Its error says what is waited for and what was seen.
func Eventually(t *testing.T, check func() error) {
	t.Helper()
	wait.NoError(t, check)
}

// FreeAddr returns an address that is free over TCP and UDP, and that no other test gets until this one
// has ended. Its port is below those that the kernel gives to connections: one of them could have it
// while weir is restarted.
func FreeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(12_000))
		if addr := net.JoinHostPort("127.0.0.1", port); takePort(t, port) && isFree(addr) {
			return addr
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// takePort locks a file that stands for a port: tests run in several processes.
func takePort(t *testing.T, port string) bool {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "weir-test-ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, port), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = file.Close()
		return false
	}
	t.Cleanup(func() { _ = file.Close() })
	return true
}

func isFree(addr string) bool {
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	udp, err := net.ListenPacket("udp", addr)
	_ = tcp.Close()
	if err != nil {
		return false
	}
	_ = udp.Close()
	return true
}

// LockedBuffer collects output of a process while a test reads it.
type LockedBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Reset forgets what was collected.
func (b *LockedBuffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}

// Run runs a command that must succeed and returns what it printed.
func (w *Weir) Run(args ...string) string {
	w.T.Helper()
	out, err := w.Command(args...)
	if err != nil {
		w.T.Fatalf("weir %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Match returns the group of a pattern that must be in the text.
func Match(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("%q is not in:\n%s", pattern, text)
	}
	return found[1]
}

// Tail is the end of a long text.
func Tail(text string) string { return text[max(0, len(text)-4000):] }

// TwoNodes returns two weirs with folders of their own on one PostgreSQL; the
// first one serves.
func TwoNodes(t *testing.T) (a, b *Weir) {
	t.Helper()
	a, b = NewWeir(t), NewWeir(t)
	a.Database = pgtest.Start(t)
	b.Database = a.Database
	a.Start()
	return a, b
}

// Listener reads Server-Sent Events.
type Listener struct{ events chan Event }

// Event is a Server-Sent Event.
type Event struct{ Cursor, Name, Data string }

// Read reads the data of an event into v.
func (e Event) Read(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(e.Data), v); err != nil {
		t.Fatalf("event %s: %v: %s", e.Name, err, e.Data)
	}
}

// Next waits for the next event that is wanted, which what names.
func (l *Listener) Next(t *testing.T, what string, wanted func(Event) bool) Event {
	t.Helper()
	for {
		e := wait.Receive(t, what, l.events)
		if e == (Event{}) {
			t.Fatalf("the events broke off before this came: %s", what)
		}
		if wanted(e) {
			return e
		}
	}
}

// Listen asks a node for events, from now on or after a cursor.
func Listen(t *testing.T, w *Weir, cursor string) *Listener {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/api/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.Key)
	if cursor != "" {
		r.Header.Set("Last-Event-ID", cursor)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	l, done := &Listener{make(chan Event)}, make(chan struct{})
	go func() {
		defer close(done)
		l.read(t.Context(), response.Body)
	}()
	t.Cleanup(func() {
		_ = response.Body.Close()
		<-done
	})
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET /api/events: %d", response.StatusCode)
	}
	return l
}

// read passes events on until they or the test end.
func (l *Listener) read(ctx context.Context, body io.Reader) {
	defer close(l.events)
	var e Event
	for lines := bufio.NewScanner(body); lines.Scan(); {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			e.Cursor = value
		case "event":
			e.Name = value
		case "data":
			e.Data = value
			select {
			case l.events <- e:
				e = Event{}
			case <-ctx.Done():
				return
			}
		}
	}
}

// Children returns the processes below a process.
func Children(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	parents := map[int]int{}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		// pid (name) state ppid …; the name may have blanks and brackets in it.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	var found []int
	for pid := range parents {
		for above := parents[pid]; above > 0; above = parents[above] {
			if above == parent {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

var ErrConnected = errors.New("still connected long after the limit was over")

// HungUp waits for weir to close the connection, as it does when a limit is over.
func HungUp(conn net.Conn, limit time.Duration) error {
	_ = conn.SetReadDeadline(time.Now().Add(limit + wait.Limit))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrConnected
	}
	return nil
}

// Memory is how much of the machine's memory the process holds, in bytes.
func Memory(t *testing.T, w *Weir) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// Profile keeps a profile in the folder WEIR_E2E_PROFILES, if that is set, for
// whoever wants to know where the memory and the time go.
func Profile(t *testing.T, ops, kind, name string) {
	t.Helper()
	dir := os.Getenv("WEIR_E2E_PROFILES")
	if dir == "" {
		return
	}
	response, err := http.Get(ops + "/debug/pprof/" + kind)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+name), text, 0o600); err != nil {
		t.Error(err)
	}
}
