package work

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

// cutter is a node that records streams and cuts clips.
type cutter struct {
	*studio
	clips  *Clips
	onAirs *onAirs
	asked  chan string // requests to other nodes
}

// onAirs is the session on air; nil = there is none.
type onAirs struct {
	atomic.Pointer[worktest.Live]
	failures atomic.Int32 // how often its tracks can't be read
}

func (o *onAirs) Ranges(id string) ([]weir.ClipRange, error) {
	if l := o.Load(); l != nil {
		return l.Ranges(id)
	}
	return nil, weir.ErrNotFound()
}

func (o *onAirs) Tracks(id string) ([]*media.Track, bool, error) {
	if o.failures.Add(-1) >= 0 {
		return nil, false, weir.Errorf(weir.Upstream, "the disk has a bad day")
	}
	if l := o.Load(); l != nil {
		return l.Tracks(id)
	}
	return nil, false, weir.ErrNotFound()
}

func (o *onAirs) Await(ctx context.Context, id string, until time.Time) error {
	if l := o.Load(); l != nil {
		return l.Await(ctx, id, until)
	}
	return weir.ErrNotFound()
}

func newCutter(t *testing.T, h *fixture) *cutter {
	t.Helper()
	c := &cutter{asked: make(chan string, 10), onAirs: &onAirs{}}
	c.studio = newStudioWith(t, h, func(o *Options) {
		c.clips = NewClips(ClipOptions{
			Store: o.Store, Media: o.Media, Engine: o.Engine, Dir: o.Dir, Base: o.Base, Log: o.Log, OnAir: c.onAirs, Signer: o.Signer,
			Ask: func(_ context.Context, node, sessionID string) ([]weir.ClipRange, error) {
				c.asked <- node + "/" + sessionID
				return []weir.ClipRange{{Start: 1, End: 2}}, nil
			},
		})
		o.Others[store.JobClip], o.Others[store.JobLiveClip] = c.clips.Cut, c.clips.Cut
	})
	return c
}

// clip asks for a clip.
func (c *cutter) clip(t *testing.T, p weir.ClipParams, start, end float64) weir.Task {
	t.Helper()
	now := time.Now()
	id := weir.NewID()
	a := weir.Asset{
		ID: id, Name: "clip", PlaybackID: weir.NewPlaybackID(id), UserID: c.caller.UserID, ProjectID: c.caller.ProjectID, CreatedAt: weir.At(now),
		Source: weir.AssetSource{Type: weir.SourceClip, SessionID: p.SessionID, PlaybackID: "played"}, Status: weir.AssetStatus{Phase: weir.AssetWaiting, UpdatedAt: weir.At(now)},
		Profiles: []weir.Profile{{Name: "tiny", Width: 160, Height: 90, Bitrate: 50_000}}, Sign: p.C2PA,
	}
	if p.SessionID == "" {
		a.Source.AssetID = p.InputID
	}
	p.ClipStrategy = &weir.ClipStrategy{StartTime: start, EndTime: end, PlaybackID: "played"}
	task := weir.Task{
		ID: weir.NewID(), Type: weir.TaskClip, CreatedAt: weir.At(now), UserID: c.caller.UserID, ProjectID: c.caller.ProjectID,
		InputAssetID: p.InputID, OutputAssetID: id, Params: weir.TaskParams{Clip: &p},
	}
	task.Queue(now)
	c.inTx(t, func(tx *store.Tx) error {
		if err := errors.Join(tx.CreateAsset(t.Context(), &a), tx.CreateTask(t.Context(), &task)); err != nil {
			return err
		}
		return tx.EnqueueClip(t.Context(), task, time.Time{})
	})
	return task
}

