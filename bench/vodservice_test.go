//go:build bench

package bench

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/store/pgtest"
	words "weir/internal/weir"
)

// askEvery is how often a service is asked whether it is done.
const askEvery = 100 * time.Millisecond

// runNodes lets two services with a core each, one database and one storage do a task.
func (b *vodBench) runNodes(t *testing.T, c vodCase, film string) measured {
	t.Helper()
	origin := harness.NewOrigin(t, film)
	defer origin.Close()
	own, bucket, database := s3test.Start(t), s3test.Start(t), pgtest.Start(t)
	var nodes []*harness.Weir
	for core := range 2 {
		w := b.service(t, core)
		w.Database, w.Env = database, []string{"WEIR_STORAGE=" + own.URL()}
		w.Start("--workers", "1")
		defer w.Stop()
		nodes = append(nodes, w)
	}
	body := harness.Transcode(origin.URL+"/film.mp4", bucket, profiles(c)...)
	body["targetSegmentSizeSecs"] = 6
	delete(body["outputs"].(map[string]any), "fmp4") // plain ffmpeg does not make it
	first := func(r rung) string { return filepath.Join(bucket.Dir, "out/hls", r.name, "0.ts") }

	m := measured{dir: bucket.Dir, mp4: filepath.Join(bucket.Dir, "out/mp4")}
	stop := m.meter(t, nodes)
	start := time.Now()
	var task words.Task
	nodes[0].Must("POST", "/api/transcode", body, &task)
	asked := start
	m.watch(start, firsts(c.ladder, first), pids(nodes), func() (at time.Time, over bool) {
		if time.Since(asked) < askEvery {
			return at, false
		}
		asked = time.Now()
		nodes[0].Must("GET", "/api/task/"+task.ID, nil, &task)
		return asked, task.Done()
	})
	stop()
	if task.Status.Phase != words.TaskCompleted {
		t.Fatalf("the task is %+v", task.Status)
	}
	return m
}

