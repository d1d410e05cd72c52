package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// origin serves a file to weir and counts what is fetched of it.
type origin struct {
	*httptest.Server
	bytes atomic.Int64
}

// newOrigin serves a file at any path.
func newOrigin(t *testing.T, file string) *origin {
	t.Helper()
	o := &origin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Open(file)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		http.ServeContent(&countingWriter{w, &o.bytes}, r, filepath.Base(file), time.Unix(1e9, 0), f)
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

// transcode is the body of a request with all three outputs.
func transcode(input string, b s3test.Bucket, profiles ...map[string]any) map[string]any {
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

// rung is a profile.
func rung(name, encoder string, width, height, bitrate int) map[string]any {
	return map[string]any{"name": name, "encoder": encoder, "width": width, "height": height, "bitrate": bitrate}
}

// ended waits until a task has ended.
func (w *weir) ended(id string) words.Task {
	w.t.Helper()
	return w.watch(id, func(t words.Task) bool { return t.Done() })
}

// watch reads a task until it is as wanted.
func (w *weir) watch(id string, wanted func(words.Task) bool) words.Task {
	w.t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		var task words.Task
		w.must("GET", "/api/task/"+id, nil, &task)
		if wanted(task) {
			return task
		}
		if task.Done() || time.Now().After(deadline) {
			w.t.Fatalf("the task is %+v and will not be as wanted; weir says:\n%s", task.Status, tail(withoutRequests(w.log.String())))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// completed waits until a task has succeeded.
func (w *weir) completed(id string) words.Task {
	w.t.Helper()
	task := w.ended(id)
	if task.Status.Phase != words.TaskCompleted {
		w.t.Fatalf("the task is %+v; weir says:\n%s", task.Status, tail(withoutRequests(w.log.String())))
	}
	return task
}

// TestTranscode lets a task make all outputs of a ladder in H.264, one rung of which
// is the source itself, and plays and checks every file of it.
func TestTranscode(t *testing.T) {
	t.Parallel()
	w, b, o := newWeir(t), s3test.Start(t), newOrigin(t, smallClip(t))
	w.start()
	var posted words.Task
	w.must("POST", "/api/transcode", withSegments(transcode(o.URL+"/small.mp4", b,
		rung("full", "h264", 320, 180, 900_000), rung("half", "H.264", 228, 128, 250_000)), 4), &posted)
	if posted.Status.Phase != words.TaskPending || posted.Type != words.TaskTranscode {
		t.Errorf("the answer is %+v, want a pending task", posted)
	}
	task := w.completed(posted.ID)
	if n, size := o.bytes.Load(), fileSize(t, smallClip(t)); n != size {
		t.Errorf("%d bytes were fetched of a source of %d", n, size)
	}
	out := checkTask(t, task, b, []string{"full", "half"})
	w.tellsNoSecrets(posted.ID)
	w.stop()

	checks := newOutputs(t, b.Dir, 250, 10)
	codecs := checks.hls(out.HLS.Path)
	for i, r := range out.Renditions {
		video, _, _ := strings.Cut(r.Codec, ",")
		checks.mp4(r.MP4, video, true)
		checks.fragmented(fmt.Sprintf("/out/fmp4/index-stream%d.mp4", i+1), video)
		if !slices.Contains(codecs, r.Codec) {
			t.Errorf("rendition %s is %s, the playlist has %q", r.Name, r.Codec, codecs)
		}
	}
	checks.fragmented("/out/fmp4/index-stream0.mp4", "")
	checks.hls(out.FMP4.Path)
	checks.finish()

	player := newBrowser(t, b.Dir)
	for _, engine := range []string{"hls.js", "shaka"} {
		player.check(engine, out.HLS.Path, "", 250, 10, 2)
		player.check(engine, out.FMP4.Path, "", 250, 10, 2)
	}
	player.check("shaka", out.FMP4.DASH, "", 250, 10, 2)
	for _, file := range out.MP4 {
		player.check("video", file.Path, "", 250, 10, 1)
	}
}

// TestTranscodeCodecs is TestTranscode with the other codecs. Chromium has no decoder
// for HEVC, which is left to ffmpeg.
func TestTranscodeCodecs(t *testing.T) {
	t.Parallel()
	w, b := newWeir(t), s3test.Start(t)
	source := makeClip(t, "short.mp4", append(pictures("228x128", 25, 4),
		"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "50", "-b:v", "300k", "-c:a", "aac", "-b:a", "96k")...)
	o := newOrigin(t, source)
	w.start()
	var posted words.Task
	w.must("POST", "/api/transcode", withSegments(transcode(o.URL+"/short.mp4", b,
		rung("vp9", "vp9", 228, 128, 200_000), rung("av1", "AV1", 228, 128, 180_000), rung("hevc", "HEVC", 228, 128, 160_000)), 2), &posted)
	task := w.completed(posted.ID)
	out := checkTask(t, task, b, []string{"vp9", "av1", "hevc"})
	w.stop()

	checks := newOutputs(t, b.Dir, 100, 4)
	checks.hls(out.HLS.Path)
	checks.hls(out.FMP4.Path)
	for i, r := range out.Renditions {
		video, _, _ := strings.Cut(r.Codec, ",")
		if want := map[string]string{"vp9": "vp09.00.", "av1": "av01.0.", "hevc": "hvc1."}[r.Name]; !strings.HasPrefix(video, want) {
			t.Errorf("rendition %s is %s, want %s…", r.Name, r.Codec, want)
		}
		checks.mp4(r.MP4, video, true)
		checks.fragmented(fmt.Sprintf("/out/fmp4/index-stream%d.mp4", i+1), video)
	}
	checks.finish()

	player := newBrowser(t, b.Dir)
	for _, master := range []string{out.HLS.Path, out.FMP4.Path} {
		player.check("hls.js", master, "", 100, 4, 2)
	}
	for _, codec := range []string{"vp09", "av01"} {
		for _, manifest := range []string{out.HLS.Path, out.FMP4.Path, out.FMP4.DASH} {
			player.check("shaka", manifest, codec, 100, 4, 1)
		}
	}
	for _, r := range out.Renditions {
		if r.Name != "hevc" {
			player.check("video", r.MP4, "", 100, 4, 1)
		}
	}
}

func withSegments(body map[string]any, seconds int) map[string]any {
	body["targetSegmentSizeSecs"] = seconds
	return body
}

func fileSize(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// checkTask checks the JSON of a completed task with all three outputs in a bucket,
// and that the bucket has what it names.
func checkTask(t *testing.T, task words.Task, b s3test.Bucket, names []string) words.TranscodeOutput {
	t.Helper()
	if s := task.Status; s.Progress != nil || s.Retries != nil || s.ErrorMessage != "" {
		t.Errorf("a completed task has the status %+v", s)
	}
	if url := task.Params.Transcode.Storage.URL; url != fmt.Sprintf("s3+http://***:***@%s/%s", strings.TrimPrefix(b.Endpoint, "http://"), b.Name) {
		t.Errorf("the storage is shown as %q", url)
	}
	if task.Output == nil || task.Output.Transcode == nil {
		t.Fatalf("a completed task has no output: %+v", task)
	}
	out := *task.Output.Transcode
	if out.BaseURL != b.Endpoint+"/"+b.Name || out.HLS == nil || out.HLS.Path != "/out/hls/index.m3u8" || len(out.MP4) != len(names) ||
		out.FMP4 == nil || out.FMP4.Path != "/out/fmp4/master.m3u8" || out.FMP4.DASH != "/out/fmp4/index.mpd" || len(out.RequestID) != 8 {
		t.Fatalf("the output is %+v", out)
	}
	if out.InputVideo.Size == 0 || out.InputVideo.Duration == 0 || out.VideoSpec == nil || len(out.VideoSpec.Tracks) != 2 {
		t.Errorf("the source is shown as %+v %+v", out.InputVideo, out.VideoSpec)
	}
	var got []string
	for i, r := range out.Renditions {
		got = append(got, r.Name)
		if r.Width == 0 || r.Height == 0 || r.FPS != 25 || r.Bitrate == 0 || r.Size == 0 || r.MP4 != out.MP4[i].Path {
			t.Errorf("a rendition is shown as %+v", r)
		}
		for _, file := range []string{r.Playlist, r.MP4, r.FMP4} {
			if _, err := os.Stat(filepath.Join(b.Dir, file)); file == "" || err != nil {
				t.Errorf("rendition %s: %q: %v", r.Name, file, err)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("the renditions are %q, want %q", got, names)
	}
	for _, dir := range []string{"out/hls", "out/mp4", "out"} {
		text, err := os.ReadFile(filepath.Join(b.Dir, dir, "metadata.json"))
		if err != nil || !strings.Contains(string(text), task.ID) {
			t.Errorf("%s/metadata.json: %s %v", dir, text, err)
		}
	}
	return out
}

// tellsNoSecrets looks for the keys of the bucket in everything that weir answers,
// tells, logs and keeps, and checks the events of a completed task.
func (w *weir) tellsNoSecrets(taskID string) {
	w.t.Helper()
	st := w.openStore()
	owner, err := st.FirstUser(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := st.Events(w.t.Context(), owner.ID, owner.DefaultProjectID, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var names []words.EventName
	for _, e := range events {
		if e.Resource == taskID || strings.Contains(string(e.Payload), taskID) {
			names = append(names, e.Name)
		}
	}
	if len(names) < 3 || names[0] != words.TaskSpawned || names[len(names)-1] != words.TaskCompletedEvent || !slices.Contains(names, words.TaskUpdated) {
		w.t.Errorf("the events of the task are %q", names)
	}
	told, err := json.Marshal(events)
	if err != nil {
		w.t.Fatal(err)
	}
	_, task := w.do("GET", "/api/task/"+taskID, nil)
	_, list := w.do("GET", "/api/task", nil)
	texts := map[string][]byte{"events": told, "task": task, "list": list, "log": []byte(w.output.String())}
	err = filepath.WalkDir(w.data, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			texts[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for where, text := range texts {
		for _, secret := range []string{s3test.Secret, "with+odd@signs", "with%2Bodd%40signs", s3test.Key} {
			if strings.Contains(string(text), secret) {
				w.t.Errorf("%s has the credentials of the storage", where)
			}
		}
	}
}

// check plays something and looks at what the player tells: how many renditions it
// must have, and each with how many frames and how long.
func (b *browser) check(engine, url, codecs string, frames int, seconds float64, renditions int) {
	b.t.Helper()
	p := b.play(engine, url, codecs, frames)
	if len(p.Errors) > 0 {
		b.t.Errorf("%s at %s: %s; before that: %+v", engine, url, strings.Join(p.Errors, "; "), p.Renditions)
		return
	}
	if len(p.Renditions) != renditions || !p.Jumped || p.Changed != (renditions > 1) {
		b.t.Errorf("%s at %s: played %+v, want %d renditions", engine, url, p, renditions)
	}
	for _, r := range p.Renditions {
		if r.Frames < frames || r.Corrupted > 0 || r.Holes > 0 || r.From > 0.1 || r.SoundBytes == 0 || r.Width != r.ShownWidth || r.Height != r.ShownHeight {
			b.t.Errorf("%s at %s: %+v, want %d frames without a hole", engine, url, r, frames)
		}
		if math.Abs(r.Apart) > 0.03 {
			b.t.Errorf("%s at %s: the audio starts %.3f s after the video", engine, url, r.Apart)
		}
		if r.Duration < seconds-0.001 || r.Duration > seconds+0.15 || r.End < seconds-0.1 {
			b.t.Errorf("%s at %s: ended at %.3f of %.3f s, want %.3f", engine, url, r.End, r.Duration, seconds)
		}
	}
}

// withoutRequests is a log without the lines that the tests' own questions make.
func withoutRequests(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"msg":"request"`) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
