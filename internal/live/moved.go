package live

import (
	"context"
	"time"

	"weir/internal/weir"
)

// ErrMoved is what those get who wait for something of a session that another node
// carries by now.
var ErrMoved = weir.Errorf(weir.Busy, "another server carries the stream by now; try again")

// Moved reports whether another node carries the session by now. What was on air here can
// still be had, what comes can't.
func (b *Broadcast) Moved() bool { return b.session.moved.Load() }

// Shows reports whether there is something to see of a rendition, or of the source if the
// name is empty. Of a session that began elsewhere that is a whole segment, after what was
// before: players give up when they have seen segments and get a playlist without any.
func (b *Broadcast) Shows(name string) bool {
	if len(b.session.info.Earlier) == 0 {
		return b.session.hasMedia()
	}
	shown := 0
	for _, r := range b.session.everything() {
		if r.name != name && (name != "" || r.name != videoName && r.name != audioName) {
			continue
		}
		if !r.joined() {
			return false
		}
		shown++
	}
	return shown > 0
}

// unheardTime is by how much what a node has carried may be longer than it has said.
const unheardTime = beatEvery + 500*time.Millisecond

// periodStart returns where on the timeline the period of a session may begin that other nodes
// carried before: after all that they have, whatever their clocks say.
func (s *session) periodStart() time.Duration {
	if len(s.info.Earlier) == 0 || s.video != nil || s.audio != nil {
		return 0
	}
	return s.info.End + unheardTime
}

// carriedElsewhere reports whether another node carries a stream.
func (h *Hub) carriedElsewhere(ctx context.Context, s *session) bool {
	air, err := h.o.Store.OnAirOf(ctx, s.stream.PlaybackID)
	return err == nil && air.Node != h.o.Node
}

// letGo ends a session here that another node goes on with: players are not told that it
// has ended.
func (h *Hub) letGo(s *session) {
	s.moved.Store(true)
	if err := s.stop(errTakenOver, false); err != nil {
		s.log.Warn("the end of what an encoder sent could not be written", "err", err)
	}
	for _, r := range s.everything() {
		r.leave()
	}
	s.log.Info("another node carries the stream now")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s.stream.ID] == s {
		delete(h.sessions, s.stream.ID)
	}
	h.ended[s] = time.Now()
}

// leave sends whoever waits for what comes to where it comes.
func (r *rendition) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	r.tell()
}

// joined reports whether it has a whole segment, after what other nodes carried.
func (r *rendition) joined() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.back == nil && len(r.segments) > 0
}
