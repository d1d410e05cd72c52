package store

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/wait"
	"weir/internal/weir"
)

// heldJob is a job that runs until the test ends it.
type heldJob struct {
	Job
	ctx context.Context // of the handler
	end chan error
}

// work does jobs on a store until stop is called or the test ends, so many at once;
// each is handed to the test, which has to end it.
func work(t *testing.T, st *Store, slots int, kinds ...string) (jobs <-chan heldJob, stop func()) {
	t.Helper()
	held := make(chan heldJob, 100)
	handlers := map[string]Handler{}
	for _, kind := range kinds {
		handlers[kind] = func(ctx context.Context, job Job) error {
			h := heldJob{job, ctx, make(chan error, 1)}
			held <- h
			select {
			case err := <-h.end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	stayAlive(st)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- st.RunJobs(ctx, Slots{slots, slots}, 10*time.Second, handlers) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("RunJobs: %v", err)
		}
	})
	t.Cleanup(stop)
	return held, stop
}

// stayAlive lets a node do jobs though the test does not run it, so that nothing says again
// and again that it is alive. The next heartbeat, if there is one, goes back to the rule.
func stayAlive(st *Store) { st.node.lastBeat.Store(time.Now().Add(time.Hour).UnixMilli()) }

// inTouch lets a node judge others by what they have reported until a time, as if it had been in contact
// with the database for long.
func inTouch(t *testing.T, st *Store, at time.Time) {
	t.Helper()
	at, err := st.onClock(t.Context(), st.conn, at)
	if err != nil {
		t.Fatal(err)
	}
	st.node.contact.mu.Lock()
	defer st.node.contact.mu.Unlock()
	st.node.contact.since, st.node.contact.last = weir.At(at.Add(-time.Hour)), weir.At(at)
}

func enqueue(t *testing.T, st *Store, kind string, refs ...string) {
	t.Helper()
	if err := st.Tx(t.Context(), func(tx *Tx) error {
		for _, ref := range refs {
			if err := tx.Enqueue(t.Context(), kind, ref); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestJobsFollowTheTransaction(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 2, JobTask)
		rolledBack := errors.New("changed my mind")
		err := st.Tx(t.Context(), func(tx *Tx) error {
			if err := tx.Enqueue(t.Context(), JobTask, "never"); err != nil {
				return err
			}
			return rolledBack
		})
		if !errors.Is(err, rolledBack) {
			t.Fatal(err)
		}
		enqueue(t, st, JobTask, "one", "two")
		seen := []string{}
		for range 2 {
			job := <-jobs
			seen = append(seen, job.Ref)
			if job.Kind != JobTask || job.Attempt != 1 {
				t.Errorf("job = %+v", job.Job)
			}
			job.end <- nil
		}
		if slices.Sort(seen); !slices.Equal(seen, []string{"one", "two"}) {
			t.Errorf("jobs done: %v", seen)
		}
	})
}

// TestWakeUp shows that a transaction that enqueued wakes the queue after its
// commit, and only then.
func TestWakeUp(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		err := st.Tx(t.Context(), func(tx *Tx) error {
			if err := tx.Enqueue(t.Context(), JobTask, "w/1"); err != nil {
				return err
			}
			if err := tx.Enqueue(t.Context(), JobTask, "w/2"); err != nil {
				return err
			}
			if len(tx.queues) != 1 || !tx.queues[queueControl] {
				t.Errorf("queues to wake = %v", tx.queues)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		stats, err := st.JobStats(t.Context())
		if err != nil || stats[[2]string{queueControl, "available"}] != 2 || len(stats) != 1 {
			t.Errorf("JobStats = %v, %v", stats, err)
		}
		jobs, _ := work(t, st, 2, JobTask)
		for range 2 {
			job := <-jobs
			job.end <- nil
		}
	})
}

// TestNewJobsAreNoticed shows that SQLite need not be asked for new jobs again and again:
// of those that this process asks for it knows, of those of a command it hears.
func TestNewJobsAreNoticed(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	st, command := open(t, url, "node-a"), open(t, url, "")
	river := &st.engine.(*sqlite).river
	river.fetchEvery = time.Hour
	run(t, st)
	jobs, _ := work(t, st, 3, JobTask)
	enqueue(t, st, JobTask, "first") // found by the look at the start, perhaps
	job := <-jobs
	job.end <- nil
	wait.Until(t, "the client of River is there", func() bool { return river.active.Load() != nil })
	for _, from := range []*Store{st, command} {
		enqueue(t, from, JobTask, "next")
		job := <-jobs
		job.end <- nil
	}
	if n, err := one(t.Context(), st.conn, scanInt, "SELECT count(*) FROM river_notification"); err != nil || n != 0 {
		t.Errorf("%d needless notifications were written, %v", n, err)
	}
}

// TestNoReindexingOnSQLite shows that River does not look every night for indexes that only
// PostgreSQL has.
func TestNoReindexingOnSQLite(t *testing.T) {
	st := open(t, "sqlite:"+filepath.Join(t.TempDir(), "weir.db"), "node-a")
	schedule := st.engine.(*sqlite).river.config(worker{}).ReindexerSchedule
	if now := time.Now(); schedule == nil || schedule.Next(now).Before(now.AddDate(1000, 0, 0)) {
		t.Errorf("River reindexes by the schedule %v", schedule)
	}
}

// TestFailedJob shows that a job that failed comes again, and what is kept of the reason.
func TestFailedJob(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobTask)
		enqueue(t, st, JobTask, "x")
		job := <-jobs
		job.end <- errors.New("dial https://user:planted@example.com")
		job = <-jobs
		if job.Attempt != 2 || job.Ref != "x" {
			t.Errorf("second attempt = %+v", job.Job)
		}
		kept, err := one(t.Context(), st.conn, scanText, "SELECT CAST(errors AS TEXT) FROM river_job")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(kept, "planted") || !strings.Contains(kept, "the log of the node has the cause") {
			t.Errorf("River keeps %s", kept)
		}
		job.end <- nil
	})
}

