package ingest

import "sync/atomic"

// Counters count the connections of all listeners that share them. The zero value is
// ready.
type Counters struct{ open, turnedAway atomic.Int64 }

// Stats is what the listeners have done since the start.
type Stats struct {
	Connections int64 // that are open
	TurnedAway  int64 // because there were too many
}

// Stats returns the numbers of now.
func (c *Counters) Stats() Stats { return Stats{c.open.Load(), c.turnedAway.Load()} }
