//go:build soak

package service

import (
	"fmt"
	"testing"
	"time"

	"weir/e2e/harness"
)

// TestFairSoak is TestDescriptors with weir as it is shipped, on both databases. `make soak-fair` runs it.
func TestFairSoak(t *testing.T) {
	table := &harness.Table{}
	t.Cleanup(func() { t.Logf("\n%s", table) })
	plain := harness.Shipped(t)
	for _, engine := range harness.Engines() {
		t.Run(engine, func(t *testing.T) {
			w := harness.NewWeirOn(t, engine)
			w.Binary = plain
			quiet, beside := crowded(t, w)
			seconds := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
			table.Add(t, engine, "connections", "a new encoder is on air after", seconds(quiet), seconds(beside), "2 s", beside <= 2*time.Second)
			table.Add(t, engine, "connections", "lost frames, requests without a response", "-", "none", "none", !t.Failed())
		})
	}
}