// service prepares a weir as it is shipped, on one core or, if that is negative, on all.
func (b *vodBench) service(t *testing.T, core int) *harness.Weir {
	t.Helper()
	w := harness.NewWeir(t)
	w.Binary = b.weir
	if core >= 0 {
		w.Binary = filepath.Join(w.Data, "weir-on-a-core")
		script := fmt.Sprintf("#!/bin/sh\nexec taskset -c %d %s \"$@\"\n", core, b.weir)
		if err := os.WriteFile(w.Binary, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// profiles returns the ladder as the API has it.
func profiles(c vodCase) (list []map[string]any) {
	for _, r := range c.ladder {
		list = append(list, harness.Rung(r.name, "H.264", r.width, r.height, r.bitrate))
	}
	return list
}

func pids(nodes []*harness.Weir) (list []int) {
	for _, w := range nodes {
		list = append(list, w.Cmd.Process.Pid)
	}
	return list
}

// meter begins to measure the CPU time of services and of what they need, and returns what ends
// it.
func (m *measured) meter(t *testing.T, nodes []*harness.Weir) (stop func()) {
	t.Helper()
	cpu := func(t *testing.T) (used float64) {
		for _, pid := range pids(nodes) {
			used += cpuOf(t, fmt.Sprint(pid))
		}
		return used
	}
	// Those of others on the machine count too; there should be none.
	beside := func(t *testing.T) float64 {
		return cpuOfName(t, "postgres") + cpuOfName(t, "versitygw")
	}
	foreign := startForeign(t, func(t *testing.T) float64 { return cpu(t) + beside(t) })
	cpuBefore, besideBefore := cpu(t), beside(t)
	return func() {
		m.cpu = time.Duration((cpu(t) - cpuBefore) * float64(time.Second))
		m.beside = time.Duration((beside(t) - besideBefore) * float64(time.Second))
		m.foreign = foreign()
	}
}

// shortFile is the length of each of many files, in seconds.
const shortFile = 15

// shortFiles returns as many short films. They are the two halves of the film, again and again.
func (b *vodBench) shortFiles(t *testing.T, n int) (files []string) {
	t.Helper()
	for i := range n {
		files = append(files, b.cut(t, i%2*shortFile, shortFile))
		if i < 2 {
			b.passes(t, files[i], shortFile)
		}
	}
	return files
}

// runPlainFiles makes HLS of files with plain ffmpeg, two at a time.
func (b *vodBench) runPlainFiles(t *testing.T, c vodCase, files []string) measured {
	t.Helper()
	dir := b.folder(t)
	var script strings.Builder
	for i, file := range files {
		folder := filepath.Join(dir, fmt.Sprint(i))
		args := plainArgs(t, c, file, folder, onlyCMAF)
		fmt.Fprintf(&script, "'%s'\n", strings.Join(args, "' '"))
	}
	list := filepath.Join(dir, "commands")
	if err := os.WriteFile(list, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return b.run(t, dir, nil, []string{"xargs", "-a", list, "-P", "2", "-L", "1", "env"})
}

// runUploads sends files to a service, all at once, and waits until all of them are ready.
func (b *vodBench) runUploads(t *testing.T, c vodCase, files []string) measured {
	t.Helper()
	w := b.service(t, -1)
	w.Start("--max-running-tasks", fmt.Sprint(len(files)))
	defer w.Stop()
	m := measured{dir: filepath.Join(w.Data, "media")}
	stop := m.meter(t, []*harness.Weir{w})
	start := time.Now()
	uploads := make([]upload, len(files))
	for i := range files {
		w.Must("POST", "/api/asset/request-upload", map[string]any{
			"name": fmt.Sprint(i), "profiles": profiles(c), "targetSegmentSizeSecs": 6,
		}, &uploads[i])
	}
	var sending errgroup.Group
	for i, file := range files {
		sending.Go(func() error { return send(t, uploads[i].URL, file) })
	}
	waiting, asked := slices.Clone(uploads), start
	m.watch(start, nil, pids([]*harness.Weir{w}), func() (at time.Time, over bool) {
		if time.Since(asked) < askEvery {
			return at, false
		}
		asked = time.Now()
		for len(waiting) > 0 && ready(t, w, waiting[0]) {
			waiting = waiting[1:]
		}
		return time.Now(), len(waiting) == 0
	})
	stop()
	if err := sending.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, u := range uploads {
		checkRenditions(t, w, u, len(c.ladder))
	}
	// The source is kept in another folder.
	made, err := filepath.Glob(filepath.Join(m.dir, "asset", "*", ladder[0].name))
	if err != nil || len(made) > 0 {
		t.Fatalf("sources did not pass through: %q, %v", made, err)
	}
	return m
}

// upload is the response to a request for an upload.
type upload struct {
	URL   string
	Asset words.Asset
}

// send sends a file in one request.
func send(t *testing.T, url, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, f)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	r.ContentLength = info.Size()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the upload is answered with %s", resp.Status)
	}
	return nil
}

// ready tells whether an asset is.
func ready(t *testing.T, w *harness.Weir, u upload) bool {
	t.Helper()
	var a words.Asset
	w.Must("GET", "/api/asset/"+u.Asset.ID, nil, &a)
	if a.Status.Phase == words.AssetFailed {
		t.Fatalf("the asset is %+v", a.Status)
	}
	return a.Status.Phase == words.AssetReady
}

// checkRenditions checks that an asset has all renditions.
func checkRenditions(t *testing.T, w *harness.Weir, u upload, n int) {
	t.Helper()
	status, text := w.Do("GET", "/hls/"+u.Asset.PlaybackID+"/index.m3u8", nil)
	got := strings.Count(string(text), "#EXT-X-STREAM-INF")
	if status != http.StatusOK || got != n {
		t.Fatalf("an asset has %d renditions, want %d: %d\n%s", got, n, status, text)
	}
}
