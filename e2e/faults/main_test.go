// Package faults lets the parts of a service fail that viewers must not notice: the database, the bucket,
// nodes, and the connections between them.
//
// A [rig] is three nodes on two PostgreSQL, of which one is a synchronous standby, and on a bucket.
// Toxiproxy is between all of them. Two encoders send films of numbered frames, each to a node of its own.
// Viewers watch at each node and through a balancer, and others come new to what the nodes know. While a
// [fault] lasts and after it, all of them note what they got; the [report] is what came of it.
//
// TestFaults runs the shortest of them. `make soak-faults` runs all, with hls.js in a browser, and prints a
// table; FAULTS is a regular expression that chooses some.
package faults

import (
	"os"
	"testing"

	"weir/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
