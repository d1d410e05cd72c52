// Package manual runs what the manual shows: every block of README.md and docs/*.md that is a
// program runs against a weir, or says why it can't (norun: REASON). JSON, YAML and configurations
// of other servers are checked by their parsers. It runs the programs in examples/ too.
//
// The blocks of a page run in order, in one shell and one folder, as a reader would run them. What
// a block sets, later blocks have; programs in other languages have it as environment variables.
// Names that stand for something of the reader's, such as https://example.com/film.mp4, are
// replaced: see world.replace.
package manual

import (
	"os"
	"testing"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.MainPlain(m)) }
