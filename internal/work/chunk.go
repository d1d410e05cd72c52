package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// piece handles store.JobPiece.
func (w *Work) piece(ctx context.Context, job store.Job) error {
	return w.doPiece(ctx, job, func(tx *store.Tx) (store.TaskState, store.Piece, bool, error) { return tx.StartPiece(ctx, job) })
}

func (w *Work) doPiece(ctx context.Context, job store.Job, start func(*store.Tx) (store.TaskState, store.Piece, bool, error)) error {
	var state store.TaskState
	var p store.Piece
	var ok bool
	if err := w.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) (err error) {
		state, p, ok, err = start(tx)
		return err
	}); err != nil || !ok {
		return err
	}
	plan, err := planOf(state)
	if err != nil {
		return err
	}
	w.notePiece(p, 0)
	if p.Number >= 0 {
		return w.encode(ctx, job, state, p, plan)
	}
	result, err := w.makePiece(ctx, state, p, plan)
	if err != nil {
		return err
	}
	_, err = w.finishPiece(ctx, job, p, result, 0)
	return err
}

// notePiece notes the progress of a piece.
func (w *Work) notePiece(p store.Piece, share float64) {
	w.progress.note(p.TaskID, func(t *taskProgress) { t.step, t.fetched, t.prepared, t.pieces[p.Name] = stepEncoding, 1, 1, share })
}

// finishPiece stores the result of a piece of a job that has encoded for so long. next is the piece
// that the job continues with; see store.Tx.FinishPiece.
func (w *Work) finishPiece(ctx context.Context, job store.Job, p store.Piece, result any, encoded time.Duration) (next store.Piece, err error) {
	text, err := json.Marshal(result)
	if err != nil {
		return next, err
	}
	if err := w.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) error {
		continues, err := w.continues(ctx, tx, p.TaskID, encoded)
		if err != nil {
			return err
		}
		if next, err = tx.FinishPiece(ctx, job, p, text, continues); err != nil {
			return err
		}
		return w.enqueuePieces(ctx, tx)
	}); err != nil {
		return next, err
	}
	w.pieces.Add(1)
	w.notePiece(p, 1)
	return next, nil
}

// errYield ends an encode that is to be continued later.
var errYield = errors.New("the encode leaves its slot to another task")

// encode makes a chunk and those that continue it.
func (w *Work) encode(ctx context.Context, job store.Job, state store.TaskState, p store.Piece, plan vod.Plan) error {
	o := vod.EncodeOptions{Folder: encodeFolder(p)}
	o.Progress = func(chunk int, share float64) {
		w.notePiece(store.Piece{TaskID: p.TaskID, Name: chunkName(chunk)}, share)
	}
	current, begun := p, time.Now()
	o.Done = func(r vod.ChunkResult) (err error) {
		if current.Number != r.Chunk {
			return fmt.Errorf("task %s: ffmpeg has encoded chunk %d, but the job has piece %q", p.TaskID, r.Chunk, current.Name)
		}
		current, err = w.finishPiece(ctx, job, current, r, time.Since(begun))
		if next := r.Chunk + 1; err == nil && current.Name == "" && next < len(plan.Chunks) && plan.Chunks[next].Continues {
			err = errYield
		}
		return err
	}
	if plan.Source.Sequential != "" {
		var err error
		if o.File, err = w.sequentialFile(ctx, state); err != nil {
			return err
		}
	}
	defer w.store.RunOn(job)() // nobody else writes to the folder
	err := w.Engine.Encode(ctx, plan, p.Number, o)
	if errors.Is(err, errYield) {
		return nil
	}
	return err
}

func chunkName(n int) string { return fmt.Sprint(chunkPiece, n) }

// encodeFolder returns the folder of an encode that starts with p. It is different for each attempt: a
// node that was thought to be lost may still write, and other bytes.
func encodeFolder(p store.Piece) string {
	if p.Started == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", p.Number, p.Started)
}

func planOf(state store.TaskState) (plan vod.Plan, err error) {
	if err := json.Unmarshal(state.Plan, &plan); err != nil {
		return plan, fmt.Errorf("decode plan of task %s: %w", state.TaskID, err)
	}
	return plan, nil
}

// makePiece makes a piece that is no chunk.
func (w *Work) makePiece(ctx context.Context, state store.TaskState, p store.Piece, plan vod.Plan) (result any, err error) {
	if p.Name == thumbnailsPiece {
		return w.makeThumbnails(ctx, state, plan)
	}
	number, err := strconv.Atoi(strings.TrimPrefix(p.Name, audioPiece))
	if err != nil || number < 0 || number >= len(plan.Audio) {
		return nil, fmt.Errorf("the plan has no piece %q", p.Name)
	}
	return w.Engine.EncodeAudio(ctx, plan, number, func(share float64) { w.notePiece(p, share) })
}

func (w *Work) makeThumbnails(ctx context.Context, state store.TaskState, plan vod.Plan) (vod.ThumbnailsResult, error) {
	if passesThrough(plan) {
		return w.Engine.Thumbnails(ctx, plan, nil)
	}
	var names []string
	for n := range plan.Chunks {
		names = append(names, chunkName(n))
	}
	chunks, _, err := w.results(ctx, state.TaskID, names)
	if err != nil {
		return vod.ThumbnailsResult{}, err
	}
	return w.Engine.Thumbnails(ctx, plan, chunks)
}

// sequentialFile returns the source file of a task that can't be split.
func (w *Work) sequentialFile(ctx context.Context, state store.TaskState) (string, error) {
	t, err := w.Store.Task(ctx, state.TaskID)
	if err != nil {
		return "", ownError{err}
	}
	dir, err := w.dir(state)
	if err != nil {
		return "", err
	}
	var o origin
	if err := json.Unmarshal(state.Source, &o); err != nil {
		return "", fmt.Errorf("decode source of task %s: %w", state.TaskID, err)
	}
	if file := w.present(t, o, dir); file != "" {
		return file, nil
	}
	return "", weir.Wrap(weir.Internal, fmt.Errorf("the source file %s is missing", filepath.Join(dir, spoolName)), messageInternal)
}
