package vod

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
)

// before is what an earlier version left behind when it was killed: testdata/before.tar.gz
// has its data folder and the bucket of a task.
type before struct {
	Key       string
	Asset     string // of an upload, ready: 150 frames
	Recording string // of a stream that was over: 150 frames
	Session   string // of a stream that was on air and recorded: 230 frames
	Task      string // half done: 600 frames, two renditions, all outputs
}

// beforeEndpoint is the S3 server that the task of the earlier version writes to.
const beforeEndpoint = "127.0.0.1:19517"

// TestUpgrade starts weir on the data folder of an earlier version: everything in it plays,
// and what was in flight is finished.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", "testdata/before.tar.gz", "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b before
	if err := json.Unmarshal(manifest, &b); err != nil {
		t.Fatal(err)
	}
	w.Key, w.Data = b.Key, filepath.Join(dir, "data")
	w.Database = "sqlite:" + filepath.Join(w.Data, "weir.db")
	bucket := restoreBucket(t, filepath.Join(dir, "bucket"))
	w.Start()

	for _, id := range []string{b.Asset, b.Recording} {
		playsWhole(w, id, 150)
	}
	// The recording of a session is the asset with its id.
	harness.Eventually(t, func() error {
		if status, body := w.Do("GET", "/api/asset/"+b.Session, nil); status != http.StatusOK {
			return fmt.Errorf("the recording of the stream that was on air: %d %s", status, body)
		}
		return nil
	})
	playsWhole(w, b.Session, 230)

	task := w.Completed(b.Task)
	if task.Output == nil || task.Output.Transcode == nil {
		t.Fatalf("the output of the task is %+v", task.Output)
	}
	checks := newOutputs(t, bucket, 600, 24)
	checks.hls(task.Output.Transcode.HLS.Path)
	checks.hls(task.Output.Transcode.FMP4.Path)
	for _, r := range task.Output.Transcode.Renditions {
		checks.mp4(r.MP4, "avc1", true)
	}
	checks.runParsers()
	w.Stop()
}

// playsWhole reads an asset as HLS, as MPEG-TS and as a file, and counts its frames.
func playsWhole(w *harness.Weir, id string, frames int) {
	w.T.Helper()
	a := ready(w, id)
	base := w.URL + "/hls/" + a.PlaybackID + "/"
	_, master := get(w, base+"index.m3u8")
	name := regexp.MustCompile(`(?m)^([^#/\n]+)/`).FindSubmatch(master)
	if name == nil {
		w.T.Fatalf("no rendition in\n%s", master)
	}
	for _, path := range []string{"index.m3u8", "ts.m3u8", string(name[1]) + ".mp4"} {
		if n := len(harness.FrameSums(w.T, base+path)); n != frames {
			w.T.Errorf("%s has %d frames, want %d", path, n, frames)
		}
	}
}

// restoreBucket serves the bucket of the earlier version's task where that expects it, and
// returns the folder that its objects are files in.
func restoreBucket(t *testing.T, from string) string {
	t.Helper()
	b := s3test.Start(t)
	dir := filepath.Join(filepath.Dir(b.Dir), "before")
	if out, err := exec.CommandContext(t.Context(), "cp", "-r", from, dir).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	target, err := url.Parse(b.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", beforeEndpoint)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which the signature covers
	}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(fmt.Errorf("close the proxy: %w", err))
		}
		<-done
	})
	return dir
}
