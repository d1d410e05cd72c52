package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// eachPair runs a test on both engines, with two nodes on one database.
func eachPair(t *testing.T, first, second string, test func(t *testing.T, a, b *Store)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, url string) { test(t, open(t, url, first), open(t, url, second)) })
}

// testTakeOver has a job running on a, makes b take it over, and checks that it is
// b's then, whatever a does.
func testTakeOver(t *testing.T, a, b *Store, takeOver func() error) {
	t.Helper()
	ctx := t.Context()
	nothing := func(*Tx) error { return nil }
	jobsA, stopA := work(t, a, 1, JobTask) // its one slot is in use, so it can't take the job again
	enqueue(t, a, JobTask, "x")
	before := <-jobsA
	if err := a.JobTx(ctx, before.Job, nothing); err != nil {
		t.Fatal(err)
	}
	run(t, b)
	jobsB, _ := work(t, b, 1, JobTask)
	if err := takeOver(); err != nil {
		t.Fatal(err)
	}
	after := <-jobsB
	if after.Kind != JobTask || after.Ref != "x" {
		t.Fatalf("took over %+v", after.Job)
	}
	if err := a.JobTx(ctx, before.Job, nothing); !errors.Is(err, errLostJob) {
		t.Errorf("JobTx of the node that lost it = %v", err)
	}
	if err := b.JobTx(ctx, after.Job, nothing); err != nil {
		t.Errorf("JobTx of the node that took it = %v", err)
	}
	// The first node was only asleep. It wakes up and reports that the job is done.
	before.end <- nil
	stopA()
	if err := b.JobTx(ctx, after.Job, nothing); err != nil {
		t.Errorf("JobTx after the other node reported its end = %v", err)
	}
	after.end <- nil
}

// TestDeadNode shows that the jobs of a node that is silent go to another.
func TestDeadNode(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		if err := a.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		testTakeOver(t, a, b, func() error {
			if _, err := a.conn.exec(t.Context(), "UPDATE node SET seen_at = 0 WHERE id = 'node-a'"); err != nil {
				return err
			}
			inTouch(t, b, time.Now())
			return b.heartbeat(t.Context())
		})
	})
}

// TestFormerBoot checks that a killed node requeues its jobs when it restarts.
func TestFormerBoot(t *testing.T) {
	eachPair(t, "node-a", "node-a", func(t *testing.T, a, b *Store) {
		if a.node.client() == b.node.client() {
			t.Fatal("two boots have the same name")
		}
		testTakeOver(t, a, b, func() error { return b.register(t.Context()) })
	})
}

