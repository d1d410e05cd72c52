package store

import (
	"context"
	"fmt"
	"time"

	"weir/internal/weir"
)

const pruneEvery = 10 * time.Minute

// Retention says how long rows are kept.
type Retention struct {
	Events      time.Duration // events and webhook logs
	Credentials time.Duration // of a task, after its end
	Health      time.Duration // health samples of streams
	Views       time.Duration // single views, after the last request of their viewer
}

// endedTasks is the condition for rows of tasks that ended long ago.
const endedTasks = "task_id IN (SELECT id FROM task WHERE phase IN ('completed', 'failed', 'cancelled') AND updated_at < $1)"

// pruneAtOnce bounds how long one statement takes.
const pruneAtOnce = 1000

// Prune deletes old rows, and measures the storage of accounts. Run does so too.
func (s *Store) Prune(ctx context.Context, keep Retention) error {
	ctx = long(ctx, sweepLimit)
	now := time.Now()
	old := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	_, deleted, err := s.EventBounds(ctx)
	if err != nil {
		return err
	}
	for _, rule := range []struct {
		table, key, condition string
		before                int64
	}{
		// By number, not by time: a cursor must not point between deleted events.
		{"event", "seq", "seq <= (SELECT max(seq) FROM event WHERE created_at < $1) ORDER BY seq", old(keep.Events)},
		{"delivery", "event_seq", "event_seq <= $1", deleted},
		{"webhook_log", "id", "created_at < $1", old(keep.Events)},
		{"health", "at", "at < $1", old(keep.Health)},
		{"storage_day", "day", "day < $1", old(storageDaysKept)},
		{"refresh_token", "hash", "expires_at < $1", now.UnixMilli()},
		{"password_link", "hash", "expires_at < $1", now.UnixMilli()},
		{"job_cancel", "ref", "created_at < $1", old(24 * time.Hour)},
		{"piece", "task_id", endedTasks, old(24 * time.Hour)},
		{"task_work", "task_id", endedTasks, old(24 * time.Hour)},
	} {
		sql := fmt.Sprintf("DELETE FROM %s WHERE %s IN (SELECT %s FROM %s WHERE %s LIMIT %d)",
			rule.table, rule.key, rule.key, rule.table, rule.condition, pruneAtOnce)
		for {
			n, err := s.conn.exec(ctx, sql, rule.before)
			if err != nil {
				return fmt.Errorf("delete old rows of %s: %w", rule.table, err)
			}
			if n < pruneAtOnce {
				break
			}
		}
	}
	if err := s.sampleStorage(ctx, now); err != nil {
		return fmt.Errorf("measure the storage of accounts: %w", err)
	}
	if err := s.rollUpViews(ctx, old(keep.Views)); err != nil {
		return fmt.Errorf("add old views to the hours: %w", err)
	}
	return s.forgetCredentials(ctx, old(keep.Credentials))
}

// forgetCredentials deletes the credentials of tasks that ended long ago.
func (s *Store) forgetCredentials(ctx context.Context, before int64) error {
	for {
		ids, err := many(ctx, s.conn, scanText, `SELECT id FROM task
			WHERE has_secrets AND phase IN ('completed', 'failed', 'cancelled') AND updated_at < $1 LIMIT 100`, before)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := s.Tx(ctx, func(tx *Tx) error {
			for _, id := range ids {
				if _, err := tasks.update(ctx, tx, id, func(t *weir.Task) error {
					t.Secrets = weir.TaskSecrets{Gone: true}
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
}
