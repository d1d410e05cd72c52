package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// runningTask writes a task of the user that is being done, with chunks of which
// each waits for the one two before it, and an audio track.
func runningTask(t *testing.T, st *Store, user string, chunks int, streamed bool) weir.Task {
	t.Helper()
	var pieces []Piece
	for n := range chunks {
		pieces = append(pieces, Piece{Name: fmt.Sprintf("chunk%d", n), Number: n, Needs: max(0, n-1), Urgent: n == 0, Weight: 1})
	}
	return runningPieces(t, st, user, streamed, append(pieces, Piece{Name: "audio0", Number: -1, Weight: 1}))
}

// runningPieces writes a task of the user that is being done, with these pieces.
func runningPieces(t *testing.T, st *Store, user string, streamed bool, pieces []Piece) weir.Task {
	t.Helper()
	_, task := newImport(t, weir.NewAsset{Name: "a", URL: "https://example.com/a.mp4"})
	task.UserID, task.Status.Phase = user, weir.TaskRunning
	createTask(t, st, &task)
	inTx(t, st, func(tx *Tx) error {
		if _, err := tx.StartTask(t.Context(), task.ID); err != nil {
			return err
		}
		if _, err := tx.UpdateTaskState(t.Context(), task.ID, func(s *TaskState) { s.Plan, s.Progressive = json.RawMessage(`{"a":1}`), streamed }); err != nil {
			return err
		}
		if err := tx.CreatePieces(t.Context(), task.ID, pieces); err != nil {
			return err
		}
		return enqueueReady(t, tx)
	})
	return task
}

// enqueueReady enqueues all pieces that can be done. (Package work chooses among them.)
func enqueueReady(t *testing.T, tx *Tx) error {
	t.Helper()
	q, err := tx.EncodeQueue(t.Context(), 1000)
	for _, p := range q.Ready {
		if err == nil {
			err = tx.EnqueuePiece(t.Context(), p)
		}
	}
	return err
}

