package store

import (
	"testing"
	"time"

	"weir/internal/weir"
)

// The queue is measured without the tasks that do not wait, and those of deleted accounts.
func TestQueueLength(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		now := time.Now()
		ann, eve := newUser(t, st, "ann@example.com", nil), newUser(t, st, "eve@example.com", nil)
		check := func(tasks int64, oldest time.Duration) {
			t.Helper()
			n, age, err := st.QueueLength(t.Context(), now)
			if err != nil || n != tasks || age.Round(time.Second) != oldest {
				t.Errorf("%d tasks, the oldest waits for %v, %v; want %d and %v", n, age, err, tasks, oldest)
			}
		}
		check(0, 0)
		for _, of := range []struct {
			user  weir.User
			phase weir.TaskPhase
			age   time.Duration
		}{{ann, weir.TaskWaiting, time.Minute}, {ann, weir.TaskWaiting, time.Hour}, {ann, weir.TaskRunning, 2 * time.Hour}, {eve, weir.TaskWaiting, 3 * time.Hour}} {
			_, task := newImport(t, weir.NewAsset{Name: "a", URL: "https://example.com/a.mp4"})
			task.UserID, task.Status.Phase, task.ScheduledAt = of.user.ID, of.phase, weir.At(now.Add(-of.age))
			createTask(t, st, &task)
		}
		check(3, 3*time.Hour)
		if err := st.Tx(t.Context(), func(tx *Tx) error {
			_, err := tx.DeleteUser(t.Context(), eve.ID, weir.Base{}, now)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		check(2, time.Hour)
	})
}

// The age of a heartbeat begins anew with each that is written.
func TestHeartbeatAge(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		st.node.lastBeat.Store(time.Now().Add(-time.Hour).UnixMilli())
		if age := st.HeartbeatAge(); age < time.Hour {
			t.Errorf("an hour without a heartbeat is %v", age)
		}
	})
}
