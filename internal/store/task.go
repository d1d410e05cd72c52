package store

import (
	"context"
	"time"

	"weir/internal/weir"
)

var tasks = table[weir.Task]{
	name:    "task",
	project: true,
	order:   "updatedAt-true",
	columns: func(_ *queries, t *weir.Task) []column {
		return []column{
			{"id", t.ID},
			{"user_id", t.UserID},
			{"project_id", t.ProjectID},
			{"created_at", int64(t.CreatedAt)},
			{"updated_at", int64(t.Status.UpdatedAt)},
			{"scheduled_at", int64(t.ScheduledAt)},
			{"type", string(t.Type)},
			{"phase", string(t.Status.Phase)},
			{"input_asset_id", t.InputAssetID},
			{"output_asset_id", t.OutputAssetID},
			{"has_secrets", hasSecrets(t)},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"''", textField}, "createdAt": {"created_at", numberField},
		"updatedAt": {"updated_at", numberField}, "userId": {"user_id", textField}, "user.email": {"user_id", emailField},
		"type": {"type", textField}, "inputAssetId": {"input_asset_id", textField},
		"outputAssetId": {"output_asset_id", textField}, "projectId": {"project_id", textField}, "phase": {"phase", textField},
	},
	secrets: func(t *weir.Task) any { return &t.Secrets },
	restore: func(*weir.Task, any) {}, // read straight into place
}

func hasSecrets(t *weir.Task) bool {
	s := t.Secrets
	return s.EncryptedKey != "" || s.InputURL != "" || s.StorageURL != "" || s.ExportURL != "" || len(s.ExportHeaders) > 0 || s.Pinata != nil || s.Proof != ""
}

// Task returns the task with the id.
func (q *queries) Task(ctx context.Context, id string) (weir.Task, error) {
	return tasks.get(ctx, q, id)
}

// Tasks returns a page of tasks, without their secrets: no list shows them, and a proof may have a MiB.
func (q *queries) Tasks(ctx context.Context, query Query) (Page[weir.Task], error) {
	listed := tasks
	listed.secrets = nil
	return listed.list(ctx, q, query)
}

// TaskOfAsset returns the newest task that makes the asset.
func (q *queries) TaskOfAsset(ctx context.Context, assetID string) (weir.Task, error) {
	return first(tasks.where(ctx, q, "output_asset_id = $1 ORDER BY created_at DESC, id", assetID))
}

// PendingTasks counts a user's tasks that have not started, without the clips of viewers.
func (q *queries) PendingTasks(ctx context.Context, userID string) (int, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM task WHERE user_id = $1 AND type <> 'clip' AND phase IN ('pending', 'waiting')", userID)
	if err != nil {
		return 0, err
	}
	clips, err := q.clipsInProgress(ctx, userID)
	for _, t := range clips {
		if t.Secrets.Viewer == "" && t.Status.Phase != weir.TaskRunning {
			n++
		}
	}
	return int(n), err
}

// CreateTask writes a new task.
func (tx *Tx) CreateTask(ctx context.Context, t *weir.Task) error {
	if t.Status.Phase == weir.TaskWaiting {
		tx.bumpLater(TopicTask)
	}
	return tasks.insert(ctx, tx, t)
}

// UpdateTask changes a task. A task that waits again must be admitted again. A cancelled task is
// stopped where it runs. The working files of a task that has ended are deleted.
func (tx *Tx) UpdateTask(ctx context.Context, id string, change func(*weir.Task) error) (weir.Task, error) {
	var before weir.TaskPhase
	t, err := tasks.update(ctx, tx, id, func(t *weir.Task) error {
		before = t.Status.Phase
		err := change(t)
		if t.Done() {
			t.Secrets.Viewer = ""
		}
		return err
	})
	if err != nil || t.Status.Phase == before {
		return t, err
	}
	if t.Status.Phase == weir.TaskWaiting {
		tx.bumpLater(TopicTask)
		_, err = tx.conn.exec(ctx, "UPDATE task SET admitted = $1, due_at = 0 WHERE id = $2", false, id)
		return t, err
	}
	if !t.Done() {
		return t, nil
	}
	tx.bumpLater(TopicTask)
	if t.Status.Phase != weir.TaskCompleted {
		if err := tx.CancelJobs(ctx, id); err != nil {
			return t, err
		}
		if t.Type == weir.TaskClip { // what was written of it is no use for another attempt
			if err := tx.PurgeUpload(ctx, t.OutputAssetID); err != nil {
				return t, err
			}
		}
	}
	return t, tx.endTaskState(ctx, t)
}

// FailResult marks the asset of a failed task as failed, or the copy that the task should have made.
func (tx *Tx) FailResult(ctx context.Context, t weir.Task, message string, events *weir.EventBatch) error {
	if t.OutputAssetID == "" {
		return tx.failStorage(ctx, t, message, events)
	}
	return tx.FailAsset(ctx, t.OutputAssetID, message, events)
}

