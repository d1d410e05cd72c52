package ingest

import "sync/atomic"

// Counters count the connections of all listeners that share them.
type Counters struct{ open, turnedAway atomic.Int64 }

// Stats are the current values of Counters.
type Stats struct {
	Connections int64 // that are open
	TurnedAway  int64 // because there were too many
}

// Stats returns the current values.
func (c *Counters) Stats() Stats { return Stats{c.open.Load(), c.turnedAway.Load()} }
