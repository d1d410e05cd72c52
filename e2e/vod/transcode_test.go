package vod

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// TestTranscode lets a task make all outputs of a ladder in H.264, one rung of which
// is the source itself, and plays and checks every file of it.
func TestTranscode(t *testing.T) {
	t.Parallel()
	w, b, o := harness.NewWeir(t), s3test.Start(t), harness.NewOrigin(t, harness.SmallClip(t))
	w.Start()
	var posted words.Task
	w.Must("POST", "/api/transcode", withSegments(harness.Transcode(o.URL+"/small.mp4", b,
		harness.Rung("full", "h264", 320, 180, 900_000), harness.Rung("half", "H.264", 228, 128, 250_000)), 4), &posted)
	if posted.Status.Phase != words.TaskPending || posted.Type != words.TaskTranscode {
		t.Errorf("the response is %+v, want a pending task", posted)
	}
	task := w.Completed(posted.ID)
	if n, size := o.Bytes.Load(), harness.FileSize(t, harness.SmallClip(t)); n != size {
		t.Errorf("%d bytes were fetched of a source of %d", n, size)
	}
	out := checkTask(t, task, b, []string{"full", "half"})
	tellsNoSecrets(w, posted.ID)
	w.Stop()

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
	checks.runParsers()

	player := harness.NewBrowser(t, b.Dir)
	for _, engine := range []string{"hls.js", "shaka"} {
		check(player, engine, out.HLS.Path, "", 250, 10, 2)
		check(player, engine, out.FMP4.Path, "", 250, 10, 2)
	}
	check(player, "shaka", out.FMP4.DASH, "", 250, 10, 2)
	for _, file := range out.MP4 {
		check(player, "video", file.Path, "", 250, 10, 1)
	}
}

// TestTranscodeCodecs is TestTranscode with the other codecs. Chromium has no decoder
// for HEVC, which is left to ffmpeg.
func TestTranscodeCodecs(t *testing.T) {
	t.Parallel()
	w, b := harness.NewWeir(t), s3test.Start(t)
	source := harness.MakeClip(t, "short.mp4", append(harness.Pictures("228x128", 25, 4),
		"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "50", "-b:v", "300k", "-c:a", "aac", "-b:a", "96k")...)
	o := harness.NewOrigin(t, source)
	w.Start()
	var posted words.Task
	w.Must("POST", "/api/transcode", withSegments(harness.Transcode(o.URL+"/short.mp4", b,
		harness.Rung("vp9", "vp9", 228, 128, 200_000), harness.Rung("av1", "AV1", 228, 128, 180_000), harness.Rung("hevc", "HEVC", 228, 128, 160_000)), 2), &posted)
	task := w.Completed(posted.ID)
	out := checkTask(t, task, b, []string{"vp9", "av1", "hevc"})
	w.Stop()

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
	checks.runParsers()

	player := harness.NewBrowser(t, b.Dir)
	for _, master := range []string{out.HLS.Path, out.FMP4.Path} {
		check(player, "hls.js", master, "", 100, 4, 2)
	}
	for _, codec := range []string{"vp09", "av01"} {
		for _, manifest := range []string{out.HLS.Path, out.FMP4.Path, out.FMP4.DASH} {
			check(player, "shaka", manifest, codec, 100, 4, 1)
		}
	}
	for _, r := range out.Renditions {
		if r.Name != "hevc" {
			check(player, "video", r.MP4, "", 100, 4, 1)
		}
	}
}

func withSegments(body map[string]any, seconds int) map[string]any {
	body["targetSegmentSizeSecs"] = seconds
	return body
}

// checkTask checks the JSON of a completed task with all three outputs in a bucket,
// and that the bucket has what it names.
func checkTask(t *testing.T, task words.Task, b s3test.Bucket, names []string) words.TranscodeOutput {
	t.Helper()
	if s := task.Status; s.Progress == nil || *s.Progress != 1 || s.Retries != nil || s.ErrorMessage != "" {
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
		if r.Width == 0 || r.Height == 0 || r.FPS != 25 || r.Bitrate == 0 || r.MP4 != out.MP4[i].Path || r.Size != harness.FileSize(t, filepath.Join(b.Dir, r.MP4)) {
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
	for _, pattern := range []string{".weir-check-*", "metadata.json"} {
		for _, dir := range []string{"out/hls", "out/mp4", "out"} {
			if left, err := filepath.Glob(filepath.Join(b.Dir, dir, pattern)); err != nil || len(left) > 0 {
				t.Errorf("weir leaves %q behind, %v", left, err)
			}
		}
	}
	return out
}

// tellsNoSecrets looks for the keys of the bucket in everything that weir answers,
// tells, logs and keeps, and checks the events of a completed task.
func tellsNoSecrets(w *harness.Weir, taskID string) {
	w.T.Helper()
	st := w.OpenStore()
	owner, err := st.FirstUser(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	events, err := st.Events(w.T.Context(), owner.ID, owner.DefaultProjectID, 0, 1000)
	if err != nil {
		w.T.Fatal(err)
	}
	var names []words.EventName
	for _, e := range events {
		if e.Resource == taskID || strings.Contains(string(e.Payload), taskID) {
			names = append(names, e.Name)
		}
	}
	if len(names) < 3 || names[0] != words.TaskSpawned || names[len(names)-1] != words.TaskCompletedEvent || !slices.Contains(names, words.TaskUpdated) {
		w.T.Errorf("the events of the task are %q", names)
	}
	told, err := json.Marshal(events)
	if err != nil {
		w.T.Fatal(err)
	}
	_, task := w.Do("GET", "/api/task/"+taskID, nil)
	_, list := w.Do("GET", "/api/task", nil)
	texts := map[string][]byte{"events": told, "task": task, "list": list, "log": []byte(w.Output.String())}
	err = filepath.WalkDir(w.Data, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			texts[path], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		w.T.Fatal(err)
	}
	for where, text := range texts {
		for _, secret := range []string{s3test.Secret, "with+odd@signs", "with%2Bodd%40signs", s3test.Key} {
			if strings.Contains(string(text), secret) {
				w.T.Errorf("%s has the credentials of the storage", where)
			}
		}
	}
}

// check plays something and looks at what the player tells: how many renditions it
// must have, and each with how many frames and how long.
func check(b *harness.Browser, engine, url, codecs string, frames int, seconds float64, renditions int) {
	b.T.Helper()
	p := b.Play(engine, url, codecs, frames)
	if len(p.Errors) > 0 {
		b.T.Errorf("%s at %s: %s; before that: %+v", engine, url, strings.Join(p.Errors, "; "), p.Renditions)
		return
	}
	if len(p.Renditions) != renditions || !p.Jumped || p.Changed != (renditions > 1) {
		b.T.Errorf("%s at %s: played %+v, want %d renditions", engine, url, p, renditions)
	}
	for _, r := range p.Renditions {
		if r.Frames < frames || r.Corrupted > 0 || r.Holes > 0 || r.From > 0.1 || r.SoundBytes == 0 || r.Width != r.ShownWidth || r.Height != r.ShownHeight {
			b.T.Errorf("%s at %s: %+v, want %d frames without a hole", engine, url, r, frames)
		}
		if math.Abs(r.Apart) > 0.03 {
			b.T.Errorf("%s at %s: the audio starts %.3f s after the video", engine, url, r.Apart)
		}
		if r.Duration < seconds-0.001 || r.Duration > seconds+0.15 || r.End < seconds-0.1 {
			b.T.Errorf("%s at %s: ended at %.3f of %.3f s, want %.3f", engine, url, r.End, r.Duration, seconds)
		}
	}
}