// checkClip checks a clip: frames of video at a rate from a time on its timeline, and a file that plays.
func (c *cutter) checkClip(t *testing.T, h *fixture, task weir.Task, frames int, first time.Duration) weir.Asset {
	t.Helper()
	a, err := c.Store.Asset(t.Context(), task.OutputAssetID)
	if err != nil || a.Status.Phase != weir.AssetReady || a.PlaybackURL == "" || a.DownloadURL == "" || a.Stored == 0 || a.VideoSpec == nil {
		t.Fatalf("the clip is %+v, error %v", a, err)
	}
	if task.Output == nil || task.Output.Clip == nil || task.Output.Clip.AssetSpec.ID != a.ID || task.Output.Clip.AssetSpec.VideoSpec == nil {
		t.Errorf("the output of the task is %+v", task.Output)
	}
	track, err := media.Open(t.Context(), h.media, "asset/"+a.ID+"/"+media.RecordedVideo)
	if err != nil {
		t.Fatal(err)
	}
	index := track.Index()
	if got := index.Track.Time(index.Start()); index.Frames() != frames || (got-first).Abs() > time.Millisecond {
		t.Errorf("the clip has %d frames from %v on, want %d from %v on", index.Frames(), got, frames, first)
	}
	file, err := media.RecordingFile(t.Context(), h.media, "asset/"+a.ID)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "clip.mp4")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	body := file.Reader(t.Context())
	_, err = io.Copy(out, body)
	if err := errors.Join(err, out.Close(), body.Close()); err != nil {
		t.Fatal(err)
	}
	decodes(t, path)
	return a
}

// framesIn counts the frames of a film at a rate that are in a window, in milliseconds.
func framesIn(rate, start, end float64) (n int, first time.Duration) {
	begin := int(math.Ceil((start - 1) * rate / 1000))
	for i := begin; float64(i)*1000/rate < end-1; i++ {
		n++
	}
	return n, time.Duration(float64(begin) / rate * float64(time.Second))
}