func inTx(t *testing.T, st *Store, do func(*Tx) error) {
	t.Helper()
	if err := st.Tx(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

// states returns the state of each piece of a task, in a word.
func states(t *testing.T, st *Store, taskID string) string {
	t.Helper()
	pieces, err := st.Pieces(t.Context(), taskID)
	if err != nil {
		t.Fatal(err)
	}
	var word strings.Builder
	for _, p := range pieces {
		word.WriteByte(p.State[0])
	}
	return word.String()
}

// takePiece begins the piece of a job.
func takePiece(t *testing.T, st *Store, job Job) (p Piece, ok bool) {
	t.Helper()
	if err := st.JobTx(t.Context(), job, func(tx *Tx) (err error) {
		_, p, ok, err = tx.StartPiece(t.Context(), job)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return p, ok
}

func donePiece(t *testing.T, st *Store, job heldJob, p Piece) {
	t.Helper()
	if err := st.JobTx(t.Context(), job.Job, func(tx *Tx) error {
		if _, err := tx.FinishPiece(t.Context(), job.Job, p, json.RawMessage(`{"of":"`+p.Name+`"}`), true); err != nil {
			return err
		}
		return enqueueReady(t, tx)
	}); err != nil {
		t.Fatal(err)
	}
	job.end <- nil
}

// TestPieces follows a task from its first piece to its last: pieces are enqueued in order, each
// once, and what is done is published by one job at a time.
func TestPieces(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		ctx := t.Context()
		all, _ := work(t, st, 1, JobPiece, JobPublish)
		task := runningTask(t, st, "u1", 3, true)
		if got := states(t, st, task.ID); !strings.Contains(got, "w") || strings.Count(got, "w") == 4 {
			t.Errorf("states after the start = %q, want some to wait and some not", got)
		}
		var order []string
		var held heldJob
		for len(order) < 4 {
			job := <-all
			if job.Kind == JobPublish {
				if held.end != nil {
					t.Fatal("a second job to publish while the first runs")
				}
				held = job
				continue
			}
			p, ok := takePiece(t, st, job.Job)
			if !ok || p.Started != 0 || p.TaskID != task.ID {
				t.Fatalf("piece of %s = %+v, %v", job.Ref, p, ok)
			}
			order = append(order, p.Name)
			donePiece(t, st, job, p)
		}
		if held.end == nil {
			held = <-all
		}
		slices.Sort(order[1:])
		if diff := cmp.Diff([]string{"chunk0", "audio0", "chunk1", "chunk2"}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if got := states(t, st, task.ID); got != "dddd" {
			t.Errorf("states at the end = %q", got)
		}

		var seen TaskState
		inTx(t, st, func(tx *Tx) (err error) {
			var ok bool
			if seen, ok, err = tx.StartPublish(ctx, held.Job); err == nil && !ok {
				err = errors.New("nothing to publish")
			}
			return err
		})
		if seen.Done != 4 || !seen.Complete() || seen.Ahead != 3 {
			t.Errorf("work = %+v", seen)
		}
		seen.Done = 1 // as if it had looked earlier
		inTx(t, st, func(tx *Tx) error { return tx.EndPublish(ctx, held.Job, seen) })
		held.end <- nil
		again := <-all
		inTx(t, st, func(tx *Tx) (err error) {
			var ok bool
			if seen, ok, err = tx.StartPublish(ctx, again.Job); err == nil && !ok {
				err = errors.New("nothing to publish the second time")
			}
			return err
		})
		inTx(t, st, func(tx *Tx) error { return tx.EndPublish(ctx, again.Job, seen) })
		again.end <- nil
		if n, err := one(ctx, st.conn, scanInt, "SELECT count(*) FROM task_work WHERE publishing"); err != nil || n != 0 {
			t.Errorf("%d tasks are being published, %v", n, err)
		}
		results, err := st.PieceResults(ctx, task.ID, []string{"chunk0", "chunk2", "nope"})
		if err != nil || len(results) != 2 || string(results["chunk2"]) != `{"of":"chunk2"}` {
			t.Errorf("results = %s, %v", results, err)
		}
		pieces, err := st.Pieces(ctx, task.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pieces {
			if p.Result != nil {
				t.Errorf("piece %s has result %s", p.Name, p.Result)
			}
			if p.Started != 1 || p.Finished != 1 || p.Node != "node-a" || p.FinishedAt < p.StartedAt || p.StartedAt == 0 {
				t.Errorf("piece %s: %+v", p.Name, p)
			}
		}
		// The task ends: its bytes go, and what it noted with them.
		updateTask(t, st, task.ID, func(t *weir.Task) error { t.Complete(nil, nil, time.Now()); return nil })
		ref, err := one(ctx, st.conn, scanText, "SELECT args->>'ref' FROM river_job WHERE kind = 'purge'")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := PurgeRef(ref); err != nil || p != (Purge{TaskID: task.ID, Run: 1}) {
			t.Errorf("purge of %q = %+v, %v", ref, p, err)
		}
		inTx(t, st, func(tx *Tx) error { return tx.ClearTaskState(ctx, task.ID, 1) })
		if w, err := st.TaskState(ctx, task.ID); err != nil || w.Plan != nil || w.Done != 4 {
			t.Errorf("work after the end = %+v, %v", w, err)
		}
	})
}

// TestPieceOnce shows that a piece is done by one job, whatever jobs there are of it.
func TestPieceOnce(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 4, JobPiece)
		task := runningTask(t, st, "u1", 1, false)
		first, second := <-jobs, <-jobs
		if strings.HasSuffix(first.Ref, "audio0") {
			first, second = second, first
		}
		p, ok := takePiece(t, st, first.Job)
		if !ok {
			t.Fatal("not taken")
		}
		enqueue(t, st, JobPiece, first.Ref)
		third := <-jobs
		if _, ok := takePiece(t, st, third.Job); ok {
			t.Error("a second job has taken the piece that is being done")
		}
		third.end <- nil
		donePiece(t, st, first, p)
		enqueue(t, st, JobPiece, first.Ref)
		fourth := <-jobs
		if _, ok := takePiece(t, st, fourth.Job); ok {
			t.Error("a piece that is done was taken again")
		}
		fourth.end <- nil
		// A job whose task was cancelled finds nothing to do.
		updateTask(t, st, task.ID, func(t *weir.Task) error { return t.Cancel(time.Now()) })
		<-second.ctx.Done()
	})
}

// TestPiecesAfterAFailure shows that an attempt continues with the finished pieces, and that
// a task that had ended begins from nothing.
func TestPiecesAfterAFailure(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		ctx := t.Context()
		jobs, _ := work(t, st, 1, JobPiece)
		task := runningTask(t, st, "u1", 2, false)
		job := <-jobs
		p, _ := takePiece(t, st, job.Job)
		donePiece(t, st, job, p)
		second := <-jobs
		if _, ok := takePiece(t, st, second.Job); !ok {
			t.Fatal("not taken")
		}
		before := time.Now()
		inTx(t, st, func(tx *Tx) error {
			if _, err := tx.UpdateTask(ctx, task.ID, func(t *weir.Task) error {
				if _, ok := t.Requeue("the store is away", before); !ok {
					return errors.New("no attempt left")
				}
				return nil
			}); err != nil {
				return err
			}
			return tx.DelayTask(ctx, task.ID, before.Add(time.Hour))
		})
		<-second.ctx.Done()
		inTx(t, st, func(tx *Tx) error {
			waiting, err := tx.WaitingAccounts(ctx, []weir.TaskType{weir.TaskUpload}, 5)
			if len(waiting) > 0 {
				t.Error("it can be admitted before its time")
			}
			return err
		})
		inTx(t, st, func(tx *Tx) error { return tx.Enqueue(ctx, JobTask, task.ID) })
		updateTask(t, st, task.ID, func(t *weir.Task) error { t.Start(0, before); return nil })
		inTx(t, st, func(tx *Tx) error {
			w, err := tx.StartTask(ctx, task.ID)
			if w.Done != 1 || w.Run != 1 || string(w.Plan) != `{"a":1}` {
				t.Errorf("work of the second attempt = %+v", w)
			}
			if err != nil {
				return err
			}
			if err := tx.ResumePieces(ctx, task.ID); err != nil {
				return err
			}
			return enqueueReady(t, tx)
		})
		for range 2 {
			job := <-jobs
			p, ok := takePiece(t, st, job.Job)
			if !ok {
				t.Fatalf("%s was not taken", job.Ref)
			}
			donePiece(t, st, job, p)
		}
		if got := states(t, st, task.ID); got != "ddd" {
			t.Errorf("states = %q", got)
		}
		updateTask(t, st, task.ID, func(t *weir.Task) error { t.Fail("no", before); return nil })
		inTx(t, st, func(tx *Tx) error {
			w, err := tx.StartTask(ctx, task.ID)
			if w.Run != 2 || w.Done != 0 || w.Plan != nil {
				t.Errorf("work after the end = %+v", w)
			}
			return err
		})
		if got := states(t, st, task.ID); got != "" {
			t.Errorf("states of a task that starts again = %q", got)
		}
	})
}

