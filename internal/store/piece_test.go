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
		if _, err := tx.StartWork(t.Context(), task.ID); err != nil {
			return err
		}
		if _, err := tx.UpdateWork(t.Context(), task.ID, func(w *Work) { w.Plan, w.Stream = json.RawMessage(`{"a":1}`), streamed }); err != nil {
			return err
		}
		return tx.CreatePieces(t.Context(), task.ID, pieces)
	})
	return task
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
		_, err := tx.FinishPiece(t.Context(), job.Job, p, json.RawMessage(`{"of":"`+p.Name+`"}`), TurnBegun)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	job.end <- nil
}

// TestPieces follows a task from its first piece to its last: pieces are given out
// in order, at most twice as many as can be done at once, each once, and what is
// done is published by one job at a time.
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

		var seen Work
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
		inTx(t, st, func(tx *Tx) error { return tx.ForgetWork(ctx, task.ID, 1) })
		if w, err := st.TaskWork(ctx, task.ID); err != nil || w.Plan != nil || w.Done != 4 {
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
				if _, ok := t.Again("the store is away", before); !ok {
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
			_, ok, err := tx.AdmitTask(ctx, []weir.TaskType{weir.TaskUpload}, 5)
			if ok {
				t.Error("admitted before its time")
			}
			return err
		})
		inTx(t, st, func(tx *Tx) error { return tx.Enqueue(ctx, JobTask, task.ID) })
		updateTask(t, st, task.ID, func(t *weir.Task) error { t.Start(0, before); return nil })
		inTx(t, st, func(tx *Tx) error {
			w, err := tx.StartWork(ctx, task.ID)
			if w.Done != 1 || w.Run != 1 || string(w.Plan) != `{"a":1}` {
				t.Errorf("work of the second attempt = %+v", w)
			}
			if err != nil {
				return err
			}
			return tx.ResumePieces(ctx, task.ID)
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
			w, err := tx.StartWork(ctx, task.ID)
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
			_, err := tx.FinishPiece(ctx, job.Job, p, nil, TurnBegun)
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

func finishChunk(t *testing.T, st *Store, job Job, p Piece, turn Turn) (next Piece) {
	t.Helper()
	if err := st.JobTx(t.Context(), job, func(tx *Tx) (err error) {
		next, err = tx.FinishPiece(t.Context(), job, p, json.RawMessage(`{}`), turn)
		return err
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
		p = finishChunk(t, dead, job.Job, finishChunk(t, dead, job.Job, p, TurnBegun), TurnBegun)
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
				p = finishChunk(t, next, again.Job, p, TurnBegun)
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

// TestTurns shows that a job that had its turn lets another task go first, and only then.
func TestTurns(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobPiece)
		first := runningEncodes(t, st, "u1")
		job := <-jobs
		p, ok := takePiece(t, st, job.Job)
		if !ok {
			t.Fatal("not taken")
		}
		if p = finishChunk(t, st, job.Job, p, TurnLong); p.Name != "chunk1" {
			t.Fatalf("the next piece is %q, and nobody else waits", p.Name)
		}
		second := runningEncodes(t, st, "u2")
		if p = finishChunk(t, st, job.Job, p, TurnBegun); p.Name != "chunk2" {
			t.Fatalf("the next piece is %q, and it had no turn yet", p.Name)
		}
		if p = finishChunk(t, st, job.Job, p, TurnLong); p.Name != "" {
			t.Fatalf("the next piece is %q, and another task waits", p.Name)
		}
		job.end <- nil
		done := map[string]int{}
		for done[first.ID] < 2 || done[second.ID] < 5 {
			job := <-jobs
			p, ok := takePiece(t, st, job.Job)
			if !ok {
				t.Fatalf("%s was not taken", job.Ref)
			}
			for p.Name != "" {
				done[p.TaskID]++
				turn := TurnBegun
				if p.Name == "chunk1" {
					turn = TurnOver
				}
				p = finishChunk(t, st, job.Job, p, turn)
				if turn == TurnOver && p.Name != "" {
					t.Errorf("the turn is over, and the next piece is %q", p.Name)
				}
			}
			job.end <- nil
		}
		if got := states(t, st, first.ID) + states(t, st, second.ID); got != "dddddddddd" {
			t.Errorf("states at the end = %q", got)
		}
	})
}

func TestChoosePieces(t *testing.T) {
	ready := func(users string) (all []nextPiece) {
		for i, u := range users {
			urgent := u >= 'A' && u <= 'Z'
			all = append(all, nextPiece{user: strings.ToLower(string(u)), name: fmt.Sprint(i), urgent: urgent})
		}
		return all
	}
	for _, tt := range []struct {
		ready   string
		pending map[string]int
		free    int
		want    string
	}{
		{"aaaabb", nil, 4, "abab"},
		{"aaaabb", map[string]int{"a": 3}, 3, "bba"},
		{"aaaa", map[string]int{"b": 9}, 2, "aa"},
		{"aaBa", nil, 0, "b"},
		{"aaBa", nil, 2, "ba"},
		{"", nil, 5, ""},
	} {
		if tt.pending == nil {
			tt.pending = map[string]int{}
		}
		got := ""
		for _, p := range choosePieces(ready(tt.ready), tt.pending, tt.free) {
			got += p.user
		}
		if got != tt.want {
			t.Errorf("of %q with %v pending and %d free: %q, want %q", tt.ready, tt.pending, tt.free, got, tt.want)
		}
	}
}

// TestGivePieces shows that a thousand pieces of one account do not keep another's waiting.
func TestGivePieces(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		for range 10 {
			runningTask(t, st, "u1", 1, false)
		}
		late := runningTask(t, st, "u2", 4, false)
		count := func(user string) int64 {
			n, err := one(t.Context(), st.conn, scanInt, `SELECT count(*) FROM piece p JOIN task t ON t.id = p.task_id WHERE p.state = 'queued' AND t.user_id = $1`, user)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if got := states(t, st, late.ID); got[0] != 'q' {
			t.Errorf("pieces of the newcomer = %q, want its first to be given out", got)
		}
		if a, b := count("u1"), count("u2"); a < 10 || b < 1 {
			t.Errorf("given out: %d and %d", a, b)
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
		inTx(t, st, func(tx *Tx) error { return tx.ReviveTask(ctx, task.ID) })
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
