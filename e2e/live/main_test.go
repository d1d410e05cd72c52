// Package live drives streams on air: encoders and players of every kind, recordings,
// multistream, pulls, several nodes.
//
// Whether audio and video belong together is measured by flash and beep, at the times at
// which a player shows them: one pair for RTMP and SRT in TestLive, every encoder with every
// player in TestLiveMatrix, beside a log of what weir delivered when.
package live

import (
	"os"
	"testing"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
