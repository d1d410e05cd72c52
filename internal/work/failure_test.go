package work

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob/s3test"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/weir"
)

// TestFinalFailure: a permanent error fails the task at once.
func TestFinalFailure(t *testing.T) {
	n := newFixture(t).node(t, "a")
	bucket, caller := s3test.Start(t), n.account(t, "ann")
	junk := serve(t, bytes.Repeat([]byte("no video "), 1000))
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	for url, want := range map[string]string{
		missing.URL + "/clip.mp4": "file could not be imported from URL because it was not accessible",
		junk.URL + "/clip.mp4":    "failed to probe or open file",
	} {
		task := n.transcode(t, caller, url, bucket, nil)
		task = n.until(t, task.ID, phase(weir.TaskFailed))
		if !strings.HasPrefix(task.Status.ErrorMessage, want) || *task.Status.Retries != 0 || task.Output != nil {
			t.Errorf("%s: %+v, want %q", url, task.Status, want)
		}
		if names := names(n.events(t, caller, "task/"+task.ID)); names[len(names)-1] != weir.TaskFailedEvent {
			t.Errorf("events = %v", names)
		}
	}
}

// TestHostileMedia: what would take days of work fails at once, each with its own sentence and without
// a retry.
func TestHostileMedia(t *testing.T) {
	n := newFixture(t).node(t, "a")
	bucket, caller := s3test.Start(t), n.account(t, "ann")
	film := func(name string, args ...string) []byte {
		return made(t, func() ([]byte, error) { return film(name, args...) })
	}
	sine := []string{"-f", "lavfi", "-i", "sine=d=2:r=48000"}
	image := film("large.gif", "-f", "lavfi", "-i", "testsrc2=s=64x64:r=10:d=1")
	binary.LittleEndian.PutUint16(image[6:], 16000)
	binary.LittleEndian.PutUint16(image[8:], 16000)
	var playlist bytes.Buffer
	playlist.WriteString("#EXTM3U\n")
	for range 1_000_000 {
		playlist.WriteString("#EXTINF:1,\na\n")
	}
	bomb := film("bomb.m4a", slices.Concat(sine, []string{"-af", "asetpts='PTS+gte(T,1)*36000/TB'", "-c:a", "aac", "-b:a", "16k"})...)
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"bomb.m4a": {
			bomb, fmt.Sprintf("invalid video file codec or container: the file has only %d bytes for 10h0m2s of media; send the whole file", len(bomb)),
		},
		"hole.mka": {
			film("hole.mka", slices.Concat(sine, []string{"-af", "asetpts='PTS+gte(T,1)*7200/TB'", "-c:a", "pcm_s16le"})...),
			"invalid video file codec or container: no track has packets from 1s to 2h0m1s; gaps of at most 1h0m0s are allowed",
		},
		"tracks.mka": {
			film("tracks.mka", slices.Concat([]string{"-f", "lavfi", "-i", "sine=d=0.1:r=8000"}, slices.Repeat([]string{"-map", "0"}, 300), []string{"-c:a", "pcm_u8"})...),
			"invalid video file codec or container: the file has 300 tracks; at most 64 are allowed",
		},
		"large.gif": {image, "invalid video file codec or container: its frames have 16000x16000 pixels; at most 36 million are allowed"},
		"many.mka": {
			film("many.mka", slices.Concat(sine, []string{"-af", "asetpts='PTS+gte(T,1)*2000000/TB'", "-c:a", "pcm_s16le"})...),
			"invalid video file codec or container: the file lasts longer than the 24h0m0s that are allowed",
		},
		"many.m3u8": {
			playlist.Bytes(),
			"file could not be imported from URL because it was not accessible: the HLS playlist has more than 86400 segments, which can't be imported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			task := n.transcode(t, caller, serve(t, tt.data).URL+"/"+name, bucket, nil)
			task = n.until(t, task.ID, phase(weir.TaskFailed))
			if diff := cmp.Diff(tt.want, task.Status.ErrorMessage); diff != "" || *task.Status.Retries != 0 {
				t.Errorf("%d retries, message (-want +got):\n%s", *task.Status.Retries, diff)
			}
		})
	}
	if s := n.Stats(); s.Retried != 0 || s.Pieces != 0 {
		t.Errorf("%d attempts were repeated, and %d pieces made", s.Retried, s.Pieces)
	}
}

