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
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"weir/internal/weir"
)

// Job is a piece of work that a node has taken.
type Job struct {
	ID      int64
	Kind    string
	Ref     string // what it is about: the id of a task, of a webhook and a resource …
	Attempt int
}

// Handler does a job. An error makes River try again later, unless it is a
// weir.Error of a kind that time does not heal; its text is stored, so it must be
// a sentence of ours.
type Handler func(ctx context.Context, job Job) error

// The kinds of jobs. A new kind needs a line in jobKinds and a handler in
// whoever calls Work.
const (
	JobWebhook = "webhook" // deliver what is due to a webhook; Ref = webhook id + "/" + resource
	JobTask    = "task"    // begin an admitted task; Ref = task id
	JobPiece   = "chunk"   // do a piece of a task; Ref = task id + "/" + name of the piece
	JobPublish = "publish" // publish what is done of a task; Ref = task id + "/publish"
	JobPurge   = "purge"   // delete bytes; Ref = see PurgeRef

	JobRecording = "recording" // make an asset of a session; Ref = session id + "/" + node that has its files
)

type jobKind struct {
	queue   string
	timeout time.Duration
}

const (
	queueEncode  = "encode"
	queueControl = "control"
	queueWebhook = "webhook"
)

var jobKinds = map[string]jobKind{
	JobWebhook: {queueWebhook, 10 * time.Minute}, // many deliveries, each with a limit of its own
	JobTask:    {queueControl, 24 * time.Hour},   // a slow origin, a long file; who makes no progress is stopped elsewhere
	JobPiece:   {queueEncode, 12 * time.Hour},
	JobPublish: {queueControl, 12 * time.Hour},
	JobPurge:   {queueControl, time.Hour},

	JobRecording: {queueOfNode, 12 * time.Hour},
}

// queueOfNode begins the name of the queue of a node: what can be done only there.
const queueOfNode = "node-"

// jobArgs is all that River stores of a job: an id.
type jobArgs struct {
	Ref  string `json:"ref"`
	kind string
}

func (a jobArgs) Kind() string { return a.kind }

// newJob is a job that a transaction asks for.
type newJob struct {
	kind   string
	ref    string
	at     time.Time // zero = now
	urgent bool      // before others of its queue
}

// queue returns where a job waits to be done.
func (j newJob) queue() string {
	queue := jobKinds[j.kind].queue
	if queue == queueOfNode {
		_, node, _ := strings.Cut(j.ref, "/")
		queue += node
	}
	return queue
}

// Enqueue asks for a job; it is there when the transaction commits. A request to
// cancel the former jobs of the same ref does not hold for the new one.
func (tx *Tx) Enqueue(ctx context.Context, kind, ref string) error {
	return tx.enqueueAt(ctx, kind, ref, time.Time{})
}

func (tx *Tx) enqueueAt(ctx context.Context, kind, ref string, at time.Time) error {
	if _, err := tx.conn.exec(ctx, "DELETE FROM job_cancel WHERE ref = $1", ref); err != nil {
		return err
	}
	return tx.enqueue(ctx, []newJob{{kind: kind, ref: ref, at: at}})
}

// enqueue writes jobs, and wakes who does them after the commit.
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

// CancelJobs asks the nodes that run jobs of a ref, or of one that starts with it
// and a slash, to stop within a second. Those that wait do nothing when their
// turn comes.
func (tx *Tx) CancelJobs(ctx context.Context, ref string) error {
	_, err := tx.conn.exec(ctx, "INSERT INTO job_cancel (ref, created_at) VALUES ($1, $2) ON CONFLICT (ref) DO NOTHING", ref, weir.At(time.Now()))
	return err
}

// JobTx is Tx for the end of a job: it fails when the job is not this attempt's
// any more, because the node was taken for dead and another has it now.
func (s *Store) JobTx(ctx context.Context, job Job, do func(*Tx) error) error {
	return s.Tx(ctx, func(tx *Tx) error {
		attempt, client, err := s.engine.jobOwner(ctx, tx.conn, job.ID)
		if err != nil && weir.KindOf(err) != weir.NotFound {
			return err
		}
		if err != nil || attempt != job.Attempt || client != s.node.client() {
			return ErrLostJob
		}
		return do(tx)
	})
}