// TestPieceOfDeadNode kills a node in the middle of a piece, which continues after the restart.
func TestPieceOfDeadNode(t *testing.T) {
	eachPair(t, "node-a", "node-a", func(t *testing.T, dead, next *Store) {
		ctx := t.Context()
		if err := dead.register(ctx); err != nil {
			t.Fatal(err)
		}
		jobs, _ := work(t, dead, 1, JobPiece)
		task := runningTask(t, dead, "u1", 1, false)
		job := <-jobs
		p, ok := takePiece(t, dead, job.Job)
		if !ok {
			t.Fatal("not taken")
		}
		run(t, next) // takes over the job of the former process
		jobsOfNext, _ := work(t, next, 1, JobPiece)
		for {
			again := <-jobsOfNext
			taken, ok := takePiece(t, next, again.Job)
			if !ok {
				t.Fatalf("%s was not taken", again.Ref)
			}
			donePiece(t, next, again, taken)
			if taken.Name == p.Name {
				break
			}
		}
		if err := dead.JobTx(ctx, job.Job, func(tx *Tx) error {
			_, err := tx.FinishPiece(ctx, job.Job, p, nil, true)
			return err
		}); !errors.Is(err, errLostJob) {
			t.Errorf("the dead node finished its piece: %v", err)
		}
		pieces, err := next.Pieces(ctx, task.ID)
		if err != nil || pieces[0].Started != 2 || pieces[0].Finished != 1 {
			t.Errorf("pieces = %+v, %v", pieces, err)
		}
		job.end <- nil
	})
}

