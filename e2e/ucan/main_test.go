package ucan

import (
	"os"
	"testing"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.MainPlain(m)) }