// A clip of an asset has its frames, can be played at once, gets renditions, and outlives the asset.
func TestClipOfAsset(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	server := serve(t, plainClip(t))
	source, upload := c.asset(t, c.caller, weir.NewAsset{Name: "film", URL: server.URL + "/clip.mp4"})
	if _, err := c.clips.Ranges(t.Context(), weir.ClipSource{AssetID: source.ID}); weir.KindOf(err) != weir.NotFound {
		t.Errorf("before it is ready: %v", err)
	}
	c.until(t, upload.ID, phase(weir.TaskCompleted))
	ranges, err := c.clips.Ranges(t.Context(), weir.ClipSource{AssetID: source.ID})
	if err != nil || len(ranges) != 1 || ranges[0].Start != 0 || math.Abs(ranges[0].End-8000) > 1 {
		t.Errorf("the asset has %v, error %v", ranges, err)
	}
	const start, end = 1234.5, 5678
	task := c.clip(t, weir.ClipParams{InputID: source.ID}, start, end)
	task = c.until(t, task.ID, phase(weir.TaskCompleted))
	frames, first := framesIn(24, start, end)
	if clip := c.checkClip(t, h, task, frames, first); clip.Type != "video" || len(clip.VideoSpec.Tracks) != 2 {
		t.Errorf("the clip is a %s with %+v", clip.Type, clip.VideoSpec)
	}
	if len(task.Status.Warnings) != 0 || *task.Status.Progress != 1 {
		t.Errorf("status %+v", task.Status)
	}
	wait.Until(t, "a clip that counts", func() bool { return c.clips.Stats().Copied > 0 })
	if stats := c.clips.Stats(); stats.Completed != 1 || stats.Encoded == 0 || stats.Copied == 0 || stats.Encoded+stats.Copied != int64(frames) {
		t.Errorf("%d frames are counted as %+v", frames, stats)
	}

	// The renditions follow.
	page, err := c.Store.Tasks(t.Context(), store.Query{UserID: c.caller.UserID, Where: []store.Filter{{ID: "outputAssetId", Value: task.OutputAssetID}, {ID: "type", Value: "upload"}}})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%d tasks follow, error %v", len(page.Items), err)
	}
	c.until(t, page.Items[0].ID, phase(weir.TaskCompleted))
	shown, err := media.LoadPresentation(t.Context(), h.media, "asset/"+task.OutputAssetID)
	if err != nil || len(shown.Renditions) != 2 || shown.Renditions[0].Name != "source" || shown.Renditions[1].Name != "tiny" {
		t.Errorf("renditions %+v, error %v", shown.Renditions, err)
	}
	all := names(c.events(t, c.caller, "asset/"+task.OutputAssetID))
	if i := slices.Index(all, weir.AssetReadyEvent); i < 1 || all[i-1] != weir.AssetUpdated || slices.Contains(all[i+1:], weir.AssetReadyEvent) {
		t.Errorf("events of the clip: %v", all)
	}
	all = names(c.events(t, c.caller, "task/"+task.ID))
	if all[0] != weir.TaskUpdated || all[len(all)-1] != weir.TaskCompletedEvent {
		t.Errorf("events of the task: %v", all)
	}

	// A node that was killed before it could note that the job is done does it again.
	c.inTx(t, func(tx *store.Tx) error { return tx.EnqueueClip(t.Context(), task, time.Time{}) })
	wait.Until(t, "the job is done again", func() bool { return c.idle(t) })
	if again, err := c.Store.Task(t.Context(), task.ID); err != nil || !cmp.Equal(task, again) {
		t.Errorf("done again, the task is %+v, error %v", again, err)
	}

	// Without the asset, the clip is whole.
	c.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(t.Context(), source.ID, func(a *weir.Asset) error { a.Delete(time.Now()); return nil })
		return err
	})
	if err := h.media.DeletePrefix(t.Context(), "asset/"+source.ID); err != nil {
		t.Fatal(err)
	}
	c.checkClip(t, h, task, frames, first)
	late := c.clip(t, weir.ClipParams{InputID: source.ID}, start, end)
	late = c.until(t, late.ID, phase(weir.TaskFailed))
	if late.Status.ErrorMessage != "the source of the clip was deleted" {
		t.Errorf("a clip of a deleted asset: %+v", late.Status)
	}
}

// A clip of a recording is found by the wall clock and from the start, across a gap.
func TestClipOfRecording(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	_, session, air := c.onAir(t)
	l := worktest.NewLive(t, filepath.Join(c.dir, session.ID), session.CreatedAt.Time())
	l.Send(4 * time.Second)
	l.Gap(30 * time.Second)
	l.Send(4 * time.Second)
	l.End()
	c.close(t, air, 4, 100)
	c.recorded(t, session.ID, weir.RecordingReady)
	recording := weir.ClipParams{SessionID: session.ID, InputID: session.ID}
	ranges, err := c.clips.Ranges(t.Context(), weir.ClipSource{SessionID: session.ID, AssetID: session.ID})
	want := []weir.ClipRange{{Start: l.Wall(0), End: l.Wall(4 * time.Second)}, {Start: l.Wall(34 * time.Second), End: l.Wall(38 * time.Second)}}
	if diff := cmp.Diff(want, ranges); diff != "" || err != nil {
		t.Errorf("ranges (-want +got), error %v:\n%s", err, diff)
	}
	byStart, err := c.clips.Ranges(t.Context(), weir.ClipSource{AssetID: session.ID})
	if diff := cmp.Diff([]weir.ClipRange{{Start: 0, End: 8000}}, byStart); diff != "" || err != nil {
		t.Errorf("ranges from the start (-want +got), error %v:\n%s", err, diff)
	}
	for _, tt := range []struct {
		name       string
		start, end float64
		frames     int
		first      time.Duration
	}{
		{"wall clock", l.Wall(1250 * time.Millisecond), l.Wall(3750 * time.Millisecond), 25, 1300 * time.Millisecond},
		{"across the gap", l.Wall(3500 * time.Millisecond), l.Wall(35 * time.Second), 15, 3500 * time.Millisecond},
		{"from the start", 4500, 8000, 35, 34500 * time.Millisecond},
		{"from the start across the gap", 100, 4500, 44, 100 * time.Millisecond},
	} {
		task := c.clip(t, recording, tt.start, tt.end)
		task = c.until(t, task.ID, phase(weir.TaskCompleted))
		if len(task.Status.Warnings) != 0 {
			t.Errorf("%s: warnings %q", tt.name, task.Status.Warnings)
		}
		c.checkClip(t, h, task, tt.frames, tt.first)
	}
}

