package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// newWaiting makes a task of an account that waits since a time.
func newWaiting(t *testing.T, st *Store, user string, kind weir.TaskType, since int) weir.Task {
	t.Helper()
	task := weir.Task{
		ID: weir.NewID(), Type: kind, UserID: user, ProjectID: "p", CreatedAt: 1, ScheduledAt: weir.Millis(since),
		Status: weir.TaskStatus{Phase: weir.TaskWaiting, UpdatedAt: 1},
	}
	createTask(t, st, &task)
	return task
}

// waitingAccounts returns what is known about the accounts with tasks of a type.
func waitingAccounts(t *testing.T, st *Store, limit int, types ...weir.TaskType) []WaitingAccount {
	t.Helper()
	all, err := st.WaitingAccounts(t.Context(), types, limit)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func admit(t *testing.T, st *Store, a WaitingAccount) (ok bool) {
	t.Helper()
	inTx(t, st, func(tx *Tx) (err error) {
		ok, err = tx.AdmitTask(t.Context(), a)
		return err
	})
	return ok
}

func TestWaitingAccounts(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		ann, bob, eve := newUser(t, st, "ann@example.com", nil), newUser(t, st, "bob@example.com", nil), newUser(t, st, "eve@example.com", nil)
		newUser(t, st, "idle@example.com", nil)
		first := newWaiting(t, st, ann.ID, weir.TaskUpload, 1)
		second := newWaiting(t, st, ann.ID, weir.TaskTranscode, 2)
		newWaiting(t, st, ann.ID, weir.TaskUpload, 3)
		late := newWaiting(t, st, bob.ID, weir.TaskUpload, 1)
		his := newWaiting(t, st, bob.ID, weir.TaskUpload, 2)
		newWaiting(t, st, eve.ID, weir.TaskExport, 1)
		inTx(t, st, func(tx *Tx) error { return tx.DelayTask(ctx, late.ID, time.Now().Add(time.Hour)) })

		check := func(limit int, want ...WaitingAccount) []WaitingAccount {
			t.Helper()
			got := waitingAccounts(t, st, limit, weir.TaskUpload, weir.TaskTranscode)
			shown := make([]WaitingAccount, len(got))
			for i, a := range got {
				if shown[i] = a; a.LastAdmitted > 0 {
					shown[i].LastAdmitted = 1
				}
			}
			if diff := cmp.Diff(want, shown); diff != "" {
				t.Errorf("waiting accounts differ (-want +got):\n%s", diff)
			}
			return got
		}
		hers, theirs := WaitingAccount{UserID: ann.ID, TaskID: first.ID}, WaitingAccount{UserID: bob.ID, TaskID: his.ID}
		never := []WaitingAccount{hers, theirs}
		if bob.ID < ann.ID {
			never = []WaitingAccount{theirs, hers}
		}
		before := check(10, never...)
		check(1, never[0])
		if !admit(t, st, hers) {
			t.Fatal("not admitted")
		}
		hers = WaitingAccount{UserID: ann.ID, TaskID: second.ID, Running: 1, LastAdmitted: 1}
		after := check(10, theirs, hers) // the one with fewer running tasks is first
		check(1, theirs)
		if !admit(t, st, theirs) {
			t.Fatal("not admitted")
		}
		last := check(10, hers)
		if a, b := after[1].LastAdmitted, last[0].LastAdmitted; a != b {
			t.Errorf("ann was admitted last at %d, and after an admission of bob at %d", a, b)
		}
		updateTask(t, st, first.ID, func(t *weir.Task) error { t.Complete(nil, nil, time.Now()); return nil })
		hers.Running = 0
		check(10, hers)
		if n, err := st.RunningTasks(ctx); err != nil || n != 1 {
			t.Errorf("%d tasks run, %v", n, err)
		}
		if got := waitingAccounts(t, st, 10, weir.TaskClip); len(got) != 0 {
			t.Errorf("with tasks of another type: %+v", got)
		}
		if before[0].LastAdmitted != 0 {
			t.Errorf("last admission of an account that had none: %d", before[0].LastAdmitted)
		}
	})
}

