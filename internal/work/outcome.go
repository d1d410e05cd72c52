package work

import (
	"context"
	"errors"
	"strings"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// ownError is an error of the store. The task is not to blame: the job is done again.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

// jobTx runs a transaction of a job, and emits its events. base is that of the URLs in events.
func jobTx(ctx context.Context, s *store.Store, base string, job store.Job, do func(*store.Tx, *weir.EventBatch) error) error {
	err := s.JobTx(ctx, job, func(tx *store.Tx) error {
		events := weir.NewEventBatch(base, time.Now())
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

func (w *Work) tx(ctx context.Context, job store.Job, do func(*store.Tx, *weir.EventBatch) error) error {
	return jobTx(ctx, w.Store, w.Base, job, do)
}

// failed handles the error of a job. It calls fail, with a context that has time left, if the task is to blame;
// otherwise it returns the error, and the job is done again.
func failed(ctx context.Context, err error, fail func(context.Context) error) error {
	if _, own := errors.AsType[ownError](err); own {
		return err
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err // the node stops, or another node has taken the job
	}
	// The timeout of the job may have ended its context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return fail(ctx)
}

// counted returns the handler of a job of a task. An error fails the task, or delays it for another
// attempt.
func (w *Work) counted(do func(ctx context.Context, job store.Job) error) store.Handler {
	return func(ctx context.Context, job store.Job) error {
		taskID, _, _ := strings.Cut(job.Ref, "/")
		leave := w.local.enter(taskID)
		defer leave()
		err := do(ctx, job)
		if err == nil {
			return nil
		}
		return failed(ctx, err, func(ctx context.Context) error { return w.fail(ctx, job, taskID, err) })
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
func (w *Work) fail(ctx context.Context, job store.Job, taskID string, failure error) error {
	text := message(failure)
	var ended bool
	var delay time.Duration
	err := w.tx(ctx, job, func(tx *store.Tx, events *weir.EventBatch) error {
		ended, delay = false, 0
		t, err := tx.UpdateTask(ctx, taskID, func(t *weir.Task) error {
			if t.Status.Phase != weir.TaskRunning {
				return errNothingToDo // another piece failed first, or the task was cancelled
			}
			// If a piece misses files of its task, the next attempt makes them again (see resume).
			lost := job.Kind != store.JobTask && weir.KindOf(failure) == weir.NotFound
			if weir.Retriable(failure) || lost {
				if retry, ok := t.Again(text, events.Now); ok {
					delay = w.Backoff[min(retry, len(w.Backoff))-1]
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
		w.failed.Add(1)
		w.Log.InfoContext(ctx, "task failed", "task", taskID, "job", job.Kind, "err", failure)
	default:
		w.retried.Add(1)
		w.Log.WarnContext(ctx, "task will be tried again", "task", taskID, "job", job.Kind, "delay", delay, "err", failure)
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
