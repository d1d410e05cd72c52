//go:build soak

package vod

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// maxMemory is what the weir process itself may hold.
const maxMemory = 200_000_000

// TestMemorySoak looks at the memory of weir while ten tasks of two accounts are
// done, and while a source of 5 GB passes through. `make soak-vod-memory` runs it.
func TestMemorySoak(t *testing.T) {
	plain := harness.Shipped(t)
	t.Run("tenTasks", func(t *testing.T) {
		w := harness.NewWeir(t)
		w.Binary = plain
		ops := harness.FreeAddr(t)
		w.Start("--max-running-tasks", "5", "--ops", ops)
		o := harness.NewOrigin(t, harness.MakeClip(t, "ten.mp4", append(harness.Pictures("1280x720", 30, 20),
			"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "60", "-b:v", "6M", "-c:a", "aac")...))
		w.Run("user", "create", "ada@example.com")
		other := *w
		other.Key = harness.Match(t, w.Run("key", "create", "ada's", "--user", "ada@example.com"), `API key +(\S+)`)
		peak := limit(w, ops, func() {
			var ids []string
			for i := range 5 {
				for _, account := range []*harness.Weir{w, &other} {
					var task words.Task
					account.Must("POST", "/api/transcode", harness.Transcode(fmt.Sprintf("%s/%d.mp4", o.URL, i), s3test.Start(t),
						harness.Rung("full", "H.264", 1280, 720, 3_000_000), harness.Rung("half", "H.264", 640, 360, 800_000)), &task)
					ids = append(ids, task.ID)
				}
			}
			for i, id := range ids {
				[]*harness.Weir{w, &other}[i%2].Completed(id)
			}
		})
		report(t, peak)
		w.Stop()
	})
	t.Run("5GB", func(t *testing.T) {
		w := harness.NewWeir(t)
		w.Binary = plain
		ops := harness.FreeAddr(t)
		w.Start("--ops", ops)
		source := harness.LoopedClip(t, 5_000_000_000)
		report(t, limit(w, ops, func() {
			passThrough(t, w, source, map[string]any{"mp4": map[string]any{"path": "/out"}, "hls": map[string]any{"path": "/out"}})
		}))
		w.Stop()
	})
}

func report(t *testing.T, peak int64) {
	t.Helper()
	t.Logf("weir itself had at most %d MB", peak/1_000_000)
	if peak > maxMemory {
		t.Errorf("weir itself had %d MB, at most %d are right", peak/1_000_000, maxMemory/1_000_000)
	}
}

// TestKillSoak is TestKillTask and TestKillWorker with two minutes of video.
// `make soak-vod-kill` runs it.
func TestKillSoak(t *testing.T) {
	t.Run("task", func(t *testing.T) { killTask(t, harness.NewWeir(t), 120) })
	t.Run("worker", func(t *testing.T) { killWorker(t, 120) })
}

// TestPlaySoak measures how soon an asset of a minute plays after its last byte.
// `make soak-vod-play` runs it.
func TestPlaySoak(t *testing.T) {
	w := harness.NewWeir(t)
	w.Binary = harness.Shipped(t)
	w.Start()
	file := harness.MakeClip(t, "minute.mp4", append(harness.Pictures("1920x1080", 30, 60),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "60", "-b:v", "6M", "-c:a", "aac", "-b:a", "128k", "-movflags", "+faststart")...)
	var times []time.Duration
	for range 5 {
		u, took := sendUpload(w, file)
		times = append(times, took.Round(time.Millisecond))
		w.Must("DELETE", "/api/asset/"+u.Asset.ID, nil, nil) // and with it the rest of the work
		harness.Eventually(t, func() error {
			if left := harness.Children(w.Cmd.Process.Pid); len(left) > 0 {
				return fmt.Errorf("the work goes on: %v", left)
			}
			return nil
		})
	}
	slices.Sort(times)
	t.Logf("%d MB, 60 s of 1080p: the first segment plays %v after the last byte, median %v", harness.FileSize(t, file)>>20, times, times[len(times)/2])
	if times[len(times)/2] > 2*time.Second {
		t.Errorf("want at most 2 s")
	}
	w.Stop()
}

// most watches the memory of weir while something happens, and returns the most that
// it had.
func limit(w *harness.Weir, ops string, happens func()) (peak int64) {
	w.T.Helper()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); ; {
			if now := harness.Memory(w.T, w); now > peak+peak/10 {
				peak = now
				harness.Profile(w.T, "http://"+ops, "heap", "peak")
			} else {
				peak = max(peak, now)
			}
			select {
			case <-done:
				return
			case <-tick:
			}
		}
	})
	happens()
	close(done)
	watching.Wait()
	return peak
}
