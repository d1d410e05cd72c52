package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func get(t *testing.T, handler http.Handler, path string) (status int, body string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return recorder.Code, recorder.Body.String()
}

func TestMetrics(t *testing.T) {
	m := newMetrics(Version{Tag: "v1.2.3", Commit: "c", Go: "go"})
	m.add(
		gauge{"weir_things", "Things there are.", func() int64 { return 3 }},
		gauge{"weir_things_made_total", "Things made.", func() int64 { return 7 }},
	)
	m.observe(t.Context(), "GET /api/stream/{id}", 200, 10*time.Millisecond)
	m.observe(t.Context(), "GET /api/stream/{id}", 200, 10*time.Millisecond)
	m.observe(t.Context(), "", 404, time.Millisecond)

	status, body := get(t, opsHandler(m), "/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for _, line := range []string{
		`weir_http_requests_total{route="GET /api/stream/{id}",status="200"} 2`,
		`weir_http_requests_total{route="none",status="404"} 1`,
		`weir_http_request_duration_seconds_count{route="GET /api/stream/{id}"} 2`,
		"# TYPE weir_things gauge\nweir_things 3\n",
		"# TYPE weir_things_made_total counter\nweir_things_made_total 7\n",
		`weir_build_info{commit="c",go="go",tag="v1.2.3"} 1`,
		"go_goroutines",
		"process_resident_memory_bytes",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/metrics does not have %q", line)
		}
	}
}

func TestProfiles(t *testing.T) {
	handler := opsHandler(newMetrics(Version{}))
	if status, body := get(t, handler, "/debug/pprof/heap?debug=1"); status != http.StatusOK || !strings.Contains(body, "heap profile") {
		t.Errorf("heap: %d %.40q", status, body)
	}
	if status, _ := get(t, handler, "/debug/pprof/cmdline"); status != http.StatusNotFound {
		t.Errorf("cmdline: status %d, want 404: a command line may hold a key", status)
	}
}

func TestRunOps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	lines, logged := io.Pipe()
	done := make(chan error)
	go func() {
		done <- runOps(ctx, "127.0.0.1:0", opsHandler(newMetrics(Version{})), newBudget(t), slog.New(slog.NewJSONHandler(logged, nil)))
	}()
	var line struct{ Addr string }
	if err := json.NewDecoder(lines).Decode(&line); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + line.Addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, want 200", resp.StatusCode)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("runOps ended with %v", err)
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := runOps(t.Context(), taken.Addr().String(), nil, nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("runOps on a taken address did not fail")
	}
	if err := runOps(t.Context(), "", nil, nil, nil); err != nil {
		t.Errorf("runOps without an address: %v", err)
	}
}

func TestLogFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log, flush := newLogger(file, slog.LevelInfo)
	log.Debug("not shown")
	log.Info("shown", "n", 1)
	flush()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal(content, &line); err != nil || line["msg"] != "shown" {
		t.Errorf("a file got %q, want one line of JSON", content)
	}
	log.With("part", "x").Warn("at once") // is not held back
	if content, err = os.ReadFile(path); err != nil || !strings.Contains(string(content), "at once") {
		t.Errorf("a warning is held back: %q, %v", content, err)
	}
}

func TestVersion(t *testing.T) {
	for _, tt := range []struct {
		info *debug.BuildInfo
		want Version
	}{
		{&debug.BuildInfo{}, Version{Tag: "devel", Commit: "unknown"}},
		{&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, GoVersion: "go1.26"}, Version{"devel", "unknown", "go1.26"}},
		{&debug.BuildInfo{
			Main:     debug.Module{Version: "v1.2.3"},
			Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}},
		}, Version{Tag: "v1.2.3", Commit: "abc-modified"}},
	} {
		if diff := cmp.Diff(tt.want, versionOf(tt.info)); diff != "" {
			t.Errorf("version (-want +got):\n%s", diff)
		}
	}
	if got := ReadVersion().String(); !strings.HasPrefix(got, "weir ") {
		t.Errorf("version of this test: %q", got)
	}
}
