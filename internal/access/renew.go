package access

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// renewals extends the life of tokens of streams: a player requests the same playlist while it
// plays, so the token in its path can't be replaced. A token is valid until it is unused for liveLife.
// If the policy is that the admission ends with the viewer's JWT, only a newer JWT extends it.
//
// The uses on this node are in memory. Those on another node, or before a restart, are taken from
// the views in the store. A JWT must be shown again there.
type renewals struct {
	store *store.Store
	mu    sync.Mutex
	used  map[tokenMAC]time.Time
	jwts  map[tokenMAC]shownJWT
	seen  store.Recent[map[string]bool] // ids of recent viewers, by playback id
}

// shownJWT is the last JWT that came with a token.
type shownJWT struct {
	sum  [sha256.Size]byte
	ends time.Time // of the admission; zero = it was not valid
}

const (
	maxRenewals  = 100_000
	maxAudiences = 1000
)

func newRenewals(st *store.Store) renewals {
	return renewals{
		store: st, used: map[tokenMAC]time.Time{}, jwts: map[tokenMAC]shownJWT{}, seen: store.Recent[map[string]bool]{Store: st, Max: maxAudiences},
	}
}

// renew extends the life of a token, or returns an error if it has expired.
func (c *Control) renew(ctx context.Context, t Title, v Viewer, token *Token, now time.Time) error {
	switch {
	case t.endsWithJWT():
		return c.renewByJWT(ctx, t, v, token, now)
	case !t.Stream && token.expired(now):
		return errExpired()
	case !t.Stream:
		return nil
	case c.renewals.use(token, now):
		return nil
	}
	viewers, err := c.renewals.audience(ctx, t, now)
	if err != nil {
		return err
	}
	if !viewers[v.Client.ID()] {
		if err := c.renewals.store.Away(); err != nil {
			return err // the viewer may have come since
		}
		return errExpired()
	}
	c.renewals.note(token, now)
	return nil
}

// renewByJWT extends the life of a token if the request shows a JWT that is valid for longer, or
// returns an error if it has expired.
func (c *Control) renewByJWT(ctx context.Context, t Title, v Viewer, token *Token, now time.Time) error {
	last := c.renewals.jwt(token)
	if jwt, _ := credentials(v.Request); jwt != "" {
		if sum := sha256.Sum256([]byte(jwt)); sum != last.sum {
			by, err := c.checkJWT(ctx, t, v, jwt)
			if err != nil && weir.Retriable(err) {
				return err
			}
			last.sum = sum
			if by.Expires.After(last.ends) {
				last.ends = by.Expires
			}
			c.renewals.noteJWT(token, last, now)
		}
	}
	if token.expired(now) && !now.Before(last.ends) {
		return weir.Errorf(weir.Denied, "the JWT has expired; send a new one with the header Livepeer-Jwt or as ?jwt=, "+
			"or load the master playlist again with it")
	}
	return nil
}

// jwt returns the last JWT that came with a token.
func (r *renewals) jwt(t *Token) shownJWT {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jwts[t.mac]
}

func (r *renewals) noteJWT(t *Token, jwt shownJWT, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.jwts[t.mac]; !ok && len(r.jwts) >= maxRenewals {
		maps.DeleteFunc(r.jwts, func(_ tokenMAC, jwt shownJWT) bool { return !now.Before(jwt.ends) })
		if len(r.jwts) >= maxRenewals {
			clear(r.jwts) // players show them again
		}
	}
	r.jwts[t.mac] = jwt
}

// use reports whether a token is new or was used recently, and notes that it is used.
func (r *renewals) use(t *Token, now time.Time) bool {
	r.mu.Lock()
	last, ok := r.used[t.mac]
	r.mu.Unlock()
	if t.expired(now) && (!ok || now.Sub(last) > liveLife) {
		return false
	}
	r.note(t, now)
	return true
}

func (r *renewals) note(t *Token, now time.Time) {
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
func (r *renewals) audience(ctx context.Context, t Title, now time.Time) (map[string]bool, error) {
	return r.seen.Get(ctx, t.PlaybackID, now, func(ctx context.Context) (map[string]bool, error) {
		return r.store.RecentViewers(ctx, t.UserID, t.PlaybackID, weir.At(now.Add(-liveLife)), maxRenewals)
	})
}