// runningEncodes writes a task with two encodes: one of four chunks, and one of one.
func runningEncodes(t *testing.T, st *Store, user string) weir.Task {
	t.Helper()
	var pieces []Piece
	for n := range 5 {
		pieces = append(pieces, Piece{
			Name: fmt.Sprintf("chunk%d", n), Number: n, Continues: n > 0 && n < 4, Urgent: n == 0, Weight: 1,
		})
	}
	return runningPieces(t, st, user, false, pieces)
}

func finishChunk(t *testing.T, st *Store, job Job, p Piece, continues bool) (next Piece) {
	t.Helper()
	if err := st.JobTx(t.Context(), job, func(tx *Tx) (err error) {
		if next, err = tx.FinishPiece(t.Context(), job, p, json.RawMessage(`{}`), continues); err != nil {
			return err
		}
		return enqueueReady(t, tx)
	}); err != nil {
		t.Fatal(err)
	}
	return next
}

// TestContinuedPieces shows that one job does the chunks of an encode, one after the other, and that
// the next process continues with the one in which it was killed.
func TestContinuedPieces(t *testing.T) {
	eachPair(t, "node-a", "node-a", func(t *testing.T, dead, next *Store) {
		ctx := t.Context()
		if err := dead.register(ctx); err != nil {
			t.Fatal(err)
		}
		jobs, _ := work(t, dead, 1, JobPiece)
		task := runningEncodes(t, dead, "u1")
		if got := states(t, dead, task.ID); got != "qwwwq" && got != "qwwww" {
			t.Errorf("states after the start = %q", got)
		}
		job := <-jobs
		p, ok := takePiece(t, dead, job.Job)
		if !ok || p.Name != "chunk0" {
			t.Fatalf("taken: %q, %v", p.Name, ok)
		}
		p = finishChunk(t, dead, job.Job, finishChunk(t, dead, job.Job, p, true), true)
		if got := states(t, dead, task.ID); p.Name != "chunk2" || got[:4] != "ddrw" {
			t.Errorf("after two chunks: %q is next, states = %q", p.Name, got)
		}

		run(t, next) // takes over the job of the former process
		jobsOfNext, _ := work(t, next, 1, JobPiece)
		done := map[string]int{}
		for len(done) < 3 {
			again := <-jobsOfNext
			p, ok := takePiece(t, next, again.Job)
			if !ok {
				t.Fatalf("%s was not taken", again.Ref)
			}
			if p.Name == "chunk2" && p.Started != 1 {
				t.Errorf("chunk2 was started %d times before, want 1", p.Started)
			}
			for p.Name != "" {
				done[p.Name]++
				p = finishChunk(t, next, again.Job, p, true)
			}
			again.end <- nil
		}
		if diff := cmp.Diff(map[string]int{"chunk2": 1, "chunk3": 1, "chunk4": 1}, done); diff != "" {
			t.Errorf("done by the next process (-want +got):\n%s", diff)
		}
		if got := states(t, next, task.ID); got != "ddddd" {
			t.Errorf("states at the end = %q", got)
		}
		job.end <- nil
	})
}

