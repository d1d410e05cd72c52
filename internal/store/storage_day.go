package store

import (
	"context"
	"time"

	"weir/internal/weir"
)

// storageDaysKept is how long the storage of accounts is known day by day.
const storageDaysKept = 400 * 24 * time.Hour

// storedParts is the SQL for the bytes that accounts store, in parts; see used.
const storedParts = `SELECT user_id, stored AS n FROM asset WHERE stored > 0
	UNION ALL SELECT user_id, recorded_bytes FROM session WHERE recorded_bytes > 0
	UNION ALL SELECT user_id, size FROM ipfs_upload WHERE remote = 'local'`

// sampleStorage writes how many bytes each account stores today. The last sample of a day stays.
func (s *Store) sampleStorage(ctx context.Context, now time.Time) error {
	day := int64(weir.StepDay.Start(weir.At(now)))
	return s.Tx(ctx, func(tx *Tx) error {
		// Also of accounts that store nothing any more.
		if _, err := tx.conn.exec(ctx, "UPDATE storage_day SET bytes = 0 WHERE day = $1", day); err != nil {
			return err
		}
		_, err := tx.conn.exec(ctx, `INSERT INTO storage_day (user_id, day, bytes)
			SELECT user_id, CAST($1 AS BIGINT), CAST(sum(n) AS BIGINT) FROM (`+storedParts+`) AS parts WHERE n > 0 GROUP BY user_id
			ON CONFLICT (user_id, day) DO UPDATE SET bytes = excluded.bytes`, day)
		return err
	})
}

// storageDays returns how many bytes an account stored on each day of a range of time, without its
// end.
func (q *queries) storageDays(ctx context.Context, userID string, from, to weir.Millis) ([]weir.StorageDay, error) {
	days, err := many(ctx, q.conn, func(r rows) (d weir.StorageDay, err error) { return d, r.Scan(&d.Day, &d.Bytes) },
		"SELECT day, bytes FROM storage_day WHERE user_id = $1 AND day >= $2 AND day < $3 ORDER BY day",
		userID, int64(weir.StepDay.Start(from)), int64(to))
	if days == nil {
		days = []weir.StorageDay{}
	}
	return days, err
}
