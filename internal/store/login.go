package store

import (
	"context"

	"weir/internal/weir"
)

// RefreshToken returns a refresh token that is neither revoked nor expired;
// NotFound when there is none.
func (q *queries) RefreshToken(ctx context.Context, token weir.Secret, now weir.Millis) (RefreshToken, error) {
	return one(ctx, q.conn, func(r rows) (t RefreshToken, err error) {
		return t, r.Scan(&t.UserID, &t.CreatedAt, &t.ExpiresAt, &t.UsedAt, &t.Revoked)
	}, `SELECT user_id, created_at, expires_at, used_at, revoked FROM refresh_token
		WHERE hash = $1 AND expires_at > $2 AND NOT revoked`, hashKey(token.Reveal()), int64(now))
}
