package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/weir"
)

// Deleting an account has two steps. DeleteUser marks it: from then on the account does not exist
// for queries (account.go), so its keys, encoders and viewers are refused, its broadcasts end with
// the next beat, and its webhooks get nothing. Its content stays, for RestoreUser. After the grace,
// PurgeDeletedAccounts enqueues the job that removes the content for good; it ends with ForgetUser.

// DeleteUser deletes an account, stops its pulls and cancels its tasks. It can be restored until it is
// purged, but log-ins, links, pulls and tasks stay ended. Call it last in a transaction: it emits events, with URLs
// below base.
func (tx *Tx) DeleteUser(ctx context.Context, id string, base weir.Base, now time.Time) (weir.User, error) {
	u, err := tx.UpdateUser(ctx, id, func(u *weir.User) error { return u.Delete(now) })
	if err != nil {
		return u, err
	}
	for _, table := range []string{"refresh_token", "password_link"} {
		if _, err := tx.conn.exec(ctx, "DELETE FROM "+table+" WHERE user_id = $1", id); err != nil {
			return u, err
		}
	}
	if _, err := tx.conn.exec(ctx, `UPDATE pull SET wanted = $2, node = '', boot = '', claim = claim + 1
		WHERE wanted AND stream_id IN (SELECT id FROM stream WHERE user_id = $1)`, id, false); err != nil {
		return u, err
	}
	tx.bumpLater(TopicPull)
	return u, tx.cancelTasks(ctx, id, weir.NewEventBatch(base, now))
}

// cancelTasks cancels all tasks of a user that have not ended.
func (tx *Tx) cancelTasks(ctx context.Context, userID string, events *weir.EventBatch) error {
	ids, err := many(ctx, tx.conn, scanText, `SELECT id FROM task
		WHERE user_id = $1 AND phase IN ('pending', 'waiting', 'running') ORDER BY id`, userID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		cancelled := false
		t, err := tx.UpdateTask(ctx, id, func(t *weir.Task) error {
			if cancelled = !t.Done(); !cancelled {
				return nil
			}
			return t.Cancel(events.Now)
		})
		if err != nil {
			return err
		}
		if !cancelled {
			continue // it has ended meanwhile
		}
		events.Task(weir.TaskUpdated, t)
		if err := tx.FailResult(ctx, t, "cancelled", events); err != nil {
			return err
		}
	}
	return tx.EmitBatch(ctx, events)
}

// RestoreUser undoes DeleteUser.
func (tx *Tx) RestoreUser(ctx context.Context, id string, now time.Time) error {
	tx.bumpLater(TopicAuth)
	tx.bumpLater(TopicTask) // a request that the deletion overtook may have made one
	_, err := accounts.update(ctx, tx, id, func(u *weir.User) error { return u.Restore(now) })
	return err
}

