package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"weir/internal/weir"
)

// Job is a job that a node runs.
type Job struct {
	ID      int64
	Kind    string
	Ref     string // its subject: the id of a task, or of a session and a node …
	Attempt int
}

// Handler runs a job. After an error River tries again later.
type Handler func(ctx context.Context, job Job) error

// The kinds of jobs. A new kind needs a line in jobKinds and a handler for RunJobs.
const (
	JobTask    = "task"    // begin an admitted task; Ref = task id
	JobPiece   = "chunk"   // encode a piece of a task; Ref = task id + "/" + name of the piece
	JobPublish = "publish" // publish the finished pieces of a task; Ref = task id + "/publish"
	JobPurge   = "purge"   // delete bytes; Ref = see PurgeRef

	JobRecording = "recording" // make an asset of a session; Ref = session id + "/" + node that has its files

	JobClip     = "clip"      // cut a clip out of an asset; Ref = task id
	JobLiveClip = "live-clip" // cut a clip out of a session on air; Ref = task id + "/" + node that has its files

	JobTrack = "track" // make a track that was added to an asset; Ref = see TrackRef
)

type jobKind struct {
	queue   string // one that ends with a dash is that of a node, whose id follows
	timeout time.Duration
}

// ofNode reports whether only one node can run jobs of the kind.
func (k jobKind) ofNode() bool { return strings.HasSuffix(k.queue, "-") }

const (
	queueEncode  = "encode"
	queueControl = "control"
	queueClip    = "clip"

	// The prefixes of the queues of a node, for jobs that only this node can run.
	queueOfNode     = "node-"
	queueClipOfNode = "clip-"
)

var jobKinds = map[string]jobKind{
	JobTask:    {queueControl, 24 * time.Hour}, // for slow origins and long files; work stops tasks without progress
	JobPiece:   {queueEncode, 12 * time.Hour},
	JobPublish: {queueControl, 12 * time.Hour},
	JobPurge:   {queueControl, time.Hour},

	JobRecording: {queueOfNode, 12 * time.Hour},

	JobClip:     {queueClip, 12 * time.Hour},
	JobLiveClip: {queueClipOfNode, 12 * time.Hour},

	JobTrack: {queueControl, 12 * time.Hour},
}

// TrackRef returns the ref of the JobTrack of a track.
func TrackRef(assetID, trackID string) string { return assetID + "/" + trackID }

// jobArgs is what River stores of a job.
type jobArgs struct {
	Ref  string `json:"ref"`
	kind string
}

func (a jobArgs) Kind() string { return a.kind }

// newJob is a job that a transaction enqueues.
type newJob struct {
	kind   string
	ref    string
	at     time.Time // zero = now
	urgent bool      // before others of its queue
}

// queue returns the name of the job's queue.
func (j newJob) queue() string {
	kind := jobKinds[j.kind]
	if !kind.ofNode() {
		return kind.queue
	}
	_, node, _ := strings.Cut(j.ref, "/")
	return kind.queue + node
}

// Enqueue adds a job; it exists when the transaction commits. It clears an earlier cancellation of
// the jobs of the same ref.
func (tx *Tx) Enqueue(ctx context.Context, kind, ref string) error {
	return tx.enqueueAt(ctx, kind, ref, time.Time{})
}

func (tx *Tx) enqueueAt(ctx context.Context, kind, ref string, at time.Time) error {
	if _, err := tx.conn.exec(ctx, "DELETE FROM job_cancel WHERE ref = $1", ref); err != nil {
		return err
	}
	return tx.enqueue(ctx, []newJob{{kind: kind, ref: ref, at: at}})
}

// enqueue writes jobs, and wakes their queues after the commit.
func (tx *Tx) enqueue(ctx context.Context, jobs []newJob) error {
	if tx.queues == nil {
		tx.queues = map[string]bool{}
	}
	for _, job := range jobs {
		tx.queues[job.queue()] = true
	}
	return tx.tx.enqueue(ctx, jobs)
}

func scanNewJob(r rows) (job newJob, err error) { return job, r.Scan(&job.kind, &job.ref) }

// CancelJobs stops the running jobs of a ref, and of refs that start with it and a slash, on all
// nodes within a second. Queued jobs will do nothing.
func (tx *Tx) CancelJobs(ctx context.Context, ref string) error {
	_, err := tx.conn.exec(ctx, "INSERT INTO job_cancel (ref, created_at) VALUES ($1, $2) ON CONFLICT (ref) DO NOTHING", ref, weir.At(time.Now()))
	return err
}

// JobTx is Tx for the end of a job: it fails when another node has the job by now, because this one
// was taken for dead.
func (s *Store) JobTx(ctx context.Context, job Job, do func(*Tx) error) error {
	err := s.jobTx(ctx, job, do)
	until := time.Now().Add(runOnFor)
	for err != nil && weir.KindOf(err) == weir.Internal && !errors.Is(err, errLostJob) && s.jobs.runsOn(job.ID) && time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(runOnRetry):
		}
		err = s.jobTx(ctx, job, do)
	}
	return err
}

