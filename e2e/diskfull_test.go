package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// TestDiskFull lets a task run out of disk, of which there are 64 MB. It says so, the
// service goes on, and what the task took is given back.
func TestDiskFull(t *testing.T) {
	w, b := newWeir(t), s3test.Start(t)
	secret, err := os.ReadFile(filepath.Join(w.data, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", w.data, "tmpfs", 0, "size=64m"); errors.Is(err, syscall.EPERM) {
		t.Skip("this needs the right to mount a small disk")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.kill()
		if err := syscall.Unmount(w.data, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(w.data, "secret"), secret, 0o600); err != nil {
		t.Fatal(err)
	}
	// It is as large as the half of what is there: fetched and taken apart it does not fit.
	big := makeClip(t, "big.mkv", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25:duration=4,noise=alls=100:allf=t", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-qp", "3")
	if size := fileSize(t, big); size < 25<<20 || size > 50<<20 {
		t.Fatalf("the source has %d bytes", size)
	}
	w.start("--min-free", "1MB")
	free := w.free()
	for _, origin := range []*origin{newOrigin(t, big), newOriginOfUnknownSize(t, big)} {
		var task words.Task
		w.must("POST", "/api/transcode", transcode(origin.URL+"/big.mkv", b, rung("only", "H.264", 320, 180, 400_000)), &task)
		task = w.watch(task.ID, func(t words.Task) bool { return t.Status.Retries != nil && *t.Status.Retries == 1 })
		if !regexp.MustCompile(`disk`).MatchString(task.Status.ErrorMessage) || task.Status.Phase != words.TaskWaiting {
			t.Errorf("the task is %+v, want it to wait for room on the disk", task.Status)
		}
		t.Log(task.Status.ErrorMessage)
		w.must("POST", "/api/task/"+task.ID+"/cancel", nil, nil)
		eventually(t, func() error {
			if now := w.free(); now < free-8<<20 { // the database may have grown
				return fmt.Errorf("%d bytes are free, before there were %d", now, free)
			}
			return nil
		})
	}
	var task words.Task // one that fits is done
	w.must("POST", "/api/transcode", transcode(newOrigin(t, tinyClip(t)).URL+"/tiny.mp4", b, rung("only", "H.264", 228, 128, 200_000)), &task)
	w.completed(task.ID)
	w.stop()
}

// newOriginOfUnknownSize serves a file without saying how long it is.
func newOriginOfUnknownSize(t *testing.T, file string) *origin {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t, file)
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(data)
	})
	return o
}

// free returns how many bytes the disk with weir's data has left.
func (w *weir) free() int64 {
	w.t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(w.data, &s); err != nil {
		w.t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}
