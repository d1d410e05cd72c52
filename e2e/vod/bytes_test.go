package vod

import (
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// TestFetchedOnce lets a source of 200 MB pass through to a bucket: each of its bytes
// is fetched once. `make soak-vod-memory` does it with 5 GB, and looks at the memory.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start("--min-free", "1MB")
	passThrough(t, w, harness.LoopedClip(t, 200<<20), map[string]any{"mp4": map[string]any{"path": "/out"}})
	w.Stop()
}

// passThrough lets a task copy a source that is what its profile asks for.
func passThrough(t *testing.T, w *harness.Weir, source string, outputs map[string]any) {
	t.Helper()
	b, o := s3test.Start(t), harness.NewOrigin(t, source)
	body := harness.Transcode(o.URL+"/source.mp4", b, harness.Rung("same", "H.264", 320, 180, 250_000_000))
	body["outputs"] = outputs
	began := time.Now()
	var task words.Task
	w.Must("POST", "/api/transcode", body, &task)
	w.Completed(task.ID)
	size := harness.FileSize(t, source)
	t.Logf("%d MB in %.1f s", size>>20, time.Since(began).Seconds())
	if n := o.Bytes.Load(); n != size {
		t.Errorf("%d bytes were fetched of a source of %d", n, size)
	}
	if got := harness.FileSize(t, b.Dir+"/out/same.mp4"); got < size*95/100 || got > size*105/100 {
		t.Errorf("the file has %d bytes, the source %d: it did not pass through", got, size)
	}
}
