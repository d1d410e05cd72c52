//go:build soak

package live

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// soakLive is how long the storm lasts, and soakEvery how often it is measured.
const (
	soakLive  = 4 * time.Minute
	soakEvery = time.Second
)

// TestLiveSoak is TestLiveCrowd for minutes, with memory and disk measured: after the first
// minute the memory does not grow, after the first three minutes the disk does not.
// `make soak-live` runs it.
func TestLiveSoak(t *testing.T) {
	w := harness.NewWeir(t)
	w.Binary = harness.Shipped(t)
	c := newCrowd(t, w, 55_000_000, 4*time.Second)
	calm := map[*goodStream]int{}
	time.Sleep(20 * time.Second) // what is usual
	for _, g := range c.good {
		calm[g] = int(g.sent.Load())
		t.Logf("%s, calm: %s", g.name, late(g.since(0)))
	}
	t.Logf("memory before the storm %d MiB", harness.Memory(t, w)>>20)
	harness.Profile(t, "http://"+c.ops, "heap", "before")

	var memories, disks []int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(soakEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				memories, disks = append(memories, harness.Memory(t, w)), append(disks, c.diskUse())
			}
		}
	}()
	used, own := cpuTime(t, w.Cmd.Process.Pid), cpuTime(t, os.Getpid())
	c.storm(soakLive)
	t.Logf("in the storm weir used %.2f cores, this test %.2f", (cpuTime(t, w.Cmd.Process.Pid)-used).Seconds()/soakLive.Seconds(), (cpuTime(t, os.Getpid())-own).Seconds()/soakLive.Seconds())
	close(stop)
	<-done
	harness.Profile(t, "http://"+c.ops, "heap", "after")
	for _, g := range c.good {
		t.Logf("%s, in the storm: %s", g.name, late(g.since(calm[g])))
	}
	minute := int(time.Minute / soakEvery)
	for i := range len(memories) / minute {
		t.Logf("minute %d: memory %d MiB, disk %d MiB at most", i+1, limit(memories[i*minute:(i+1)*minute])>>20, limit(disks[i*minute:(i+1)*minute])>>20)
	}
	second, last := limit(memories[minute:2*minute]), limit(memories[len(memories)-minute:])
	if last > second*12/10 {
		t.Errorf("memory grew from %d to %d MiB after the first minute", second>>20, last>>20)
	}
	if third, last := limit(disks[2*minute:3*minute]), limit(disks[len(disks)-minute:]); last > third*12/10 {
		t.Errorf("what is on disk grew from %d to %d MiB after the third minute", third>>20, last>>20)
	}
	c.finish()
}

// cpuTime is how long a process has computed.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// Behind the name, which may have anything in it, are user and system time, in
	// hundredths of a second.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return time.Duration(harness.Number(fields[11])+harness.Number(fields[12])) * 10 * time.Millisecond
}

func limit(values []int64) int64 { return slices.Max(values) }

// diskUse returns how many bytes the live streams of weir have on disk.
func (c *crowd) diskUse() (bytes int64) {
	c.t.Helper()
	err := filepath.WalkDir(c.w.Data, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it is gone already
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return bytes
}
