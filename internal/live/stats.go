package live

import "time"

// Stats are the numbers of a hub since its start.
type Stats struct {
	OnAir      int64         // streams whose encoder is connected
	Sessions   int64         // that are open, also those that wait for their encoder
	Unhealthy  int64         // streams on air that have issues
	BytesIn    int64         // of media, from encoders
	Parts      int64         // written
	LostFrames int64         // that rungs, targets and viewers over WebRTC were too slow for
	Admitted   int64         // encoders with a valid stream key
	Refused    int64         // encoders without one, whose stream is suspended, or for which there is no disk space
	DiskStep   int64         // what streams do without because the disk runs full; 0 = nothing
	Handovers  int64         // sessions that this node continued after another one
	Skipped    int64         // segment numbers that were skipped in these handovers
	BeatAge    time.Duration // of the session whose last saved beat is the oldest; 0 = no session is open
	RungLag    time.Duration // of the rendition that is furthest behind its source
}

// add adds the numbers of a session.
func (t *Stats) add(s Stats) {
	t.OnAir += s.OnAir
	t.Unhealthy += s.Unhealthy
	t.BytesIn += s.BytesIn
	t.Parts += s.Parts
	t.LostFrames += s.LostFrames
	t.BeatAge, t.RungLag = max(t.BeatAge, s.BeatAge), max(t.RungLag, s.RungLag)
}

// Stats returns the current numbers.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	t := h.closed
	t.Sessions = int64(len(h.sessions))
	sessions := h.withEnded()
	h.mu.Unlock() // a session may wait for the disk, and viewers must not
	t.Admitted, t.Refused, t.DiskStep = h.admitted.Load(), h.refused.Load(), int64(h.space.step())
	t.Handovers, t.Skipped = h.handovers.Load(), h.skipped.Load()
	for _, s := range sessions {
		t.add(s.stats())
	}
	return t
}

// stats returns the numbers of the session since it was opened here.
func (s *session) stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := Stats{BytesIn: s.conn.bytes, LostFrames: s.taps.lostFrames()}
	if !s.stopped {
		t.BeatAge, t.RungLag = time.Since(s.lastBeat), s.ladder.lag()
	}
	if s.conn.publisher != nil {
		t.OnAir = 1
	}
	if s.conn.publisher != nil && s.health.hasIssues {
		t.Unhealthy = 1
	}
	for _, r := range s.renditions.all() {
		r.mu.Lock()
		t.Parts += int64(r.parts - r.recovered)
		r.mu.Unlock()
	}
	return t
}
