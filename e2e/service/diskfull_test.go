package service

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// TestDiskFull lets a task run out of disk, of which there are 64 MB. It says so, the
// service goes on, and what the task took is given back.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	w, b := harness.NewWeir(t), s3test.Start(t)
	secret, err := os.ReadFile(filepath.Join(w.Data, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", w.Data, "tmpfs", 0, "size=64m"); errors.Is(err, syscall.EPERM) {
		t.Skip("this needs the right to mount a small disk")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Kill()
		if err := syscall.Unmount(w.Data, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(w.Data, "secret"), secret, 0o600); err != nil {
		t.Fatal(err)
	}
	// It is as large as the half of what is there: fetched and taken apart it does not fit.
	big := harness.MakeClip(t, "big.mkv", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25:duration=4,noise=alls=100:allf=t", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-qp", "3")
	if size := harness.FileSize(t, big); size < 25<<20 || size > 50<<20 {
		t.Fatalf("the source has %d bytes", size)
	}
	w.Start("--min-free", "1MB")
	free := freeSpace(w)
	for _, origin := range []*harness.Origin{harness.NewOrigin(t, big), newOriginOfUnknownSize(t, big)} {
		var task words.Task
		w.Must("POST", "/api/transcode", harness.Transcode(origin.URL+"/big.mkv", b, harness.Rung("only", "H.264", 320, 180, 400_000)), &task)
		task = w.Watch(task.ID, func(t words.Task) bool { return t.Status.Retries != nil && *t.Status.Retries == 1 })
		if !regexp.MustCompile(`disk`).MatchString(task.Status.ErrorMessage) || task.Status.Phase != words.TaskWaiting {
			t.Errorf("the task is %+v, want it to wait for room on the disk", task.Status)
		}
		t.Log(task.Status.ErrorMessage)
		w.Must("POST", "/api/task/"+task.ID+"/cancel", nil, nil)
		harness.Eventually(t, func() error {
			if now := freeSpace(w); now < free-8<<20 { // the database may have grown
				return fmt.Errorf("%d bytes are free, before there were %d", now, free)
			}
			return nil
		})
	}
	var task words.Task // one that fits is done
	w.Must("POST", "/api/transcode", harness.Transcode(harness.NewOrigin(t, harness.TinyClip(t)).URL+"/tiny.mp4", b, harness.Rung("only", "H.264", 228, 128, 200_000)), &task)
	w.Completed(task.ID)
	w.Stop()
}

// newOriginOfUnknownSize serves a file without saying how long it is.
func newOriginOfUnknownSize(t *testing.T, file string) *harness.Origin {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := harness.NewOrigin(t, file)
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(data)
	})
	return o
}

// freeSpace returns how many bytes the disk with weir's data has left.
func freeSpace(w *harness.Weir) int64 {
	w.T.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(w.Data, &s); err != nil {
		w.T.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}