// ErrLostJob says that another node does the job by now.
var ErrLostJob = errors.New("the job belongs to another attempt by now")

// jobsOfNode is how many jobs that are tied to it a node does at once: they move files,
// and more at once would not move more.
const jobsOfNode = 4

// Slots says how many jobs of each queue a node does at once.
type Slots struct {
	Encode, Control, Webhook int
}

// Work does jobs of the given kinds until ctx ends, then lets running ones
// finish for at most drain.
func (s *Store) Work(ctx context.Context, slots Slots, drain time.Duration, handlers map[string]Handler) error {
	kinds := slices.Sorted(maps.Keys(handlers))
	queues := map[string]int{}
	sizes := map[string]int{queueEncode: slots.Encode, queueControl: slots.Control, queueWebhook: slots.Webhook}
	for _, kind := range kinds {
		k, ok := jobKinds[kind]
		if !ok {
			return fmt.Errorf("no such kind of job: %q", kind)
		}
		if k.queue == queueOfNode {
			queues[k.queue+s.node.id] = jobsOfNode
			continue
		}
		queues[k.queue] = max(1, sizes[k.queue])
	}
	if len(kinds) == 0 {
		<-ctx.Done()
		return nil
	}
	if handlers[JobPiece] != nil {
		s.announceSlots(ctx, queues[queueEncode])
	}
	return s.engine.work(ctx, worker{kinds: kinds, queues: queues, drain: drain, do: func(ctx context.Context, job Job) error {
		return s.doJob(ctx, job, handlers[job.Kind])
	}})
}

// doJob runs a handler under the rules that all jobs share.
func (s *Store) doJob(ctx context.Context, job Job, handle Handler) error {
	if s.node.lost() {
		return river.JobSnooze(time.Second)
	}
	ctx, stop := s.jobs.start(ctx, job)
	defer stop()
	if flagged, err := s.flagged(ctx, job.Ref); err != nil || flagged {
		return err
	}
	err := handle(ctx, job)
	if errors.Is(context.Cause(ctx), errUnwanted) {
		return nil // not to be tried again, not even if a new job of the same ref is asked for
	}
	if errors.Is(err, ErrLostJob) {
		// If another node has it, it is another job by now, and this does nothing; if none
		// took it while this node was silent, it goes on here.
		s.log.WarnContext(ctx, "job was let go", "kind", job.Kind, "job", job.ID)
		return river.JobSnooze(time.Second)
	}
	if err != nil {
		s.log.WarnContext(ctx, "job failed, it will be tried again", "kind", job.Kind, "job", job.ID, "attempt", job.Attempt, "err", err)
		return storedError(err)
	}
	return nil
}

// storedError returns what River may keep of an error: our own sentence, never a
// cause, which could repeat an address or a credential.
func storedError(err error) error {
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal {
		return errors.New(e.Messages[0])
	}
	return errors.New("internal error, see the log of the node")
}

// running are the jobs that this process does right now.
type running struct {
	mu   sync.Mutex
	jobs map[int64]runningJob
}

type runningJob struct {
	ref    string
	cancel context.CancelCauseFunc
}

// errUnwanted is why the context of a job ends that nobody wants done any more.
var errUnwanted = errors.New("the job is not wanted any more")

func (r *running) start(ctx context.Context, job Job) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jobs == nil {
		r.jobs = map[int64]runningJob{}
	}
	r.jobs[job.ID] = runningJob{job.Ref, cancel}
	return ctx, func() {
		cancel(nil)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.jobs, job.ID)
	}
}

// of reports whether a job of one ref is stopped with another.
func of(ref, stopped string) bool { return ref == stopped || strings.HasPrefix(ref, stopped+"/") }

// refs returns what the running jobs are about.
func (r *running) refs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, job := range r.jobs {
		seen[job.ref] = true
	}
	return slices.Collect(maps.Keys(seen))
}

// cancel stops the jobs of a ref; "" stops all.
func (r *running) cancel(ref string, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, job := range r.jobs {
		if ref == "" || of(job.ref, ref) {
			job.cancel(cause)
		}
	}
}

const cancelEvery = 250 * time.Millisecond

