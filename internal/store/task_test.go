package store

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func createTask(t *testing.T, st *Store, task *weir.Task) {
	t.Helper()
	if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.CreateTask(t.Context(), task) }); err != nil {
		t.Fatal(err)
	}
}

func updateTask(t *testing.T, st *Store, id string, change func(*weir.Task) error) weir.Task {
	t.Helper()
	var task weir.Task
	if err := st.Tx(t.Context(), func(tx *Tx) (err error) {
		task, err = tx.UpdateTask(t.Context(), id, change)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return task
}

func TestTask(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		asset, task := newImport(t, weir.NewAsset{
			Name: "a", URL: "https://user:hunter2@example.com/a.mp4", PlaybackPolicy: &weir.PlaybackPolicy{Type: "jwt"},
			Encryption: &weir.Encryption{EncryptedKey: "c2VjcmV0"},
		})
		createTask(t, st, &task)
		got, err := st.Task(ctx, task.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(task, got); diff != "" {
			t.Errorf("task differs (-want +got):\n%s", diff)
		}
		if got.Secrets.EncryptedKey != "c2VjcmV0" || got.Secrets.InputURL != "https://user:hunter2@example.com/a.mp4" {
			t.Errorf("secrets = %+v, want what was given", got.Secrets)
		}
		row, err := one(ctx, st.conn, func(r rows) (b []byte, err error) {
			var doc, sealed []byte
			err = r.Scan(&doc, &sealed)
			return append(doc, sealed...), err
		}, "SELECT doc, sealed FROM task WHERE id = $1", task.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"hunter2", "c2VjcmV0"} {
			if bytes.Contains(row, []byte(secret)) {
				t.Errorf("the row has %q in the clear", secret)
			}
		}
		if got, err := st.TaskOfAsset(ctx, asset.ID); err != nil || got.ID != task.ID {
			t.Errorf("TaskOfAsset = %q, %v; want %q", got.ID, err, task.ID)
		}
		if _, err := st.TaskOfAsset(ctx, "nope"); weir.KindOf(err) != weir.NotFound {
			t.Errorf("TaskOfAsset of an unknown asset: %v, want not found", err)
		}
	})
}

func TestPendingTasks(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		for _, phase := range []weir.TaskPhase{weir.TaskPending, weir.TaskWaiting, weir.TaskRunning, weir.TaskCompleted, weir.TaskFailed, weir.TaskCancelled} {
			_, task := newImport(t, weir.NewAsset{Name: "a"})
			task.Status.Phase = phase
			createTask(t, st, &task)
		}
		for user, want := range map[string]int{"u1": 2, "u2": 0} {
			if n, err := st.PendingTasks(t.Context(), user); err != nil || n != want {
				t.Errorf("PendingTasks(%s) = %d, %v; want %d", user, n, err, want)
			}
		}
	})
}

// TestTaskAgain follows the flags beside a task when it is cancelled and tried again.
func TestTaskAgain(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		_, task := newImport(t, weir.NewAsset{Name: "a", URL: "https://example.com/a.mp4"})
		createTask(t, st, &task)
		flags := func() (admitted bool, cancelled int64) {
			t.Helper()
			admitted, err := one(ctx, st.conn, func(r rows) (b bool, err error) { return b, r.Scan(&b) }, "SELECT admitted FROM task WHERE id = $1", task.ID)
			if err != nil {
				t.Fatal(err)
			}
			cancelled, err = one(ctx, st.conn, scanInt, "SELECT count(*) FROM job_cancel WHERE ref = $1", task.ID)
			if err != nil {
				t.Fatal(err)
			}
			return admitted, cancelled
		}
		if _, err := st.conn.exec(ctx, "UPDATE task SET admitted = $1 WHERE id = $2", true, task.ID); err != nil {
			t.Fatal(err)
		}
		updateTask(t, st, task.ID, func(t *weir.Task) error {
			t.Status.Progress = new(0.5)
			return nil
		})
		if admitted, cancelled := flags(); !admitted || cancelled != 0 {
			t.Errorf("after progress: admitted %v, cancelled %d; want true, 0", admitted, cancelled)
		}
		if got := updateTask(t, st, task.ID, func(t *weir.Task) error { return t.Cancel(time.Now()) }); got.Status.Phase != weir.TaskCancelled {
			t.Errorf("phase = %s, want cancelled", got.Status.Phase)
		}
		if _, cancelled := flags(); cancelled != 1 {
			t.Errorf("after cancel: %d requests to stop the job, want 1", cancelled)
		}
		updateTask(t, st, task.ID, func(t *weir.Task) error { return t.Retry(time.Now()) })
		if admitted, _ := flags(); admitted {
			t.Error("after retry the task is still admitted, so it is never started again")
		}
	})
}

func TestTaskFilters(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		asset, upload := newImport(t, weir.NewAsset{Name: "a"})
		export := weir.NewExport(weir.ExportParams{IPFS: &weir.IPFSExport{}}, asset, &weir.Caller{UserID: "u1", ProjectID: "p1"}, time.Now())
		createTask(t, st, &upload)
		createTask(t, st, &export)
		for _, tt := range []struct {
			filter Filter
			want   string
		}{
			{Filter{"type", "export"}, export.ID},
			{Filter{"type", "upload"}, upload.ID},
			{Filter{"inputAssetId", asset.ID}, export.ID},
			{Filter{"outputAssetId", asset.ID}, upload.ID},
			{Filter{"id", upload.ID}, upload.ID},
			{Filter{"phase", "waiting"}, export.ID},
		} {
			page, err := st.Tasks(t.Context(), Query{UserID: "u1", ProjectID: "p1", Filters: []Filter{tt.filter}})
			if err != nil || len(page.Items) != 1 || page.Items[0].ID != tt.want {
				t.Errorf("filter %v: %d tasks, %v; want %s", tt.filter, len(page.Items), err, tt.want)
			}
		}
	})
}
