package store

import (
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

// clipTask writes the task of a clip and its asset, and enqueues its job.
func clipTask(t *testing.T, st *Store, userID string, p weir.ClipParams, notBefore time.Time) weir.Task {
	t.Helper()
	now := time.Now()
	a := weir.Asset{ID: weir.NewID(), Name: "clip", UserID: userID, CreatedAt: weir.At(now), Source: weir.AssetSource{Type: weir.SourceClip}, Status: weir.AssetStatus{Phase: weir.AssetWaiting, UpdatedAt: weir.At(now)}}
	a.PlaybackID = weir.NewPlaybackID(a.ID)
	p.ClipStrategy = &weir.ClipStrategy{StartTime: 1000.5, EndTime: 2000}
	task := weir.Task{ID: weir.NewID(), Type: weir.TaskClip, CreatedAt: weir.At(now), UserID: userID, OutputAssetID: a.ID, Params: weir.TaskParams{Clip: &p}}
	task.Queue(now)
	inTx(t, st, func(tx *Tx) error {
		if err := tx.CreateAsset(t.Context(), &a); err != nil {
			return err
		}
		if err := tx.CreateTask(t.Context(), &task); err != nil {
			return err
		}
		return tx.EnqueueClip(t.Context(), task, notBefore)
	})
	return task
}

// queued returns how many jobs a queue has in a state.
func queued(t *testing.T, st *Store, queue, state string) int64 {
	t.Helper()
	stats, err := st.JobStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats[[2]string{queue, state}]
}

// The job of a clip is for the node that carries the session, or for any node, and nobody admits it.
func TestEnqueueClip(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		u := newUser(t, st, "ann@example.com", nil)
		if err := st.heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		stream := liveStreamOf(t, st, u.ID, false)
		var session weir.Session
		inTx(t, st, func(tx *Tx) (err error) {
			session, _, err = tx.GoOnAir(t.Context(), stream, time.Minute, time.Now())
			return err
		})
		clipTask(t, st, u.ID, weir.ClipParams{InputID: "asset"}, time.Time{})
		clipTask(t, st, u.ID, weir.ClipParams{SessionID: "ended", InputID: "ended"}, time.Time{})
		clipTask(t, st, u.ID, weir.ClipParams{SessionID: "over"}, time.Time{})
		clipTask(t, st, u.ID, weir.ClipParams{SessionID: session.ID}, time.Time{})
		clipTask(t, st, u.ID, weir.ClipParams{SessionID: session.ID}, time.Now().Add(5*time.Second)) // it waits by itself
		clipTask(t, st, u.ID, weir.ClipParams{SessionID: session.ID}, time.Now().Add(25*time.Second))
		own := queueClipOfNode + st.node.id
		if free, here, later := queued(t, st, queueClip, "available"), queued(t, st, own, "available"), queued(t, st, own, "scheduled"); free != 3 || here != 2 || later != 1 {
			t.Errorf("%d jobs are for any node, %d for this one, %d for later", free, here, later)
		}
		waiting, err := st.WaitingAccounts(t.Context(), []weir.TaskType{weir.TaskUpload, weir.TaskTranscode, weir.TaskExport}, 5)
		if err != nil || len(waiting) > 0 {
			t.Errorf("clips can be admitted: %+v, %v", waiting, err)
		}
		if n, err := st.RunningTasks(t.Context()); err != nil || n != 0 {
			t.Errorf("%d tasks count as admitted, error %v", n, err)
		}
		if air, err := st.OnAirSession(t.Context(), session.ID); err != nil || air.Node != st.node.id || air.StreamID != stream.ID {
			t.Errorf("the session is on air as %+v, error %v", air, err)
		}
		if _, err := st.OnAirSession(t.Context(), ""); weir.KindOf(err) != weir.NotFound {
			t.Errorf("a session without an id: %v", err)
		}
	})
}

// A clip can be cancelled and tried again. What was written of it is deleted.
func TestCancelClip(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		u := newUser(t, st, "ann@example.com", nil)
		if err := st.heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		stream := liveStreamOf(t, st, u.ID, false)
		var session weir.Session
		inTx(t, st, func(tx *Tx) (err error) {
			session, _, err = tx.GoOnAir(t.Context(), stream, time.Minute, time.Now())
			return err
		})
		task := clipTask(t, st, u.ID, weir.ClipParams{SessionID: session.ID}, time.Time{})
		jobs, _ := work(t, st, 1, JobClip, JobLiveClip)
		first := <-jobs
		if first.Kind != JobLiveClip || first.Ref != task.ID+"/"+st.node.id {
			t.Errorf("the job is %+v", first.Job)
		}
		update := func(change func(*weir.Task) error) (changed weir.Task) {
			t.Helper()
			inTx(t, st, func(tx *Tx) (err error) {
				changed, err = tx.UpdateTask(t.Context(), task.ID, change)
				return err
			})
			return changed
		}
		update(func(t *weir.Task) error { return t.Cancel(time.Now()) })
		<-first.ctx.Done()
		if n := queued(t, st, queueControl, "scheduled"); n != 1 {
			t.Errorf("%d jobs delete what was written, want 1", n)
		}
		again := update(func(t *weir.Task) error { return t.Retry(time.Now()) })
		inTx(t, st, func(tx *Tx) error { return tx.EnqueueClip(t.Context(), again, time.Time{}) })
		second := <-jobs
		if second.Ref != first.Ref || second.ID == first.ID || second.ctx.Err() != nil {
			t.Errorf("tried again as %+v, error %v", second.Job, second.ctx.Err())
		}
		// A job that has to wait comes again without having failed.
		second.end <- Later(0)
		third := <-jobs
		if third.ID != second.ID || third.Attempt != second.Attempt {
			t.Errorf("after a wait comes %+v, before it was %+v", third.Job, second.Job)
		}
		third.end <- nil
	})
}