func (s *Store) jobTx(ctx context.Context, job Job, do func(*Tx) error) error {
	return s.Tx(ctx, func(tx *Tx) error {
		_, owned, err := found(one(ctx, tx.conn, scanInt, "SELECT id FROM river_job WHERE id = $1 AND state = 'running' AND attempt = $2 AND "+
			s.engine.jobClient()+" = $3"+s.engine.forUpdate(), job.ID, job.Attempt, s.node.client()))
		if err != nil {
			return err
		}
		if !owned {
			return errLostJob
		}
		return do(tx)
	})
}

// errLostJob says that another node has the job by now.
var errLostJob = errors.New("this node no longer owns the job")

const (
	// runOnFor is how long JobTx of a job that runs on waits for the database: less than ffmpeg may make
	// no progress.
	runOnFor   = 45 * time.Second
	runOnRetry = time.Second
)

// RunOn lets a running job run on while this node is lost, until the database says that another node
// has it, or until the caller calls end. JobTx waits for the database then. It is for jobs whose writes
// are in a place that no other attempt uses, and that nobody sees before JobTx. All other jobs are
// stopped before another node can have them.
func (s *Store) RunOn(job Job) (end func()) {
	s.jobs.runOn(job.ID, true)
	return func() { s.jobs.runOn(job.ID, false) }
}

// jobsOfNode is how many jobs of its own queue a node runs at once: they move files, and more at
// once would not be faster.
const jobsOfNode = 4

// clipsAtOnce is how many clips a node cuts at once, out of sessions and as many out of assets. They
// have their own queues, because somebody waits for a clip, and other jobs may take long.
const clipsAtOnce = 4

// Slots says how many jobs of each queue a node runs at once.
type Slots struct {
	Encode, Control int
}

// RunJobs runs jobs of the given kinds until ctx ends, then gives running ones at most drain to
// finish.
func (s *Store) RunJobs(ctx context.Context, slots Slots, drain time.Duration, handlers map[string]Handler) error {
	kinds := slices.Sorted(maps.Keys(handlers))
	queues := map[string]int{}
	sizes := map[string]int{
		queueEncode: slots.Encode, queueControl: slots.Control, queueClip: clipsAtOnce, queueOfNode: jobsOfNode, queueClipOfNode: clipsAtOnce,
	}
	for _, kind := range kinds {
		k, ok := jobKinds[kind]
		if !ok {
			return fmt.Errorf("unknown kind of job: %q", kind)
		}
		name := k.queue
		if k.ofNode() {
			name += s.node.id
		}
		queues[name] = max(1, sizes[k.queue])
	}
	if len(kinds) == 0 {
		<-ctx.Done()
		return nil
	}
	if handlers[JobPiece] != nil {
		s.announceSlots(ctx, queues[queueEncode])
	}
	return s.engine.runJobs(ctx, worker{kinds: kinds, queues: queues, drain: drain, do: func(ctx context.Context, job Job) error {
		return s.runJob(ctx, job, handlers[job.Kind])
	}})
}

// runJob runs the handler of a job.
func (s *Store) runJob(ctx context.Context, job Job, handle Handler) error {
	if s.node.lost() {
		return river.JobSnooze(time.Second)
	}
	ctx, stop := s.jobs.start(ctx, job)
	defer stop()
	if flagged, err := s.flagged(ctx, job.Ref); err != nil || flagged {
		return err
	}
	err := handle(ctx, job)
	if errors.Is(context.Cause(ctx), errJobCancelled) {
		return nil // not to be retried, even if a new job of the same ref is enqueued
	}
	if errors.Is(err, errLostJob) {
		// If another node has taken it, it is another job by now, and snoozing does nothing. If no
		// node has, it continues here.
		s.log.WarnContext(ctx, "job stopped: this node no longer owns it", "kind", job.Kind, "job", job.ID)
		return river.JobSnooze(time.Second)
	}
	if _, later := errors.AsType[*river.JobSnoozeError](err); later {
		return err
	}
	if err != nil {
		s.log.WarnContext(ctx, "job failed and will be retried", "kind", job.Kind, "job", job.ID, "attempt", job.Attempt, "err", err)
		return storedError(err)
	}
	return nil
}

// Later returns what a handler returns to be called again after a time, because there is nothing to
// do before. Unlike a job that waits, this one needs no slot meanwhile.
func Later(after time.Duration) error { return river.JobSnooze(after) }

// storedError returns an error that River may store: our own message, never its cause, which could
// contain a URL or a credential.
func storedError(err error) error {
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal {
		return errors.New(e.Messages[0])
	}
	return errors.New("internal error; the log of the node has the cause")
}

