package store

import (
	"context"
	"time"

	"weir/internal/weir"
)

// maxCounted bounds what is counted of a queue: the metrics of every node ask for it all the time.
const maxCounted = 10_000

// HeartbeatAge returns how long ago the last heartbeat of this node was written.
func (s *Store) HeartbeatAge() time.Duration {
	return max(0, time.Since(time.UnixMilli(s.node.lastBeat.Load())))
}

// QueueLength returns the number of tasks that wait, up to maxCounted, and for how long the oldest of
// them has waited.
func (q *queries) QueueLength(ctx context.Context, now time.Time) (tasks int64, oldest time.Duration, err error) {
	var since int64
	_, err = one(ctx, q.conn, func(r rows) (_ struct{}, err error) { return struct{}{}, r.Scan(&tasks, &since) },
		`SELECT count(*), COALESCE(min(since), 0) FROM (SELECT t.scheduled_at AS since FROM task t WHERE t.phase = 'waiting'
			AND EXISTS (SELECT 1 FROM account a WHERE a.id = t.user_id AND NOT a.deleted) LIMIT $1) AS waiting`, maxCounted)
	if err != nil || tasks == 0 {
		return 0, 0, err
	}
	return tasks, max(0, now.Sub(weir.Millis(since).Time())), nil
}
