package work

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// Who is next: the rules are pure functions of what the store knows. The store makes sure that two
// nodes never admit one task, or enqueue one piece.

// The types of tasks that are done here.
var taskTypes = []weir.TaskType{weir.TaskUpload, weir.TaskTranscode, weir.TaskExport}

const (
	// admitEvery is the interval of checks for waiting tasks, beside the signals of the store.
	admitEvery = time.Second
	// candidates is the number of accounts among which the next one is chosen.
	candidates = 100
	// pendingPerSlot is how many pieces have a job, for each slot: enough that no slot is idle, and few
	// enough that a new task does not wait for long.
	pendingPerSlot = 2
	// encodeTimeSlice is how long an encode runs before it lets other tasks go first. To stop and to continue
	// later takes two seconds of CPU time, mostly for frames that were on their way.
	encodeTimeSlice = 30 * time.Second
)

// maxRunning returns the number of running tasks from which on each account may start only one:
// enough to keep all slots busy while other tasks fetch and publish.
func maxRunning(slots int) int { return 4*slots + 4 }

// maxPerAccount returns how many tasks an account may have running to start another: perAccount,
// or one while many tasks run.
func maxPerAccount(perAccount, running, slots int) int {
	if running >= maxRunning(slots) {
		return 1
	}
	return perAccount
}

// nextTask returns the account whose task is admitted next. Accounts take turns, so that many tasks
// of one do not delay those of another: it is the one that was admitted least recently, of those
// with fewer running tasks than the limit.
func nextTask(waiting []store.WaitingAccount, limit int) (next store.WaitingAccount, ok bool) {
	for _, a := range waiting {
		if a.Running < limit && (!ok || cmp.Or(cmp.Compare(a.LastAdmitted, next.LastAdmitted), cmp.Compare(a.UserID, next.UserID)) < 0) {
			next, ok = a, true
		}
	}
	return next, ok
}

func (w *Work) admit(ctx context.Context) {
	changed, stop := w.Store.Watch(store.TopicTask)
	defer stop()
	tick := time.NewTicker(admitEvery)
	defer tick.Stop()
	for {
		if err := w.admitAll(ctx); err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "tasks could not be admitted", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// admitAll admits tasks up to the limits, and enqueues pieces.
func (w *Work) admitAll(ctx context.Context) error {
	for {
		if ok, err := w.admitNext(ctx); err != nil || !ok {
			return err
		}
	}
}

// admitNext admits the next task. ok is false if there is none; then it enqueues pieces.
func (w *Work) admitNext(ctx context.Context) (ok bool, err error) {
	var next store.WaitingAccount
	admitted := false
	err = w.Store.Tx(ctx, func(tx *store.Tx) error {
		running, err := tx.RunningTasks(ctx)
		if err != nil {
			return err
		}
		slots, err := tx.EncodeSlots(ctx)
		if err != nil {
			return err
		}
		waiting, err := tx.WaitingAccounts(ctx, taskTypes, candidates)
		if err != nil {
			return err
		}
		if next, ok = nextTask(waiting, maxPerAccount(w.MaxRunning, running, max(slots, w.Slots))); !ok {
			return w.enqueuePieces(ctx, tx)
		}
		admitted, err = tx.AdmitTask(ctx, next)
		return err
	})
	if err == nil && admitted {
		w.Log.DebugContext(ctx, "task admitted", "task", next.TaskID)
	}
	return ok, err // also if another node was faster: there may be another task
}

// enqueuePieces enqueues the pieces that can be done next.
func (w *Work) enqueuePieces(ctx context.Context, tx *store.Tx) error {
	q, err := tx.EncodeQueue(ctx, pendingPerSlot)
	if err != nil {
		return err
	}
	for _, p := range nextPieces(q) {
		if err := tx.EnqueuePiece(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// nextPieces returns the pieces that get a job: all urgent ones, and others until there are enough
// for the slots. Each time it is the oldest piece of the account with the fewest pending ones.
func nextPieces(q store.EncodeQueue) (next []store.ReadyPiece) {
	free := pendingPerSlot * max(q.Slots, 1)
	pending := map[string]int{}
	for user, n := range q.Pending {
		pending[user], free = n, free-n
	}
	for _, urgent := range []bool{true, false} {
		ready := map[string][]store.ReadyPiece{}
		var users []string
		for _, p := range q.Ready {
			if p.Urgent != urgent {
				continue
			}
			if ready[p.UserID] == nil {
				users = append(users, p.UserID)
			}
			ready[p.UserID] = append(ready[p.UserID], p)
		}
		for ; len(users) > 0 && (urgent || free > 0); free-- {
			user := slices.MinFunc(users, func(a, b string) int { return pending[a] - pending[b] })
			next = append(next, ready[user][0])
			pending[user]++
			if ready[user] = ready[user][1:]; len(ready[user]) == 0 {
				users = slices.DeleteFunc(users, func(u string) bool { return u == user })
			}
		}
	}
	return next
}

// continues reports whether a job that has encoded for so long continues with the next chunk.
func (w *Work) continues(ctx context.Context, tx *store.Tx, taskID string, encoded time.Duration) (bool, error) {
	if w.stopping.Load() {
		return false, nil
	}
	if encoded <= encodeTimeSlice {
		return true, nil
	}
	use, err := tx.SlotUse(ctx, taskID)
	return !yields(use), err
}

// yields reports whether a job whose time slice is over must leave its slot to another task.
func yields(use store.SlotUse) bool { return use.OthersQueued > 0 && use.Running >= use.Slots }
