package work

import (
	"context"
	"errors"
	"log/slog"
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

// takeChanges returns the changes since the last call.
func (p *progress) takeChanges() map[string]*taskProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	tasks := p.tasks
	p.tasks = nil
	return tasks
}

// report writes the progress once a second, until ctx ends.
func (p *progress) report(ctx context.Context, log *slog.Logger, write func(ctx context.Context, taskID string, p *taskProgress) error) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for taskID, changed := range p.takeChanges() {
			if err := write(ctx, taskID, changed); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "task progress could not be written", "task", taskID, "err", err)
			}
		}
	}
}

// writeProgress writes the progress of a task that has a store.TaskState.
func (w *Work) writeProgress(ctx context.Context, taskID string, p *taskProgress) error {
	reach := func(tx *store.Tx, now time.Time) (reached, error) {
		state, err := tx.UpdateTaskState(ctx, taskID, func(s *store.TaskState) {
			s.Imported = max(s.Imported, (shareFetch*p.fetched+sharePrepare*p.prepared)/(shareFetch+sharePrepare))
			s.Published = max(s.Published, p.published)
		})
		if err != nil {
			return reached{}, err
		}
		for name, share := range p.pieces {
			if err := tx.PieceProgress(ctx, taskID, name, share); err != nil {
				return reached{}, err
			}
		}
		encoded, err := tx.EncodedShare(ctx, taskID)
		last := reported{state.ReportedAt.Time(), state.Reported}
		return reached{p.step, overall(state, encoded), eta(state, encoded, now), last}, err
	}
	return w.advance(ctx, taskID, reach, func(tx *store.Tx, now reported) error {
		_, err := tx.UpdateTaskState(ctx, taskID, func(s *store.TaskState) { s.ReportedAt, s.Reported = weir.At(now.at), now.share })
		return err
	})
}

// reported is the progress that events reported last.
type reported struct {
	at    time.Time
	share float64
}

// reached is how far a task is.
type reached struct {
	step  string
	share float64
	eta   time.Time // zero = not known
	last  reported
}

// advance writes the progress of a running task and of its asset, and emits events of both if enough has
// changed; then it calls note. Nothing happens if the task or its asset is gone.
func (s *tasks) advance(ctx context.Context, taskID string, reach func(tx *store.Tx, now time.Time) (reached, error), note func(*store.Tx, reported) error) error {
	err := s.store.Tx(ctx, func(tx *store.Tx) error {
		events := weir.NewEventBatch(s.base, time.Now())
		var before reported
		t, err := tx.UpdateTask(ctx, taskID, func(t *weir.Task) error {
			if t.Status.Phase != weir.TaskRunning {
				return errNothingToDo
			}
			r, err := reach(tx, events.Now)
			if err != nil {
				return err
			}
			if !t.Advance(r.step, r.share, r.eta, events.Now) {
				return errNothingToDo
			}
			before = r.last
			return nil
		})
		if err != nil {
			return err
		}
		share := *t.Status.Progress
		emits := events.Now.Sub(before.at) >= eventEvery || share-before.share >= eventStep
		if emits {
			events.Task(weir.TaskUpdated, t)
			if err := note(tx, reported{events.Now, share}); err != nil {
				return err
			}
		}
		if err := processAsset(ctx, tx, events, t, emits); err != nil {
			return err
		}
		return tx.EmitBatch(ctx, events)
	})
	if errors.Is(err, errNothingToDo) || weir.IsNotFound(err) {
		return nil
	}
	return err
}

// processAsset shows the progress of a task on the asset that it makes or copies.
func processAsset(ctx context.Context, tx *store.Tx, events *weir.EventBatch, t weir.Task, emits bool) error {
	if t.OutputAssetID == "" {
		return processStorage(ctx, tx, events, t, emits)
	}
	if t.Extends() {
		return nil
	}
	a, err := tx.UpdateAsset(ctx, t.OutputAssetID, func(a *weir.Asset) error { a.Process(*t.Status.Progress, events.Now); return nil })
	if err == nil && emits {
		events.Asset(weir.AssetUpdated, a)
	}
	return err
}

// overall returns the progress of a task: fetching and splitting, its pieces, and publishing.
func overall(state store.TaskState, encoded float64) float64 {
	if state.Pieces == 0 && state.Plan != nil {
		encoded = 1
	}
	return (shareFetch+sharePrepare)*state.Imported + shareEncode*encoded + sharePublish*state.Published
}

// eta returns the estimated end of a task; zero = not known.
func eta(state store.TaskState, encoded float64, now time.Time) time.Time {
	done := encoded - state.Before
	if state.EncodingAt == 0 || done < 0.02 || encoded >= 1 {
		return time.Time{}
	}
	took := now.Sub(state.EncodingAt.Time())
	return now.Add(time.Duration(float64(took) * (1 - encoded) / done))
}
