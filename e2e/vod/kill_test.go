package vod

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/store"
	"weir/internal/store/pgtest"
	words "weir/internal/weir"
)

// TestKillTask kills weir in the middle of a task and starts it again: the task is
// completed, nothing that was done is done again, and the outputs have the frames of a
// run that nobody disturbed. `make soak-vod-kill` does it with two minutes of video.
func TestKillTask(t *testing.T) {
	t.Parallel()
	killTask(t, harness.NewWeir(t), 16, "--workers", "4")
}

func killTask(t *testing.T, w *harness.Weir, seconds int, args ...string) {
	t.Helper()
	quiet, disturbed := s3test.Start(t), s3test.Start(t)
	o := harness.NewOrigin(t, killClip(t, seconds))
	w.Start(args...)
	st := w.OpenStore()
	w.Completed(postKill(w, o, quiet))

	id, before := halfDone(w, st, o, disturbed)
	w.Kill()
	w.Start(args...)
	restarted := time.Now()
	w.Completed(id)
	t.Logf("completed %.1f s after the restart", time.Since(restarted).Seconds())
	onlyOnce(t, st, id, before)
	sameFrames(t, quiet, disturbed)
	w.Stop()
}

// TestKillWorker is TestKillTask with two nodes on one database and one storage. The one
// that encodes dies.
func TestKillWorker(t *testing.T) {
	t.Parallel()
	killWorker(t, 16)
}

func killWorker(t *testing.T, seconds int) {
	t.Helper()
	quiet, disturbed, own := s3test.Start(t), s3test.Start(t), s3test.Start(t)
	o := harness.NewOrigin(t, killClip(t, seconds))
	a, b := harness.NewWeir(t), harness.NewWeir(t)
	a.Database = pgtest.Start(t)
	b.Database = a.Database
	args := []string{"--workers", "2"}
	for _, w := range []*harness.Weir{a, b} {
		w.Env = []string{"WEIR_STORAGE=" + own.URL()}
		w.Start(args...)
	}
	st := a.OpenStore()
	a.Completed(postKill(a, o, quiet))

	id, before := halfDone(a, st, o, disturbed)
	encodes := before[slices.IndexFunc(before, func(p store.Piece) bool { return p.State == store.PieceRunning })].Node
	victim, left := a, b
	if encodes == nodeID(t, b) {
		victim, left = b, a
	} else if encodes != nodeID(t, a) {
		t.Fatalf("node %s encodes, which is none of the two", encodes)
	}
	victim.Kill()
	killed := time.Now()
	left.Completed(id)
	t.Logf("completed %.1f s after the kill", time.Since(killed).Seconds())
	onlyOnce(t, st, id, before)
	sameFrames(t, quiet, disturbed)
	for _, w := range []*harness.Weir{a, b} {
		if strings.Contains(w.Output.String(), s3test.Secret) {
			t.Error("the log has the credentials of the storage")
		}
	}
	left.Stop()
}

