package work

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// ownError is an error of the store. The task is not to blame: the job is done again.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

// tasks is what jobs do with the tasks that they are for, of whatever type: it starts them, writes their
// progress, and ends them or has them tried again.
type tasks struct {
	store   *store.Store
	base    weir.Base // of the URLs in events
	log     *slog.Logger
	backoff []time.Duration // delays before the retries of a task
	keepJob bool            // a task that is tried again keeps its job; else it is admitted again

	completed, failed, retried atomic.Int64
}

// tx runs a transaction of a job, and emits its events.
func (s *tasks) tx(ctx context.Context, job store.Job, do func(*store.Tx, *weir.EventBatch) error) error {
	err := s.store.JobTx(ctx, job, func(tx *store.Tx) error {
		events := weir.NewEventBatch(s.base, time.Now())
		if err := do(tx, events); err != nil {
			return err
		}
		return tx.EmitBatch(ctx, events)
	})
	if err != nil {
		return ownError{err}
	}
	return nil
}

// start marks the task of a job as running. done returns the progress of earlier attempts.
func (s *tasks) start(ctx context.Context, job store.Job, taskID string, done func(*store.Tx) (float64, error)) (t weir.Task, err error) {
	deleted := false
	err = s.tx(ctx, job, func(tx *store.Tx, events *weir.EventBatch) error {
		first := false
		t, err = tx.UpdateTask(ctx, taskID, func(t *weir.Task) error {
			first = t.Status.Phase == weir.TaskWaiting
			share, err := done(tx)
			if err != nil {
				return err
			}
			if !t.Start(share, events.Now) {
				return errNothingToDo
			}
			return nil
		})
		if err != nil {
			if weir.KindOf(err) == weir.NotFound {
				return errNothingToDo
			}
			return err
		}
		if first {
			events.Task(weir.TaskUpdated, t)
		}
		if t.OutputAssetID == "" {
			return processStorage(ctx, tx, events, t, first)
		}
		a, err := tx.UpdateAsset(ctx, t.OutputAssetID, func(a *weir.Asset) error {
			deleted = a.Deleted
			a.Process(*t.Status.Progress, events.Now)
			return nil
		})
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return err
		}
		deleted = deleted || err != nil
		if first && !deleted && !t.Extends() {
			events.Asset(weir.AssetUpdated, a)
		}
		return nil
	})
	if err == nil && deleted {
		err = weir.Errorf(weir.Gone, messageDeleted)
	}
	return t, err
}

// outcome handles the error of a job of a task, nil = none. If the task is to blame, it fails or is tried
// again; otherwise outcome returns the error, and the job is done again.
func (s *tasks) outcome(ctx context.Context, job store.Job, taskID string, err error) error {
	if _, own := errors.AsType[ownError](err); own || err == nil {
		return err
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err // the node stops, or another node has taken the job
	}
	// The timeout of the job may have ended its context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.fail(ctx, job, taskID, err)
}

// counted returns the handler of a job of a task. An error fails the task, or delays it for another
// attempt.
func (w *Work) counted(do func(ctx context.Context, job store.Job) error) store.Handler {
	return func(ctx context.Context, job store.Job) error {
		taskID, _, _ := strings.Cut(job.Ref, "/")
		leave := w.local.enter(taskID)
		defer leave()
		return w.outcome(ctx, job, taskID, do(ctx, job))
	}
}

// Error messages of tasks; clients compare them.
const (
	messageInternal = "internal error processing file"
	messageTimeout  = "execution timeout"
	messageDeleted  = "task cancelled, asset has been deleted"
)

// message returns the message of an error for the owner of a task.
func message(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return messageTimeout
	}
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || e.Kind == weir.Internal && !strings.HasPrefix(e.Messages[0], messageInternal) && !strings.HasPrefix(e.Messages[0], messageTimeout) {
		return messageInternal
	}
	return strings.Join(e.Messages, "; ")
}

// fail ends a task, or delays it for another attempt if that may help.
func (s *tasks) fail(ctx context.Context, job store.Job, taskID string, failure error) error {
	text := message(failure)
	var ended bool
	var delay time.Duration
	err := s.tx(ctx, job, func(tx *store.Tx, events *weir.EventBatch) error {
		ended, delay = false, 0
		t, err := tx.UpdateTask(ctx, taskID, func(t *weir.Task) error {
			if t.Status.Phase != weir.TaskRunning {
				return errNothingToDo // another piece failed first, or the task was cancelled
			}
			// If a piece misses files of its task, the next attempt makes them again (see resume).
			lost := (job.Kind == store.JobPiece || job.Kind == store.JobPublish) && weir.KindOf(failure) == weir.NotFound
			if weir.Retriable(failure) || lost {
				if retry, ok := t.Requeue(text, events.Now); ok {
					delay = s.backoff[min(retry, len(s.backoff))-1]
					return nil
				}
			}
			ended = true
			t.Fail(text, events.Now)
			return nil
		})
		if err != nil {
			return err
		}
		events.Task(weir.TaskUpdated, t)
		if !ended && s.keepJob {
			return nil
		}
		if !ended {
			return tx.DelayTask(ctx, taskID, events.Now.Add(delay))
		}
		events.Task(weir.TaskFailedEvent, t)
		return tx.FailResult(ctx, t, text, events)
	})
	switch {
	case errors.Is(err, errNothingToDo):
		return nil
	case err != nil:
		return err
	case ended:
		s.failed.Add(1)
		s.log.InfoContext(ctx, "task failed", "task", taskID, "job", job.Kind, "err", failure)
		return nil
	}
	s.retried.Add(1)
	s.log.WarnContext(ctx, "task failed and will be retried", "task", taskID, "job", job.Kind, "delay", delay, "err", failure)
	if s.keepJob {
		return store.Later(delay)
	}
	return nil
}

// errNothingToDo ends a transaction that has nothing to change.
var errNothingToDo = errors.New("nothing to do")

// complete marks a task as completed.
func complete(ctx context.Context, tx *store.Tx, events *weir.EventBatch, taskID string, output *weir.TaskOutput, warnings []string) error {
	t, err := tx.UpdateTask(ctx, taskID, func(t *weir.Task) error {
		if t.Status.Phase != weir.TaskRunning {
			return errNothingToDo
		}
		t.Complete(output, warnings, events.Now)
		return nil
	})
	if err != nil {
		return err
	}
	events.Task(weir.TaskUpdated, t)
	events.Task(weir.TaskCompletedEvent, t)
	return nil
}