func TestStoredError(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("planted"), "internal error; the log of the node has the cause"},
		{weir.Wrap(weir.Internal, errors.New("planted"), "planted"), "internal error; the log of the node has the cause"},
		{weir.Wrap(weir.Upstream, errors.New("planted"), "the store does not answer"), "the store does not answer"},
	} {
		if got := storedError(tt.err).Error(); got != tt.want {
			t.Errorf("storedError(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

func TestCancelJobs(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 2, JobTask)
		cancel := func(ref string) {
			t.Helper()
			if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.CancelJobs(t.Context(), ref) }); err != nil {
				t.Fatal(err)
			}
		}
		enqueue(t, st, JobTask, "stopped", "spared")
		first, second := <-jobs, <-jobs
		if first.Ref == "spared" {
			first, second = second, first
		}
		cancel("stopped")
		<-first.ctx.Done()
		if err := second.ctx.Err(); err != nil {
			t.Errorf("the other job was cancelled too: %v", err)
		}
		second.end <- nil
		// The request holds for the jobs of before it, not for one that is asked for after it.
		enqueue(t, st, JobTask, "stopped")
		again := <-jobs
		if again.ID == first.ID || again.Ref != "stopped" || again.ctx.Err() != nil {
			t.Errorf("job asked for after the cancel: %+v, %v", again.Job, again.ctx.Err())
		}
		again.end <- nil
	})
}

// TestCancelBeforeTheStart shows that a job that is not wanted any more when its
// turn comes is not done.
func TestCancelBeforeTheStart(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		enqueue(t, st, JobTask, "unwanted")
		if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.CancelJobs(t.Context(), "unwanted") }); err != nil {
			t.Fatal(err)
		}
		enqueue(t, st, JobTask, "wanted")
		jobs, _ := work(t, st, 1, JobTask) // one at a time, so the first comes first
		job := <-jobs
		if job.Ref != "wanted" {
			t.Errorf("did %q", job.Ref)
		}
		job.end <- nil
	})
}

func TestRunJobsNeedsKnownKinds(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		err := st.RunJobs(t.Context(), Slots{}, 0, map[string]Handler{"knit": nil})
		if err == nil || err.Error() != `unknown kind of job: "knit"` {
			t.Errorf("RunJobs = %v", err)
		}
		// A node that does no work waits for its end.
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := st.RunJobs(ctx, Slots{}, 0, nil); err != nil {
			t.Errorf("RunJobs without kinds = %v", err)
		}
	})
}

// TestDrain shows that running jobs may finish when the work is to end.
func TestDrain(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		started, finish := make(chan context.Context), make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- st.RunJobs(ctx, Slots{Control: 1}, time.Minute, map[string]Handler{JobTask: func(ctx context.Context, job Job) error {
				started <- ctx
				<-finish
				return st.JobTx(ctx, job, func(*Tx) error { return nil })
			}})
		}()
		enqueue(t, st, JobTask, "x")
		job := <-started
		stop()
		if err := job.Err(); err != nil {
			t.Errorf("job was cancelled at once: %v", err)
		}
		close(finish)
		if err := <-done; err != nil {
			t.Errorf("RunJobs = %v", err)
		}
		stats, err := st.JobStats(t.Context())
		if err != nil || len(stats) != 0 {
			t.Errorf("jobs left: %v, %v", stats, err)
		}
	})
}
