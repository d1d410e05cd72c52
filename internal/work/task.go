package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// startTask handles store.JobTask: it prepares the pieces of a task.
func (w *Work) startTask(ctx context.Context, job store.Job) error {
	t, state, err := w.markRunning(ctx, job)
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.Type == weir.TaskExport {
		return w.export(ctx, job, t, state)
	}
	if state.Plan != nil {
		if state, err = w.resume(ctx, job, t, state); err != nil || state.Plan != nil {
			return err
		}
	}
	return w.prepare(ctx, job, t, state)
}

// markRunning marks a task as running, and returns its work.
func (w *Work) markRunning(ctx context.Context, job store.Job) (t weir.Task, state store.TaskState, err error) {
	t, err = w.tasks.start(ctx, job, job.Ref, func(tx *store.Tx) (float64, error) {
		if state, err = tx.StartTask(ctx, job.Ref); err != nil {
			return 0, err
		}
		encoded, err := tx.EncodedShare(ctx, job.Ref)
		return overall(state, encoded), err
	})
	return t, state, err
}

// resume continues a task whose pieces are known from an earlier attempt. If their files do not
// exist any more, it returns work that starts again.
func (w *Work) resume(ctx context.Context, job store.Job, t weir.Task, state store.TaskState) (store.TaskState, error) {
	var plan vod.Plan
	usable := json.Unmarshal(state.Plan, &plan) == nil
	if usable && state.Tied {
		usable = w.hasSource(t, state)
	}
	if usable && len(plan.Chunks) > 0 && plan.Source.Sequential == "" {
		if _, err := w.Engine.Plan(ctx, plan.Source, vod.Request{}); err != nil {
			if weir.KindOf(err) != weir.NotFound {
				return state, err
			}
			usable = false
		}
	}
	err := w.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) (err error) {
		if !usable {
			state, err = tx.ResetTask(ctx, state.TaskID)
			return err
		}
		if err := tx.ResumePieces(ctx, state.TaskID); err != nil {
			return err
		}
		return w.enqueuePieces(ctx, tx)
	})
	if err != nil || !usable || !state.Tied {
		return state, err
	}
	return state, w.encodeTied(ctx, job, state, plan)
}

// hasSource reports whether the source of a task is on this node.
func (w *Work) hasSource(t weir.Task, state store.TaskState) bool {
	dir, err := w.dir(state)
	var o origin
	return err == nil && json.Unmarshal(state.Source, &o) == nil && w.present(t, o, dir) != ""
}

// prepare fetches a source, splits it, plans, and creates the pieces.
func (w *Work) prepare(ctx context.Context, job store.Job, t weir.Task, state store.TaskState) error {
	if t.Extends() {
		return w.prepareRecording(ctx, job, t, state)
	}
	o, err := w.fetch(ctx, t, state)
	if err != nil {
		return err
	}
	if signs(t) && o.Manifest == nil {
		if o.Manifest, err = publish.ReadManifest(o.File); err != nil {
			return err
		}
	}
	if err := w.noteSource(ctx, job, o); err != nil {
		return err
	}
	w.progress.note(t.ID, func(p *taskProgress) { p.step, p.fetched = stepPreparing, 1 })
	request := w.request(ctx, t)
	src, err := w.Engine.Import(ctx, vod.ImportOptions{
		File: o.File, Prefix: prefix(t, state), SegmentSeconds: request.SegmentSeconds, Text: t.WithText(),
		Progress: func(share float64) {
			w.progress.note(t.ID, func(p *taskProgress) { p.step, p.fetched, p.prepared = stepPreparing, 1, share })
		},
	})
	if err != nil {
		return err
	}
	plan, err := w.Engine.Plan(ctx, src, request)
	if err != nil {
		return err
	}
	pieces, err := w.piecesOf(ctx, plan, t)
	if err != nil {
		return err
	}
	if src.Sequential == "" && !o.Kept {
		_ = os.Remove(o.File) // it is in the storage by now; the end of the task deletes the folder
	}
	state, err = w.openPieces(ctx, job, t, plan, pieces)
	if err != nil || src.Sequential == "" {
		return err
	}
	return w.encodeTied(ctx, job, state, plan)
}

// prefix returns the storage prefix of the tracks of a task: the asset's own, or one that is
// deleted with the task.
func prefix(t weir.Task, state store.TaskState) string {
	if t.OutputAssetID != "" {
		return media.AssetFolder(t.OutputAssetID)
	}
	return store.TaskDir(t.ID, state.Run)
}