// nodeID returns the id of a node, which is in its data folder.
func nodeID(t *testing.T, w *harness.Weir) string {
	t.Helper()
	id, err := os.ReadFile(filepath.Join(w.Data, "node"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

// killClip is a source that passes through nowhere, and takes a while to encode.
func killClip(t *testing.T, seconds int) string {
	t.Helper()
	return harness.MakeClip(t, fmt.Sprintf("kill%d.mp4", seconds), append(harness.Pictures("480x270", 25, float64(seconds)),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "100", "-b:v", "3M", "-c:a", "aac", "-b:a", "96k")...)
}

// postKill asks for the outputs that are compared afterwards.
func postKill(w *harness.Weir, o *harness.Origin, b s3test.Bucket) (id string) {
	w.T.Helper()
	var task words.Task
	w.Must("POST", "/api/transcode", withSegments(harness.Transcode(o.URL+"/"+words.NewID()+".mp4", b,
		harness.Rung("large", "H.264", 480, 270, 900_000), harness.Rung("small", "H.264", 320, 180, 400_000)), 2), &task)
	return task.ID
}

// halfDone posts a task, waits until some of its chunks are done and some are being done, and returns
// its pieces as they are then. A task that was done before anybody looked is posted again.
func halfDone(w *harness.Weir, st *store.Store, o *harness.Origin, b s3test.Bucket) (id string, pieces []store.Piece) {
	t := w.T
	t.Helper()
	id = postKill(w, o, b)
	harness.Eventually(t, func() (err error) {
		if pieces, err = st.Pieces(t.Context(), id); err != nil {
			return err
		}
		done, running, chunks := 0, 0, 0
		for _, p := range pieces {
			if p.Number < 0 {
				continue
			}
			chunks++
			switch p.State {
			case store.PieceDone:
				done++
			case store.PieceRunning:
				running++
			}
		}
		if chunks > 0 && chunks < 6 {
			t.Fatalf("%d chunks, want at least 6: %+v", chunks, pieces)
		}
		if done >= 2 && running >= 1 && done+running < chunks {
			return nil
		}
		if chunks > 0 && done == chunks {
			w.Completed(id)
			id = postKill(w, o, b)
		}
		return fmt.Errorf("the task was never half done: %d of %d chunks are done", done, chunks)
	})
	return id, pieces
}

// onlyOnce checks that every piece was done once, and those that were done before the
// kill were begun only once.
func onlyOnce(t *testing.T, st *store.Store, id string, before []store.Piece) {
	t.Helper()
	after, err := st.Pieces(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Fatalf("%d pieces, before the kill there were %d", len(after), len(before))
	}
	var again []string
	for i, p := range after {
		if p.State != store.PieceDone || p.Finished != 1 {
			t.Errorf("%s is %s and was finished %d times", p.Name, p.State, p.Finished)
		}
		limit := 1
		if before[i].State == store.PieceRunning || before[i].State == store.PieceQueued {
			limit = 2 // it was in flight, or was taken up just before the kill
		}
		if p.Started > limit {
			t.Errorf("%s was %s at the kill and was begun %d times", p.Name, before[i].State, p.Started)
		}
		if p.Started > 1 {
			again = append(again, p.Name)
		}
	}
	t.Logf("%d pieces; begun twice: %q", len(after), again)
}

// sameFrames decodes every output in two buckets and compares all frames and all audio. Video is
// continued by another encoder, so its frames have the same times and are similar.
func sameFrames(t *testing.T, want, got s3test.Bucket) {
	t.Helper()
	names := func(b s3test.Bucket) (list []string) {
		err := filepath.WalkDir(b.Dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				name, _ := filepath.Rel(b.Dir, path)
				list = append(list, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	wanted := names(want)
	if diff := cmp.Diff(wanted, names(got)); diff != "" {
		t.Errorf("the files (-undisturbed +disturbed):\n%s", diff)
	}
	decoded := 0
	for _, name := range wanted {
		if !slices.Contains([]string{".m3u8", ".mp4"}, filepath.Ext(name)) || strings.HasSuffix(name, "/master.m3u8") || name == "out/hls/index.m3u8" {
			continue
		}
		sum := func(b s3test.Bucket) []byte {
			input := []string{"-i", filepath.Join(b.Dir, name)}
			if filepath.Ext(name) == ".m3u8" {
				input = append([]string{"-allowed_extensions", "ALL"}, input...)
			}
			return harness.FFmpeg(t, append(input, "-map", "0", "-fps_mode", "passthrough", "-f", "framemd5", "-")...)
		}
		if diff := cmp.Diff(withoutVideoSums(sum(want)), withoutVideoSums(sum(got))); diff != "" {
			t.Errorf("%s (-undisturbed +disturbed):\n%s", name, diff[:min(len(diff), 2000)])
		}
		if filepath.Ext(name) == ".mp4" {
			similarFrames(t, filepath.Join(want.Dir, name), filepath.Join(got.Dir, name))
		}
		decoded++
	}
	if decoded < 6 {
		t.Errorf("only %d outputs were compared: %q", decoded, wanted)
	}
}

// withoutVideoSums drops the checksums of the frames of video from the output of framemd5.
func withoutVideoSums(text []byte) string {
	video := map[string]bool{}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutSuffix(strings.TrimSpace(line), ": video"); ok {
			video[strings.TrimPrefix(number, "#media_type ")] = true
		}
		stream, _, _ := strings.Cut(line, ",")
		if last := strings.LastIndex(line, ","); video[stream] && last > 0 {
			line = line[:last] + "\n"
		}
		kept.WriteString(line)
	}
	return kept.String()
}

// similarFrames compares two files frame by frame: another picture in one of them would show.
func similarFrames(t *testing.T, want, got string) {
	t.Helper()
	if len(harness.FFprobe(t, want, "-select_streams", "v", "-show_streams").Streams) == 0 {
		return
	}
	out := harness.FFmpeg(t, "-i", want, "-i", got, "-filter_complex", "[0:v][1:v]ssim=stats_file=-", "-f", "null", "-")
	frames := 0
	for line := range strings.Lines(string(out)) {
		_, all, found := strings.Cut(line, "All:")
		if !found {
			continue
		}
		frames++
		if value := harness.Number(strings.Fields(all)[0]); value < 0.8 {
			t.Errorf("%s: frame %d is not that of the undisturbed run: SSIM %.3f", filepath.Base(got), frames, value)
		}
	}
	if frames == 0 {
		t.Errorf("%s: no frame was compared", filepath.Base(got))
	}
}