// Clips that wait for a node that is gone are given to others.
func TestClipsOfLostNode(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		inTx(t, st, func(tx *Tx) error {
			return tx.enqueue(t.Context(), []newJob{
				{kind: JobLiveClip, ref: "one/gone"},
				{kind: JobLiveClip, ref: "two/gone", at: time.Now().Add(time.Minute)},
				{kind: JobLiveClip, ref: "three/" + st.node.id},
				{kind: JobRecording, ref: "four/gone"},
			})
		})
		for range 2 {
			if err := st.heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
			if free, here, gone := queued(t, st, queueClip, "available"), queued(t, st, queueClipOfNode+st.node.id, "available"), queued(t, st, queueOfNode+"gone", "available"); free != 2 || here != 1 || gone != 1 {
				t.Errorf("%d jobs are for any node, %d for this one, %d for the one that is gone", free, here, gone)
			}
		}
		jobs, _ := work(t, st, 2, JobClip)
		var refs []string
		for range 2 {
			job := <-jobs
			refs = append(refs, job.Ref)
			job.end <- nil
		}
		if all := strings.Join(refs, " "); all != "one two" && all != "two one" {
			t.Errorf("jobs %v", refs)
		}
	})
}

// A clip without a job, which should never be, gets another.
func TestStalledClip(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		task := clipTask(t, st, newUser(t, st, "ann@example.com", nil).ID, weir.ClipParams{InputID: "asset"}, time.Time{})
		stalled := func() []string {
			t.Helper()
			ids, err := st.StalledTasks(t.Context(), weir.At(time.Now().Add(time.Minute)))
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		if ids := stalled(); len(ids) != 0 {
			t.Errorf("stalled: %v", ids)
		}
		if _, err := st.conn.exec(t.Context(), "DELETE FROM river_job"); err != nil {
			t.Fatal(err)
		}
		if ids := stalled(); len(ids) != 1 || ids[0] != task.ID {
			t.Errorf("stalled: %v, want the clip", ids)
		}
		inTx(t, st, func(tx *Tx) error { return tx.RestartTask(t.Context(), task.ID) })
		if n := queued(t, st, queueClip, "available"); n != 1 {
			t.Errorf("%d jobs of the clip", n)
		}
	})
}

// A clip of a viewer takes no place of the owner's. The viewer's network is not kept when it has ended.
func TestClipOfViewer(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		_, task := newImport(t, weir.NewAsset{Name: "a"})
		task.Type, task.Status.Phase, task.Secrets.Viewer = weir.TaskClip, weir.TaskWaiting, "192.0.2.1/32"
		task.Params = weir.TaskParams{Clip: &weir.ClipParams{ClipStrategy: &weir.ClipStrategy{PlaybackID: "p"}}}
		createTask(t, st, &task)
		check := func(pending, free, ofViewer int) {
			t.Helper()
			if n, err := st.PendingTasks(ctx, task.UserID); n != pending || err != nil {
				t.Errorf("PendingTasks = %d, %v, want %d", n, err, pending)
			}
			if st.CheckClips(ctx, task.UserID, free) != nil || st.CheckClips(ctx, task.UserID, free+1) == nil {
				t.Errorf("the owner has not %d places", free)
			}
			if st.CheckClipsOfViewers(ctx, task.UserID, "p", task.Secrets.Viewer, ofViewer) != nil || st.CheckClipsOfViewers(ctx, task.UserID, "p", task.Secrets.Viewer, ofViewer+1) == nil {
				t.Errorf("the viewer has not %d places", ofViewer)
			}
		}
		check(0, weir.MaxClips, 1)
		if err := st.CheckClipsOfViewers(ctx, task.UserID, "q", task.Secrets.Viewer, 2); err != nil {
			t.Errorf("of other content: %v", err)
		}
		err := st.Tx(ctx, func(tx *Tx) error {
			done, err := tx.UpdateTask(ctx, task.ID, func(t *weir.Task) error { t.Fail("no", time.Now()); return nil })
			if done.Secrets.Viewer != "" {
				t.Errorf("the task that has ended knows the viewer's network, %s", done.Secrets.Viewer)
			}
			if err == nil { // its owner tries it again
				_, err = tx.UpdateTask(ctx, task.ID, func(t *weir.Task) error { t.Queue(time.Now()); return nil })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		check(1, weir.MaxClips-1, 2)
	})
}