// failStorage records on an asset that the task which should have copied it failed.
func (tx *Tx) failStorage(ctx context.Context, t weir.Task, message string, events *weir.EventBatch) error {
	if t.Type != weir.TaskExport {
		return nil
	}
	pending := false
	asset, err := tx.UpdateAsset(ctx, t.InputAssetID, func(a *weir.Asset) error {
		if pending = a.Storage != nil && a.Storage.Status != nil && a.Storage.Status.Tasks.Pending == t.ID; !pending {
			return nil
		}
		var earlier *weir.IPFSSpec
		if last := a.Storage.Status.Tasks.Last; last != "" {
			done, err := tx.Task(ctx, last)
			if ignoreNotFound(err) != nil {
				return err
			}
			earlier = done.IPFSSpec()
		}
		a.FailStorage(t.ID, message, earlier, events.Now)
		return nil
	})
	if err == nil && pending {
		events.Asset(weir.AssetUpdated, asset)
	}
	return ignoreNotFound(err)
}

// DelayTask keeps a waiting task from being admitted before a time, and stops its jobs.
func (tx *Tx) DelayTask(ctx context.Context, id string, until time.Time) error {
	if _, err := tx.conn.exec(ctx, "UPDATE task SET due_at = $2 WHERE id = $1", id, until.UnixMilli()); err != nil {
		return err
	}
	if err := tx.closeTaskState(ctx, id); err != nil {
		return err
	}
	return tx.CancelJobs(ctx, id)
}

// RunningTasks counts the tasks that were admitted and have not ended.
func (q *queries) RunningTasks(ctx context.Context) (int, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT count(*) FROM task WHERE phase IN ('waiting', 'running') AND admitted")
	return int(n), err
}

// WaitingAccount is an account with tasks that can be admitted.
type WaitingAccount struct {
	UserID       string
	TaskID       string // the oldest of these tasks
	Running      int    // tasks of the account that were admitted and have not ended
	LastAdmitted int64  // increases with each admission; 0 = never
}

// WaitingAccounts returns the accounts with tasks of the given types that can be admitted, those
// with the fewest running tasks first, and of those the ones that were admitted least recently.
func (q *queries) WaitingAccounts(ctx context.Context, types []weir.TaskType, limit int) ([]WaitingAccount, error) {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	b := &builder{}
	// MATERIALIZED keeps both engines from searching the oldest task twice.
	return many(ctx, q.conn, func(r rows) (a WaitingAccount, err error) {
		return a, r.Scan(&a.UserID, &a.TaskID, &a.Running, &a.LastAdmitted)
	}, `WITH oldest AS MATERIALIZED (
			SELECT a.id AS user_id, a.last_admitted_at, (SELECT t.id FROM task t WHERE t.user_id = a.id AND t.phase = 'waiting' AND NOT t.admitted
				AND t.due_at <= `+b.bind("%s", time.Now().UnixMilli())+` AND t.type IN (`+b.list(names)+`) ORDER BY t.scheduled_at, t.id LIMIT 1) AS task_id
			FROM account a WHERE NOT a.deleted
		)
		SELECT user_id, task_id, (SELECT count(*) FROM task r WHERE r.user_id = o.user_id AND r.admitted AND r.phase IN ('waiting', 'running')) AS running, last_admitted_at
		FROM oldest o WHERE task_id IS NOT NULL ORDER BY running, last_admitted_at, user_id LIMIT `+b.bind("%s", limit), b.args...)
}

// AdmitTask enqueues the job of the account's oldest waiting task. ok is false if a is out of date:
// another node has admitted a task of the account since, or the task does not wait any more.
func (tx *Tx) AdmitTask(ctx context.Context, a WaitingAccount) (ok bool, err error) {
	var last, newest int64
	_, ok, err = found(one(ctx, tx.conn, func(r rows) (_ struct{}, err error) { return struct{}{}, r.Scan(&last, &newest) },
		"SELECT last_admitted_at, (SELECT max(last_admitted_at) FROM account) FROM account WHERE id = $1 AND NOT deleted"+tx.store.engine.forUpdate(), a.UserID))
	if err != nil || !ok || last != a.LastAdmitted {
		return false, err
	}
	n, err := tx.conn.exec(ctx, "UPDATE task SET admitted = $2 WHERE id = $1 AND phase = 'waiting' AND NOT admitted", a.TaskID, true)
	if err != nil || n == 0 {
		return false, err
	}
	// The order of admissions must be clear even if two happen in one millisecond.
	if _, err := tx.conn.exec(ctx, "UPDATE account SET last_admitted_at = $2 WHERE id = $1", a.UserID, max(newest+1, time.Now().UnixMilli())); err != nil {
		return false, err
	}
	return true, tx.Enqueue(ctx, JobTask, a.TaskID)
}
