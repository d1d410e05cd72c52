// Package vod drives stored media: uploads, transcoding to buckets, faults of sources and
// storage, kill -9 in the middle, the data folder of an earlier version.
package vod

import (
	"os"
	"testing"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
