package playback

import "time"

// watching is how long after the last request a viewer counts.
const watching = 30 * time.Second

// Stats are the counts of a Server.
type Stats struct {
	Viewers int64 // with a request in the last half minute
	Reloads int64 // requests that wait for a playlist
	Waits   int64 // requests that wait for a part
	Asked   int64 // requests to other nodes
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	n := Stats{Viewers: s.views.watching(time.Now()), Reloads: s.reloads.Load(), Waits: s.waits.Load()}
	if s.edge != nil {
		n.Asked = s.edge.asked.Load()
	}
	return n
}

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
