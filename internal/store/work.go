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

// Work is how far a task is: what its jobs tell one another. It is made when the
// task first starts and kept for a while after its end. Transactions that change a
// task, its work and its pieces take them in this order.
type Work struct {
	TaskID    string
	Run       int             // counts the times that the task began from nothing
	Node      string          // where its spool is
	Source    json.RawMessage // what is known of the source; nil = nothing yet
	Plan      json.RawMessage
	Publisher json.RawMessage // how far publishing is
	Tied      bool            // the job that imported the source does the pieces too
	Stream    bool            // pieces are published as they are done, not all at the end

	Pieces int // how many there are
	Done   int // how many of them are done
	Ahead  int // how many of the first chunks are done, without a gap

	Imported   float64 // share of the source that is here, 0 to 1
	Published  float64 // share of the output that is where it belongs
	StartedAt  weir.Millis
	EncodingAt weir.Millis // since when pieces are done in this attempt
	Before     float64     // share of the pieces that was done before
	ToldAt     weir.Millis // when an event last told of the progress
	Told       float64     // and what it said
}

// Complete reports whether all pieces are done.
func (w *Work) Complete() bool { return w.Pieces > 0 && w.Done == w.Pieces }

const workColumns = `task_id, run, node, source, plan, publisher, tied, stream, pieces, done, ahead,
	imported, published, started_at, encoding_at, encoded_before, told_at, told_progress`

func scanWork(r rows) (w Work, err error) {
	var source, plan, publisher string
	err = r.Scan(&w.TaskID, &w.Run, &w.Node, &source, &plan, &publisher, &w.Tied, &w.Stream, &w.Pieces, &w.Done, &w.Ahead,
		&w.Imported, &w.Published, &w.StartedAt, &w.EncodingAt, &w.Before, &w.ToldAt, &w.Told)
	w.Source, w.Plan, w.Publisher = rawJSON(source), rawJSON(plan), rawJSON(publisher)
	return w, err
}

// rawJSON returns nil for a document that is not there yet.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// TaskWork returns how far a task is.
func (q *queries) TaskWork(ctx context.Context, taskID string) (Work, error) {
	return one(ctx, q.conn, scanWork, "SELECT "+workColumns+" FROM task_work WHERE task_id = $1", taskID)
}

// StartWork returns how far a task is that begins now, or goes on after a failure
// or a lost node. One that has ended before begins from nothing. Its pieces are not
// given out until CreatePieces or ResumePieces.
func (tx *Tx) StartWork(ctx context.Context, taskID string) (Work, error) {
	if _, err := tx.conn.exec(ctx, `INSERT INTO task_work (task_id, run, ended, open, node, source, plan, publisher, tied, stream, pieces, done, ahead,
		publishing, publish_job, imported, published, started_at, encoding_at, encoded_before, told_at, told_progress)
		VALUES ($1, 1, $2, $2, '', '', '', '', $2, $2, 0, 0, 0, $2, 0, 0, 0, $3, 0, 0, 0, 0) ON CONFLICT (task_id) DO UPDATE SET open = $2`,
		taskID, false, weir.At(time.Now())); err != nil {
		return Work{}, err
	}
	ended, err := one(ctx, tx.conn, scanInt, "SELECT count(*) FROM task_work WHERE task_id = $1 AND ended", taskID)
	if err != nil {
		return Work{}, err
	}
	if ended > 0 {
		return tx.RestartWork(ctx, taskID)
	}
	return tx.TaskWork(ctx, taskID)
}

// UpdateWork changes how far a task is. What pieces and publishing do is not
// changed by it.
func (tx *Tx) UpdateWork(ctx context.Context, taskID string, change func(*Work)) (Work, error) {
	w, err := tx.lockWork(ctx, taskID)
	if err != nil {
		return w, err
	}
	change(&w)
	_, err = tx.conn.exec(ctx, `UPDATE task_work SET node = $2, source = $3, plan = $4, publisher = $5, tied = $6, stream = $7,
		imported = $8, published = $9, told_at = $10, told_progress = $11 WHERE task_id = $1`,
		taskID, w.Node, string(w.Source), string(w.Plan), string(w.Publisher), w.Tied, w.Stream, w.Imported, w.Published, w.ToldAt, w.Told)
	return w, err
}