// TestNotContinued shows that another job goes on with an encode that a job has left, and what is
// known before it decides.
func TestNotContinued(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobPiece)
		first := runningEncodes(t, st, "u1")
		job := <-jobs
		p, ok := takePiece(t, st, job.Job)
		if !ok {
			t.Fatal("not taken")
		}
		if p = finishChunk(t, st, job.Job, p, true); p.Name != "chunk1" {
			t.Fatalf("the next piece is %q", p.Name)
		}
		use := func(task weir.Task) SlotUse {
			t.Helper()
			use, err := st.SlotUse(t.Context(), task.ID)
			if err != nil {
				t.Fatal(err)
			}
			return use
		}
		if got := use(first); got != (SlotUse{Slots: 1, Running: 1}) {
			t.Errorf("one task: %+v", got)
		}
		second := runningEncodes(t, st, "u2")
		if got := use(first); got != (SlotUse{Slots: 1, Running: 1, OthersQueued: 2}) {
			t.Errorf("two tasks: %+v", got)
		}
		if p = finishChunk(t, st, job.Job, p, false); p.Name != "" {
			t.Fatalf("the next piece is %q of a job that does not continue", p.Name)
		}
		job.end <- nil
		done := map[string]int{}
		for done[first.ID] < 3 || done[second.ID] < 5 {
			job := <-jobs
			p, ok := takePiece(t, st, job.Job)
			if !ok {
				t.Fatalf("%s was not taken", job.Ref)
			}
			for p.Name != "" {
				done[p.TaskID]++
				p = finishChunk(t, st, job.Job, p, p.Name != "chunk1")
			}
			job.end <- nil
		}
		if got := states(t, st, first.ID) + states(t, st, second.ID); got != "dddddddddd" {
			t.Errorf("states at the end = %q", got)
		}
	})
}

// TestEncodeQueue shows what the queue tells: all that is urgent, and of each account the oldest of
// the rest.
func TestEncodeQueue(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		run(t, st)
		work(t, st, 2, JobPiece) // 2 slots
		for i, user := range []string{"u1", "u1", "u2"} {
			_, task := newImport(t, weir.NewAsset{Name: "a", URL: "https://example.com/a.mp4"})
			task.ID, task.UserID, task.Status.Phase = fmt.Sprint("task", i), user, weir.TaskRunning
			createTask(t, st, &task)
			inTx(t, st, func(tx *Tx) error {
				if _, err := tx.StartTask(ctx, task.ID); err != nil {
					return err
				}
				return tx.CreatePieces(ctx, task.ID, []Piece{
					{Name: "chunk0", Urgent: true},
					{Name: "chunk1", Number: 1, Continues: true},
					{Name: "chunk2", Number: 2, Needs: 1},
					{Name: "audio0", Number: -1},
					{Name: "audio1", Number: -1},
					{Name: "audio2", Number: -1},
				})
			})
		}
		if _, err := st.conn.exec(ctx, "UPDATE task_work SET started_at = 7"); err != nil { // all at once: the ids decide
			t.Fatal(err)
		}
		var got EncodeQueue
		look := func(perSlot int) {
			t.Helper()
			inTx(t, st, func(tx *Tx) (err error) {
				got, err = tx.EncodeQueue(ctx, perSlot)
				return err
			})
		}
		for got.Slots != 2 { // until they are announced
			look(2)
		}
		want := EncodeQueue{Slots: 2, Pending: map[string]int{}, Ready: []ReadyPiece{
			{"u1", "task0", "chunk0", true},
			{"u1", "task0", "audio0", false},
			{"u1", "task0", "audio1", false},
			{"u1", "task0", "audio2", false},
			{"u1", "task1", "chunk0", true},
			{"u1", "task1", "audio0", false},
			{"u2", "task2", "chunk0", true},
			{"u2", "task2", "audio0", false},
			{"u2", "task2", "audio1", false},
			{"u2", "task2", "audio2", false},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the queue differs (-want +got):\n%s", diff)
		}

		// What has a job is pending, and a piece gets only one.
		inTx(t, st, func(tx *Tx) error {
			for range 2 {
				if err := tx.EnqueuePiece(ctx, want.Ready[1]); err != nil {
					return err
				}
			}
			return nil
		})
		look(1)
		if diff := cmp.Diff(map[string]int{"u1": 1}, got.Pending); diff != "" {
			t.Errorf("pending pieces differ (-want +got):\n%s", diff)
		}
		if n, err := one(ctx, st.conn, scanInt, "SELECT count(*) FROM river_job WHERE kind = 'chunk'"); err != nil || n != 1 {
			t.Errorf("%d jobs, %v", n, err)
		}
		if len(got.Ready) != 3+2*2 {
			t.Errorf("ready: %+v, want what is urgent and two of each account", got.Ready)
		}
	})
}

