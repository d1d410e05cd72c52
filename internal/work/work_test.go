package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(pgtest.Runner{M: s3test.Runner{M: m}})
}

// plain is a file of eight seconds that passes through, made once.
var plain = sync.OnceValues(func() ([]byte, error) {
	return film("clip.mp4", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=8", "-f", "lavfi", "-i", "sine=d=8:r=48000",
		"-c:v", "libx264", "-preset", "veryfast", "-g", "24", "-pix_fmt", "yuv420p", "-c:a", "aac", "-movflags", "+faststart")
})

// short is a file of one second, made once.
var short = sync.OnceValues(func() ([]byte, error) {
	return film("clip.mp4", "-f", "lavfi", "-i", "testsrc2=s=160x90:r=24:d=1", "-c:v", "libx264", "-preset", "veryfast", "-g", "24", "-pix_fmt", "yuv420p")
})

// film makes a file with ffmpeg and returns its bytes.
func film(name string, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "weir-work")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, name)
	cmd := exec.Command("ffmpeg", append(append([]string{"-nostdin", "-v", "error", "-y"}, args...), file)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func plainClip(t *testing.T) []byte { return made(t, plain) }

func made(t *testing.T, clip func() ([]byte, error)) []byte {
	t.Helper()
	data, err := clip()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// house is a database and a storage, in which nodes live.
type fixture struct {
	url, dir string
	media    blob.Store
	options  func(*Options) // of nodes
	signer   *publish.Signer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return fixtureAt(t, t.TempDir(), storetest.SQLite(t, store.Open, storeOptions("")))
}

func fixtureAt(t *testing.T, dir, url string) *fixture {
	t.Helper()
	media, err := blob.NewDisk(filepath.Join(dir, "media"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = media.Close() })
	return &fixture{url: url, dir: dir, media: media, options: func(*Options) {}}
}

func storeOptions(node string) store.Options {
	return store.Options{Secret: bytes.Repeat([]byte{7}, 32), NodeID: node}
}

// open opens the database, for a node or without one.
func (h *fixture) open(t *testing.T, node string) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), h.url, storeOptions(node))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

// node is a node at work.
type node struct {
	*Work
	stop func()
}

// node starts a node; it stops with the test.
func (h *fixture) node(t *testing.T, id string) *node {
	t.Helper()
	st := h.open(t, id)
	o := Options{
		Store: st, Media: h.media, Engine: worktest.Engine(t, h.media), Fetcher: worktest.Fetcher(), Caller: worktest.Caller(),
		Dir: filepath.Join(h.dir, "work"), Base: weir.Base{URL: "https://weir.example"}, MinFree: 1, Slots: 2, Signer: h.signer,
		Backoff: []time.Duration{time.Millisecond, time.Millisecond}, Drain: 10 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	h.options(&o)
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- st.Run(ctx, store.Retention{Events: time.Hour, Credentials: time.Hour}) }()
	go func() { done <- w.Run(ctx) }()
	n := &node{Work: w, stop: sync.OnceFunc(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("node %s: %v", id, err)
			}
		}
	})}
	t.Cleanup(n.stop)
	return n
}

// account makes an account.
func (n *node) account(t *testing.T, name string) *weir.Caller {
	t.Helper()
	u := weir.User{ID: weir.NewID(), Email: name + "@example.com", CreatedAt: weir.At(time.Now())}
	n.inTx(t, func(tx *store.Tx) error { return tx.CreateUser(t.Context(), &u) })
	return &weir.Caller{UserID: u.ID, ProjectID: "p"}
}