func (tx *Tx) lockWork(ctx context.Context, taskID string) (Work, error) {
	return one(ctx, tx.conn, scanWork, "SELECT "+workColumns+" FROM task_work WHERE task_id = $1"+tx.store.engine.forUpdate(), taskID)
}

// RestartWork forgets what a task has done, because it ended or because what it
// had done is gone. Its bytes get another place: those of the former run may be
// on their way to deletion.
func (tx *Tx) RestartWork(ctx context.Context, taskID string) (Work, error) {
	if _, err := tx.conn.exec(ctx, `UPDATE task_work SET run = run + 1, ended = $2, open = $2, node = '', source = '', plan = '', publisher = '', tied = $2, stream = $2,
		pieces = 0, done = 0, ahead = 0, publishing = $2, publish_job = 0, imported = 0, published = 0, encoding_at = 0, encoded_before = 0
		WHERE task_id = $1`, taskID, false); err != nil {
		return Work{}, err
	}
	if _, err := tx.conn.exec(ctx, "DELETE FROM piece WHERE task_id = $1", taskID); err != nil {
		return Work{}, err
	}
	return tx.TaskWork(ctx, taskID)
}

// WorkDir is where the bytes of a run of a task are, in weir's own storage and on
// the disks of nodes.
func WorkDir(taskID string, run int) string { return fmt.Sprintf("work/%s/%d", taskID, run) }

// purgeWorkAfter is how long something may still be written that nobody wants any more: by
// jobs of a task that was stopped, or by an upload that came too late.
const purgeWorkAfter = 30 * time.Second

// closeWork takes the pieces of a task, and its publishing, from the jobs that have
// them: those are being stopped, and can't finish anything from here on.
func (tx *Tx) closeWork(ctx context.Context, taskID string) error {
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET open = $2, publishing = $2, publish_job = 0 WHERE task_id = $1", taskID, false); err != nil {
		return err
	}
	_, err := tx.conn.exec(ctx, "UPDATE piece SET state = 'waiting', job = 0, progress = 0 WHERE task_id = $1 AND state IN ('queued', 'running')", taskID)
	return err
}

// endWork asks for the bytes of a task that has ended to be deleted, if it has any.
func (tx *Tx) endWork(ctx context.Context, t weir.Task) error {
	w, ok, err := found(tx.lockWork(ctx, t.ID))
	if err != nil || !ok {
		return err
	}
	if err := tx.closeWork(ctx, t.ID); err != nil {
		return err
	}
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET ended = $2 WHERE task_id = $1", t.ID, true); err != nil {
		return err
	}
	at := time.Now()
	if t.Status.Phase != weir.TaskCompleted {
		at = at.Add(purgeWorkAfter)
	}
	return tx.enqueueAt(ctx, JobPurge, purgeTask+t.ID+"/"+strconv.Itoa(w.Run), at)
}

// ForgetWork drops what a run of a task has noted for its own use, after its bytes
// are gone. Which pieces there were, and how often each was done, stays for a while.
func (tx *Tx) ForgetWork(ctx context.Context, taskID string, run int) error {
	n, err := tx.conn.exec(ctx, "UPDATE task_work SET source = '', plan = '', publisher = '' WHERE task_id = $1 AND run = $2 AND ended", taskID, run)
	if err != nil || n == 0 {
		return err
	}
	_, err = tx.conn.exec(ctx, "UPDATE piece SET result = '' WHERE task_id = $1", taskID)
	return err
}

// What a purge is about.
const (
	purgeTask  = "task/"
	purgeAsset = "asset/"
)

