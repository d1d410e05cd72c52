package live

import (
	"context"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// ErrHandedOver ends a wait for media of a session that another node carries now.
var ErrHandedOver = weir.Errorf(weir.Busy, "the stream is on another server now; try again")

// HandedOver reports whether another node carries the session now. This node still has the media
// that it carried, and gets no more.
func (b *Broadcast) HandedOver() bool { return b.session.handedOver.Load() }

// Shows reports whether a rendition, or the source if the name is empty, can be played. A session
// that began on another node needs a whole segment and the segments of the other node for that:
// players that have seen segments give up on a playlist without any.
func (b *Broadcast) Shows(name string) bool {
	if len(b.session.info.Earlier) == 0 {
		return b.session.renditions.hasMedia()
	}
	shown := 0
	for _, r := range b.session.renditions.all() {
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

// AwaitShown waits until a rendition of a session that came here from another node can be played:
// before that, this node does not know the segments of the other one. An error of kind NotFound means
// that the rendition will not come, ErrHandedOver that the session is on another node by now.
func (b *Broadcast) AwaitShown(ctx context.Context, name string) error {
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for {
		switch {
		case b.HandedOver():
			return ErrHandedOver
		case b.Shows(name):
			return nil
		case !b.willShow(name):
			return weir.ErrNotFound()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return weir.Wrap(weir.Busy, context.Cause(ctx), "the stream is not ready on this server yet; try again")
		}
	}
}

// willShow reports whether a rendition that is not shown may still come.
func (b *Broadcast) willShow(name string) bool {
	s := b.session
	switch {
	case len(s.info.Earlier) == 0 || s.finished():
		return false
	case !b.Shows(""):
		return true
	}
	// The tracks of the source come together, the rungs when they are encoded.
	_, err := b.rendition(name)
	return err == nil || slices.Contains(s.ladder.expected(), name)
}

const (
	// maxRelease is how long an encoder waits for the node that it was connected to before.
	maxRelease = time.Second
	// maxReport is how long that node waits for the store.
	maxReport = 400 * time.Millisecond
)

// askToRelease asks the node that carries a stream, or did, to release it, so that segment numbers
// continue without gaps. Otherwise, and if that node does not answer, numbers are skipped: hls.js
// forgets the end of the old media behind such gaps, and then may wait there until the playlist has
// moved on. A node whose lease is over is asked too: it may only be cut off from the database.
//
// If this node has the session, and the store has not heard of it for long, that is told first: by what
// the store knows, the session may be over.
func (h *Hub) askToRelease(ctx context.Context, stream weir.Stream) {
	h.mu.Lock()
	own := h.sessions[stream.ID]
	h.mu.Unlock()
	if own != nil && !own.reported(time.Now()) {
		if err := h.report(ctx, own, time.Now()); err != nil {
			own.log.Info("the state of the stream could not be saved before its encoder returned", "err", err)
		}
	}
	node, url, err := h.o.Store.Unreported(ctx, stream.ID)
	if h.o.Release == nil || err != nil || node == "" {
		return
	}
	asking, cancel := context.WithTimeout(ctx, maxRelease)
	numbers, err := h.o.Release(asking, node, url, stream.ID)
	cancel()
	if err == nil {
		err = h.o.Store.Tx(ctx, func(tx *store.Tx) error { return tx.Reported(ctx, stream.ID, numbers, time.Now()) })
	}
	if err != nil {
		h.o.Log.Info("segment numbers are skipped: the previous node did not report its last segment", "stream", stream.ID, "node", node, "err", err)
	}
}

// Release disconnects the encoder of a stream, because it has connected to another node, and returns
// how far its media is, to the store too if that is there. No encoder continues here before the
// store gives the session to this node again.
func (h *Hub) Release(ctx context.Context, streamID string) (weir.Numbers, error) {
	h.mu.Lock()
	s := h.sessions[streamID]
	h.mu.Unlock()
	if s == nil {
		return weir.Numbers{}, weir.ErrNotFound()
	}
	s.mu.Lock()
	s.released = true
	p := s.conn.publisher
	s.mu.Unlock()
	if p != nil {
		p.stop(errTakenOver)
		if err := s.disconnect(p, false); err != nil {
			return weir.Numbers{}, err
		}
	}
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxReport)
	defer cancel()
	if err := h.report(ctx, s, now); err != nil {
		s.log.Info("the stream is released without the store", "err", err)
	}
	last := s.beat(now)
	return weir.Numbers{Epoch: last.Epoch, Sequence: last.NextSequence, Discontinuities: last.NextDiscontinuities}, nil
}

// maxUnreported is by how much the media of a node may be longer than it has reported.
const maxUnreported = beatEvery + 500*time.Millisecond

// report writes the state of one session to the store.
func (h *Hub) report(ctx context.Context, s *session, now time.Time) error {
	return h.o.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.RenewOnAir(ctx, []store.Beat{s.beat(now)}, now)
		return err
	})
}

// handOver ends a session here that continues on another node. Its playlists have no end.
func (h *Hub) handOver(s *session) {
	s.handedOver.Store(true)
	h.end(s, errTakenOver, false)
	for _, r := range s.renditions.all() {
		r.handOver()
	}
	s.log.Info("the stream is on another node now")
}

// handOver ends all waits for new media with ErrHandedOver.
func (r *rendition) handOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handedOver = true
	r.publish()
}

// joined reports whether it has a whole segment, and the segments of other nodes before it.
func (r *rendition) joined() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.earlier == nil && len(r.segments) > 0
}