// Clips of a session on air: of what is there, of what is to come, and of what never comes.
func TestClipOnAir(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	_, session, air := c.onAir(t)
	l := worktest.NewLive(t, filepath.Join(c.dir, session.ID), time.Now().Add(-20*time.Second))
	c.onAirs.Store(l)
	l.Send(4 * time.Second)
	at := func(d time.Duration) float64 { return l.Wall(d) }
	live := weir.ClipParams{SessionID: session.ID}
	if ranges, err := c.clips.Ranges(t.Context(), weir.ClipSource{SessionID: session.ID}); err != nil || len(ranges) != 1 || ranges[0].End != at(4*time.Second) {
		t.Errorf("the session has %v, error %v", ranges, err)
	}
	now := c.clip(t, live, at(500*time.Millisecond), at(3500*time.Millisecond))
	now = c.until(t, now.ID, phase(weir.TaskCompleted))
	c.checkClip(t, h, now, 30, 500*time.Millisecond)

	// It waits for its end.
	soon := c.clip(t, live, at(1500*time.Millisecond), at(7700*time.Millisecond))
	c.until(t, soon.ID, func(t weir.Task) bool { return t.Status.Step == stepEnd })
	l.Send(4 * time.Second)
	soon = c.until(t, soon.ID, phase(weir.TaskCompleted))
	c.checkClip(t, h, soon, 62, 1500*time.Millisecond)

	// The stream ends before the clip.
	never := c.clip(t, live, at(6*time.Second), at(11*time.Second))
	c.until(t, never.ID, func(t weir.Task) bool { return t.Status.Step == stepEnd })
	l.End()
	never = c.until(t, never.ID, phase(weir.TaskCompleted))
	c.checkClip(t, h, never, 20, 6*time.Second)
	if len(never.Status.Warnings) != 1 || !strings.Contains(never.Status.Warnings[0], "3s shorter than requested: the stream ended") {
		t.Errorf("warnings %q", never.Status.Warnings)
	}

	// A node that has the session no more takes the recording, when it is made.
	c.onAirs.Store(nil)
	c.close(t, air, 4, 100)
	late := c.clip(t, live, at(time.Second), at(2*time.Second))
	late = c.until(t, late.ID, phase(weir.TaskCompleted))
	c.checkClip(t, h, late, 10, time.Second)
}

