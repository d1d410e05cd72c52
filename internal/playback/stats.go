package playback

import "time"

// watching is how long after the last sign of life somebody still watches.
const watching = 30 * time.Second

// Stats is what viewers do.
type Stats struct {
	Viewers int64 // who fetched something in the last half minute
	Reloads int64 // requests that wait for what a playlist is to have
	Waits   int64 // requests that wait for a part
	Asked   int64 // things that other nodes were asked for
}

// Stats returns the numbers of now.
func (s *Server) Stats() Stats {
	n := Stats{Viewers: s.views.watching(time.Now()), Reloads: s.reloads.Load(), Waits: s.waits.Load()}
	if s.edge != nil {
		n.Asked = s.edge.asked.Load()
	}
	return n
}

// watching returns how many viewers there are.
func (c *views) watching(now time.Time) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.active {
		if now.Sub(v.LastSeen.Time()) < watching {
			n++
		}
	}
	return n
}
