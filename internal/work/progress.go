package work

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// The steps of a task, for people.
const (
	stepFetching   = "downloading"
	stepPreparing  = "preparing"
	stepEncoding   = "encoding"
	stepPublishing = "publishing"
	stepSending    = "sending"
	stepUploading  = "uploading"
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
	// There is an event after this time, or after this much progress.
	eventEvery = 10 * time.Second
	eventStep  = 0.05
)

// progress holds the progress of the tasks on this node until it is written, once a second.
type progress struct {
	mu    sync.Mutex
	tasks map[string]*taskProgress
}

type taskProgress struct {
	step      string
	fetched   float64 // 0 to 1
	prepared  float64
	published float64 // of tasks without pieces
	pieces    map[string]float64
}

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

// take returns the changes since the last call.
func (p *progress) take() map[string]*taskProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	tasks := p.tasks
	p.tasks = nil
	return tasks
}

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
		return w.writeAssetProgress(ctx, tx, events, t, state)
	})
	if errors.Is(err, errNothingToDo) {
		return nil
	}
	return err
}

// writeAssetProgress writes the progress of a task to its asset, and emits events of both if enough
// has changed.
func (w *Work) writeAssetProgress(ctx context.Context, tx *store.Tx, events *weir.EventBatch, t weir.Task, state store.Work) error {
	share := *t.Status.Progress
	emits := events.Now.Sub(state.ReportedAt.Time()) >= eventEvery || share-state.Reported >= eventStep
	if emits {
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
		if emits {
			events.Asset(weir.AssetUpdated, a)
		}
	}
	if t.OutputAssetID == "" {
		if err := processStorage(ctx, tx, events, t, emits); err != nil {
			return err
		}
	}
	return tx.EmitBatch(ctx, events)
}

// overall returns the progress of a task: fetching and splitting, its pieces, and publishing.
func overall(state store.Work, encoded float64) float64 {
	if state.Pieces == 0 && state.Plan != nil {
		encoded = 1
	}
	return (shareFetch+sharePrepare)*state.Imported + shareEncode*encoded + sharePublish*state.Published
}

// eta returns the estimated end of a task; zero = not known.
func eta(state store.Work, encoded float64, now time.Time) time.Time {
	done := encoded - state.Before
	if state.EncodingAt == 0 || done < 0.02 || encoded >= 1 {
		return time.Time{}
	}
	took := now.Sub(state.EncodingAt.Time())
	return now.Add(time.Duration(float64(took) * (1 - encoded) / done))
}
