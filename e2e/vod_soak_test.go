//go:build soak

package e2e

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"weir/internal/blob/s3test"
	words "weir/internal/weir"
)

// maxMemory is what the weir process itself may hold.
const maxMemory = 200_000_000

// TestMemorySoak looks at the memory of weir while ten tasks of two accounts are
// done, and while a source of 5 GB passes through. `make soak-vod-memory` runs it.
func TestMemorySoak(t *testing.T) {
	plain := shipped(t)
	t.Run("tenTasks", func(t *testing.T) {
		w := newWeir(t)
		w.binary = plain
		ops := freeAddr(t)
		w.start("--max-running-tasks", "5", "--ops", ops)
		o := newOrigin(t, makeClip(t, "ten.mp4", append(pictures("1280x720", 30, 20),
			"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "60", "-b:v", "6M", "-c:a", "aac")...))
		w.run("user", "create", "ada@example.com")
		other := *w
		other.key = match(t, w.run("key", "create", "ada's", "--user", "ada@example.com"), `API key +(\S+)`)
		peak := w.limit(ops, func() {
			var ids []string
			for i := range 5 {
				for _, account := range []*weir{w, &other} {
					var task words.Task
					account.must("POST", "/api/transcode", transcode(fmt.Sprintf("%s/%d.mp4", o.URL, i), s3test.Start(t),
						rung("full", "H.264", 1280, 720, 3_000_000), rung("half", "H.264", 640, 360, 800_000)), &task)
					ids = append(ids, task.ID)
				}
			}
			for i, id := range ids {
				[]*weir{w, &other}[i%2].completed(id)
			}
		})
		report(t, peak)
		w.stop()
	})
	t.Run("5GB", func(t *testing.T) {
		w := newWeir(t)
		w.binary = plain
		ops := freeAddr(t)
		w.start("--ops", ops)
		source := loopedClip(t, 5_000_000_000)
		report(t, w.limit(ops, func() {
			passThrough(t, w, source, map[string]any{"mp4": map[string]any{"path": "/out"}, "hls": map[string]any{"path": "/out"}})
		}))
		w.stop()
	})
}

func report(t *testing.T, peak int64) {
	t.Helper()
	t.Logf("weir itself had at most %d MB", peak/1_000_000)
	if peak > maxMemory {
		t.Errorf("weir itself had %d MB, at most %d are right", peak/1_000_000, maxMemory/1_000_000)
	}
}

// TestKillSoak is TestKillTask and TestKillWorker with a minute of video.
// `make soak-vod-kill` runs it.
func TestKillSoak(t *testing.T) {
	t.Run("task", func(t *testing.T) { killTask(t, newWeir(t), 60) })
	t.Run("worker", func(t *testing.T) { killWorker(t, 60) })
}

// TestPlaySoak measures how soon an asset of a minute plays after its last byte.
// `make soak-vod-play` runs it.
func TestPlaySoak(t *testing.T) {
	w := newWeir(t)
	w.binary = shipped(t)
	w.start()
	file := makeClip(t, "minute.mp4", append(pictures("1920x1080", 30, 60),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "60", "-b:v", "6M", "-c:a", "aac", "-b:a", "128k", "-movflags", "+faststart")...)
	var times []time.Duration
	for range 5 {
		u, took := w.upload(file)
		times = append(times, took.Round(time.Millisecond))
		w.must("DELETE", "/api/asset/"+u.Asset.ID, nil, nil) // and with it the rest of the work
		eventually(t, func() error {
			if left := children(w.cmd.Process.Pid); len(left) > 0 {
				return fmt.Errorf("the work goes on: %v", left)
			}
			return nil
		})
	}
	slices.Sort(times)
	t.Logf("%d MB, 60 s of 1080p: the first segment plays %v after the last byte, median %v", fileSize(t, file)>>20, times, times[len(times)/2])
	if times[len(times)/2] > 2*time.Second {
		t.Errorf("want at most 2 s")
	}
	w.stop()
}

// most watches the memory of weir while something happens, and returns the most that
// it had.
func (w *weir) limit(ops string, happens func()) (peak int64) {
	w.t.Helper()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); ; {
			if now := memory(w.t, w); now > peak+peak/10 {
				peak = now
				profile(w.t, "http://"+ops, "heap", "peak")
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