// PurgeDeletedAccounts enqueues the removal of accounts that were deleted before then: they can't
// be restored any more. It returns how many there were.
func (tx *Tx) PurgeDeletedAccounts(ctx context.Context, before time.Time, limit int) (int, error) {
	due, err := accounts.where(ctx, &tx.queries, "deleted AND NOT purging AND deleted_at < $1 ORDER BY deleted_at LIMIT $2"+tx.store.engine.forUpdate(), weir.At(before), limit)
	if err != nil {
		return 0, err
	}
	for _, u := range due {
		if _, err := accounts.update(ctx, tx, u.ID, func(u *weir.User) error { u.Purging = true; return nil }); err != nil {
			return 0, err
		}
		// Jobs of its tasks that were cancelled at the same moment may still write files.
		if err := tx.enqueueAt(ctx, JobPurge, purgeAccount+u.ID, u.DeletedAt.Time().Add(purgeAfter)); err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

// Purging reports whether the content of an account is to be removed. It is false when that is
// done.
func (q *queries) Purging(ctx context.Context, userID string) (bool, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM account WHERE id = $1 AND purging", userID)
	return n > 0, err
}

// OpenSessionsOf counts the open sessions of a user on all nodes.
func (q *queries) OpenSessionsOf(ctx context.Context, userID string) (int, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM live WHERE session_id <> '' AND stream_id IN (SELECT id FROM stream WHERE user_id = $1)", userID)
	return int(n), err
}

// ForgetAsset deletes the row of an asset whose files are deleted.
func (tx *Tx) ForgetAsset(ctx context.Context, id string) error {
	return ignoreNotFound(assets.remove(ctx, tx, id))
}

// ForgetTask deletes the rows of a task whose files are deleted.
func (tx *Tx) ForgetTask(ctx context.Context, id string) error {
	for _, table := range []string{"piece", "task_work"} {
		if _, err := tx.conn.exec(ctx, "DELETE FROM "+table+" WHERE task_id = $1", id); err != nil {
			return err
		}
	}
	return ignoreNotFound(tasks.remove(ctx, tx, id))
}

// ForgetSession deletes the row of a session whose recording is deleted. Its node removes the files
// that it has of it.
func (tx *Tx) ForgetSession(ctx context.Context, id string) error {
	return ignoreNotFound(sessions.remove(ctx, tx, id))
}

// The conditions for rows that belong to a user through another row.
const (
	ofUsersStreams  = "stream_id IN (SELECT id FROM stream WHERE user_id = $1)"
	ofUsersTasks    = "task_id IN (SELECT id FROM task WHERE user_id = $1)"
	ofUsersWebhooks = "webhook_id IN (SELECT id FROM webhook WHERE user_id = $1)"
	ofUsersUploads  = "ipfs_upload_id IN (SELECT id FROM ipfs_upload WHERE user_id = $1)"
	ofUser          = "user_id = $1"
)

// accountRows are the rows that an account has, in an order in which they can be deleted. A test
// compares them with the tables.
var accountRows = []struct{ table, key, condition string }{
	{"piece", "task_id", ofUsersTasks},
	{"task_work", "task_id", ofUsersTasks},
	{"ipfs_block", "hash", ofUsersUploads},
	{"ipfs_upload", "id", ofUser},
	{"task", "id", ofUser},
	{"asset", "id", ofUser},
	{"health", "at", ofUsersStreams},
	{"live", "stream_id", ofUsersStreams},
	{"pull", "stream_id", ofUsersStreams},
	{"stream_target", "stream_id", ofUsersStreams},
	{"session", "id", ofUser},
	{"stream", "id", ofUser},
	{"target", "id", ofUser},
	{"delivery", "event_seq", ofUsersWebhooks},
	{"delivery_line", "resource", ofUsersWebhooks},
	{"webhook_log", "id", ofUser},
	{"webhook", "id", ofUser},
	{"event", "seq", ofUser},
	{"signing_key", "id", ofUser},
	{"object_store", "id", ofUser},
	{"viewing", "id", ofUser},
	{"view_hour", "id", ofUser},
	{"usage_hour", "hour", ofUser},
	{"storage_day", "day", ofUser},
	{"password_link", "hash", ofUser},
	{"refresh_token", "hash", ofUser},
	{"api_token", "id", ofUser},
	{"project", "id", ofUser},
	{"account", "id", "id = $1"},
}

// ForgetUser deletes all rows of an account that is being purged; after it the e-mail address is
// free. It can be interrupted and repeated: the account's own row is the last.
func (s *Store) ForgetUser(ctx context.Context, id string) error {
	ctx = long(ctx, sweepLimit)
	for _, r := range accountRows {
		sql := fmt.Sprintf("DELETE FROM %s WHERE %s AND %s IN (SELECT %s FROM %s WHERE %s LIMIT %d)",
			r.table, r.condition, r.key, r.key, r.table, r.condition, pruneAtOnce)
		for {
			n, err := s.conn.exec(ctx, sql, id)
			if err != nil {
				return fmt.Errorf("delete rows of %s: %w", r.table, err)
			}
			if n == 0 {
				break
			}
		}
	}
	s.shown.clear()
	return nil
}

// Orphan is an account that has content but no row: weir once deleted accounts without their
// content.
type Orphan struct {
	UserID string
	Rows   int64 // streams, sessions, assets and tasks
}

// Orphans returns the accounts that have content but no row.
func (q *queries) Orphans(ctx context.Context) ([]Orphan, error) {
	var parts []string
	for _, table := range []string{"stream", "session", "asset", "task"} {
		parts = append(parts, "SELECT user_id FROM "+table)
	}
	return many(ctx, q.conn, func(r rows) (o Orphan, err error) { return o, r.Scan(&o.UserID, &o.Rows) },
		"SELECT user_id, count(*) FROM ("+strings.Join(parts, " UNION ALL ")+`) content
			WHERE NOT EXISTS (SELECT 1 FROM account WHERE account.id = content.user_id) GROUP BY user_id ORDER BY user_id`)
}

// DeleteOrphan gives an orphan the row of a deleted account, so that it is purged like one, or can
// be restored.
func (tx *Tx) DeleteOrphan(ctx context.Context, userID string, now time.Time) (weir.User, error) {
	all, err := tx.Orphans(ctx)
	if err != nil {
		return weir.User{}, err
	}
	for _, o := range all {
		if o.UserID != userID {
			continue
		}
		u := weir.User{ID: userID, Kind: "user", Email: userID + "@deleted.invalid", CreatedAt: weir.At(now)}
		p, exists, err := found(first(projects.where(ctx, &tx.queries, "user_id = $1 ORDER BY created_at, id LIMIT 1", userID)))
		if err != nil {
			return u, err
		}
		if u.DefaultProjectID = p.ID; !exists {
			p = weir.Project{ID: weir.NewID(), Name: "Default Project", UserID: userID, CreatedAt: u.CreatedAt}
			u.DefaultProjectID = p.ID
			if err := tx.CreateProject(ctx, &p); err != nil {
				return u, err
			}
		}
		if err := u.Delete(now); err != nil {
			return u, err
		}
		return u, accounts.insert(ctx, tx, &u)
	}
	return weir.User{}, weir.ErrNotFound()
}
