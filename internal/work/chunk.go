package work

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// piece handles store.JobPiece.
func (w *Work) piece(ctx context.Context, job store.Job) error {
	return w.doPiece(ctx, job, func(tx *store.Tx) (store.Work, store.Piece, bool, error) { return tx.StartPiece(ctx, job) })
}

func (w *Work) doPiece(ctx context.Context, job store.Job, start func(*store.Tx) (store.Work, store.Piece, bool, error)) error {
	var state store.Work
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
	note := func(share float64) {
		w.progress.note(state.TaskID, func(t *taskProgress) { t.step, t.fetched, t.prepared, t.pieces[p.Name] = stepEncoding, 1, 1, share })
	}
	note(0)
	result, stats, err := w.makePiece(ctx, state, p, plan, note)
	if err != nil {
		return err
	}
	if err := w.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) error {
		_, err := tx.FinishPiece(ctx, job, p, result, stats)
		return err
	}); err != nil {
		return err
	}
	w.pieces.Add(1)
	note(1)
	return nil
}

func planOf(state store.Work) (plan vod.Plan, err error) {
	if err := json.Unmarshal(state.Plan, &plan); err != nil {
		return plan, fmt.Errorf("plan of task %s: %w", state.TaskID, err)
	}
	return plan, nil
}

func (w *Work) makePiece(ctx context.Context, state store.Work, p store.Piece, plan vod.Plan, note func(float64)) (result, stats json.RawMessage, err error) {
	var made, learned any
	switch {
	case p.Number >= 0:
		made, learned, err = w.makeChunk(ctx, state, p, plan, note)
	case p.Name == thumbnailsPiece:
		made, err = w.makeThumbnails(ctx, state, plan)
	default:
		number, convErr := strconv.Atoi(strings.TrimPrefix(p.Name, audioPiece))
		if convErr != nil || number < 0 || number >= len(plan.Audio) {
			return nil, nil, fmt.Errorf("there is no piece %q in the plan", p.Name)
		}
		made, err = w.Engine.EncodeAudio(ctx, plan, number, note)
	}
	if err != nil {
		return nil, nil, err
	}
	if result, err = json.Marshal(made); err != nil {
		return nil, nil, err
	}
	if learned != nil {
		stats, err = json.Marshal(learned)
	}
	return result, stats, err
}

func (w *Work) makeChunk(ctx context.Context, state store.Work, p store.Piece, plan vod.Plan, note func(float64)) (vod.ChunkResult, vod.ChunkStats, error) {
	earlier, err := w.learned(ctx, state.TaskID, p.Needs)
	if err != nil {
		return vod.ChunkResult{}, vod.ChunkStats{}, err
	}
	o := vod.ChunkOptions{Earlier: earlier, Progress: note}
	if plan.Source.Sequential != "" {
		if o.File, err = w.sequentialFile(ctx, state); err != nil {
			return vod.ChunkResult{}, vod.ChunkStats{}, err
		}
	}
	result, err := w.Engine.EncodeChunk(ctx, plan, p.Number, o)
	return result, result.Stats(), err
}

func (w *Work) makeThumbnails(ctx context.Context, state store.Work, plan vod.Plan) (vod.ThumbnailsResult, error) {
	if passesThrough(plan) {
		return w.Engine.Thumbnails(ctx, plan, nil)
	}
	var names []string
	for n := range plan.Chunks {
		names = append(names, fmt.Sprint(chunkPiece, n))
	}
	chunks, _, err := w.results(ctx, state.TaskID, names)
	if err != nil {
		return vod.ThumbnailsResult{}, err
	}
	return w.Engine.Thumbnails(ctx, plan, chunks)
}

// learned returns the statistics of the first chunks, which the encoder uses for later ones. They
// are always those of the same chunks, so a chunk that is encoded again is the same.
func (w *Work) learned(ctx context.Context, taskID string, first int) ([]vod.ChunkStats, error) {
	if first == 0 {
		return nil, nil
	}
	pieces, err := w.Store.Pieces(ctx, taskID)
	if err != nil {
		return nil, ownError{err}
	}
	all := make([]vod.ChunkStats, first)
	for _, p := range pieces {
		if p.Number < 0 || p.Number >= first {
			continue
		}
		if err := json.Unmarshal(p.Stats, &all[p.Number]); err != nil {
			return nil, fmt.Errorf("what chunk %d of task %s tells: %w", p.Number, taskID, err)
		}
	}
	return all, nil
}

// sequentialFile returns the source file of a task that can't be split.
func (w *Work) sequentialFile(ctx context.Context, state store.Work) (string, error) {
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
		return "", fmt.Errorf("source of task %s: %w", state.TaskID, err)
	}
	if file := w.present(t, o, dir); file != "" {
		return file, nil
	}
	return "", weir.Wrap(weir.Internal, fmt.Errorf("%s is not there", filepath.Join(dir, spoolName)), messageInternal)
}
