package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"weir/internal/weir"
)

// Piece is a unit of the work on a task, which any node can do by itself: a chunk of the video, an
// audio track, the thumbnails.
type Piece struct {
	TaskID string
	Name   string
	Seq    int  // its position in the task
	Number int  // of a chunk; -1 = it is no chunk
	Needs  int  // how many of the first chunks must be done before it
	Urgent bool // viewers wait for it
	// Continues means that the job of the chunk before it goes on with it. Another job does it only if
	// that one was lost in between.
	Continues bool
	Weight    float64 // its share of the encoding work

	State      string // waiting, queued, running or done
	Started    int    // how often it was started
	Finished   int    // how often it was finished
	Progress   float64
	Node       string // that last started it
	StartedAt  weir.Millis
	FinishedAt weir.Millis
	Result     json.RawMessage
}

// The states of a piece.
const (
	PieceWaiting = "waiting" // not in the queue yet
	PieceQueued  = "queued"  // has a job
	PieceRunning = "running"
	PieceDone    = "done"
)

const pieceColumns = `task_id, name, seq, number, needs, urgent, continues, weight, state, started, finished, progress, node, started_at, finished_at, result`

func scanPiece(r rows) (p Piece, err error) {
	var result string
	err = r.Scan(&p.TaskID, &p.Name, &p.Seq, &p.Number, &p.Needs, &p.Urgent, &p.Continues, &p.Weight, &p.State, &p.Started, &p.Finished, &p.Progress, &p.Node, &p.StartedAt, &p.FinishedAt, &result)
	p.Result = rawJSON(result)
	return p, err
}

// Pieces returns the pieces of a task in their order, without their results.
func (q *queries) Pieces(ctx context.Context, taskID string) ([]Piece, error) {
	columns := strings.TrimSuffix(pieceColumns, "result") + "''"
	return many(ctx, q.conn, scanPiece, "SELECT "+columns+" FROM piece WHERE task_id = $1 ORDER BY seq", taskID)
}

// PieceResults returns the results of pieces that are done, by name.
func (q *queries) PieceResults(ctx context.Context, taskID string, names []string) (map[string]json.RawMessage, error) {
	results := map[string]json.RawMessage{}
	for batch := range slices.Chunk(names, 100) {
		b := &builder{}
		all, err := many(ctx, q.conn, scanPiece, "SELECT "+pieceColumns+" FROM piece WHERE task_id = "+b.bind("%s", taskID)+
			" AND state = 'done' AND name IN ("+b.list(batch)+")", b.args...)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			results[p.Name] = p.Result
		}
	}
	return results, nil
}

// CreatePieces writes the pieces of a task, whose source and plan must be known. They wait until
// EnqueuePiece. A piece with a result is done already.
func (tx *Tx) CreatePieces(ctx context.Context, taskID string, pieces []Piece) error {
	if _, err := tx.lockTaskState(ctx, taskID); err != nil {
		return err
	}
	done := 0
	for i, p := range pieces {
		state, times, node := PieceWaiting, 0, ""
		if p.Result != nil {
			state, times, node = PieceDone, 1, tx.store.node.id
			done++
		}
		if _, err := tx.conn.exec(ctx, `INSERT INTO piece (task_id, name, seq, number, needs, urgent, continues, weight, state, job, started, finished, progress, node, started_at, finished_at, result)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $10, $11, $12, $13, $14, $15)`,
			taskID, p.Name, i, p.Number, p.Needs, p.Urgent, p.Continues, p.Weight, state, times, float64(times), node, p.StartedAt, p.FinishedAt, string(p.Result)); err != nil {
			return err
		}
	}
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET pieces = $2, done = $3, imported = 1 WHERE task_id = $1", taskID, len(pieces), done); err != nil {
		return err
	}
	return tx.ResumePieces(ctx, taskID)
}