// TestRetries shows that a task is tried three times, and that an asset fails with its task.
func TestRetries(t *testing.T) {
	h := newFixture(t)
	h.options = func(o *Options) {
		o.Decrypt = func(string) ([]byte, error) { return nil, weir.Errorf(weir.Upstream, "the keys are away") }
	}
	n := h.node(t, "a")
	caller := n.account(t, "ann")
	asset, task := n.asset(t, caller, weir.NewAsset{
		Name: "clip", URL: "https://example.com/clip", PlaybackPolicy: &weir.PlaybackPolicy{Type: "jwt"}, Encryption: &weir.Encryption{EncryptedKey: "AAAA"},
	})
	task = n.until(t, task.ID, phase(weir.TaskFailed))
	if *task.Status.Retries != 2 || task.Status.ErrorMessage != "the keys are away" {
		t.Errorf("status = %+v", task.Status)
	}
	if a, err := n.Store.Asset(t.Context(), asset.ID); err != nil || a.Status.Phase != weir.AssetFailed || a.Status.ErrorMessage != "the keys are away" {
		t.Errorf("asset = %+v, %v", a.Status, err)
	}
	wait.Until(t, "two retries and a failure counted", func() bool { s := n.Stats(); return s.Retried == 2 && s.Failed == 1 })
}

// TestPresignedSource fetches a source with the signature in its URL, also when the task is
// retried. The signature is never shown.
func TestPresignedSource(t *testing.T) {
	n := newFixture(t).node(t, "a")
	caller, data := n.account(t, "ann"), plainClip(t)
	const signature = "f00df00d"
	var broken atomic.Bool
	broken.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() || r.URL.Query().Get("X-Amz-Signature") != signature {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		http.ServeContent(w, r, "clip.mp4", time.Time{}, bytes.NewReader(data))
	}))
	defer server.Close()
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip", URL: server.URL + "/clip.mp4?X-Amz-Date=1&X-Amz-Signature=" + signature, TargetSegmentSizeSecs: 2})
	n.until(t, task.ID, phase(weir.TaskFailed))
	broken.Store(false)
	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateTask(t.Context(), task.ID, func(t *weir.Task) error { return t.Retry(time.Now()) })
		return err
	})
	task = n.until(t, task.ID, phase(weir.TaskCompleted))
	asset, err := n.Store.Asset(t.Context(), asset.ID)
	if err != nil {
		t.Fatal(err)
	}
	if want := server.URL + "/clip.mp4?X-Amz-Date=1&X-Amz-Signature=***"; task.Params.Upload.URL != want || asset.Source.URL != want {
		t.Errorf("the task shows %s and the asset %s, want %s", task.Params.Upload.URL, asset.Source.URL, want)
	}
	events := append(n.events(t, caller, "task/"+task.ID), n.events(t, caller, "asset/"+asset.ID)...)
	if len(events) == 0 {
		t.Error("no events")
	}
	for _, e := range events {
		if strings.Contains(string(e.Payload), signature) {
			t.Errorf("event %s has the signature: %s", e.Name, e.Payload)
		}
	}
}

