package playback

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"weir/internal/store"
	"weir/internal/weir"
)

// renewals lets viewers of a stream go on with the token that they have: a player
// asks for the same playlist for as long as it shows a stream, so the token in its
// address can't be exchanged. It holds while it is not left unused for liveLife.
//
// What was used here is in memory. What was used on another node, or before this one
// was started again, is read off the views in the store.
type renewals struct {
	store   *store.Store
	loading singleflight.Group
	mu      sync.Mutex
	used    map[tokenMAC]time.Time
	seen    map[string]audience // by playback id
}

// audience is who watched something lately.
type audience struct {
	viewers map[string]bool
	checked time.Time
}

const (
	maxRenewals  = 100_000
	maxAudiences = 1000
)

func (r *renewals) init(st *store.Store) {
	r.store, r.used, r.seen = st, map[tokenMAC]time.Time{}, map[string]audience{}
}

// renew lets a viewer go on with a token, or says that its time is up.
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
	if !viewers[s.viewerOf(v)] { // or there are so many that the store does not list them
		return errExpired()
	}
	s.renewals.note(v.token, now)
	return nil
}

// use notes that a token is used, and reports whether it may be: it is new, or was
// used lately.
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
			clear(r.used) // the store knows them
		}
	}
	r.used[t.mac] = now
}

// audience returns who watched something within liveLife, as far as that is written.
func (r *renewals) audience(ctx context.Context, playbackID string, now time.Time) (map[string]bool, error) {
	r.mu.Lock()
	known, ok := r.seen[playbackID]
	r.mu.Unlock()
	if ok && now.Sub(known.checked) < fresh {
		return known.viewers, nil
	}
	found, err, _ := r.loading.Do(playbackID, func() (any, error) {
		// Others wait for the answer too, so it must not end with this request.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLoad)
		defer cancel()
		rows, err := r.store.Views(ctx, store.ViewQuery{PlaybackID: playbackID, SeenSince: weir.At(now.Add(-liveLife)), By: []string{"viewerId"}})
		if err != nil {
			return nil, err
		}
		viewers := map[string]bool{}
		for _, row := range rows {
			viewers[row.By[0]] = true
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.seen) >= maxAudiences {
			clear(r.seen)
		}
		r.seen[playbackID] = audience{viewers, now}
		return viewers, nil
	})
	if err != nil {
		return nil, err
	}
	return found.(map[string]bool), nil
}
