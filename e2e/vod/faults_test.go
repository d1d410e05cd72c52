package vod

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// allowed is the one address that the tasks of these tests may reach; the rest of
// the loopback network is as forbidden as any private address.
const allowed = "127.0.0.2"

// faults is a weir, and the servers that make its life hard.
type faults struct {
	*harness.Weir
	ops     string
	bucket  s3test.Bucket
	servers []*httptest.Server
	source  []byte // a short video
}

func newFaults(t *testing.T) *faults {
	t.Helper()
	f := &faults{Weir: harness.NewWeir(t), ops: harness.FreeAddr(t), bucket: s3test.Start(t)}
	f.Networks = allowed + "/32"
	var err error
	if f.source, err = os.ReadFile(harness.TinyClip(t)); err != nil {
		t.Fatal(err)
	}
	f.Start("--ops", f.ops, "--max-running-tasks", "30")
	return f
}

// server serves at the allowed address.
func (f *faults) server(handler http.Handler) *httptest.Server {
	f.T.Helper()
	l, err := net.Listen("tcp", allowed+":0")
	if err != nil {
		f.T.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	f.T.Cleanup(s.Close)
	f.servers = append(f.servers, s)
	return s
}

// good serves the source as it is.
func (f *faults) good(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "source.mp4", time.Unix(1e9, 0), bytes.NewReader(f.source))
}

// storage is the way to the bucket. What break returns for a request says what
// happens to it.
func (f *faults) storage(fault func(r *http.Request) trouble) *httptest.Server {
	f.T.Helper()
	target, err := url.Parse(f.bucket.Endpoint)
	if err != nil {
		f.T.Fatal(err)
	}
	// The signature is over the name of the host: it must stay.
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, r.In.Host
	}}
	return f.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch fault(r) {
		case passes:
			proxy.ServeHTTP(w, r)
		case throttled:
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
		case breaksOff:
			_, _ = io.CopyN(io.Discard, r.Body, max(r.ContentLength/2, 1))
			panic(http.ErrAbortHandler)
		}
	}))
}

// trouble is what happens to a request.
type trouble int

const (
	passes trouble = iota
	throttled
	breaksOff
)

func noTrouble(*http.Request) trouble { return passes }

// post asks for a transcoding to a folder of the bucket.
func (f *faults) post(folder string, source, storage *httptest.Server, profiles ...map[string]any) (id string) {
	f.T.Helper()
	status, text := f.try(folder, source, storage, s3test.Secret, profiles...)
	if status != http.StatusOK {
		f.T.Fatalf("%s: %d %s", folder, status, text)
	}
	return harness.Match(f.T, string(text), `"id":"([^"]+)"`)
}

func (f *faults) try(folder string, source, storage *httptest.Server, secret string, profiles ...map[string]any) (int, []byte) {
	f.T.Helper()
	if len(profiles) == 0 {
		profiles = []map[string]any{harness.Rung("only", "H.264", 228, 128, 200_000)}
	}
	b := f.bucket
	b.Endpoint = storage.URL
	body := harness.Transcode(source.URL+"/source.mp4", b, profiles...)
	body["storage"].(map[string]any)["credentials"].(map[string]any)["secretAccessKey"] = secret
	body["outputs"] = map[string]any{"hls": map[string]any{"path": folder}, "mp4": map[string]any{"path": folder}}
	return f.Do("POST", "/api/transcode", body)
}