// TestAdmitOnce shows that two nodes that know the same do not both admit: neither the same task,
// nor, beyond what an account may run, another one.
func TestAdmitOnce(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		u := newUser(t, a, "ann@example.com", nil)
		newWaiting(t, a, u.ID, weir.TaskUpload, 2)
		known := waitingAccounts(t, b, 10, weir.TaskUpload)
		if len(known) != 1 || !admit(t, a, known[0]) {
			t.Fatalf("not admitted: %+v", known)
		}
		if admit(t, b, known[0]) {
			t.Fatal("the second node has admitted the task again")
		}
		older := newWaiting(t, a, u.ID, weir.TaskUpload, 1)
		known[0].TaskID = older.ID
		if admit(t, b, known[0]) {
			t.Fatal("the second node has admitted another task, though it does not know of the first")
		}
		// Only the task has changed meanwhile.
		known = waitingAccounts(t, b, 10, weir.TaskUpload)
		updateTask(t, a, older.ID, func(t *weir.Task) error { return t.Cancel(time.Now()) })
		if admit(t, b, known[0]) {
			t.Error("a cancelled task was admitted")
		}
		if n, err := one(ctx, a.conn, scanInt, "SELECT count(*) FROM river_job WHERE kind = 'task'"); err != nil || n != 1 {
			t.Errorf("%d jobs, %v; want one", n, err)
		}
	})
}

// TestAdmitAtOnce is TestAdmitOnce with two transactions that are open at once.
func TestAdmitAtOnce(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		ctx := t.Context()
		u := newUser(t, a, "ann@example.com", nil)
		newWaiting(t, a, u.ID, weir.TaskUpload, 1)
		known := waitingAccounts(t, a, 10, weir.TaskUpload)
		results, done := make(chan bool, 2), make(chan error, 1)
		if err := a.Tx(ctx, func(tx *Tx) error {
			go func() {
				done <- b.Tx(context.WithoutCancel(ctx), func(tx *Tx) error { // on SQLite it waits here, on PostgreSQL in AdmitTask
					ok, err := tx.AdmitTask(ctx, known[0])
					results <- ok
					return err
				})
			}()
			ok, err := tx.AdmitTask(ctx, known[0])
			results <- ok
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if one, two := <-results, <-results; one == two {
			t.Errorf("admitted by both or none: %v", one)
		}
		if n, err := one(ctx, a.conn, scanInt, "SELECT count(*) FROM river_job WHERE kind = 'task'"); err != nil || n != 1 {
			t.Errorf("%d jobs, %v; want one", n, err)
		}
	})
}

// BenchmarkAdmit admits tasks while 100,000 wait: almost all of one account, or 100 of each.
func BenchmarkAdmit(b *testing.B) {
	for _, engine := range engines {
		for _, waiting := range []struct{ accounts, tasks, more int }{{1000, 1, 100_000}, {1000, 100, 0}} {
			b.Run(fmt.Sprintf("%s/accounts=%d/tasks=%d/more=%d", engine.name, waiting.accounts, waiting.tasks, waiting.more), func(b *testing.B) {
				st, err := Open(b.Context(), engine.url(b), Options{Secret: testSecret, NodeID: "node-a"})
				if err != nil {
					b.Fatal(err)
				}
				defer st.Close()
				fillWaiting(b, st, waiting.accounts, waiting.tasks)
				fillWaiting(b, st, 1, waiting.more)
				if _, err := st.conn.exec(b.Context(), "ANALYZE"); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if err := st.Tx(b.Context(), func(tx *Tx) error { return benchAdmit(b.Context(), tx) }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// fillWaiting makes accounts with waiting tasks.
func fillWaiting(b *testing.B, st *Store, accounts, tasks int) {
	ctx := b.Context()
	if err := st.Tx(ctx, func(tx *Tx) error {
		for range accounts {
			u := weir.User{ID: weir.NewID(), Kind: "user", Email: weir.NewID() + "@example.com", CreatedAt: 1}
			if err := tx.CreateUser(ctx, &u); err != nil {
				return err
			}
			for range tasks {
				task := weir.Task{
					ID: weir.NewID(), Type: weir.TaskUpload, UserID: u.ID, ProjectID: "p", CreatedAt: 1, ScheduledAt: weir.Millis(1 + rand.N(1000*tasks)),
					Status: weir.TaskStatus{Phase: weir.TaskWaiting, UpdatedAt: 1},
				}
				if err := tx.CreateTask(ctx, &task); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

// benchAdmit does what package work does to admit a task.
func benchAdmit(ctx context.Context, tx *Tx) error {
	if _, err := tx.RunningTasks(ctx); err != nil {
		return err
	}
	if _, err := tx.EncodeSlots(ctx); err != nil {
		return err
	}
	waiting, err := tx.WaitingAccounts(ctx, []weir.TaskType{weir.TaskUpload, weir.TaskTranscode, weir.TaskExport}, 100)
	if err != nil {
		return err
	}
	ok, err := tx.AdmitTask(ctx, waiting[0])
	if err == nil && !ok {
		err = errors.New("not admitted")
	}
	return err
}
