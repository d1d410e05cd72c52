package weir

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestTaskPhases follows a task through its attempts.
func TestTaskPhases(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	task := Task{}
	if task.Start(0, now) {
		t.Error("a task that does not wait was started")
	}
	task.Queue(now)
	if !task.Start(0, at(1)) || task.Status.Phase != TaskRunning || *task.Status.Progress != 0 || *task.Status.Retries != 0 {
		t.Errorf("started: %+v", task.Status)
	}
	if !task.Advance("encoding", 0.12345, at(100), at(2)) {
		t.Error("no change noticed")
	}
	want := TaskStatus{Phase: TaskRunning, UpdatedAt: At(at(2)), Progress: new(0.123), Retries: new(0), Step: "encoding", ETA: At(at(100))}
	if diff := cmp.Diff(want, task.Status); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
	if task.Advance("encoding", 0.05, time.Time{}, at(3)) || *task.Status.Progress != 0.123 {
		t.Errorf("the progress fell: %+v", task.Status)
	}
	if !task.Advance("publishing", 0.05, time.Time{}, at(3)) || *task.Status.Progress != 0.123 || task.Status.Step != "publishing" {
		t.Errorf("next step: %+v", task.Status)
	}
	if task.Advance("publishing", 5, time.Time{}, at(3)); *task.Status.Progress != 0.999 {
		t.Errorf("the progress before the end: %v", *task.Status.Progress)
	}
	if !task.Start(0.2, at(4)) || *task.Status.Progress != 0.999 {
		t.Errorf("continues after its node was lost: %+v", task.Status)
	}
	for retry := 1; retry <= 2; retry++ {
		if n, ok := task.Requeue("away", at(5)); !ok || n != retry {
			t.Errorf("retry %d: %d, %v", retry, n, ok)
		}
		want := TaskStatus{Phase: TaskWaiting, UpdatedAt: At(at(5)), Retries: new(retry), ErrorMessage: "away"}
		if diff := cmp.Diff(want, task.Status); diff != "" {
			t.Errorf("waits (-want +got):\n%s", diff)
		}
		if !task.Start(0, at(6)) || task.Status.ErrorMessage != "" || *task.Status.Retries != retry {
			t.Errorf("started again: %+v", task.Status)
		}
	}
	if n, ok := task.Requeue("away", at(7)); ok || n != 2 || task.Status.Phase != TaskRunning {
		t.Errorf("a third retry: %d, %v, %+v", n, ok, task.Status)
	}
	task.Complete(&TaskOutput{}, []string{"some frames are damaged"}, at(8))
	if diff := cmp.Diff(TaskStatus{Phase: TaskCompleted, UpdatedAt: At(at(8)), Progress: new(1.0), Warnings: []string{"some frames are damaged"}}, task.Status); diff != "" || task.Output == nil {
		t.Errorf("completed (-want +got):\n%s", diff)
	}
	if task.Advance("encoding", 1, time.Time{}, at(9)) || task.Start(0, at(9)) {
		t.Error("a task that has ended went on")
	}
}

// TestAssetPhases follows an asset that is made, deleted and given up.
func TestAssetPhases(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	a := Asset{Status: AssetStatus{Phase: AssetWaiting}}
	a.Process(0.5, now)
	a.Process(0.25, now)
	if diff := cmp.Diff(AssetStatus{Phase: AssetProcessing, UpdatedAt: At(now), Progress: new(0.5)}, a.Status); diff != "" {
		t.Errorf("processing (-want +got):\n%s", diff)
	}
	if err := a.Purge(now); err == nil {
		t.Error("an asset that is not deleted was given up")
	}
	a.Ready(now)
	if diff := cmp.Diff(AssetStatus{Phase: AssetReady, UpdatedAt: At(now)}, a.Status); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	if a.Process(0.1, now); a.Status.Phase != AssetReady {
		t.Errorf("an asset that is ready: %+v", a.Status)
	}
	a.PlaybackURL, a.Files = "/x", []File{{}}
	a.Delete(now)
	a.Process(0.1, now)
	a.Ready(now)
	if a.Status.Phase != AssetDeleting {
		t.Errorf("an asset that is deleted: %+v", a.Status)
	}
	if err := a.Purge(now); err != nil || a.Status.Phase != AssetDeleted || a.PlaybackURL != "" || a.Files != nil {
		t.Errorf("given up: %v, %+v", err, a)
	}
}