// TestTakeOverSparesOthers checks that requeue takes only the jobs of the named node.
func TestTakeOverSparesOthers(t *testing.T) {
	eachPair(t, "node_a", "node-a", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		run(t, a)
		jobsA, _ := work(t, a, 2, JobTask)
		enqueue(t, a, JobTask, "x")
		held := <-jobsA
		// A similar name, a shorter name, the excepted client, a command.
		for _, call := range []struct{ node, except string }{{"node-a", ""}, {"node_", ""}, {"node_a", a.node.client()}, {"command", ""}} {
			if err := b.Tx(ctx, func(tx *Tx) error {
				n, err := tx.requeue(ctx, call.node, call.except)
				if n != 0 {
					t.Errorf("requeue(%q, %q) took %d jobs", call.node, call.except, n)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.JobTx(ctx, held.Job, func(*Tx) error { return nil }); err != nil {
			t.Errorf("JobTx = %v", err)
		}
		held.end <- nil
	})
}

// TestLostNode checks that a node without heartbeats stops its jobs before other nodes take them
// over, and starts none.
func TestLostNode(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		lose := func() { st.node.lastBeat.Store(time.Now().Add(-aliveFor - time.Second).UnixMilli()) }
		jobs, _ := work(t, st, 1, JobTask)
		enqueue(t, st, JobTask, "x")
		job := <-jobs
		if st.node.lost() {
			t.Fatal("lost from the start")
		}
		lose()
		if err := st.stopLostJobs(ctx); err != nil {
			t.Fatal(err)
		}
		<-job.ctx.Done()
		if err := st.heartbeat(ctx); err != nil {
			t.Fatal(err)
		}
		if st.node.lost() {
			t.Error("still lost after a heartbeat")
		}
		stayAlive(st)
		(<-jobs).end <- nil // tried again

		// The same when the handler says that the job is not its own any more, and no other
		// has taken it.
		enqueue(t, st, JobTask, "z")
		(<-jobs).end <- errLostJob
		(<-jobs).end <- nil

		lose()
		ran := false
		if err := st.runJob(ctx, Job{Kind: JobTask, Ref: "y"}, func(context.Context, Job) error {
			ran = true
			return nil
		}); err == nil || ran {
			t.Errorf("a lost node did a job (%v) or says that it is done (%v)", ran, err)
		}
	})
}

func TestNodeRows(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		rows := func(want ...string) {
			t.Helper()
			got, err := many(ctx, a.conn, scanText, "SELECT id FROM node ORDER BY id")
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("nodes = %v, %v; want %v", got, err, want)
			}
		}
		for _, st := range []*Store{a, b} {
			if err := st.register(ctx); err != nil {
				t.Fatal(err)
			}
		}
		rows("node-a", "node-b")
		if _, err := a.conn.exec(ctx, "UPDATE node SET seen_at = 0 WHERE id = 'node-a'"); err != nil {
			t.Fatal(err)
		}
		inTouch(t, b, time.Now())
		if err := b.heartbeat(ctx); err != nil {
			t.Fatal(err)
		}
		rows("node-b")
		if err := a.heartbeat(ctx); err != nil { // it was only asleep
			t.Fatal(err)
		}
		rows("node-a", "node-b")
		if err := a.unregister(ctx); err != nil {
			t.Fatal(err)
		}
		rows("node-b")
	})
}

// TestRunOn shows that a job that may run on is stopped only when the database says that another node
// has it, and that the transaction at its end waits for the database.
func TestRunOn(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		if err := a.register(ctx); err != nil {
			t.Fatal(err)
		}
		jobs, _ := work(t, a, 1, JobTask)
		enqueue(t, a, JobTask, "x")
		job := <-jobs
		end := a.RunOn(job.Job)
		lose := func() { a.node.lastBeat.Store(time.Now().Add(-aliveFor - time.Second).UnixMilli()) }
		lose()
		if err := errors.Join(a.stopLostJobs(ctx), a.heartbeat(ctx)); err != nil || job.ctx.Err() != nil {
			t.Fatalf("a job that nobody has taken was stopped: %v, %v", err, context.Cause(job.ctx))
		}
		tries := 0
		if err := a.JobTx(ctx, job.Job, func(*Tx) error {
			if tries++; tries == 1 {
				return errors.New("the connection is gone")
			}
			return nil
		}); err != nil || tries != 2 {
			t.Errorf("JobTx after %d tries: %v", tries, err)
		}

		lose()
		if _, err := a.conn.exec(ctx, "UPDATE node SET seen_at = 0 WHERE id = 'node-a'"); err != nil {
			t.Fatal(err)
		}
		inTouch(t, b, time.Now())
		if err := errors.Join(b.heartbeat(ctx), a.stopLostJobs(ctx)); err != nil || job.ctx.Err() != nil {
			t.Fatalf("%v, %v", err, context.Cause(job.ctx))
		}
		if err := a.TryWrite(ctx); err != nil { // others have removed the node, so this is no heartbeat
			t.Fatal(err)
		}
		if !a.node.lost() {
			t.Error("not lost although others took it for dead")
		}
		if err := a.heartbeat(ctx); err != nil {
			t.Fatal(err)
		}
		<-job.ctx.Done()
		if cause := context.Cause(job.ctx); !errors.Is(cause, errLostJob) {
			t.Errorf("the job that another node has was stopped by %v", cause)
		}
		end()
	})
}
