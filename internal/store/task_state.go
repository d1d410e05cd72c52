package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// TaskState is the state that the jobs of a task share. It is created when the task first starts
// and kept for a while after its end. Transactions lock a task, its state and its pieces in this
// order.
type TaskState struct {
	TaskID      string
	Run         int             // counts how often the task started from scratch
	Node        string          // that has its spool
	Source      json.RawMessage // what is known about the source; nil = nothing yet
	Plan        json.RawMessage
	Publication json.RawMessage // state of publishing the outputs
	Tied        bool            // the job that imported the source encodes the pieces too
	Progressive bool            // pieces are published as they are done, not all at the end

	Pieces int // how many there are
	Done   int // how many of them are done
	Ahead  int // how many of the first chunks are done, without a gap

	Imported   float64 // share of the source that was imported, 0 to 1
	Published  float64 // share of the output that was published
	StartedAt  weir.Millis
	EncodingAt weir.Millis // since when this attempt encodes pieces
	Before     float64     // share of the pieces that was done before this attempt
	ReportedAt weir.Millis // when an event last reported the progress
	Reported   float64     // the progress that it reported
}

// Complete reports whether all pieces are done.
func (s *TaskState) Complete() bool { return s.Pieces > 0 && s.Done == s.Pieces }

const taskStateColumns = `task_id, run, node, source, plan, publisher, tied, stream, pieces, done, ahead,
	imported, published, started_at, encoding_at, encoded_before, told_at, told_progress`

func scanTaskState(r rows) (s TaskState, err error) {
	var source, plan, publication string
	err = r.Scan(&s.TaskID, &s.Run, &s.Node, &source, &plan, &publication, &s.Tied, &s.Progressive, &s.Pieces, &s.Done, &s.Ahead,
		&s.Imported, &s.Published, &s.StartedAt, &s.EncodingAt, &s.Before, &s.ReportedAt, &s.Reported)
	s.Source, s.Plan, s.Publication = rawJSON(source), rawJSON(plan), rawJSON(publication)
	return s, err
}

// rawJSON returns nil for an empty text.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// TaskState returns the state of a task.
func (q *queries) TaskState(ctx context.Context, taskID string) (TaskState, error) {
	return one(ctx, q.conn, scanTaskState, "SELECT "+taskStateColumns+" FROM task_work WHERE task_id = $1", taskID)
}

// StartTask returns the state of a task that starts, or continues after a failure or a lost node. A
// task that has ended before starts from scratch. Its pieces are not enqueued before CreatePieces
// or ResumePieces.
func (tx *Tx) StartTask(ctx context.Context, taskID string) (TaskState, error) {
	if _, err := tx.conn.exec(ctx, `INSERT INTO task_work (task_id, run, ended, open, node, source, plan, publisher, tied, stream, pieces, done, ahead,
		publishing, publish_job, imported, published, started_at, encoding_at, encoded_before, told_at, told_progress)
		VALUES ($1, 1, $2, $2, '', '', '', '', $2, $2, 0, 0, 0, $2, 0, 0, 0, $3, 0, 0, 0, 0) ON CONFLICT (task_id) DO UPDATE SET open = $2`,
		taskID, false, weir.At(time.Now())); err != nil {
		return TaskState{}, err
	}
	ended, err := one(ctx, tx.conn, scanInt, "SELECT count(*) FROM task_work WHERE task_id = $1 AND ended", taskID)
	if err != nil {
		return TaskState{}, err
	}
	if ended > 0 {
		return tx.ResetTask(ctx, taskID)
	}
	return tx.TaskState(ctx, taskID)
}

// UpdateTaskState changes the state of a task, but not the fields that pieces and publishing
// change.
func (tx *Tx) UpdateTaskState(ctx context.Context, taskID string, change func(*TaskState)) (TaskState, error) {
	s, err := tx.lockTaskState(ctx, taskID)
	if err != nil {
		return s, err
	}
	change(&s)
	_, err = tx.conn.exec(ctx, `UPDATE task_work SET node = $2, source = $3, plan = $4, publisher = $5, tied = $6, stream = $7,
		imported = $8, published = $9, told_at = $10, told_progress = $11 WHERE task_id = $1`,
		taskID, s.Node, string(s.Source), string(s.Plan), string(s.Publication), s.Tied, s.Progressive, s.Imported, s.Published, s.ReportedAt, s.Reported)
	return s, err
}

