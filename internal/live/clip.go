package live

import (
	"context"
	"slices"
	"time"

	"weir/internal/media"
	"weir/internal/weir"
)

// Clips are cut out of sessions that are on air, or have just ended, by package work. Here is what it
// needs: what there is of a session, by the wall clock, its tracks, and a wait for more.

// session returns the session of this node with an id. If the node carried it several times, it is
// the last period.
func (h *Hub) session(id string) (*session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found *session
	for _, s := range h.withEnded() {
		if s.info.ID == id && (found == nil || len(s.info.Earlier) > len(found.info.Earlier)) {
			found = s
		}
	}
	if found == nil {
		return nil, weir.Errorf(weir.NotFound, "the session is not on this server")
	}
	return found, nil
}

// Ranges returns what there is of a session on this node, without gaps, in milliseconds of the wall
// clock: all of a recorded one, otherwise what playlists show. What is older is deleted a minute
// later, so that a clip of it can still be cut.
func (h *Hub) Ranges(sessionID string) ([]weir.ClipRange, error) {
	s, err := h.session(sessionID)
	if err != nil {
		return nil, err
	}
	s.renditions.mu.RLock()
	source := s.renditions.source()
	s.renditions.mu.RUnlock()
	if len(source) == 0 {
		return nil, weir.Errorf(weir.NotFound, "no media of the session was received yet")
	}
	return source[0].ranges()
}

// ranges returns what there is of a track.
func (r *rendition) ranges() ([]weir.ClipRange, error) {
	if !r.record.Load() && r.recorder.Protected() > 0 { // its recording has ended
		track, err := r.recorder.Reading(false)
		if err != nil {
			return nil, err
		}
		return media.SpansOf(track.Index()), nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	spans := slices.Clone(r.spans)
	if !r.record.Load() {
		spans = nil
		own := int(max(0, -r.first)) // those before are on other nodes
		for i := own; i < len(r.segments); i++ {
			spans.Add(r.segments[i], r.tracks[i])
		}
	}
	if len(r.open.Parts) > 0 {
		spans.Add(r.open, r.track)
	}
	if len(spans) == 0 {
		return nil, weir.Errorf(weir.NotFound, "no media of the session was received yet")
	}
	return spans, nil
}

// Tracks returns the tracks of a session on this node, as far as they are received, the video first.
// over = nothing will be added to them here.
func (h *Hub) Tracks(sessionID string) (tracks []*media.Track, over bool, err error) {
	s, err := h.session(sessionID)
	if err != nil {
		return nil, false, err
	}
	over = s.finished() || s.handedOver.Load()
	s.renditions.mu.RLock()
	source := s.renditions.source()
	s.renditions.mu.RUnlock()
	for _, r := range source {
		track, err := r.recorder.Reading(r.record.Load())
		if weir.KindOf(err) == weir.NotFound {
			continue
		}
		if err != nil {
			return nil, over, err
		}
		tracks = append(tracks, track)
	}
	if len(tracks) == 0 {
		return nil, over, weir.Errorf(weir.NotFound, "no media of the session was received yet")
	}
	return tracks, over, nil
}

// awaitEvery is how often a wait for media looks for it.
const awaitEvery = 50 * time.Millisecond

// Await waits until a session has its media up to a time of the wall clock, or will not get it. A wait
// that ends with ctx is an error of kind Busy.
func (h *Hub) Await(ctx context.Context, sessionID string, until time.Time) error {
	s, err := h.session(sessionID)
	if err != nil {
		return err
	}
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for !s.complete(until) {
		if s.stops() {
			return weir.Errorf(weir.Busy, "this server is shutting down; the session continues later")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return weir.Wrap(weir.Busy, context.Cause(ctx), "the stream has not reached that time yet")
		}
	}
	return nil
}

// complete reports whether all media up to a time of the wall clock is there that will ever come.
func (s *session) complete(until time.Time) bool {
	s.mu.Lock()
	over, away := s.over || s.handedOver.Load(), s.conn.publisher == nil
	s.mu.Unlock()
	// What an encoder sends that comes back is later on the timeline: see clockAt.
	if over || away && time.Now().After(until) {
		return true
	}
	s.renditions.mu.RLock()
	source := s.renditions.source()
	s.renditions.mu.RUnlock()
	at := until.Sub(s.renditions.created)
	all, furthest := len(source) > 0, time.Duration(0)
	for _, r := range source {
		reached := r.reached()
		all, furthest = all && reached >= at, max(furthest, reached)
	}
	// A track that is this far behind has ended, or the encoder does not send it.
	return all || furthest >= at+maxWaiting
}

// stops reports whether the session was stopped here and will continue.
func (s *session) stops() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped && !s.over && !s.handedOver.Load()
}

// reached returns up to where on the timeline all frames are there.
func (r *rendition) reached() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open.Parts) > 0 {
		return r.track.Time(r.open.End() - r.track.Delay)
	}
	newest := len(r.segments) - 1
	if newest < 0 {
		return 0
	}
	return r.tracks[newest].Time(r.segments[newest].End() - r.tracks[newest].Delay)
}