// A clip that can't be cut fails with a sentence, with its asset.
func TestClipFails(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	stream, err := weir.NewStream{Name: "show", Profiles: &[]weir.Profile{}}.Stream(c.caller, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var session weir.Session
	var air store.OnAir
	c.inTx(t, func(tx *store.Tx) error { return tx.CreateStream(t.Context(), &stream) })
	c.inTx(t, func(tx *store.Tx) (err error) {
		session, air, err = tx.GoOnAir(t.Context(), stream, time.Minute, time.Now())
		return err
	})
	c.close(t, air, 4, 100)
	wall := float64(time.Now().UnixMilli())
	task := c.clip(t, weir.ClipParams{SessionID: session.ID}, wall-2000, wall-1000)
	task = c.until(t, task.ID, phase(weir.TaskFailed))
	if want := "the stream has ended before the clip was cut, and it was not recorded"; task.Status.ErrorMessage != want {
		t.Errorf("status %+v", task.Status)
	}
	a, err := c.Store.Asset(t.Context(), task.OutputAssetID)
	if err != nil || a.Status.Phase != weir.AssetFailed || a.Status.ErrorMessage != task.Status.ErrorMessage {
		t.Errorf("the asset is %+v, error %v", a.Status, err)
	}
	if all := names(c.events(t, c.caller, "task/"+task.ID)); all[len(all)-1] != weir.TaskFailedEvent {
		t.Errorf("events of the task: %v", all)
	}

	// One whose asset was deleted meanwhile.
	l := worktest.NewLive(t, t.TempDir(), time.Now().Add(-time.Minute))
	l.Send(4 * time.Second)
	_, session, _ = c.onAir(t)
	c.onAirs.Store(l)
	waits := c.clip(t, weir.ClipParams{SessionID: session.ID}, l.Wall(0), l.Wall(10*time.Second))
	c.until(t, waits.ID, func(t weir.Task) bool { return t.Status.Step == stepEnd })
	c.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(t.Context(), waits.OutputAssetID, func(a *weir.Asset) error { a.Delete(time.Now()); return nil })
		return err
	})
	if waits = c.until(t, waits.ID, phase(weir.TaskFailed)); waits.Status.ErrorMessage != messageDeleted {
		t.Errorf("status %+v", waits.Status)
	}

	// One that starts before what is kept, and one that starts after the end.
	early := c.clip(t, weir.ClipParams{SessionID: session.ID}, l.Wall(-time.Second), l.Wall(time.Second))
	if early = c.until(t, early.ID, phase(weir.TaskFailed)); early.Status.ErrorMessage != "the start of the clip is no longer kept" {
		t.Errorf("status %+v", early.Status)
	}
	l.End()
	after := c.clip(t, weir.ClipParams{SessionID: session.ID}, l.Wall(5*time.Second), l.Wall(6*time.Second))
	if after = c.until(t, after.ID, phase(weir.TaskFailed)); after.Status.ErrorMessage != "the stream ended before the start of the clip" {
		t.Errorf("status %+v", after.Status)
	}
	wait.Until(t, "four clips that count as failed", func() bool { return c.clips.Stats().Failed == 4 })
}

// A failure that may not recur is no reason to give up, at first.
func TestClipIsTriedAgain(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	c.clips.backoff = []time.Duration{0}
	_, session, _ := c.onAir(t)
	l := worktest.NewLive(t, filepath.Join(c.dir, session.ID), time.Now().Add(-9*time.Second))
	c.onAirs.Store(l)
	l.Send(4 * time.Second)
	for _, tt := range []struct {
		failures int32
		phase    weir.TaskPhase
		retried  int64
	}{
		{1, weir.TaskCompleted, 1},
		{3, weir.TaskFailed, 2},
	} {
		before := c.clips.retried.Load()
		c.onAirs.failures.Store(tt.failures)
		task := c.clip(t, weir.ClipParams{SessionID: session.ID}, l.Wall(0), l.Wall(3*time.Second))
		task = c.until(t, task.ID, func(t weir.Task) bool { return t.Done() })
		if got := c.clips.retried.Load() - before; task.Status.Phase != tt.phase || got != tt.retried {
			t.Errorf("after %d failures the task is %+v, tried again %d times", tt.failures, task.Status, got)
		}
	}
}

