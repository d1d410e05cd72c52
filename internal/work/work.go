// Package work does the tasks.
//
// A task waits in the store until it is admitted ([Work.Run] sees to that, account
// by account). Then it is done by jobs, one file a kind:
//
//	task.go     begins: fetches the source, takes it apart, plans, cuts the work into pieces
//	chunk.go    does a piece: a chunk of the video, an audio track, the thumbnails
//	publish.go  puts what is done where it belongs, and completes the task
//	export.go   sends an asset somewhere else (part of the job that begins the task)
//	purge.go    deletes bytes
//
// No job waits for another: what one has done is in the store (store.Work,
// store.Piece), and the transaction that says so asks for the next. So any node can
// do any of them, and a node that dies loses no more than what it had in hand.
//
// The engine is package vod; this package knows tasks, assets and events, and leaves
// the media to it. How a failure ends a task or makes it wait for another attempt is
// in outcome.go, how far a task is in progress.go.
package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// Options are what the work needs.
type Options struct {
	Store   *store.Store
	Media   blob.Store    // weir's own storage
	Engine  vod.Engine    // what encodes; its store is Media
	Fetcher *blob.Fetcher // reads the sources that callers name
	Caller  blob.Options  // how the storage that callers name is reached
	// Decrypt opens the key of an encrypted source, which is in base64.
	Decrypt func(encryptedKey string) ([]byte, error)
	Dir     string // of this node alone, for files that live as long as a task
	Base    string // of the addresses in events
	MinFree int64  // bytes of disk to keep free; 0 = see blob.FreeSpace

	Slots        int           // pieces that this node does at once
	MaxRunning   int           // tasks of an account that are done at once
	DeleteGrace  time.Duration // how long a deleted asset can be restored
	UploadExpiry time.Duration // how long an upload may take to come
	Drain        time.Duration // how long jobs may go on when the node is to stop
	Backoff      []time.Duration
	// Others are the handlers of jobs that are not about tasks.
	Others map[string]store.Handler
	Log    *slog.Logger
}

// The defaults of Options.
const (
	defaultMaxRunning = 5
	defaultGrace      = 7 * 24 * time.Hour
	defaultExpiry     = 24 * time.Hour
	webhookSlots      = 32
)

// defaultBackoff is how long a task waits before its first and its second retry.
var defaultBackoff = []time.Duration{30 * time.Second, 3 * time.Minute}

// Work does tasks.
type Work struct {
	Options
	progress  progress
	local     local
	rendering sync.Mutex // held while a segment is in memory, so that there is only one

	completed, failed, retried atomic.Int64
	pieces                     atomic.Int64
}

// New returns a Work that is ready to run.
func New(o Options) (*Work, error) {
	if o.Store == nil || o.Media == nil || o.Engine.FFmpeg == nil || o.Fetcher == nil || o.Dir == "" {
		return nil, errors.New("work: the store, the storage, the engine, the fetcher and the folder are needed")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("work: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Slots < 1 {
		o.Slots = 1
	}
	if o.MaxRunning < 1 {
		o.MaxRunning = defaultMaxRunning
	}
	if o.DeleteGrace == 0 {
		o.DeleteGrace = defaultGrace
	}
	if o.UploadExpiry == 0 {
		o.UploadExpiry = defaultExpiry
	}
	if o.Backoff == nil {
		o.Backoff = defaultBackoff
	}
	return &Work{Options: o}, nil
}

// Stats are counts since the start.
type Stats struct {
	Completed int64 // tasks
	Failed    int64 // tasks, for good
	Retried   int64 // attempts that will be repeated
	Pieces    int64 // done
	Running   int64 // jobs of tasks, now
}

// Stats returns what was done since the start.
func (w *Work) Stats() Stats {
	return Stats{w.completed.Load(), w.failed.Load(), w.retried.Load(), w.pieces.Load(), int64(w.local.count())}
}

// Run admits tasks and does jobs until ctx ends.
func (w *Work) Run(ctx context.Context) error {
	handlers := map[string]store.Handler{
		store.JobTask:    w.counted(w.begin),
		store.JobPiece:   w.counted(w.piece),
		store.JobPublish: w.counted(w.publish),
		store.JobPurge:   w.purge,
	}
	for kind, handler := range w.Others {
		handlers[kind] = handler
	}
	// What looks after the jobs goes on while they are let finish.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var keepers errgroup.Group
	keepers.Go(func() error { w.reportProgress(keeping); return nil })
	keepers.Go(func() error { w.admit(ctx); return nil })
	keepers.Go(func() error { w.lookAround(ctx); return nil })
	// Imports and publications wait for others more than they work: there are slots
	// for as many as can be admitted.
	slots := store.Slots{Encode: w.Slots, Control: w.maxRunning(w.Slots) + 16, Webhook: webhookSlots}
	err := w.Store.Work(ctx, slots, w.Drain, handlers)
	stop()
	return errors.Join(err, keepers.Wait())
}

// The types of tasks that are done here.
var taskTypes = []weir.TaskType{weir.TaskUpload, weir.TaskTranscode, weir.TaskExport}

// maxRunning is how many tasks are done at once before every account gets only
// its first: enough that no slot stands idle while others fetch and publish.
func (w *Work) maxRunning(slots int) int { return 4*slots + 4 }

// admitEvery is how often there is a look at what waits, beside being told.
const admitEvery = time.Second

// admit lets tasks begin whose turn it is, until ctx ends.
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

// admitAll admits every task that there is room for, and gives out pieces.
func (w *Work) admitAll(ctx context.Context) error {
	for {
		var task weir.Task
		var ok bool
		err := w.Store.Tx(ctx, func(tx *store.Tx) error {
			running, err := tx.RunningTasks(ctx)
			if err != nil {
				return err
			}
			slots, err := tx.EncodeSlots(ctx)
			if err != nil {
				return err
			}
			limit := w.MaxRunning
			if running >= w.maxRunning(max(slots, w.Slots)) {
				limit = 1
			}
			if task, ok, err = tx.AdmitTask(ctx, taskTypes, limit); err != nil || ok {
				return err
			}
			return tx.GivePieces(ctx)
		})
		if err != nil || !ok {
			return err
		}
		w.Log.DebugContext(ctx, "task admitted", "task", task.ID, "type", task.Type)
	}
}

// local knows which tasks this node is working on, so that their files are not taken
// away.
type local struct {
	mu    sync.Mutex
	tasks map[string]int
}

func (l *local) enter(taskID string) (leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks == nil {
		l.tasks = map[string]int{}
	}
	l.tasks[taskID]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.tasks[taskID]--; l.tasks[taskID] == 0 {
			delete(l.tasks, taskID)
		}
	}
}

func (l *local) count() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, jobs := range l.tasks {
		n += jobs
	}
	return n
}

// unlessBusy does something about a task's files unless a job is using them; none
// can start meanwhile.
func (l *local) unlessBusy(taskID string, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks[taskID] == 0 {
		do()
	}
}

// dir returns the folder of a run of a task on this node, and makes it.
func (w *Work) dir(state store.Work) (string, error) {
	dir := filepath.Join(w.Dir, state.TaskID, fmt.Sprint(state.Run))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", weir.Wrap(weir.Internal, err, "no folder to work in")
	}
	return dir, nil
}