// cancelFlagged stops those of the running jobs that somebody wants stopped.
func (s *Store) cancelFlagged(ctx context.Context) error {
	for _, ref := range s.jobs.refs() {
		flagged, err := s.flagged(ctx, ref)
		if err != nil {
			return err
		}
		if flagged {
			s.jobs.cancel(ref, errUnwanted)
		}
	}
	return nil
}

// flagged reports whether somebody wants the jobs of a ref stopped, or those of
// what stands before its first slash.
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

// worker is what River is asked to do.
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
	active *activeClient[TTx]
	// fetchEvery is how often it is looked for jobs whose time has come. Of new ones River
	// is told: by PostgreSQL, or by wake.
	fetchEvery time.Duration
	reindex    river.PeriodicSchedule // nil = River's own
}

type activeClient[TTx any] struct {
	mu     sync.Mutex
	client *river.Client[TTx]
	queues []string // that it takes jobs from
}

// maxAttempts is as good as for ever: what can't get better is finished by its
// handler.
const maxAttempts = 10_000

func newJobClient[TTx any](driver riverdriver.Driver[TTx], id string, log *slog.Logger) (jobClient[TTx], error) {
	c := jobClient[TTx]{driver: driver, log: quiet(log), id: id, active: &activeClient[TTx]{}, fetchEvery: time.Second}
	var err error
	c.insert, err = river.NewClient(driver, &river.Config{Logger: c.log, ID: id, MaxAttempts: maxAttempts})
	return c, err
}

// River does jobs of a lower number first.
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

// config is how River does jobs.
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
		Middleware: []rivertype.Middleware{&wakeUp{}}, SkipUnknownJobCheck: true, // nobody does a wakeKind
		ReindexerSchedule: c.reindex,
	}
}

func (c jobClient[TTx]) work(ctx context.Context, w worker) error {
	client, err := c.start(ctx, c.config(w))
	if client == nil {
		return err
	}
	c.active.set(client, slices.Collect(maps.Keys(w.queues)))
	defer c.active.set(nil, nil)
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

// startAgainAfter is the pause after jobs could not be taken at all.
const startAgainAfter = time.Second

// start returns a client that does jobs, or none when ctx ended before. A database that is
// away just now is waited for, as it is later on.
func (c jobClient[TTx]) start(ctx context.Context, config *river.Config) (*river.Client[TTx], error) {
	for {
		client, err := river.NewClient(c.driver, config)
		if err != nil {
			return nil, err
		}
		// Cancelling the context given to Start would end running jobs at once; Stop
		// lets them finish.
		if err = client.Start(context.WithoutCancel(ctx)); err == nil {
			return client, nil
		}
		c.log.WarnContext(ctx, "jobs can't be taken; it is tried again", "err", err)
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(startAgainAfter):
		}
	}
}

func (a *activeClient[TTx]) set(client *river.Client[TTx], queues []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client, a.queues = client, queues
}

func (a *activeClient[TTx]) get() (*river.Client[TTx], []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.client, a.queues
}

// wake makes the producers of queues look for jobs now, or those of all. River does that by
// itself for jobs that are inserted outside a transaction, so one is inserted that
// wakeUp takes out again before it reaches the database.
func (c jobClient[TTx]) wake(ctx context.Context, queues []string) {
	client, all := c.active.get()
	if client == nil {
		return
	}
	if queues == nil {
		queues = all
	}
	for _, queue := range queues {
		// An error only means that the next poll finds the jobs.
		_, _ = client.Insert(ctx, jobArgs{kind: wakeKind}, &river.InsertOpts{Queue: queue})
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

// riverWorker hands a River job to us.
type riverWorker struct {
	river.WorkerDefaults[jobArgs]
	timeout time.Duration
	do      func(context.Context, Job) error
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	return w.do(ctx, Job{ID: job.ID, Kind: job.Kind, Ref: job.Args.Ref, Attempt: job.Attempt})
}

func (w *riverWorker) Timeout(*river.Job[jobArgs]) time.Duration { return w.timeout }

// retryPolicy is for jobs whose handler failed for a reason of ours (a database
// that is away, say): soon at first, then once a minute.
type retryPolicy struct{}

func (retryPolicy) NextRetry(job *rivertype.JobRow) time.Time {
	return time.Now().Add(min(time.Duration(1<<min(job.Attempt, 6))*time.Second, time.Minute))
}