// TestDamagedSource completes the task of a source that is damaged and still plays, with a word
// about the damage, in the API and in events.
func TestDamagedSource(t *testing.T) {
	n := newFixture(t).node(t, "a")
	bucket, caller := s3test.Start(t), n.account(t, "ann")
	data := bytes.Clone(made(t, func() ([]byte, error) {
		return film("clip.avi", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=3", "-c:v", "mpeg4", "-q:v", "2")
	}))
	for quarter := 1; quarter < 4; quarter++ {
		copy(data[quarter*len(data)/4:], bytes.Repeat([]byte{0xa5}, 100))
	}
	task := n.transcode(t, caller, serve(t, data).URL+"/clip.avi", bucket, nil)
	task = n.until(t, task.ID, phase(weir.TaskCompleted))
	if w := task.Status.Warnings; len(w) != 1 || !strings.Contains(w[0], "of the video could not be decoded properly") {
		t.Errorf("warnings = %q", w)
	}
	events := n.events(t, caller, "task/"+task.ID)
	if last := events[len(events)-1]; last.Name != weir.TaskCompletedEvent || !strings.Contains(string(last.Payload), `"warnings":["some frames `) {
		t.Errorf("event %s: %s", last.Name, last.Payload)
	}
}

// TestCancel cancels a task whose source has stalled.
func TestCancel(t *testing.T) {
	n := newFixture(t).node(t, "a")
	bucket, caller := s3test.Start(t), n.account(t, "ann")
	begun, left := make(chan struct{}, 10), make(chan struct{}, 10)
	stuck := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(make([]byte, 1000))
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	defer stuck.Close()
	task := n.transcode(t, caller, stuck.URL+"/clip.mp4", bucket, nil)
	<-begun
	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateTask(t.Context(), task.ID, func(t *weir.Task) error { return t.Cancel(time.Now()) })
		return err
	})
	<-left
	task = n.until(t, task.ID, phase(weir.TaskCancelled))
	if task.Status.ErrorMessage != "" {
		t.Errorf("status = %+v", task.Status)
	}
	wait.Until(t, "empty folder", func() bool {
		if err := n.deleteEndedFolders(t.Context()); err != nil {
			t.Fatal(err)
		}
		return empty(n.Dir)
	})
}

// TestDeletedAsset stops the task of an asset that is deleted.
func TestDeletedAsset(t *testing.T) {
	n := newFixture(t).node(t, "a")
	caller := n.account(t, "ann")
	asset, task, err := weir.NewAsset{Name: "clip", URL: "https://example.com/clip.mp4"}.Asset(caller, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	asset.Delete(time.Now())
	n.inTx(t, func(tx *store.Tx) error {
		if err := tx.CreateAsset(t.Context(), &asset); err != nil {
			return err
		}
		return tx.CreateTask(t.Context(), &task)
	})
	task = n.until(t, task.ID, phase(weir.TaskFailed))
	if task.Status.ErrorMessage != messageDeleted {
		t.Errorf("status = %+v", task.Status)
	}
	if a, err := n.Store.Asset(t.Context(), asset.ID); err != nil || a.Status.Phase != weir.AssetDeleting {
		t.Errorf("asset = %+v, %v", a.Status, err)
	}
}

// TestCrash kills a node in the middle of a task: after its restart the task continues, and the
// outcome has the frames of a task that was never disturbed.
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Run("sqlite", func(t *testing.T) { testCrash(t, newFixture(t)) })
	t.Run("postgres", func(t *testing.T) {
		testCrash(t, fixtureAt(t, t.TempDir(), storetest.PostgreSQL(t, store.Open, storeOptions(""))))
	})
}

