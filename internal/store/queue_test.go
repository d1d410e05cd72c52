package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// The list of the queue has the order in which tasks get their turn.
func TestQueuedTasks(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		ann, bob, eve := newUser(t, st, "ann@example.com", nil), newUser(t, st, "bob@example.com", nil), newUser(t, st, "eve@example.com", nil)
		add := func(u weir.User, phase weir.TaskPhase, at int) string {
			_, task := newImport(t, weir.NewAsset{Name: "a", URL: "https://example.com/a.mp4"})
			task.UserID, task.Status.Phase, task.ScheduledAt = u.ID, phase, weir.Millis(at)
			createTask(t, st, &task)
			return task.ID
		}
		for i := range 3 {
			add(ann, weir.TaskWaiting, 10+i)
		}
		add(bob, weir.TaskWaiting, 20)
		add(eve, weir.TaskWaiting, 1)
		add(ann, weir.TaskPending, 0) // its bytes are still to come
		add(ann, weir.TaskCompleted, 0)
		running := add(bob, weir.TaskRunning, 5)
		late := add(bob, weir.TaskWaiting, 2)
		if err := st.Tx(ctx, func(tx *Tx) error {
			if err := tx.DelayTask(ctx, late, time.Now().Add(time.Hour)); err != nil {
				return err
			}
			_, err := tx.DeleteUser(ctx, eve.ID, weir.Base{}, time.Now())
			return err
		}); err != nil {
			t.Fatal(err)
		}

		queue, err := st.Queue(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want := weir.Queue{Waiting: 5, Running: 1, Oldest: 2, Groups: []weir.QueueGroup{
			{UserID: ann.ID, Email: ann.Email, Type: weir.TaskUpload, State: weir.QueueWaiting, Tasks: 3, Oldest: 10},
			{UserID: bob.ID, Email: bob.Email, Type: weir.TaskUpload, State: weir.QueueWaiting, Tasks: 2, Oldest: 2},
			{UserID: bob.ID, Email: bob.Email, Type: weir.TaskUpload, State: weir.QueueRunning, Tasks: 1, Oldest: 5},
		}}
		if diff := cmp.Diff(want, queue); diff != "" {
			t.Errorf("queue differs (-want +got):\n%s", diff)
		}

		// Page by page, and with the nodes that work on a task.
		if _, err := st.conn.exec(ctx, `INSERT INTO piece (task_id, name, seq, number, needs, urgent, weight, state, job, started, finished, progress, node, started_at, finished_at, result)
			VALUES ($1, 'video', 0, 0, 0, FALSE, 1, 'running', 0, 1, 0, 0, 'node-b', 0, 0, '')`, running); err != nil {
			t.Fatal(err)
		}
		var listed []weir.QueuedTask
		q := Query{Limit: 2, Count: true}
		for {
			page, err := st.QueuedTasks(ctx, q)
			if err != nil || page.Total != 6 {
				t.Fatalf("%d tasks, %v; want 6", page.Total, err)
			}
			listed = append(listed, page.Items...)
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if len(listed) != 6 || listed[0].ID != running || listed[0].State != weir.QueueRunning || listed[0].Position != 0 ||
			!cmp.Equal(listed[0].Nodes, []string{"node-b"}) || listed[5].ID != late || listed[5].DueAt == 0 || listed[5].Email != bob.Email {
			t.Fatalf("the queue is %+v", listed)
		}
		if own, err := st.QueuedTasks(ctx, Query{UserID: bob.ID}); err != nil || len(own.Items) != 3 {
			t.Errorf("bob has %d tasks in the queue, %v", len(own.Items), err)
		}

		// What was admitted starts. (That the order is the one of the admissions is tested in package work.)
		for i, next := range listed[1:5] {
			if next.Position != i+1 || next.State != weir.QueueWaiting {
				t.Errorf("number %d is %+v", i+1, next)
			}
			inTx(t, st, func(tx *Tx) error {
				waiting, err := tx.WaitingAccounts(ctx, []weir.TaskType{weir.TaskUpload}, 10)
				if err != nil || len(waiting) == 0 {
					return fmt.Errorf("nobody waits: %w", err)
				}
				_, err = tx.AdmitTask(ctx, waiting[0])
				return err
			})
		}
		page, err := st.QueuedTasks(ctx, Query{})
		if err != nil || len(page.Items) != 6 || page.Items[1].State != weir.QueueStarting || page.Items[5].Position != 1 {
			t.Errorf("after the admission %+v, %v", page.Items, err)
		}
	})
}

