//go:build soak

package faults

import (
	"os"
	"regexp"
	"testing"
	"time"

	"weir/e2e/harness"
)

// TestFaultsSoak lets everything fail that FAULTS matches, one after the other, with weir as it is shipped and
// hls.js in a browser, and prints a table.
func TestFaultsSoak(t *testing.T) {
	chosen, err := regexp.Compile(os.Getenv("FAULTS"))
	if err != nil {
		t.Fatal(err)
	}
	binary := harness.Shipped(t)
	var rows [][]string
	for _, f := range allFaults() {
		if !chosen.MatchString(f.name) {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			// Longer than nodes and streams are waited for.
			rows = append(rows, try(t, binary, os.Getenv("FAULTS_BROWSER") != "off", 15*time.Second, time.Minute, f)...)
		})
	}
	t.Logf("all:\n%s", table(rows))
}