// TestStalledTask finds a task whose job is lost.
func TestStalledTask(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		task := runningTask(t, st, "u1", 1, false)
		if _, err := st.conn.exec(ctx, "UPDATE task SET admitted = $1", true); err != nil {
			t.Fatal(err)
		}
		stalled := func() []string {
			t.Helper()
			ids, err := st.StalledTasks(ctx, weir.At(time.Now().Add(time.Minute)))
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		if ids := stalled(); len(ids) != 0 {
			t.Errorf("stalled = %v, want none", ids)
		}
		if _, err := st.conn.exec(ctx, "DELETE FROM river_job"); err != nil {
			t.Fatal(err)
		}
		if _, err := st.conn.exec(ctx, "UPDATE piece SET state = 'queued'"); err != nil {
			t.Fatal(err)
		}
		if ids := stalled(); !slices.Equal(ids, []string{task.ID}) {
			t.Errorf("stalled = %v, want %s", ids, task.ID)
		}
		inTx(t, st, func(tx *Tx) error { return tx.RestartTask(ctx, task.ID) })
		if ids := stalled(); len(ids) != 0 {
			t.Errorf("stalled after it was revived = %v", ids)
		}
	})
}

func TestPurgeDeletedAssets(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), time.Now()
		kept, old, fresh := newAsset(t, ""), newAsset(t, ""), newAsset(t, "")
		old.Delete(now.Add(-2 * time.Hour))
		fresh.Delete(now)
		createAssets(t, st, &kept, &old, &fresh)
		inTx(t, st, func(tx *Tx) error {
			n, err := tx.PurgeDeletedAssets(ctx, now.Add(-time.Hour), now, 10)
			if n != 1 {
				t.Errorf("purged %d, want 1", n)
			}
			return err
		})
		a, err := st.Asset(ctx, old.ID)
		if err != nil || a.Status.Phase != weir.AssetDeleted || !a.Deleted {
			t.Errorf("asset = %+v, %v", a, err)
		}
		if err := a.Restore(now); err == nil {
			t.Error("an asset whose bytes go can be restored")
		}
		ref, err := one(ctx, st.conn, scanText, "SELECT args->>'ref' FROM river_job WHERE kind = 'purge'")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := PurgeRef(ref); err != nil || p != (Purge{AssetID: old.ID}) {
			t.Errorf("purge of %q", ref)
		}
		expired, err := st.ExpiredUploads(ctx, now.Add(time.Hour), 10)
		if err != nil || len(expired) != 1 || expired[0].ID != kept.ID {
			t.Errorf("expired uploads = %v, %v", expired, err)
		}
	})
}

func TestPurgeRef(t *testing.T) {
	for _, bad := range []string{"", "task/", "task/x", "task/x/y", "x"} {
		if _, err := PurgeRef(bad); err == nil {
			t.Errorf("PurgeRef(%q) = nil", bad)
		}
	}
}
