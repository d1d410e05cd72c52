//go:build soak

package service

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// TestFairSoakResets measures what a flood of resets costs weir: from one connection, and from a client that
// comes back. `make soak-fair` runs it; WEIR_PLAIN_BINARY names another weir to measure.
func TestFairSoakResets(t *testing.T) {
	const long = 8500 * time.Millisecond
	table := &harness.Table{}
	t.Cleanup(func() { t.Logf("\n%s", table) })
	w := harness.NewWeir(t)
	if w.Binary = os.Getenv("WEIR_PLAIN_BINARY"); w.Binary == "" {
		w.Binary = harness.Shipped(t)
	}
	address := startSecure(t, w)
	flood := func(again bool) (resets, connections int, cpu float64) {
		before := cpuSeconds(t, w)
		for end := time.Now().Add(long); time.Now().Before(end) && (again || connections == 0); connections++ {
			c := newRapid(t, w, address)
			for time.Now().Before(end) && c.reset(200) == nil {
				continue
			}
			resets += int(c.next / 2)
		}
		return resets, connections, cpuSeconds(t, w) - before
	}
	resets, _, cpu := flood(false)
	table.Add(t, "sqlite", "resets", "of one connection in 8.5 s", "-", strconv.Itoa(resets), "2,000", resets <= 2000)
	table.Add(t, "sqlite", "resets", "CPU of weir", "-", fmt.Sprintf("%.2f s", cpu), "0.5 s", cpu <= 0.5)
	resets, connections, cpu := flood(true)
	table.Add(t, "sqlite", "resets", "of a client that comes back, in 8.5 s", "-", fmt.Sprintf("%d, %d connections, %.2f s of CPU", resets, connections, cpu), "-", true)
}

// cpuSeconds returns the CPU time that weir has used.
func cpuSeconds(t *testing.T, w *harness.Weir) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	ticks := 0
	for _, field := range strings.Fields(rest)[11:13] { // utime and stime, in hundredths
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return float64(ticks) / 100
}