func testCrash(t *testing.T, h *fixture) {
	h.options = oneSlot
	calm, disturbed, server := s3test.Start(t), s3test.Start(t), serve(t, plainClip(t))
	onlyMP4 := func(t *weir.Task) { t.Params.Transcode.Outputs.HLS, t.Params.Transcode.Outputs.FMP4 = nil, nil }
	n := h.node(t, "a")
	caller := n.account(t, "ann")
	first := n.transcode(t, caller, server.URL+"/clip.mp4", calm, onlyMP4)
	n.until(t, first.ID, phase(weir.TaskCompleted))
	second := n.transcode(t, caller, server.URL+"/clip.mp4", disturbed, func(task *weir.Task) {
		onlyMP4(task)
		n.stop()
		n.Work.Store = h.open(t, "")
	})
	kill := h.process(t)
	wait.Until(t, "a piece begun after the first", func() bool {
		pieces, err := n.Store.Pieces(t.Context(), second.ID)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(pieces, func(p store.Piece) bool { return p.Number == 1 && p.Started > 0 })
	})
	kill()
	next := h.node(t, "a")
	next.until(t, second.ID, phase(weir.TaskCompleted))
	pieces, err := next.Store.Pieces(t.Context(), second.ID)
	if err != nil {
		t.Fatal(err)
	}
	again := 0
	for _, p := range pieces {
		if p.Finished != 1 || p.Started > 2 {
			t.Errorf("piece %s was started %d times and finished %d times", p.Name, p.Started, p.Finished)
		}
		again += p.Started - 1
	}
	if again > 1 {
		t.Errorf("%d pieces were started again, only one was in hand", again)
	}
	// The second half was encoded by another encoder, so only the times of its frames are the same.
	want, got := frameTimes(t, filepath.Join(calm.Dir, "out/mp4/small.mp4")), frameTimes(t, filepath.Join(disturbed.Dir, "out/mp4/small.mp4"))
	if diff := cmp.Diff(want, got); diff != "" || want == "" {
		t.Errorf("frames differ (-calm +disturbed):\n%s", diff)
	}
}

// frameTimes decodes the video of a file and returns the times of its frames.
func frameTimes(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-select_streams", "v", "-show_entries", "frame=pts,pkt_duration",
		"-of", "csv=p=0", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var times strings.Builder // without the side data of some frames
	for line := range strings.Lines(string(out)) {
		if line = strings.Trim(line, ",\n"); line != "" {
			times.WriteString(line + "\n")
		}
	}
	return times.String()
}

func oneSlot(o *Options) { o.Slots = 1 }

// The environment of a node process.
const (
	houseVariable    = "WEIR_TEST_HOUSE"
	databaseVariable = "WEIR_TEST_HOUSE_DATABASE"
)

// process starts a node in a process of its own, which can be killed.
func (h *fixture) process(t *testing.T) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestNodeProcess$")
	cmd.Env = append(os.Environ(), houseVariable+"="+h.dir, databaseVariable+"="+h.url)
	cmd.Stderr = os.Stderr
	alive, err := cmd.StdinPipe() // ends with this process
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = alive.Close()
	})
	t.Cleanup(kill)
	return kill
}

// TestNodeProcess is the node that another test kills.
func TestNodeProcess(t *testing.T) {
	dir := os.Getenv(houseVariable)
	if dir == "" {
		t.Skip("only for another test")
	}
	h := fixtureAt(t, dir, os.Getenv(databaseVariable))
	h.options = oneSlot
	h.node(t, "a")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestFairness has an account with many tasks and a second one that adds one later.
func TestFairness(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	h := newFixture(t)
	h.options = func(o *Options) { o.Slots, o.MaxRunning = 1, 2 }
	n := h.node(t, "a")
	bucket, server := s3test.Start(t), serve(t, made(t, short))
	ann, bob := n.account(t, "ann"), n.account(t, "bob")
	last := weir.Task{}
	for i := range 6 {
		last = n.transcode(t, ann, server.URL+"/clip.mp4", bucket, func(t *weir.Task) {
			t.Params.Transcode.Outputs = weir.TranscodeOutputs{MP4: &weir.PathParam{Path: "/ann" + string(rune('0'+i))}}
		})
	}
	late := n.transcode(t, bob, server.URL+"/clip.mp4", bucket, func(t *weir.Task) {
		t.Params.Transcode.Outputs = weir.TranscodeOutputs{MP4: &weir.PathParam{Path: "/bob"}}
	})
	n.until(t, late.ID, phase(weir.TaskCompleted))
	if task, err := n.Store.Task(t.Context(), last.ID); err != nil || task.Done() {
		t.Errorf("the last of many was done before the first of another account: %+v, %v", task.Status, err)
	}
	n.until(t, last.ID, phase(weir.TaskCompleted))
}
