package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/blob/s3test"
	"weir/internal/store"
	"weir/internal/store/pgtest"
)

var binary string // the built weir, made once by TestMain

func TestMain(m *testing.M) { os.Exit(pgtest.Main(s3test.Runner{M: build{m}})) }

// build builds weir before the tests run.
type build struct{ m *testing.M }

func (b build) Run() int {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "weir")
	// The race detector watches the service too, not only the test: a race ends the
	// process. At the end of each it would wait a second for more of them.
	if err := os.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=20"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command("go", "build", "-race", "-buildvcs=false", "-o", binary, "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build weir: %v\n%s", err, out)
		return 1
	}
	return b.m.Run()
}

// shipped builds weir as it is shipped, for tests that measure: the race detector
// costs several times the memory and the time.
func shipped(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-o", path, "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	return path
}

// eachEngine runs a test on both databases; the URL is that of a fresh one.
func eachEngine(t *testing.T, test func(t *testing.T, w *weir)) {
	t.Helper()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			w := newWeir(t)
			if engine == "postgres" {
				w.database = pgtest.Start(t)
			}
			test(t, w)
		})
	}
}

// weir is a data folder, a database, and the process that serves them.
type weir struct {
	t        *testing.T
	binary   string // "" = the one that TestMain built
	data     string
	database string
	key      string // of the first account
	url      string
	secret   []byte
	env      []string      // of the process, beside that of the test
	networks string        // that callers' URLs may reach; "" = all of this machine
	output   *lockedBuffer // what the process printed
	greeting *lockedBuffer // of it, what went to standard output
	log      *lockedBuffer // and to standard error
	cmd      *exec.Cmd
	exited   chan struct{}
}

// newWeir prepares a weir on SQLite that has not been started yet.
func newWeir(t *testing.T) *weir {
	t.Helper()
	data := t.TempDir()
	w := &weir{
		t: t, data: data, database: "sqlite:" + filepath.Join(data, "weir.db"), key: "e2e-key-0123456789abcdef0123456789abcdef",
		secret: bytes.Repeat([]byte{3}, 32), output: &lockedBuffer{}, greeting: &lockedBuffer{}, log: &lockedBuffer{},
	}
	if err := os.WriteFile(filepath.Join(data, "secret"), fmt.Appendf(nil, "%x\n", w.secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// start runs `weir serve` and waits until it is ready.
func (w *weir) start(args ...string) {
	w.t.Helper()
	addr := freeAddr(w.t)
	w.url = "http://" + addr
	w.cmd = w.serve(addr, args...)
	w.cmd.Stdout, w.cmd.Stderr = io.MultiWriter(w.output, w.greeting), io.MultiWriter(w.output, w.log)
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	exited := make(chan struct{})
	w.exited = exited
	cmd := w.cmd
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	w.t.Cleanup(func() { w.kill() })
	deadline := time.Now().Add(time.Minute)
	for {
		if answer, err := http.Get(w.url + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-exited:
			w.t.Fatalf("weir ended at once:\n%s", w.output)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("weir is not ready:\n%s", w.output)
		}
	}
}

// serve is the `weir serve` that start runs.
func (w *weir) serve(addr string, args ...string) *exec.Cmd {
	cmd := exec.Command(cmp.Or(w.binary, binary), append([]string{
		"serve", "--data", w.data, "--http", addr, "--rtmp", "", "--srt", "", "--webrtc", "", "--ops", "", "--allow-networks", cmp.Or(w.networks, "127.0.0.0/8"), "--rate-limit", "0",
	}, args...)...)
	cmd.Env = append(os.Environ(), "WEIR_DATABASE="+w.database, "WEIR_API_KEY="+w.key)
	cmd.Env = append(cmd.Env, w.env...)
	return cmd
}

// refuse runs a `weir serve` that must not start, and returns what it printed.
func (w *weir) refuse(args ...string) string {
	w.t.Helper()
	cmd := w.serve(freeAddr(w.t), args...)
	output := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	deadline := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer deadline.Stop()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		w.t.Fatalf("weir ended with %d, want a refusal (1):\n%s", code, output)
	}
	return output.String()
}

// kill ends the process at once, as a power cut does.
func (w *weir) kill() {
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
		<-w.exited
		w.cmd = nil
	}
}

// stop ends the process with SIGTERM, waits for it and checks how it ended.
func (w *weir) stop() {
	w.t.Helper()
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	w.wait()
}

// wait waits until a process that was told to end has ended, and checks how.
func (w *weir) wait() {
	w.t.Helper()
	select {
	case <-w.exited:
	case <-time.After(time.Minute):
		w.t.Fatalf("weir does not end:\n%s", w.output)
	}
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		w.t.Errorf("weir ended with %d:\n%s", code, w.output)
	}
	w.cmd = nil
}

// command runs a weir command on the same data and returns what it printed.
func (w *weir) command(args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), binary, append(args, "--data", w.data)...)
	cmd.Env = append(os.Environ(), "WEIR_DATABASE="+w.database)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// openStore opens the database that weir uses, beside it or before it starts.
func (w *weir) openStore() *store.Store {
	w.t.Helper()
	st, err := store.Open(w.t.Context(), w.database, store.Options{Secret: w.secret})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(st.Close)
	return st
}

// do sends a request with the first account's key and returns status and body.
func (w *weir) do(method, path string, body any) (int, []byte) {
	w.t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, text
}

// must is do for requests that have to succeed; the answer is read into v.
func (w *weir) must(method, path string, body, v any) {
	w.t.Helper()
	status, text := w.do(method, path, body)
	if status >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if v != nil {
		if err := json.Unmarshal(text, v); err != nil {
			w.t.Fatal(err)
		}
	}
}

// patience is how long something may take that a test only waits for: a busy machine is no
// failure.
const patience = 2 * time.Minute

// eventually calls check until it returns nil, and fails with what it returned last.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	within(t, patience, check)
}

// within is eventually with another limit.
func within(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// freeAddr returns an address that is free over TCP and UDP. Its port is below those that
// the kernel gives to connections: one of them could have it while weir is restarted.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(12_000)))
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", addr)
		_ = tcp.Close()
		if err == nil {
			_ = udp.Close()
			return addr
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// lockedBuffer collects output of a process while a test reads it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Reset forgets what was collected.
func (b *lockedBuffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}