func (n *node) inTx(t *testing.T, do func(*store.Tx) error) {
	t.Helper()
	if err := n.Store.Tx(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

// transcode asks for a task.
func (n *node) transcode(t *testing.T, caller *weir.Caller, source string, bucket s3test.Bucket, change func(*weir.Task)) weir.Task {
	t.Helper()
	now := time.Now()
	task := weir.Task{
		ID: weir.NewID(), Type: weir.TaskTranscode, CreatedAt: weir.At(now), UserID: caller.UserID, ProjectID: caller.ProjectID,
		Params: weir.TaskParams{Transcode: &weir.TranscodeParams{
			Input: weir.URLParam{URL: source}, TargetSegmentSizeSecs: 2,
			Outputs:  weir.TranscodeOutputs{HLS: &weir.PathParam{Path: "/out/hls"}, MP4: &weir.PathParam{Path: "/out/mp4"}, FMP4: &weir.PathParam{Path: "/out"}},
			Profiles: []weir.Profile{{Name: "small", Width: 160, Height: 90, Bitrate: 100_000}},
		}},
		Secrets: weir.TaskSecrets{StorageURL: bucket.URL()},
	}
	if change != nil {
		change(&task)
	}
	task.Queue(now)
	n.inTx(t, func(tx *store.Tx) error { return tx.CreateTask(t.Context(), &task) })
	return task
}

// asset asks for an asset.
func (n *node) asset(t *testing.T, caller *weir.Caller, body weir.NewAsset) (weir.Asset, weir.Task) {
	t.Helper()
	asset, task, err := body.Asset(caller, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n.inTx(t, func(tx *store.Tx) error {
		if err := tx.CreateAsset(t.Context(), &asset); err != nil {
			return err
		}
		return tx.CreateTask(t.Context(), &task)
	})
	return asset, task
}

// until waits until a task fulfils a condition.
func (n *node) until(t *testing.T, id string, reached func(weir.Task) bool) (task weir.Task) {
	t.Helper()
	wait.Progress(t, func() (err error) {
		if task, err = n.Store.Task(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if reached(task) {
			return nil
		}
		if task.Done() {
			t.Fatalf("task ended: %+v", task.Status)
		}
		status, err := json.Marshal(task.Status)
		pieces, errPieces := n.Store.Pieces(t.Context(), id)
		return fmt.Errorf("the task is still %s; pieces %+v, error %v", status, pieces, errors.Join(err, errPieces))
	})
	return task
}

func phase(want weir.TaskPhase) func(weir.Task) bool {
	return func(t weir.Task) bool { return t.Status.Phase == want }
}

// events returns the names of all events, in their order, and those of an asset with it.
func (n *node) events(t *testing.T, caller *weir.Caller, resource string) []weir.Event {
	t.Helper()
	all, err := n.Store.Events(t.Context(), caller.UserID, caller.ProjectID, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var some []weir.Event
	for _, e := range all {
		if e.Resource == resource {
			some = append(some, e)
		}
	}
	return some
}

// snapshot returns the asset in an event.
func snapshot(t *testing.T, e weir.Event) (a weir.Asset) {
	t.Helper()
	var payload struct {
		Asset struct {
			Snapshot *weir.Asset `json:"snapshot"`
		} `json:"asset"`
	}
	payload.Asset.Snapshot = &a
	if err := json.Unmarshal(e.Payload, &payload); err != nil {
		t.Fatal(err)
	}
	return a
}

// empty reports whether a folder has no files in it.
func empty(dir string) bool {
	files := 0
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return nil
	})
	return files == 0
}

// serve is a server with one file that counts the sent bytes.
func serve(t *testing.T, data []byte) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "clip.mp4", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(server.Close)
	return server
}

// decodes checks that ffmpeg reads a file without a complaint.
func decodes(t *testing.T, file string) {
	t.Helper()
	if out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-xerror", "-i", file, "-f", "null", "-").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", filepath.Base(file), err, out)
	}
}

func TestTranscode(t *testing.T) {
	n := newFixture(t).node(t, "a")
	bucket, server := s3test.Start(t), serve(t, plainClip(t))
	caller := n.account(t, "ann")
	task := n.transcode(t, caller, server.URL+"/clip.mp4", bucket, nil)
	task = n.until(t, task.ID, phase(weir.TaskCompleted))
	if p := task.Status.Progress; p == nil || *p != 1 || task.Status.Retries != nil || task.Status.ErrorMessage != "" {
		t.Errorf("status = %+v", task.Status)
	}
	out := task.Output.Transcode
	if out == nil || out.HLS.Path != "/out/hls/index.m3u8" || len(out.MP4) != 1 || out.MP4[0].Path != "/out/mp4/small.mp4" ||
		!strings.HasSuffix(out.BaseURL, "/"+bucket.Name) || len(out.Renditions) != 1 || out.InputVideo.Size != int64(len(plainClip(t))) || len(out.RequestID) != 8 {
		t.Fatalf("output = %+v", out)
	}
	for _, path := range []string{out.HLS.Path, out.MP4[0].Path, out.FMP4.Path, out.FMP4.DASH} {
		if _, err := os.Stat(filepath.Join(bucket.Dir, path)); err != nil {
			t.Errorf("not there: %v", err)
		}
	}
	decodes(t, filepath.Join(bucket.Dir, "/out/hls/index.m3u8"))
	decodes(t, filepath.Join(bucket.Dir, "/out/mp4/small.mp4"))
	pieces, err := n.Store.Pieces(t.Context(), task.ID)
	if err != nil || len(pieces) < 3 {
		t.Fatalf("pieces = %+v, %v", pieces, err)
	}
	for _, p := range pieces {
		if p.Started != 1 || p.Finished != 1 || p.State != store.PieceDone {
			t.Errorf("piece %s was started %d times and finished %d times", p.Name, p.Started, p.Finished)
		}
	}
	if names := names(n.events(t, caller, "task/"+task.ID)); names[0] != weir.TaskUpdated || names[len(names)-1] != weir.TaskCompletedEvent {
		t.Errorf("events = %v", names)
	}
	wait.Until(t, "empty storage", func() bool { return empty(filepath.Join(n.Dir, "../media/work")) })
	if err := n.deleteEndedFolders(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "empty folder", func() bool { return empty(n.Dir) })
}

func names(events []weir.Event) (names []weir.EventName) {
	for _, e := range events {
		names = append(names, e.Name)
	}
	return names
}
