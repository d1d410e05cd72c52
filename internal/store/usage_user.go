package store

import (
	"context"

	"weir/internal/weir"
)

// UserUsage sums up what a user's sessions that began in a span of time carried:
// from is in it, to is not.
func (q *queries) UserUsage(ctx context.Context, userID string, from, to weir.Millis) (weir.UserUsage, error) {
	return one(ctx, q.conn, func(r rows) (u weir.UserUsage, err error) {
		return u, r.Scan(&u.SourceSegments, &u.TranscodedSegments, &u.SourceSegmentsDuration, &u.TranscodedSegmentsDuration, &u.StreamCount)
	}, `SELECT CAST(COALESCE(sum(source_segments), 0) AS BIGINT), CAST(COALESCE(sum(transcoded_segments), 0) AS BIGINT),
		CAST(COALESCE(sum(source_segments_duration), 0) AS DOUBLE PRECISION), CAST(COALESCE(sum(transcoded_segments_duration), 0) AS DOUBLE PRECISION),
		count(DISTINCT parent_id)
		FROM session WHERE user_id = $1 AND created_at >= $2 AND created_at < $3`, userID, int64(from), int64(to))
}
