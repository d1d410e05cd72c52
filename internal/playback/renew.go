package playback

import (
	"context"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// renewals extends the life of tokens of streams: a player requests the same playlist while it
// plays, so the token in its path can't be replaced. A token is valid until it is unused for liveLife.
//
// The uses on this node are in memory. Those on another node, or before a restart, are taken from
// the views in the store.
type renewals struct {
	store *store.Store
	mu    sync.Mutex
	used  map[tokenMAC]time.Time
	seen  recent[map[string]bool] // ids of recent viewers, by playback id
}

const (
	maxRenewals  = 100_000
	maxAudiences = 1000
)

// renew extends the life of a token, or returns an error if it has expired.
func (s *Server) renew(v *visit, now time.Time) error {
	switch {
	case !v.title.live() && v.token.over(now):
		return errExpired()
	case !v.title.live():
		return nil
	case s.renewals.use(v.token, now):
		return nil
	}
	viewers, err := s.renewals.audience(v.Context(), v.id, now)
	if err != nil && weir.KindOf(err) != weir.Invalid {
		return err
	}
	if !viewers[s.viewerID(v)] { // or there are so many that the store does not list them
		return errExpired()
	}
	s.renewals.note(v.token, now)
	return nil
}

// use reports whether a token is new or was used recently, and notes that it is used.
func (r *renewals) use(t *token, now time.Time) bool {
	r.mu.Lock()
	last, ok := r.used[t.mac]
	r.mu.Unlock()
	if t.over(now) && (!ok || now.Sub(last) > liveLife) {
		return false
	}
	r.note(t, now)
	return true
}

func (r *renewals) note(t *token, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.used[t.mac]; !ok && len(r.used) >= maxRenewals {
		for mac, last := range r.used {
			if now.Sub(last) > liveLife {
				delete(r.used, mac)
			}
		}
		if len(r.used) >= maxRenewals {
			clear(r.used) // the store has them
		}
	}
	r.used[t.mac] = now
}

// audience returns the viewers within liveLife, by their views in the store.
func (r *renewals) audience(ctx context.Context, playbackID string, now time.Time) (map[string]bool, error) {
	return r.seen.get(ctx, playbackID, now, func(ctx context.Context) (map[string]bool, error) {
		rows, err := r.store.Views(ctx, store.ViewQuery{PlaybackID: playbackID, SeenSince: weir.At(now.Add(-liveLife)), By: []string{"viewerId"}})
		viewers := map[string]bool{}
		for _, row := range rows {
			viewers[row.By[0]] = true
		}
		return viewers, err
	})
}
