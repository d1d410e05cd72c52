package live

import (
	"maps"
	"slices"
)

// Stats is what a hub carries, and has carried since the start.
type Stats struct {
	OnAir      int64 // streams whose encoder is connected
	Sessions   int64 // that are open, also in a gap
	Unhealthy  int64 // streams on air that have issues
	BytesIn    int64 // of media, from encoders
	Parts      int64 // written
	LostFrames int64 // that renditions, targets and viewers over WebRTC were too slow for
	Admitted   int64 // encoders that knew a good stream key
	Refused    int64 // encoders that did not, or whose stream is suspended
}

// add adds what a session has carried.
func (t *Stats) add(c carried) {
	t.BytesIn += c.bytes
	t.Parts += c.parts
	t.LostFrames += c.lost
}

// Stats returns the numbers of now.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	t := h.past
	open, ended := slices.Collect(maps.Values(h.sessions)), slices.Collect(maps.Keys(h.ended))
	h.mu.Unlock() // a session may wait for the disk, and viewers must not wait for it
	t.Admitted, t.Refused = h.admitted.Load(), h.refused.Load()
	t.Sessions = int64(len(open))
	for _, s := range open {
		c := s.carried()
		t.add(c)
		if c.onAir {
			t.OnAir++
		}
		if c.onAir && c.unwell {
			t.Unhealthy++
		}
	}
	for _, s := range ended {
		t.add(s.carried())
	}
	return t
}

// carried is what a session has carried since it was opened here.
type carried struct {
	onAir, unwell      bool
	bytes, parts, lost int64
}

func (s *session) carried() carried {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := carried{onAir: s.publisher != nil, unwell: s.unwell, bytes: s.bytes, lost: s.lostFrames()}
	s.looking.RLock()
	defer s.looking.RUnlock()
	for _, r := range slices.Concat(s.renditions(), s.rungs) {
		r.mu.Lock()
		c.parts += int64(r.parts - r.found)
		r.mu.Unlock()
	}
	return c
}