func TestNodes(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		ctx := t.Context()
		report := weir.NodeReport{Version: "v1", Runs: []string{"work"}, Cores: 8, DiskFree: 100, DiskKeep: 10}
		a, err := Open(ctx, url, Options{Secret: testSecret, NodeID: "node-a", Report: func() weir.NodeReport { return report }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Close)
		b := open(t, url, "node-b") // it reports nothing, as one of an earlier version
		for _, st := range []*Store{a, b} {
			if err := st.register(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.AnnounceURL(ctx, "http://10.0.0.1"); err != nil {
			t.Fatal(err)
		}
		jobs, _ := work(t, a, 3, JobPiece, JobPurge)
		enqueue(t, a, JobPiece, "x/video")
		enqueue(t, a, JobPurge, "task/x/1")
		one, two := <-jobs, <-jobs
		if _, err := a.conn.exec(ctx, `INSERT INTO live (stream_id, session_id, node, epoch, connected, timeout_ms, seen_at, expires_at, closes_at, ending, sequence, discontinuities, next_sequence, next_discontinuities)
			VALUES ('s', 'x', 'node-b', 1, TRUE, 0, 0, 0, 0, '', 0, 0, 0, 0)`); err != nil {
			t.Fatal(err)
		}
		if _, err := a.conn.exec(ctx, "UPDATE node SET seen_at = 1 WHERE id = 'node-b'"); err != nil {
			t.Fatal(err)
		}
		nodes, err := b.Nodes(ctx)
		if err != nil || len(nodes) != 2 {
			t.Fatalf("nodes %+v, %v", nodes, err)
		}
		got := map[string]weir.Node{}
		for _, n := range nodes {
			if n.StartedAt == 0 || n.LastSeen == 0 {
				t.Errorf("%+v has no times", n)
			}
			n.StartedAt, n.LastSeen = 0, 0
			got[n.ID] = n
		}
		want := map[string]weir.Node{
			"node-a": {ID: "node-a", URL: "http://10.0.0.1", NodeReport: report, Alive: true, EncodeSlots: 3, EncodeSlotsUsed: 1, Jobs: 2},
			"node-b": {ID: "node-b", NodeReport: weir.NodeReport{Runs: []string{}}, Streams: 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("nodes differ (-want +got):\n%s", diff)
		}
		one.end <- nil
		two.end <- nil
	})
}

// BenchmarkQueue reads the queue while 10,000 tasks of 100 accounts wait.
func BenchmarkQueue(b *testing.B) {
	for _, engine := range engines {
		st, err := Open(b.Context(), engine.url(b), Options{Secret: testSecret, NodeID: "node-a"})
		if err != nil {
			b.Fatal(err)
		}
		ctx := b.Context()
		if err := st.Tx(ctx, func(tx *Tx) error { return fillQueue(ctx, tx) }); err != nil {
			b.Fatal(err)
		}
		if _, err := st.conn.exec(ctx, "ANALYZE"); err != nil {
			b.Fatal(err)
		}
		b.Run(engine.name+"/summary", func(b *testing.B) {
			for b.Loop() {
				if q, err := st.Queue(b.Context()); err != nil || q.Waiting != 10_000 {
					b.Fatal(q.Waiting, err)
				}
			}
		})
		for _, cursor := range []string{"", "skip9900"} {
			b.Run(engine.name+"/list/"+cursor, func(b *testing.B) {
				for b.Loop() {
					if p, err := st.QueuedTasks(b.Context(), Query{Limit: 100, Cursor: cursor, Count: true}); err != nil || len(p.Items) != 100 {
						b.Fatal(len(p.Items), err)
					}
				}
			})
		}
		st.Close()
	}
}

func fillQueue(ctx context.Context, tx *Tx) error {
	for i := range 100 {
		u := weir.User{ID: weir.NewID(), Kind: "user", Email: fmt.Sprintf("user%d@example.com", i), CreatedAt: 1}
		if err := tx.CreateUser(ctx, &u); err != nil {
			return err
		}
		for j := range 100 {
			_, task, err := weir.NewAsset{Name: "a", URL: "https://example.com/a.mp4"}.Asset(&weir.Caller{UserID: u.ID, ProjectID: u.DefaultProjectID}, time.Now())
			if err != nil {
				return err
			}
			task.ScheduledAt = weir.Millis(j)
			if err := tx.CreateTask(ctx, &task); err != nil {
				return err
			}
		}
	}
	return nil
}