// TestMediaFaults lets everything go wrong that a task depends on, each in a task of
// its own and all at the same time, and looks how each ends, and that nothing is
// left behind.
func TestMediaFaults(t *testing.T) {
	t.Parallel()
	f := newFaults(t)
	storage := f.storage(noTrouble)
	good := f.server(http.HandlerFunc(f.good))
	f.Completed(f.post("/warm", good, storage)) // so that all is there that stays
	idle := f.goroutines()

	killed := f.disturbEncoder("/killed", storage, func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) })
	hungry := f.disturbEncoder("/hungry", storage, func(pid int) error {
		return exec.CommandContext(t.Context(), "prlimit", "--pid", strconv.Itoa(pid), "--as=1048576").Run() // it gets no more memory
	})
	f.again(killed, `^internal error processing file: ffmpeg was killed`)
	f.again(hungry, `^internal error processing file: ffmpeg (ran out of memory|could not start an encoder|crashed|was killed|did not write all of it)`)

	source := map[string]string{}
	for name, handler := range f.badSources() {
		source[name] = f.post("/"+name, f.server(handler), storage)
	}
	destination := map[string]string{}
	for name, fault := range badStorages() {
		destination[name] = f.post("/"+name, good, f.storage(fault))
	}
	gone := f.bucketRemoved()

	if status, text := f.try("/refused", good, storage, "not the secret"); status != http.StatusUnprocessableEntity || !strings.Contains(string(text), "SignatureDoesNotMatch") {
		t.Errorf("a wrong key is answered with %d %s, want 422 and the reason", status, text)
	}
	f.again(source["lies"], `^file could not be imported from URL because it was not accessible: .*the connection to [0-9.]+ broke off after [0-9]+ of [0-9]+ bytes`)
	f.Must("POST", "/api/task/"+source["lies"]+"/cancel", nil, nil)
	if task := f.Ended(source["lies"]); task.Status.Phase != words.TaskCancelled {
		t.Errorf("a task that was cancelled while it waited is %+v", task.Status)
	}
	for _, name := range []string{"busy", "stalls"} {
		f.Completed(source[name])
	}
	f.fails(source["missing"], `^file could not be imported from URL because it was not accessible: .*404`)
	f.fails(source["redirects"], `^file could not be imported from URL because it was not accessible: .*127\.0\.0\.1`)
	f.fails(source["truncated"], `^(failed to probe or open file|invalid video file)`)
	for _, id := range destination {
		f.Completed(id)
	}
	f.fails(gone, `^error saving file to storage: .*NoSuchBucket`)
	for _, id := range []string{killed, hungry} {
		if task := f.Completed(id); task.Status.Retries != nil {
			t.Errorf("a completed task has the status %+v", task.Status)
		}
	}
	f.outputsPlay("busy", "stalls", "throttles", "breaks-off", "killed", "hungry")
	f.leavesNothing(idle)
	f.Stop()
}

// badSources are servers of sources, by the name of what is wrong with them.
func (f *faults) badSources() map[string]http.HandlerFunc {
	half := len(f.source) / 2
	var busy, stalls atomic.Int32
	return map[string]http.HandlerFunc{
		"busy": func(w http.ResponseWriter, r *http.Request) {
			if busy.Add(1) <= 2 {
				http.Error(w, "come again", http.StatusServiceUnavailable)
				return
			}
			f.good(w, r)
		},
		"stalls": func(w http.ResponseWriter, r *http.Request) {
			if stalls.Add(1) > 1 {
				f.good(w, r)
				return
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(f.source)))
			w.Header().Set("Last-Modified", time.Unix(1e9, 0).UTC().Format(http.TimeFormat))
			_, _ = w.Write(f.source[:half])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"lies": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(f.source)+1000))
			_, _ = w.Write(f.source)
		},
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, f.bucket.Endpoint+"/", http.StatusFound) // at 127.0.0.1
		},
		"missing": http.NotFound,
		"truncated": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "source.mp4", time.Unix(1e9, 0), bytes.NewReader(f.source[:half]))
		},
	}
}

// badStorages are the ways to a bucket that get better in time.
func badStorages() map[string]func(*http.Request) trouble {
	var throttles, breaks atomic.Int32
	return map[string]func(*http.Request) trouble{
		"throttles": func(r *http.Request) trouble {
			if r.Method != http.MethodGet && throttles.Add(1)%3 != 0 {
				return throttled
			}
			return passes
		},
		"breaks-off": func(r *http.Request) trouble {
			if r.Method == http.MethodPut && r.ContentLength > 1000 && breaks.Add(1)%2 == 1 {
				return breaksOff
			}
			return passes
		},
	}
}

// bucketRemoved posts a task whose bucket is removed after it was found to be good.
func (f *faults) bucketRemoved() (id string) {
	f.T.Helper()
	b := s3test.Start(f.T)
	own := *f
	own.bucket = b
	storage := own.storage(noTrouble)
	f.servers = own.servers
	source := f.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = os.RemoveAll(b.Dir)
		f.good(w, r)
	}))
	return own.post("/gone", source, storage)
}