func (w *Work) request(ctx context.Context, t weir.Task) vod.Request {
	var r vod.Request
	nodes, err := w.Store.IdleSlots(ctx)
	if err != nil {
		w.Log.WarnContext(ctx, "idle encode slots of the nodes could not be read", "task", t.ID, "err", err)
	}
	for _, idle := range nodes {
		r.Encoders += vod.Encoders(max(idle, 0))
	}
	if p := t.Params.Transcode; p != nil {
		r.Profiles, r.SegmentSeconds = p.Profiles, float64(p.TargetSegmentSizeSecs)
	}
	if p := t.Params.Upload; p != nil {
		r.Profiles, r.SegmentSeconds = p.Profiles, float64(p.TargetSegmentSizeSecs)
	}
	return r
}

// noteSource notes the source file, so that another attempt on this node need not fetch it again.
func (w *Work) noteSource(ctx context.Context, job store.Job, o origin) error {
	note, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return w.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) error {
		_, err := tx.UpdateTaskState(ctx, job.Ref, func(s *store.TaskState) { s.Source = note })
		return err
	})
}

// The names of pieces.
const (
	chunkPiece      = "chunk"
	audioPiece      = "audio"
	thumbnailsPiece = "thumbnails"
)

// The weight of pieces, in seconds of source that are encoded.
const (
	audioWeight     = 0.05
	thumbnailWeight = 0.05
)

// piecesOf returns the pieces of a plan. Audio that needs no encoding is done at once, so that there
// is something to play.
func (w *Work) piecesOf(ctx context.Context, plan vod.Plan, t weir.Task) ([]store.Piece, error) {
	var pieces []store.Piece
	for n, c := range plan.Chunks {
		weight := plan.Source.Duration
		if c.Segments > 0 {
			weight = float64(c.End-c.Start) / float64(plan.Timescale)
		}
		pieces = append(pieces, store.Piece{Name: chunkName(n), Number: n, Continues: c.Continues, Urgent: n == 0, Weight: weight})
	}
	for k, track := range plan.Audio {
		p := store.Piece{Name: fmt.Sprint(audioPiece, k), Number: -1, Urgent: true, Weight: audioWeight * plan.Source.Duration}
		if track.Copy {
			p.StartedAt = weir.At(time.Now())
			result, err := w.Engine.EncodeAudio(ctx, plan, k, nil)
			if err != nil {
				return nil, err
			}
			if p.Result, err = json.Marshal(result); err != nil {
				return nil, err
			}
			p.FinishedAt = weir.At(time.Now())
		}
		pieces = append(pieces, p)
	}
	if t.OutputAssetID != "" && plan.Source.Video != nil {
		p := store.Piece{Name: thumbnailsPiece, Number: -1, Weight: thumbnailWeight * plan.Source.Duration}
		if !passesThrough(plan) {
			p.Needs = len(plan.Chunks)
		}
		pieces = append(pieces, p)
	}
	return pieces, nil
}

// passesThrough reports whether the source is one of the renditions. Then segments start at its key
// frames, and thumbnails can be made of it.
func passesThrough(plan vod.Plan) bool {
	return slices.ContainsFunc(plan.Renditions, func(r vod.Rendition) bool { return r.Copy })
}

// openPieces writes the plan and its pieces.
func (w *Work) openPieces(ctx context.Context, job store.Job, t weir.Task, plan vod.Plan, pieces []store.Piece) (state store.TaskState, err error) {
	text, err := json.Marshal(plan)
	if err != nil {
		return state, err
	}
	err = w.tx(ctx, job, func(tx *store.Tx, _ *weir.EventBatch) error {
		if state, err = tx.UpdateTaskState(ctx, t.ID, func(s *store.TaskState) {
			s.Plan, s.Progressive, s.Tied = text, true, plan.Source.Sequential != ""
		}); err != nil {
			return err
		}
		if err := tx.CreatePieces(ctx, t.ID, pieces); err != nil {
			return err
		}
		return w.enqueuePieces(ctx, tx)
	})
	return state, err
}

// encodeTied encodes the pieces of a source that can't be split, one after the other, on the node
// that has the file.
func (w *Work) encodeTied(ctx context.Context, job store.Job, state store.TaskState, plan vod.Plan) error {
	pieces, err := w.Store.Pieces(ctx, state.TaskID)
	if err != nil {
		return ownError{err}
	}
	for _, p := range pieces {
		if p.State == store.PieceDone {
			continue
		}
		if err := w.doPiece(ctx, job, func(tx *store.Tx) (store.TaskState, store.Piece, bool, error) {
			return tx.StartTiedPiece(ctx, job, p.Name)
		}); err != nil {
			return err
		}
	}
	return nil
}