// running are the jobs that this process runs.
type running struct {
	mu   sync.Mutex
	jobs map[int64]runningJob
}

type runningJob struct {
	ref    string
	cancel context.CancelCauseFunc
	runsOn bool // see RunOn
}

// errJobCancelled is the cause that cancels the context of a cancelled job.
var errJobCancelled = errors.New("the job was cancelled")

func (r *running) start(ctx context.Context, job Job) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs == nil {
		r.jobs = map[int64]runningJob{}
	}
	r.jobs[job.ID] = runningJob{ref: job.Ref, cancel: cancel}
	return ctx, func() {
		cancel(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.jobs, job.ID)
	}
}

// coveredBy reports whether cancelling a ref cancels a job.
func coveredBy(ref, cancelled string) bool {
	return ref == cancelled || strings.HasPrefix(ref, cancelled+"/")
}

// refs returns the refs of the running jobs.
func (r *running) refs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, job := range r.jobs {
		seen[job.ref] = true
	}
	return slices.Collect(maps.Keys(seen))
}

// cancel cancels the jobs of a ref.
func (r *running) cancel(ref string, cause error) {
	r.cancelWhere(cause, func(_ int64, job runningJob) bool { return coveredBy(job.ref, ref) })
}

func (r *running) cancelWhere(cause error, lost func(id int64, job runningJob) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, job := range r.jobs {
		if lost(id, job) {
			job.cancel(cause)
		}
	}
}

func (r *running) runOn(id int64, on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if job, ok := r.jobs[id]; ok {
		job.runsOn = on
		r.jobs[id] = job
	}
}

func (r *running) runsOn(id int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[id].runsOn
}

const cancelEvery = 250 * time.Millisecond

// cancelFlagged stops the running jobs that were cancelled.
func (s *Store) cancelFlagged(ctx context.Context) error {
	for _, ref := range s.jobs.refs() {
		flagged, err := s.flagged(ctx, ref)
		if err != nil {
			return err
		}
		if flagged {
			s.jobs.cancel(ref, errJobCancelled)
		}
	}
	return nil
}

// flagged reports whether the jobs of a ref were cancelled, or those of its part before the first
// slash.
func (s *Store) flagged(ctx context.Context, ref string) (bool, error) {
	whole, _, _ := strings.Cut(ref, "/")
	n, err := one(ctx, s.conn, scanInt, "SELECT count(*) FROM job_cancel WHERE ref IN ($1, $2)", ref, whole)
	return n > 0, err
}

// JobStats counts jobs by queue and state.
func (q *queries) JobStats(ctx context.Context) (map[[2]string]int64, error) {
	type count struct {
		queue, state string
		n            int64
	}
	all, err := many(ctx, q.conn, func(r rows) (c count, err error) { return c, r.Scan(&c.queue, &c.state, &c.n) },
		"SELECT queue, CAST(state AS TEXT), count(*) FROM river_job WHERE state NOT IN ('completed', 'cancelled', 'discarded') GROUP BY queue, state")
	stats := map[[2]string]int64{}
	for _, c := range all {
		stats[[2]string{c.queue, c.state}] = c.n
	}
	return stats, err
}

// worker says which jobs River runs, and how.
type worker struct {
	kinds  []string
	queues map[string]int // name → jobs at once
	drain  time.Duration
	do     func(context.Context, Job) error
}

// jobClient is River on one of its drivers.
type jobClient[TTx any] struct {
	driver riverdriver.Driver[TTx]
	insert *river.Client[TTx]
	log    *slog.Logger
	id     string
	active *atomic.Pointer[activeClient[TTx]]
	// fetchEvery is how often River looks for scheduled jobs. PostgreSQL or wake notifies it of new
	// ones.
	fetchEvery time.Duration
	reindex    river.PeriodicSchedule // nil = River's own
}

// activeClient is the client that runs jobs, and the queues that it takes them from.
type activeClient[TTx any] struct {
	client *river.Client[TTx]
	queues []string
}

// maxAttempts is practically unlimited: handlers end jobs that can't succeed.
const maxAttempts = 10_000

func newJobClient[TTx any](driver riverdriver.Driver[TTx], id string, log *slog.Logger) (jobClient[TTx], error) {
	c := jobClient[TTx]{driver: driver, log: quiet(log), id: id, active: &atomic.Pointer[activeClient[TTx]]{}, fetchEvery: time.Second}
	var err error
	c.insert, err = river.NewClient(driver, &river.Config{Logger: c.log, ID: id, MaxAttempts: maxAttempts})
	return c, err
}

// River runs jobs with a lower number first.
const (
	urgentPriority = 1
	usualPriority  = 2
)

