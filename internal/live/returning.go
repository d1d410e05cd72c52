package live

import (
	"context"
	"crypto/subtle"
	"time"

	"weir/internal/weir"
)

// An encoder that returns while the store fails or hangs continues the session that this node has
// open, if it has the stream key of that session: the store had admitted it. So a database that is
// away costs no stream that is on air. Whatever the store would have said, the node hears with the
// next beat that is saved, which ends sessions as always.

// returnTimeout is how long the store may take when the session of an encoder is open here. Callers of
// SRT wait for three seconds.
const returnTimeout = 2 * time.Second

// confirmations is how often the lease is read of a session that the store may have given to this
// node again. More than once, because a commit that was not answered may come after the first.
const confirmations = 5

// unanswered reports whether a call of the store failed because of the store, or took too long. ctx is
// that of the caller.
func unanswered(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && weir.Retriable(err)
}

// streamOf returns the stream that an encoder with the key may publish to. returns = the store did
// not answer, and the stream is one that this node has open.
func (h *Hub) streamOf(ctx context.Context, key weir.Secret) (stream weir.Stream, returns bool, err error) {
	open := h.openWithKey(key)
	asking := ctx
	if open != nil {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, returnTimeout)
		defer cancel()
	}
	stream, err = h.o.Store.StreamForPublisher(asking, key)
	if open != nil && unanswered(ctx, err) {
		open.log.Warn("encoder admitted without the store, to its open session", "err", err)
		return open.stream, true, nil
	}
	return stream, false, err
}

// openWithKey returns the open session of the stream with a key; nil = there is none.
func (h *Hub) openWithKey(key weir.Secret) *session {
	for _, s := range h.all() {
		if subtle.ConstantTimeCompare([]byte(s.stream.StreamKey.Reveal()), []byte(key.Reveal())) == 1 {
			return s
		}
	}
	return nil
}

// PlaybackOf returns the playback id of the open session whose stream has a key; false = there is
// none.
func (h *Hub) PlaybackOf(streamKey string) (string, bool) {
	s := h.openWithKey(weir.Secret(streamKey))
	if s == nil {
		return "", false
	}
	return s.stream.PlaybackID, true
}

// unconfirm notes that the store may have given the session to this node again, and did not answer.
func (s *session) unconfirm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unconfirmed = confirmations
}

// confirmLeases takes over the leases of unconfirmed sessions. With an older epoch than that of the
// store, their beats would be ignored.
func (h *Hub) confirmLeases(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	for _, s := range h.all() {
		s.mu.Lock()
		confirmed := s.unconfirmed == 0
		s.mu.Unlock()
		if confirmed {
			continue
		}
		air, err := h.o.Store.OnAirOf(ctx, s.stream.PlaybackID)
		if err != nil && weir.Retriable(err) {
			return // the next beat tries again
		}
		s.mu.Lock()
		s.unconfirmed--
		if air.Node == h.o.Node && air.SessionID == s.info.ID && air.Epoch > s.lease.Epoch {
			s.lease = air
		}
		s.mu.Unlock()
	}
}
