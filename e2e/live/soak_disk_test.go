//go:build soak

package live

import (
	"testing"
	"time"

	"weir/e2e/harness"
)

// TestDiskSoak sends two streams of 20 Mbit/s to a disk of 160 MB for five minutes.
func TestDiskSoak(t *testing.T) {
	began := time.Now()
	fullDisk(t, "160m", "16MB", 20, func(*harness.Weir, *poller, string) {
		time.Sleep(time.Until(began.Add(5 * time.Minute)))
	})
}
