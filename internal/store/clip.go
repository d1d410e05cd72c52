package store

import (
	"context"
	"strings"
	"time"

	"weir/internal/weir"
)

// A task that cuts a clip is not admitted like other tasks: its job is enqueued with it, because
// somebody waits for the clip. While the session that it is cut from is on air, only the origin node
// has the files.

// clipEarly is how much earlier than the end of its clip a job starts. It waits for the rest by itself, because
// River looks for jobs that are due only every five seconds.
const clipEarly = 10 * time.Second

// EnqueueClip enqueues the job of a task that cuts a clip. notBefore is the end of a clip in the future; zero =
// it is not in the future.
func (tx *Tx) EnqueueClip(ctx context.Context, task weir.Task, notBefore time.Time) error {
	kind, ref := JobClip, task.ID
	if p := task.Params.Clip; p != nil && p.SessionID != "" && p.InputID == "" {
		node, err := tx.NodeOfSession(ctx, p.SessionID)
		if err != nil {
			return err
		}
		if node != "" {
			kind, ref = JobLiveClip, task.ID+"/"+node
		}
	}
	// An earlier cancellation is that of the task, whatever node had its job.
	if _, err := tx.conn.exec(ctx, "DELETE FROM job_cancel WHERE ref = $1", task.ID); err != nil {
		return err
	}
	at := notBefore.Add(-clipEarly)
	if at.Before(time.Now()) {
		at = time.Time{}
	}
	return tx.enqueueAt(ctx, kind, ref, at)
}

// OnAirSession returns which node carries a session; NotFound when the session is not open.
func (q *queries) OnAirSession(ctx context.Context, sessionID string) (OnAir, error) {
	return one(ctx, q.conn, scanAir, "SELECT "+airColumns+" FROM live WHERE session_id = $1 AND session_id <> ''", sessionID)
}

// NodeOfSession returns the node that carries a session; "" = the session is not open, or its node
// is gone.
func (q *queries) NodeOfSession(ctx context.Context, sessionID string) (string, error) {
	node, _, err := found(one(ctx, q.conn, scanText,
		"SELECT live.node FROM live JOIN node ON node.id = live.node WHERE live.session_id = $1 AND live.session_id <> ''", sessionID))
	return node, err
}

// requeueClips enqueues the jobs of clips that wait for a dead node for all nodes. The one that
// takes such a job looks for the session, or for its recording.
func (tx *Tx) requeueClips(ctx context.Context) error {
	refs, err := many(ctx, tx.conn, scanText, `UPDATE river_job SET state = 'cancelled', finalized_at = CURRENT_TIMESTAMP
		WHERE kind = $1 AND state IN ('available', 'scheduled', 'retryable')
			AND NOT EXISTS (SELECT 1 FROM node WHERE $2 || node.id = river_job.queue)
		RETURNING args->>'ref'`, JobLiveClip, queueClipOfNode)
	if err != nil || len(refs) == 0 {
		return err
	}
	jobs := make([]newJob, len(refs))
	for i, ref := range refs {
		taskID, _, _ := strings.Cut(ref, "/")
		jobs[i] = newJob{kind: JobClip, ref: taskID}
	}
	return tx.enqueue(ctx, jobs)
}