// Events tell of the first progress, and then of each twentieth.
func TestProgressOfClip(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	_, session, _ := c.onAir(t)
	c.onAirs.Store(worktest.NewLive(t, t.TempDir(), time.Now()))
	end := float64(time.Now().Add(time.Hour).UnixMilli())
	task := c.clip(t, weir.ClipParams{SessionID: session.ID}, end-1000, end)
	c.until(t, task.ID, func(t weir.Task) bool { return t.Status.Step == stepEnd })
	var last reported
	before := len(c.events(t, c.caller, "task/"+task.ID))
	for _, tt := range []struct {
		share  float64
		events int
	}{{0.01, 1}, {0.02, 1}, {0.05, 1}, {0.07, 2}, {0.5, 3}} {
		if err := c.clips.note(t.Context(), task.ID, stepCutting, tt.share, &last); err != nil {
			t.Fatal(err)
		}
		got, err := c.Store.Task(t.Context(), task.ID)
		if err != nil || *got.Status.Progress != tt.share || got.Status.Step != stepCutting {
			t.Errorf("at %g the task is %+v, error %v", tt.share, got.Status, err)
		}
		if n := len(c.events(t, c.caller, "task/"+task.ID)) - before; n != tt.events {
			t.Errorf("at %g there are %d events, want %d", tt.share, n, tt.events)
		}
	}
}

// Many clips at once are all done, each once; those that wait keep no slot from the others.
func TestManyClips(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	_, session, _ := c.onAir(t)
	l := worktest.NewLive(t, filepath.Join(c.dir, session.ID), time.Now().Add(-9*time.Second))
	c.onAirs.Store(l)
	l.Send(4 * time.Second)
	live := weir.ClipParams{SessionID: session.ID}
	var waiting, ready []weir.Task
	for range 6 { // more than are cut at once
		waiting = append(waiting, c.clip(t, live, l.Wall(2*time.Second), l.Wall(12*time.Second)))
	}
	for _, task := range waiting {
		c.until(t, task.ID, func(t weir.Task) bool { return t.Status.Step == stepEnd })
	}
	for i := range 10 {
		ready = append(ready, c.clip(t, live, l.Wall(time.Duration(100*i)*time.Millisecond), l.Wall(3*time.Second)))
	}
	for i, task := range ready {
		c.checkClip(t, h, c.until(t, task.ID, phase(weir.TaskCompleted)), 30-i, time.Duration(100*i)*time.Millisecond)
	}
	l.Send(8 * time.Second)
	for _, task := range waiting {
		c.checkClip(t, h, c.until(t, task.ID, phase(weir.TaskCompleted)), 100, 2*time.Second)
	}
	for _, task := range append(waiting, ready...) {
		all := names(c.events(t, c.caller, "task/"+task.ID))
		if n := len(slices.DeleteFunc(all, func(name weir.EventName) bool { return name != weir.TaskCompletedEvent })); n != 1 {
			t.Errorf("a clip was completed %d times", n)
		}
	}
}

// What another node carries is asked for there, and its clips are cut there.
func TestClipOfAnotherNode(t *testing.T) {
	h := newFixture(t)
	c := newCutter(t, h)
	there := h.open(t, "there")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- there.Run(ctx, store.Retention{Events: time.Hour, Credentials: time.Hour}) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	stream, session, _ := c.onAir(t)
	if err := there.Tx(t.Context(), func(tx *store.Tx) (err error) {
		session, _, err = tx.GoOnAir(t.Context(), stream, time.Minute, time.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ranges, err := c.clips.Ranges(t.Context(), weir.ClipSource{SessionID: session.ID})
	if err != nil || len(ranges) != 1 || ranges[0].End != 2 || <-c.asked != "there/"+session.ID {
		t.Errorf("the other node answers %v, error %v", ranges, err)
	}
	// A job that is here although the session is there goes there.
	task := c.clip(t, weir.ClipParams{SessionID: session.ID}, 1e12, 1e12+1000)
	c.inTx(t, func(tx *store.Tx) error { return tx.Enqueue(t.Context(), store.JobClip, task.ID) })
	wait.Until(t, "the job of the other node", func() bool {
		stats, err := c.Store.JobStats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats[[2]string{"clip-there", "available"}] == 2 && stats[[2]string{"clip", "running"}] == 0
	})
}