// ResumePieces makes the pieces wait again that are not done and that no job is running: their jobs
// may be lost.
func (tx *Tx) ResumePieces(ctx context.Context, taskID string) error {
	s, err := tx.lockTaskState(ctx, taskID)
	if err != nil {
		return err
	}
	before, err := one(ctx, tx.conn, scanFloat, encodedShare, taskID)
	if err != nil {
		return err
	}
	if _, err := tx.conn.exec(ctx, "UPDATE task_work SET open = $2, encoding_at = $3, encoded_before = $4 WHERE task_id = $1",
		taskID, true, weir.At(time.Now()), before); err != nil {
		return err
	}
	if _, err := tx.conn.exec(ctx, `UPDATE task_work SET publishing = $2, publish_job = 0 WHERE task_id = $1
		AND NOT EXISTS (SELECT 1 FROM river_job j WHERE j.id = task_work.publish_job AND j.state = 'running')`, taskID, false); err != nil {
		return err
	}
	if _, err := tx.conn.exec(ctx, `UPDATE piece SET state = 'waiting', progress = 0 WHERE task_id = $1 AND (state = 'queued' OR state = 'running'
		AND NOT EXISTS (SELECT 1 FROM river_job j WHERE j.id = piece.job AND j.state = 'running'))`, taskID); err != nil {
		return err
	}
	if s.Pieces == 0 || s.Complete() || s.Progressive && s.Done > 0 {
		return tx.enqueuePublish(ctx, taskID)
	}
	return nil
}

// encodedShare selects the share of a task's pieces that is done.
const encodedShare = `SELECT COALESCE(sum(weight * progress) / NULLIF(sum(weight), 0), 0) FROM piece WHERE task_id = $1`

func scanFloat(r rows) (f float64, err error) { return f, r.Scan(&f) }

// StartPiece takes the piece of a job. ok is false when there is nothing to do: the task has
// stopped, the piece is done, or another job runs it.
func (tx *Tx) StartPiece(ctx context.Context, job Job) (s TaskState, p Piece, ok bool, err error) {
	taskID, name, _ := strings.Cut(job.Ref, "/")
	return tx.startPiece(ctx, job, taskID, name)
}

// StartTiedPiece is StartPiece for the job that imported the source and encodes the pieces too.
func (tx *Tx) StartTiedPiece(ctx context.Context, job Job, name string) (s TaskState, p Piece, ok bool, err error) {
	return tx.startPiece(ctx, job, job.Ref, name)
}

func (tx *Tx) startPiece(ctx context.Context, job Job, taskID, name string) (s TaskState, p Piece, ok bool, err error) {
	s, ok, err = found(tx.lockTaskState(ctx, taskID))
	if err != nil || !ok {
		return s, p, false, err
	}
	type holder struct {
		open bool
		job  int64
	}
	h, ok, err := found(one(ctx, tx.conn, func(r rows) (h holder, err error) { return h, r.Scan(&h.open, &h.job) },
		"SELECT w.open, p.job FROM task_work w JOIN piece p ON p.task_id = w.task_id WHERE w.task_id = $1 AND p.name = $2", taskID, name))
	if err != nil || !ok || !h.open {
		return s, p, false, err
	}
	p, err = one(ctx, tx.conn, scanPiece, "SELECT "+pieceColumns+" FROM piece WHERE task_id = $1 AND name = $2"+tx.store.engine.forUpdate(), taskID, name)
	if err == nil && p.State == PieceDone {
		// A job that was lost comes again for its first piece. It goes on with the one it was lost in.
		lost, ok, err := found(one(ctx, tx.conn, scanText, `SELECT name FROM piece p WHERE task_id = $1 AND number > $2 AND state = 'running'
			AND NOT EXISTS (SELECT 1 FROM piece b WHERE b.task_id = $1 AND b.number > $2 AND b.number <= p.number AND NOT b.continues)`, taskID, p.Number))
		if err != nil || !ok || p.Number < 0 {
			return s, p, false, err
		}
		return tx.startPiece(ctx, job, taskID, lost)
	}
	if err != nil || p.State == PieceWaiting && !s.Tied {
		return s, p, false, err
	}
	if p.State == PieceRunning {
		if busy, err := tx.otherJobRuns(ctx, h.job, job.ID); err != nil || busy {
			return s, p, false, err
		}
	}
	return s, p, true, tx.runPiece(ctx, job, p)
}

