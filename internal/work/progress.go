package work

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// The stages of a task, as people see them.
const (
	stepFetching   = "downloading"
	stepPreparing  = "preparing"
	stepEncoding   = "encoding"
	stepPublishing = "publishing"
	stepSending    = "sending"
)

// The shares of a task's progress.
const (
	shareFetch   = 0.06
	sharePrepare = 0.04
	shareEncode  = 0.80
	sharePublish = 0.10
)

const (
	progressEvery = time.Second
	tellEvery     = 10 * time.Second // events of progress, unless it is more than
	tellStep      = 0.05
)

// progress is how far the tasks are that this node works on. It is written once a
// second, however often it is told.
type progress struct {
	mu    sync.Mutex
	tasks map[string]*taskProgress
}

type taskProgress struct {
	step      string
	fetched   float64 // 0 to 1
	prepared  float64
	published float64 // for what has no pieces
	pieces    map[string]float64
}

// note remembers how far a task is, until it is written.
func (p *progress) note(taskID string, change func(*taskProgress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tasks == nil {
		p.tasks = map[string]*taskProgress{}
	}
	if p.tasks[taskID] == nil {
		p.tasks[taskID] = &taskProgress{pieces: map[string]float64{}}
	}
	change(p.tasks[taskID])
}

// take returns what was noted since the last time.
func (p *progress) take() map[string]*taskProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	tasks := p.tasks
	p.tasks = nil
	return tasks
}

// reportProgress writes how far the tasks are, until ctx ends.
func (w *Work) reportProgress(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for taskID, p := range w.progress.take() {
			if err := w.writeProgress(ctx, taskID, p); err != nil && ctx.Err() == nil {
				w.Log.WarnContext(ctx, "progress of a task could not be written", "task", taskID, "err", err)
			}
		}
	}
}

// writeProgress writes how far a task is, and tells of it now and then.
func (w *Work) writeProgress(ctx context.Context, taskID string, p *taskProgress) error {
	err := w.Store.Tx(ctx, func(tx *store.Tx) error {
		events := weir.NewEventBatch(w.Base, time.Now())
		var state store.Work
		t, err := tx.UpdateTask(ctx, taskID, func(t *weir.Task) (err error) {
			if t.Status.Phase != weir.TaskRunning {
				return errNothingToDo
			}
			if state, err = tx.UpdateWork(ctx, taskID, func(s *store.Work) {
				s.Imported = max(s.Imported, (shareFetch*p.fetched+sharePrepare*p.prepared)/(shareFetch+sharePrepare))
				s.Published = max(s.Published, p.published)
			}); err != nil {
				return err
			}
			for name, share := range p.pieces {
				if err := tx.PieceProgress(ctx, taskID, name, share); err != nil {
					return err
				}
			}
			encoded, err := tx.EncodedShare(ctx, taskID)
			if err != nil {
				return err
			}
			if !t.Advance(p.step, overall(state, encoded), eta(state, encoded, events.Now), events.Now) {
				return errNothingToDo
			}
			return nil
		})
		if err != nil {
			return err
		}
		return w.tell(ctx, tx, events, t, state)
	})
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	return err
}

// tell notes the progress of a task on its asset, and tells of both when enough has
// happened since the last time.
func (w *Work) tell(ctx context.Context, tx *store.Tx, events *weir.EventBatch, t weir.Task, state store.Work) error {
	share := *t.Status.Progress
	telling := events.Now.Sub(state.ReportedAt.Time()) >= tellEvery || share-state.Reported >= tellStep
	if telling {
		if _, err := tx.UpdateWork(ctx, t.ID, func(s *store.Work) { s.ReportedAt, s.Reported = weir.At(events.Now), share }); err != nil {
			return err
		}
		events.Task(weir.TaskUpdated, t)
	}
	if t.OutputAssetID != "" && !t.Extends() {
		a, err := tx.UpdateAsset(ctx, t.OutputAssetID, func(a *weir.Asset) error { a.Process(share, events.Now); return nil })
		if err != nil {
			return err
		}
		if telling {
			events.Asset(weir.AssetUpdated, a)
		}
	}
	return tx.EmitBatch(ctx, events)
}

// overall is the progress of a task: of fetching and taking apart, of its pieces, and
// of publishing.
func overall(state store.Work, encoded float64) float64 {
	if state.Pieces == 0 && state.Plan != nil {
		encoded = 1
	}
	return (shareFetch+sharePrepare)*state.Imported + shareEncode*encoded + sharePublish*state.Published
}

// eta is when a task will be done if it goes on as it has; zero while nobody can tell.
func eta(state store.Work, encoded float64, now time.Time) time.Time {
	done := encoded - state.Before
	if state.EncodingAt == 0 || done < 0.02 || encoded >= 1 {
		return time.Time{}
	}
	took := now.Sub(state.EncodingAt.Time())
	return now.Add(time.Duration(float64(took) * (1 - encoded) / done))
}
