// Package work does the tasks.
//
// A task waits in the store until [Work.Run] admits it. Accounts take turns; admit.go has the rules
// for tasks and for encode slots. Then the task is done by jobs, one file for each kind:
//
//	task.go     starts a task: fetches and splits the source, plans, creates pieces
//	chunk.go    does a piece: a chunk of the video, an audio track, the thumbnails
//	publish.go  publishes finished pieces, and completes the task
//	export.go   sends an asset to a URL or to IPFS (part of the job that starts the task)
//	ipfs.go     uploads to IPFS
//	track.go    fetches a track that was added to an asset
//	purge.go    deletes files
//
// No job waits for another: its result is in the store (store.TaskState, store.Piece), and the
// transaction that writes it creates the next job. So any node can do any of them, and a node that
// crashes loses only its current jobs.
//
// Assets of sessions (recording.go) and clips (clip.go) are made by one job each, which is not admitted
// and may run on a node that does no other work.
//
// The engine is package vod; this package knows tasks, assets and events. For all of them, also those of
// clips, outcome.go starts and ends tasks, and progress.go reports their progress.
package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/blob"
	"weir/internal/publish"
	"weir/internal/store"
	"weir/internal/vod"
	"weir/internal/weir"
)

// Options are the options of a Work.
type Options struct {
	Store   *store.Store
	Media   blob.Store    // weir's own storage
	Engine  vod.Engine    // its store is Media
	Fetcher *blob.Fetcher // fetches sources from callers' URLs
	Caller  blob.Options  // for callers' storage
	// Decrypt decrypts the key of an encrypted source, which is in base64.
	Decrypt func(encryptedKey string) ([]byte, error)
	IPFS    IPFS
	Dir     string    // of this node, for files of running tasks
	Base    weir.Base // of the URLs in events
	Signer  *publish.Signer
	MinFree int64 // bytes of disk to keep free; 0 = see blob.FreeSpace

	Slots        int             // pieces that this node does at once; 0 = 1
	MaxRunning   int             // tasks of an account that are done at once; 0 = 5
	DeleteGrace  time.Duration   // how long a deleted asset can be restored; 0 = a week
	UploadExpiry time.Duration   // maximum time for an upload; 0 = a day
	Drain        time.Duration   // how long jobs may continue when the node stops
	Backoff      []time.Duration // delays before the retries of a task
	// Others are the handlers of jobs that are not about tasks.
	Others map[string]store.Handler
	Log    *slog.Logger
}

// Work does tasks.
type Work struct {
	Options
	tasks
	progress  progress
	local     local
	rendering sync.Mutex // held while a segment is in memory
	stopping  atomic.Bool

	pieces                 atomic.Int64
	uploads, uploadedBytes atomic.Int64
}

// New returns a Work that is ready to run.
func New(o Options) (*Work, error) {
	if o.Store == nil || o.Media == nil || o.Engine.FFmpeg == nil || o.Fetcher == nil || o.Dir == "" {
		return nil, errors.New("work: Store, Media, Engine, Fetcher and Dir are required")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("work: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Slots, o.MaxRunning = max(o.Slots, 1), cmp.Or(max(o.MaxRunning, 0), 5)
	o.DeleteGrace, o.UploadExpiry = cmp.Or(o.DeleteGrace, 7*24*time.Hour), cmp.Or(o.UploadExpiry, 24*time.Hour)
	if o.Backoff == nil {
		o.Backoff = []time.Duration{30 * time.Second, 3 * time.Minute}
	}
	return &Work{Options: o, tasks: tasks{store: o.Store, base: o.Base, log: o.Log, backoff: o.Backoff}}, nil
}

// Stats are counts since the start.
type Stats struct {
	Completed int64 // tasks
	Failed    int64 // tasks, for good
	Retried   int64 // attempts that will be repeated
	Pieces    int64 // done
	Running   int64 // jobs of tasks, now

	Uploads, UploadedBytes int64 // to IPFS, completed
}

// Stats returns the current counts.
func (w *Work) Stats() Stats {
	return Stats{
		w.completed.Load(), w.failed.Load(), w.retried.Load(), w.pieces.Load(), int64(w.local.count()),
		w.uploads.Load(), w.uploadedBytes.Load(),
	}
}

// Run admits tasks and does jobs until ctx ends.
func (w *Work) Run(ctx context.Context) error {
	handlers := map[string]store.Handler{
		store.JobTask:    w.counted(w.startTask),
		store.JobPiece:   w.counted(w.piece),
		store.JobPublish: w.counted(w.publish),
		store.JobPurge:   w.purge,
		store.JobTrack:   w.track,
	}
	maps.Copy(handlers, w.Others)
	defer context.AfterFunc(ctx, func() { w.stopping.Store(true) })()
	// Progress is written until the last job has ended.
	reporting, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { w.progress.report(reporting, w.Log, w.writeProgress) })
	running.Go(func() { w.admit(ctx) })
	running.Go(func() { w.cleanUp(ctx) })
	// Imports and publications mostly wait, so there are slots for all that can be admitted.
	slots := store.Slots{Encode: w.Slots, Control: maxRunning(w.Slots) + 16}
	return w.Store.RunJobs(ctx, slots, w.Drain, handlers)
}

// local counts the jobs of tasks on this node, so that their files are not deleted.
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

// unlessBusy calls do unless the task has a job on this node; none can start meanwhile.
func (l *local) unlessBusy(taskID string, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks[taskID] == 0 {
		do()
	}
}

// dir creates and returns the folder of a run of a task on this node.
func (w *Work) dir(state store.TaskState) (string, error) {
	dir := filepath.Join(w.Dir, state.TaskID, fmt.Sprint(state.Run))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", weir.Wrap(weir.Internal, err, "the task's folder could not be created")
	}
	return dir, nil
}
