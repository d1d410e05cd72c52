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
			p := try(t, f, binary, os.Getenv("FAULTS_BROWSER") != "off", time.Minute)
			rows = append(rows, p.row())
			p.check(t, f)
		})
	}
	t.Logf("all:\n%s", table(rows))
}