// disturbEncoder posts a task and does something to the ffmpeg that encodes it.
func (f *faults) disturbEncoder(folder string, storage *httptest.Server, disturb func(pid int) error) (id string) {
	f.T.Helper()
	clip := killClip(f.T, 16)
	source := f.server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, clip) }))
	id = f.post(folder, source, storage, harness.Rung("only", "H.264", 480, 270, 500_000))
	harness.Eventually(f.T, func() error {
		for _, pid := range harness.Children(f.Cmd.Process.Pid) {
			// Before it is ffmpeg, the process is the sandbox that starts it.
			program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(line, []byte("libx264")) && filepath.Base(program) == "ffmpeg" {
				return disturb(pid)
			}
		}
		return fmt.Errorf("nothing encodes")
	})
	return id
}

// again waits until a task waits for another attempt, and checks why.
func (f *faults) again(id, why string) {
	f.T.Helper()
	task := f.Watch(id, func(t words.Task) bool { return t.Status.Retries != nil && *t.Status.Retries == 1 })
	if !regexp.MustCompile(why).MatchString(task.Status.ErrorMessage) || task.Status.Phase != words.TaskWaiting {
		f.T.Errorf("the task is %+v, want it to wait because of %q", task.Status, why)
	}
}

// fails waits until a task has failed for good, at once, and checks why.
func (f *faults) fails(id, why string) {
	f.T.Helper()
	s := f.Ended(id).Status
	if s.Phase != words.TaskFailed || s.Retries == nil || *s.Retries != 0 || !regexp.MustCompile(why).MatchString(s.ErrorMessage) {
		f.T.Errorf("the task is %s %q, want failed at once because of %q", s.Phase, s.ErrorMessage, why)
	}
}

// outputsPlay decodes what came of tasks.
func (f *faults) outputsPlay(folders ...string) {
	f.T.Helper()
	for _, folder := range folders {
		harness.FFmpeg(f.T, "-i", filepath.Join(f.bucket.Dir, folder, "index.m3u8"), "-f", "null", "-")
		harness.FrameSums(f.T, filepath.Join(f.bucket.Dir, folder, "only.mp4"))
	}
}

// leavesNothing checks that nothing is left of tasks that have ended.
func (f *faults) leavesNothing(idle int) {
	f.T.Helper()
	for _, s := range f.servers {
		s.CloseClientConnections()
		s.Close()
	}
	// What it put into storage that is gone now, weir tries to remove for a while.
	harness.Eventually(f.T, func() error {
		if left := harness.Children(f.Cmd.Process.Pid); len(left) > 0 {
			return fmt.Errorf("processes are left: %v", left)
		}
		for _, dir := range []string{"work", "media/work", "media/upload"} {
			left, err := filepath.Glob(filepath.Join(f.Data, dir, "*", "*"))
			if err == nil && len(left) > 0 {
				return fmt.Errorf("files are left: %v", left)
			}
		}
		// Of an upload in parts that is under way, this server keeps files there.
		if left, _ := filepath.Glob(filepath.Join(f.bucket.Dir, ".sgwtmp", "multipart", "*", "*")); len(left) > 0 {
			return fmt.Errorf("uploads are left: %v", left)
		}
		if n := f.goroutines(); n > idle+10 {
			return fmt.Errorf("%d goroutines are left, before there were %d:\n%s", n, idle, f.profile("goroutine?debug=1"))
		}
		return nil
	})
}

// profile reads what weir tells of itself.
func (f *faults) profile(name string) string {
	f.T.Helper()
	response, err := http.Get("http://" + f.ops + "/debug/pprof/" + name)
	if err != nil {
		f.T.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		f.T.Fatalf("%s: %d %v", name, response.StatusCode, err)
	}
	return string(text)
}

func (f *faults) goroutines() int {
	f.T.Helper()
	n, err := strconv.Atoi(harness.Match(f.T, f.profile("goroutine?debug=1"), `goroutine profile: total (\d+)`))
	if err != nil {
		f.T.Fatal(err)
	}
	return n
}
