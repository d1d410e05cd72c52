// Package console drives the console in Chromium, as a person does: it clicks on what has a name and
// fills in what has a label.
//
//   - TestConsole goes from the first start to the log-out.
//   - TestPages opens every page, below a prefix too, looks with axe-core for what keeps people out, and
//     writes screenshots into the folder WEIR_SCREENSHOTS, if that is set.
//   - TestBench (make bench-console) measures the pages of a large account beside those of an empty one.
package console

import (
	"os"
	"testing"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.MainPlain(m)) }
