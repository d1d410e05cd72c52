package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/blob/s3test"
	"weir/internal/wait"
	words "weir/internal/weir"
)

// Origin serves a file to weir and counts what is fetched of it.
type Origin struct {
	*httptest.Server
	Bytes atomic.Int64
}

// NewOrigin serves a file at any path.
func NewOrigin(t *testing.T, file string) *Origin {
	t.Helper()
	o := &Origin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(file)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		http.ServeContent(&countingWriter{w, &o.Bytes}, r, filepath.Base(file), time.Unix(1e9, 0), f)
	}))
	t.Cleanup(o.Close)
	return o
}

// countingWriter counts the bytes of bodies. It hides what would let the kernel send
// a file past it.
type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// Transcode is the body of a request with all three outputs.
func Transcode(input string, b s3test.Bucket, profiles ...map[string]any) map[string]any {
	body := map[string]any{
		"input": map[string]any{"url": input},
		"storage": map[string]any{
			"type": "s3", "endpoint": b.Endpoint, "bucket": b.Name,
			"credentials": map[string]any{"accessKeyId": s3test.Key, "secretAccessKey": s3test.Secret},
		},
		"outputs": map[string]any{
			"hls": map[string]any{"path": "/out/hls"}, "mp4": map[string]any{"path": "out/mp4/"}, "fmp4": map[string]any{"path": "/out"},
		},
	}
	if len(profiles) > 0 {
		body["profiles"] = profiles
	}
	return body
}

// Rung is a profile.
func Rung(name, encoder string, width, height, bitrate int) map[string]any {
	return map[string]any{"name": name, "encoder": encoder, "width": width, "height": height, "bitrate": bitrate}
}

// Ended waits until a task has ended.
func (w *Weir) Ended(id string) words.Task {
	w.T.Helper()
	return w.Watch(id, func(t words.Task) bool { return t.Done() })
}

// Watch reads a task until it is as wanted.
func (w *Weir) Watch(id string, wanted func(words.Task) bool) (task words.Task) {
	w.T.Helper()
	reached := false
	defer func() {
		if !reached {
			w.T.Logf("weir says:\n%s", Tail(WithoutRequests(w.Log.String())))
		}
	}()
	wait.Progress(w.T, func() error {
		_, text := w.Do("GET", "/api/task/"+id, nil)
		task = words.Task{}
		if err := json.Unmarshal(text, &task); err != nil {
			w.T.Fatalf("task %s: %v: %s", id, err, text)
		}
		if wanted(task) {
			return nil
		}
		if task.Done() {
			w.T.Fatalf("the task will not be as wanted: %s", text)
		}
		return fmt.Errorf("the task is not as wanted: %s", text)
	})
	reached = true
	return task
}

// Completed waits until a task has succeeded.
func (w *Weir) Completed(id string) words.Task {
	w.T.Helper()
	task := w.Ended(id)
	if task.Status.Phase != words.TaskCompleted {
		w.T.Fatalf("the task is %+v; weir says:\n%s", task.Status, Tail(WithoutRequests(w.Log.String())))
	}
	return task
}

func FileSize(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// WithoutRequests is a log without the lines that the tests' own questions make.
func WithoutRequests(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"msg":"request"`) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