func (tx *Tx) lockTaskState(ctx context.Context, taskID string) (TaskState, error) {
	return one(ctx, tx.conn, scanTaskState, "SELECT "+taskStateColumns+" FROM task_work WHERE task_id = $1"+tx.store.engine.forUpdate(), taskID)
}

// ResetTask puts a task back to its start, because it had ended or its files are lost. The new run
// has another folder: that of the former run may be about to be deleted.
func (tx *Tx) ResetTask(ctx context.Context, taskID string) (TaskState, error) {
	if _, err := tx.conn.exec(ctx, `UPDATE task_work SET run = run + 1, ended = $2, open = $2, node = '', source = '', plan = '', publisher = '', tied = $2, stream = $2,
		pieces = 0, done = 0, ahead = 0, publishing = $2, publish_job = 0, imported = 0, published = 0, encoding_at = 0, encoded_before = 0
		WHERE task_id = $1`, taskID, false); err != nil {
		return TaskState{}, err
	}
	if _, err := tx.conn.exec(ctx, "DELETE FROM piece WHERE task_id = $1", taskID); err != nil {
		return TaskState{}, err
	}
	return tx.TaskState(ctx, taskID)
}

// TaskDir returns the folder of a run of a task, in weir's own storage and on the disks of nodes.
func TaskDir(taskID string, run int) string { return fmt.Sprintf("work/%s/%d", taskID, run) }

// purgeAfter is how long a stopped job or a late upload may still write files.
const purgeAfter = 30 * time.Second

// closeTaskState takes the pieces of a task, and its publishing, from their jobs: those are being
// stopped, and can't finish anything from now on.
func (tx *Tx) closeTaskState(ctx context.Context, taskID string) error {
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET open = $2, publishing = $2, publish_job = 0 WHERE task_id = $1", taskID, false); err != nil {
		return err
	}
	_, err := tx.conn.exec(ctx, "UPDATE piece SET state = 'waiting', job = 0, progress = 0 WHERE task_id = $1 AND state IN ('queued', 'running')", taskID)
	return err
}

// endTaskState enqueues the deletion of the files of a task that has ended, if it has any.
func (tx *Tx) endTaskState(ctx context.Context, t weir.Task) error {
	s, ok, err := found(tx.lockTaskState(ctx, t.ID))
	if err != nil || !ok {
		return err
	}
	if err := tx.closeTaskState(ctx, t.ID); err != nil {
		return err
	}
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET ended = $2 WHERE task_id = $1", t.ID, true); err != nil {
		return err
	}
	at := time.Now()
	if t.Status.Phase != weir.TaskCompleted {
		at = at.Add(purgeAfter)
	}
	return tx.enqueueAt(ctx, JobPurge, purgeTask+t.ID+"/"+strconv.Itoa(s.Run), at)
}

// ClearTaskState deletes the state of a run of a task, after its files are deleted. The list of its
// pieces stays for a while.
func (tx *Tx) ClearTaskState(ctx context.Context, taskID string, run int) error {
	n, err := tx.conn.exec(ctx, "UPDATE task_work SET source = '', plan = '', publisher = '' WHERE task_id = $1 AND run = $2 AND ended", taskID, run)
	if err != nil || n == 0 {
		return err
	}
	_, err = tx.conn.exec(ctx, "UPDATE piece SET result = '' WHERE task_id = $1", taskID)
	return err
}

// Prefixes of the ref of a JobPurge.
const (
	purgeTask    = "task/"
	purgeAsset   = "asset/"
	purgeAccount = "account/"
	purgeUpload  = "ipfs/"
)

// Purge is what a JobPurge deletes: the files of an asset, those of a run of a task, an account
// with everything that it has, or an upload to IPFS. The other ids are "".
type Purge struct {
	AssetID, TaskID, UserID, UploadID string
	Run                               int
}

// PurgeRef reads the ref of a JobPurge.
func PurgeRef(ref string) (p Purge, err error) {
	kind, id, _ := strings.Cut(ref, "/")
	switch kind + "/" {
	case purgeAsset:
		return Purge{AssetID: id}, nil
	case purgeAccount:
		return Purge{UserID: id}, nil
	case purgeUpload:
		return Purge{UploadID: id}, nil
	case purgeTask:
		if id, number, ok := strings.Cut(id, "/"); ok {
			p.TaskID = id
			p.Run, err = strconv.Atoi(number)
			return p, err
		}
	}
	return p, fmt.Errorf("unknown ref of a purge job: %q", ref)
}