// runPiece gives a piece to a job.
func (tx *Tx) runPiece(ctx context.Context, job Job, p Piece) error {
	_, err := tx.conn.exec(ctx, `UPDATE piece SET state = 'running', job = $3, started = started + 1, progress = 0, node = $4, started_at = $5
		WHERE task_id = $1 AND name = $2`, p.TaskID, p.Name, job.ID, tx.store.node.id, weir.At(time.Now()))
	return err
}

// FinishPiece marks a piece as done, and enqueues its publication. If the job continues, next is the
// piece that continues this one, which the job has from now on; its name is "" if there is none.
func (tx *Tx) FinishPiece(ctx context.Context, job Job, p Piece, result json.RawMessage, continues bool) (next Piece, err error) {
	if _, err := tx.lockTaskState(ctx, p.TaskID); err != nil {
		return next, err
	}
	n, err := tx.conn.exec(ctx, `UPDATE piece SET state = 'done', finished = finished + 1, progress = 1, finished_at = $3, result = $4
		WHERE task_id = $1 AND name = $2 AND state = 'running' AND job = $5`, p.TaskID, p.Name, weir.At(time.Now()), string(result), job.ID)
	if err != nil {
		return next, err
	}
	if n == 0 {
		return next, errLostJob
	}
	if continues {
		var ok bool
		next, ok, err = found(one(ctx, tx.conn, scanPiece, "SELECT "+pieceColumns+` FROM piece WHERE task_id = $1 AND number = $2
			AND number > 0 AND continues AND state = 'waiting'`, p.TaskID, p.Number+1))
		if err == nil && ok {
			err = tx.runPiece(ctx, job, next)
		}
		if err != nil {
			return next, err
		}
	}
	if _, err := tx.conn.exec(ctx, `UPDATE task_work SET done = done + 1,
		ahead = (SELECT COALESCE((SELECT min(number) FROM piece WHERE task_id = $1 AND number >= 0 AND state <> 'done'),
			(SELECT count(*) FROM piece WHERE task_id = $1 AND number >= 0))) WHERE task_id = $1`, p.TaskID); err != nil {
		return next, err
	}
	s, err := tx.TaskState(ctx, p.TaskID)
	if err != nil {
		return next, err
	}
	if s.Progressive || s.Complete() {
		err = tx.enqueuePublish(ctx, p.TaskID)
	}
	return next, err
}

// PieceProgress sets the progress of a running piece.
func (tx *Tx) PieceProgress(ctx context.Context, taskID, name string, progress float64) error {
	_, err := tx.conn.exec(ctx, "UPDATE piece SET progress = $3 WHERE task_id = $1 AND name = $2 AND state = 'running'", taskID, name, progress)
	return err
}

// EncodedShare returns the share of a task's pieces that is done.
func (q *queries) EncodedShare(ctx context.Context, taskID string) (float64, error) {
	return one(ctx, q.conn, scanFloat, encodedShare, taskID)
}

// IdleSlots returns how many more pieces each node could encode now.
func (q *queries) IdleSlots(ctx context.Context) ([]int, error) {
	return many(ctx, q.conn, func(r rows) (n int, err error) { return n, r.Scan(&n) },
		`SELECT slots - (SELECT count(*) FROM piece p WHERE p.node = node.id AND p.number >= 0 AND p.state = 'running') FROM node`)
}

// EncodeSlots returns how many pieces all nodes together encode at once.
func (q *queries) EncodeSlots(ctx context.Context) (int, error) {
	n, err := one(ctx, q.conn, scanInt, "SELECT COALESCE(sum(slots), 0) FROM node")
	return int(n), err
}

// SlotUse says how the encode slots of all nodes are used.
type SlotUse struct {
	Slots        int
	Running      int // pieces that are encoded now
	OthersQueued int // pieces of other tasks that wait for a slot
}