func (c jobClient[TTx]) enqueue(ctx context.Context, tx TTx, jobs []newJob) error {
	params := make([]river.InsertManyParams, len(jobs))
	for i, job := range jobs {
		params[i] = river.InsertManyParams{
			Args:       jobArgs{Ref: job.ref, kind: job.kind},
			InsertOpts: &river.InsertOpts{Queue: job.queue(), ScheduledAt: job.at, Priority: usualPriority},
		}
		if job.urgent {
			params[i].InsertOpts.Priority = urgentPriority
		}
	}
	_, err := c.insert.InsertManyTx(ctx, tx, params)
	return err
}

// config returns the configuration of a client that runs jobs.
func (c jobClient[TTx]) config(w worker) *river.Config {
	workers := river.NewWorkers()
	for _, kind := range w.kinds {
		river.AddWorkerArgs(workers, jobArgs{kind: kind}, &riverWorker{timeout: jobKinds[kind].timeout, do: w.do})
	}
	queues := map[string]river.QueueConfig{}
	for name, size := range w.queues {
		queues[name] = river.QueueConfig{MaxWorkers: size}
	}
	return &river.Config{
		ID: c.id, Logger: c.log, Workers: workers, Queues: queues, MaxAttempts: maxAttempts,
		FetchPollInterval: c.fetchEvery, FetchCooldown: 20 * time.Millisecond, RetryPolicy: retryPolicy{},
		CompletedJobRetentionPeriod: 24 * time.Hour, CancelledJobRetentionPeriod: 24 * time.Hour,
		DiscardedJobRetentionPeriod: 24 * time.Hour, RescueStuckJobsAfter: 24 * time.Hour, // see node.go
		Middleware: []rivertype.Middleware{&wakeUp{}}, SkipUnknownJobCheck: true, // wakeKind has no worker
		ReindexerSchedule: c.reindex,
	}
}

func (c jobClient[TTx]) runJobs(ctx context.Context, w worker) error {
	client, err := c.start(ctx, c.config(w))
	if client == nil {
		return err
	}
	c.active.Store(&activeClient[TTx]{client, slices.Collect(maps.Keys(w.queues))})
	defer c.active.Store(nil)
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.drain)
	defer cancel()
	if err := client.Stop(stop); err != nil {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return client.StopAndCancel(hard)
	}
	return nil
}

// startAgainAfter is the pause after River could not start.
const startAgainAfter = time.Second

// start returns a client that runs jobs, or nil when ctx has ended. It waits for a database that
// does not answer.
func (c jobClient[TTx]) start(ctx context.Context, config *river.Config) (*river.Client[TTx], error) {
	for {
		client, err := river.NewClient(c.driver, config)
		if err != nil {
			return nil, err
		}
		// Cancelling the context of Start would end running jobs at once; Stop lets them finish.
		if err = client.Start(context.WithoutCancel(ctx)); err == nil {
			return client, nil
		}
		c.log.WarnContext(ctx, "job workers could not start; retrying", "err", err)
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(startAgainAfter):
		}
	}
}

// wake makes River look for jobs in the queues now; nil = in all. River does so by itself when a
// job is inserted outside a transaction, so wake inserts one, which wakeUp removes before it
// reaches the database.
func (c jobClient[TTx]) wake(ctx context.Context, queues []string) {
	active := c.active.Load()
	if active == nil {
		return
	}
	if queues == nil {
		queues = active.queues
	}
	for _, queue := range queues {
		if !slices.Contains(active.queues, queue) {
			continue // other nodes have it
		}
		// An error only means that the next poll finds the jobs.
		_, _ = active.client.Insert(ctx, jobArgs{kind: wakeKind}, &river.InsertOpts{Queue: queue})
	}
}

const wakeKind = "wake"

type wakeUp struct{ river.MiddlewareDefaults }

func (*wakeUp) InsertMany(ctx context.Context, jobs []*rivertype.JobInsertParams, inner func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	if len(jobs) == 1 && jobs[0].Kind == wakeKind {
		return []*rivertype.JobInsertResult{{Job: &rivertype.JobRow{Queue: jobs[0].Queue}}}, nil
	}
	return inner(ctx)
}

// riverWorker passes River's jobs to do.
type riverWorker struct {
	river.WorkerDefaults[jobArgs]
	timeout time.Duration
	do      func(context.Context, Job) error
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	return w.do(ctx, Job{ID: job.ID, Kind: job.Kind, Ref: job.Args.Ref, Attempt: job.Attempt})
}

func (w *riverWorker) Timeout(*river.Job[jobArgs]) time.Duration { return w.timeout }

// retryPolicy is for jobs whose handler failed, for example because the database did not answer:
// soon at first, then once a minute.
type retryPolicy struct{}

func (retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	return time.Now().Add(min(time.Duration(1<<min(job.Attempt, 6))*time.Second, time.Minute))
}
