//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/wait"
	"weir/internal/weir"
)

// clockTick is the unit of CPU time in /proc, which Linux has fixed for programs.
const clockTick = 100

// process is a child whose CPU time and memory are read from /proc.
type process struct {
	cmd  *exec.Cmd
	once sync.Once
}

func startProcess(t *testing.T, log, name string, args ...string) *process {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.Stdout, p.cmd.Stderr = f, f
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

func (p *process) stop() {
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(os.Interrupt)
		_ = p.cmd.Wait()
	})
}

func (p *process) cpuSeconds(t *testing.T) float64 {
	t.Helper()
	return cpuOf(t, strconv.Itoa(p.cmd.Process.Pid))
}

func cpuOf(t *testing.T, pid string) float64 {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return 0 // it has ended
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	total := 0.0
	for _, field := range fields[11:15] { // of itself and of children that have ended, in user mode and in the kernel
		ticks, _ := strconv.ParseFloat(field, 64)
		total += ticks
	}
	return total / clockTick
}

// cpuOfName adds up the CPU time of all processes of a name.
func cpuOfName(t *testing.T, name string) float64 {
	t.Helper()
	total := 0.0
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, comm := range comms {
		if text, err := os.ReadFile(comm); err == nil && strings.TrimSpace(string(text)) == name {
			total += cpuOf(t, filepath.Base(filepath.Dir(comm)))
		}
	}
	return total
}

func (p *process) megabytes() float64 {
	status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	for line := range strings.SplitSeq(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	return 0
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func waitFor(t *testing.T, url string) {
	t.Helper()
	wait.NoError(t, func() error {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	})
}

func runCommand(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out)
}

// buildWeir builds the binary as it is shipped.
func buildWeir(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", path, "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// bareServer is a process of its own that answers every request with a stored body.
type bareServer struct{ url string }

func startBare(t *testing.T) *bareServer {
	t.Helper()
	if addr := os.Getenv("WEIR_BENCH_BARE"); addr != "" {
		serveBare(addr)
	}
	addr := freeAddr(t)
	t.Setenv("WEIR_BENCH_BARE", addr)
	startProcess(t, os.DevNull, os.Args[0], "-test.run", "^TestAPI$")
	os.Unsetenv("WEIR_BENCH_BARE")
	waitFor(t, "http://"+addr)
	return &bareServer{url: "http://" + addr}
}

func serveBare(addr string) {
	stream, err := weir.NewStream{Name: "stream"}.Stream(&weir.Caller{UserID: weir.NewID(), ProjectID: weir.NewID()}, time.Now())
	if err != nil {
		panic(err)
	}
	body, err := json.Marshal(stream)
	if err != nil {
		panic(err)
	}
	panic(http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})))
}

// wrkScript writes the requests of one kind for wrk.
func wrkScript(t *testing.T, kind string, ids []string) string {
	t.Helper()
	var request string
	switch kind {
	case "get":
		request = `return wrk.format("GET", "/api/stream/" .. ids[math.random(#ids)], headers)`
	case "list":
		request = `return wrk.format("GET", "/api/stream?limit=20", headers)`
	case "list by creatorId":
		request = `return wrk.format("GET", "/api/stream?limit=20&filters=%5B%7B%22id%22%3A%22creatorId%22%2C%22value%22%3A%22` + creator + `%22%7D%5D", headers)`
	case "create":
		request = `return wrk.format("POST", "/api/stream", headers, '{"name":"benchmark"}')`
	}
	path := filepath.Join(t.TempDir(), "script.lua")
	var lua strings.Builder
	fmt.Fprintf(&lua, "local ids = {")
	for _, id := range ids {
		fmt.Fprintf(&lua, "%q,", id)
	}
	fmt.Fprintf(&lua, "}\nmath.randomseed(os.time())\nlocal headers = {[\"Authorization\"] = \"Bearer %s\", [\"Content-Type\"] = \"application/json\"}\n", apiKey)
	fmt.Fprintf(&lua, "request = function()\n  %s\nend\n", request)
	if err := os.WriteFile(path, []byte(lua.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type load struct {
	requests, perSecond float64
}

// runWrk loads a server with the requests of a script, or with those for the URL itself, and
// fails on any response that is not 2xx.
func runWrk(t *testing.T, url, script string) load {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*seconds+30)*time.Second)
	defer cancel()
	args := []string{"-t1", "-c16", fmt.Sprintf("-d%ds", *seconds)}
	if script != "" {
		args = append(args, "-s", script)
	}
	out, err := exec.CommandContext(ctx, "wrk", append(args, url)...).CombinedOutput()
	if err != nil {
		t.Fatalf("wrk: %v\n%s", err, out)
	}
	var l load
	for line := range strings.SplitSeq(string(out), "\n") {
		fields := strings.Fields(line)
		switch {
		case strings.Contains(line, "Non-2xx"), strings.Contains(line, "Socket errors"):
			t.Fatalf("wrk: %s", strings.TrimSpace(line))
		case strings.HasPrefix(line, "Requests/sec:"):
			l.perSecond, _ = strconv.ParseFloat(fields[1], 64)
		case strings.Contains(line, " requests in "):
			l.requests, _ = strconv.ParseFloat(fields[0], 64)
		}
	}
	if l.requests == 0 {
		t.Fatalf("wrk made no request:\n%s", out)
	}
	return l
}