// SlotUse returns how the slots are used, for a task that uses one.
func (q *queries) SlotUse(ctx context.Context, taskID string) (SlotUse, error) {
	return one(ctx, q.conn, func(r rows) (u SlotUse, err error) { return u, r.Scan(&u.Slots, &u.Running, &u.OthersQueued) },
		`SELECT (SELECT COALESCE(sum(slots), 0) FROM node), (SELECT count(*) FROM piece WHERE state = 'running'),
			(SELECT count(*) FROM piece WHERE state = 'queued' AND task_id <> $1)`, taskID)
}

// EncodeQueue is the state of the queue of pieces.
type EncodeQueue struct {
	Slots   int            // of all nodes
	Pending map[string]int // pieces that have a job, by account
	Ready   []ReadyPiece   // pieces that could have one, oldest task first
}

// ReadyPiece is a piece whose predecessors are done.
type ReadyPiece struct {
	UserID, TaskID, Name string
	Urgent               bool
}

// EncodeQueue returns the state of the queue, and locks it until the end of the transaction, so that
// two nodes never enqueue pieces at once. Ready has all urgent pieces, and of the others at most
// perSlot for each slot and account.
func (tx *Tx) EncodeQueue(ctx context.Context, perSlot int) (q EncodeQueue, err error) {
	if _, err := one(ctx, tx.conn, scanInt, "SELECT value FROM counter WHERE name = 'encode'"+tx.store.engine.forUpdate()); err != nil {
		return q, err
	}
	if q.Slots, err = tx.EncodeSlots(ctx); err != nil {
		return q, err
	}
	type pending struct {
		user   string
		pieces int
	}
	all, err := many(ctx, tx.conn, func(r rows) (p pending, err error) { return p, r.Scan(&p.user, &p.pieces) },
		`SELECT t.user_id, count(*) FROM piece p JOIN task t ON t.id = p.task_id JOIN task_work w ON w.task_id = p.task_id
			WHERE p.state IN ('queued', 'running') AND w.open AND NOT w.tied GROUP BY t.user_id`)
	if err != nil {
		return q, err
	}
	q.Pending = make(map[string]int, len(all))
	for _, p := range all {
		q.Pending[p.user] = p.pieces
	}
	q.Ready, err = many(ctx, tx.conn, func(r rows) (p ReadyPiece, err error) {
		return p, r.Scan(&p.UserID, &p.TaskID, &p.Name, &p.Urgent)
	}, `SELECT user_id, task_id, name, urgent FROM (
			SELECT t.user_id, p.task_id, p.name, p.urgent, p.seq, w.started_at,
				ROW_NUMBER() OVER (PARTITION BY t.user_id, p.urgent ORDER BY w.started_at, p.task_id, p.seq) AS place
			FROM piece p JOIN task t ON t.id = p.task_id JOIN task_work w ON w.task_id = p.task_id
			WHERE p.state = 'waiting' AND w.open AND NOT w.tied AND `+pieceReady+`
		) AS ready WHERE place <= $1 OR urgent ORDER BY started_at, task_id, seq`, perSlot*max(q.Slots, 1))
	return q, err
}

// pieceReady selects the pieces p of the task with the state w whose predecessors are done.
const pieceReady = `p.needs <= w.ahead AND (NOT p.continues OR EXISTS (
	SELECT 1 FROM piece b WHERE b.task_id = p.task_id AND b.number = p.number - 1 AND b.state = 'done'))`

// EnqueuePiece enqueues the job of a piece, unless it has one.
func (tx *Tx) EnqueuePiece(ctx context.Context, p ReadyPiece) error {
	n, err := tx.conn.exec(ctx, "UPDATE piece SET state = 'queued' WHERE task_id = $1 AND name = $2 AND state = 'waiting'", p.TaskID, p.Name)
	if err != nil || n == 0 {
		return err
	}
	return tx.enqueue(ctx, []newJob{{kind: JobPiece, ref: p.TaskID + "/" + p.Name, urgent: p.Urgent}})
}