// PurgeRef reads the ref of a JobPurge: either the id of an asset whose bytes are
// to go, or a task and which of its runs.
func PurgeRef(ref string) (assetID, taskID string, run int, err error) {
	if id, ok := strings.CutPrefix(ref, purgeAsset); ok {
		return id, "", 0, nil
	}
	if rest, ok := strings.CutPrefix(ref, purgeTask); ok {
		if id, number, ok := strings.Cut(rest, "/"); ok {
			run, err := strconv.Atoi(number)
			return "", id, run, err
		}
	}
	return "", "", 0, fmt.Errorf("purge of %q", ref)
}

// StartPublish takes over the publishing of a task. ok is false when there is
// nothing to publish: the task is not being done, or another job publishes it.
func (tx *Tx) StartPublish(ctx context.Context, job Job) (w Work, ok bool, err error) {
	taskID, _, _ := strings.Cut(job.Ref, "/")
	w, ok, err = found(tx.lockWork(ctx, taskID))
	if err != nil || !ok {
		return w, false, err
	}
	type state struct {
		open, publishing bool
		job              int64
	}
	s, err := one(ctx, tx.conn, func(r rows) (s state, err error) { return s, r.Scan(&s.open, &s.publishing, &s.job) },
		"SELECT open, publishing, publish_job FROM task_work WHERE task_id = $1", taskID)
	if err != nil || !s.open || !s.publishing {
		return w, false, err
	}
	if busy, err := tx.otherJobRuns(ctx, s.job, job.ID); err != nil || busy {
		return w, false, err
	}
	_, err = tx.conn.exec(ctx, "UPDATE task_work SET publish_job = $2 WHERE task_id = $1", taskID, job.ID)
	return w, err == nil, err
}

// EndPublish says that everything was published that was done when seen was read.
// When more has been done since, another job is asked for.
func (tx *Tx) EndPublish(ctx context.Context, job Job, seen Work) error {
	w, err := tx.lockWork(ctx, seen.TaskID)
	if err != nil {
		return err
	}
	again := w.Done > seen.Done
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET publishing = $2, publish_job = 0 WHERE task_id = $1", seen.TaskID, again); err != nil || !again {
		return err
	}
	return tx.Enqueue(ctx, JobPublish, job.Ref)
}

// askPublish asks for a job that publishes what is done, unless there is one.
func (tx *Tx) askPublish(ctx context.Context, taskID string) error {
	n, err := tx.conn.exec(ctx, "UPDATE task_work SET publishing = $2 WHERE task_id = $1 AND NOT publishing", taskID, true)
	if err != nil || n == 0 {
		return err
	}
	return tx.Enqueue(ctx, JobPublish, taskID+"/publish")
}

// otherJobRuns reports whether a job runs that is not this one. One that was cut
// off or taken over does not.
func (tx *Tx) otherJobRuns(ctx context.Context, other, job int64) (bool, error) {
	if other == 0 || other == job {
		return false, nil
	}
	n, err := one(ctx, tx.conn, scanInt, "SELECT count(*) FROM river_job WHERE id = $1 AND state = 'running'", other)
	return n > 0, err
}

// StalledTasks returns the tasks that were to go on since then and have neither a
// job nor a piece that waits for its turn. There are none as long as everything
// goes as it should.
func (q *queries) StalledTasks(ctx context.Context, before weir.Millis) ([]string, error) {
	return many(ctx, q.conn, scanText, `SELECT t.id FROM task t WHERE t.phase IN ('waiting', 'running') AND t.admitted AND t.updated_at < $1
		AND NOT EXISTS (SELECT 1 FROM piece p JOIN task_work w ON w.task_id = p.task_id
			WHERE p.task_id = t.id AND p.state = 'waiting' AND w.open AND NOT w.tied AND p.needs <= w.ahead)
		AND NOT EXISTS (SELECT 1 FROM river_job j WHERE j.state IN ('available', 'running', 'retryable', 'scheduled', 'pending')
			AND j.kind IN ('task', 'chunk', 'publish') AND (j.args->>'ref' = t.id OR substr(j.args->>'ref', 1, length(t.id) + 1) = t.id || '/'))`, before)
}

// ReviveTask begins a task that has stalled again, from what is done of it.
func (tx *Tx) ReviveTask(ctx context.Context, id string) error { return tx.Enqueue(ctx, JobTask, id) }