// StartPublish takes over the publishing of a task. ok is false when there is nothing to publish:
// the task has stopped, or another job publishes it.
func (tx *Tx) StartPublish(ctx context.Context, job Job) (s TaskState, ok bool, err error) {
	taskID, _, _ := strings.Cut(job.Ref, "/")
	s, ok, err = found(tx.lockTaskState(ctx, taskID))
	if err != nil || !ok {
		return s, false, err
	}
	type publishing struct {
		open, publishing bool
		job              int64
	}
	p, err := one(ctx, tx.conn, func(r rows) (p publishing, err error) { return p, r.Scan(&p.open, &p.publishing, &p.job) },
		"SELECT open, publishing, publish_job FROM task_work WHERE task_id = $1", taskID)
	if err != nil || !p.open || !p.publishing {
		return s, false, err
	}
	if busy, err := tx.otherJobRuns(ctx, p.job, job.ID); err != nil || busy {
		return s, false, err
	}
	_, err = tx.conn.exec(ctx, "UPDATE task_work SET publish_job = $2 WHERE task_id = $1", taskID, job.ID)
	return s, err == nil, err
}

// EndPublish records that all pieces were published that were done when seen was read. If more are
// done since, it enqueues another job.
func (tx *Tx) EndPublish(ctx context.Context, job Job, seen TaskState) error {
	s, err := tx.lockTaskState(ctx, seen.TaskID)
	if err != nil {
		return err
	}
	again := s.Done > seen.Done
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET publishing = $2, publish_job = 0 WHERE task_id = $1", seen.TaskID, again); err != nil || !again {
		return err
	}
	return tx.Enqueue(ctx, JobPublish, job.Ref)
}

// enqueuePublish enqueues a job that publishes the finished pieces, unless there is one.
func (tx *Tx) enqueuePublish(ctx context.Context, taskID string) error {
	n, err := tx.conn.exec(ctx, "UPDATE task_work SET publishing = $2 WHERE task_id = $1 AND NOT publishing", taskID, true)
	if err != nil || n == 0 {
		return err
	}
	return tx.Enqueue(ctx, JobPublish, taskID+"/publish")
}

// otherJobRuns reports whether the other job runs, if it is not this one. A job that was aborted or
// taken over does not run.
func (tx *Tx) otherJobRuns(ctx context.Context, other, job int64) (bool, error) {
	if other == 0 || other == job {
		return false, nil
	}
	n, err := one(ctx, tx.conn, scanInt, "SELECT count(*) FROM river_job WHERE id = $1 AND state = 'running'", other)
	return n > 0, err
}

// StalledTasks returns the tasks that have not changed since then and have neither a job nor a
// piece that waits for one. That should never happen.
func (q *queries) StalledTasks(ctx context.Context, before weir.Millis) ([]string, error) {
	return many(ctx, q.conn, scanText, `SELECT t.id FROM task t WHERE t.phase IN ('waiting', 'running') AND (t.admitted OR t.type = 'clip') AND t.updated_at < $1
		AND NOT EXISTS (SELECT 1 FROM piece p JOIN task_work w ON w.task_id = p.task_id
			WHERE p.task_id = t.id AND p.state = 'waiting' AND w.open AND NOT w.tied AND `+pieceReady+`)
		AND NOT EXISTS (SELECT 1 FROM river_job j WHERE j.state IN ('available', 'running', 'retryable', 'scheduled', 'pending')
			AND j.kind IN ('task', 'chunk', 'publish', 'clip', 'live-clip') AND (j.args->>'ref' = t.id OR substr(j.args->>'ref', 1, length(t.id) + 1) = t.id || '/'))`, before)
}

// RestartTask restarts a task that has stalled. It continues from its finished pieces.
func (tx *Tx) RestartTask(ctx context.Context, id string) error {
	t, err := tx.Task(ctx, id)
	if err != nil {
		return err
	}
	if t.Type == weir.TaskClip {
		return tx.EnqueueClip(ctx, t, time.Time{})
	}
	return tx.Enqueue(ctx, JobTask, id)
}
