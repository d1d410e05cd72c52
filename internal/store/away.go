package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/internal/weir"
)

const (
	// patience is how long a reader waits for the database before it takes what this node knows.
	patience = 500 * time.Millisecond
	// readTimeout is the timeout of a read, which goes on when its readers do not wait any more.
	readTimeout = 10 * time.Second
	// An outage ends when a probe takes at most this long: less than patience, so that a slow database
	// does not begin and end outages all the time.
	responsive   = patience / 2
	probeEvery   = 250 * time.Millisecond
	probeTimeout = 5 * time.Second
	// readsWhileSlow is how many reads go on at once while the database responds, but too slowly.
	readsWhileSlow = 2
)

// absence is whether the database is away: it does not respond to the reads of Recent. An outage begins
// when one of them fails, or waits for longer than patience. Then no reader waits any more, and one
// probe finds out when the database responds again.
type absence struct {
	stale time.Duration // how old a result may be that is used in an outage; 0 = there are no outages
	probe func(context.Context) error
	log   *slog.Logger
	// remote says that the database is another program, which can hang. If one in this process is late, so
	// is all of the machine, and waiting is right.
	remote bool

	life    context.Context // until close
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	since  time.Time // when it began; zero = the database responds
	slow   bool      // the database responds to the probe, but too slowly
	active int       // reads
}

func newAbsence(stale time.Duration, remote bool, probe func(context.Context) error, log *slog.Logger) *absence {
	o := &absence{stale: stale, remote: remote, probe: probe, log: log}
	o.life, o.end = context.WithCancel(context.Background())
	return o
}

// errClosed is the cause of an outage in which the store is closed.
var errClosed = errors.New("the store is closed")

// errSilent is the cause of an outage in which the database hangs.
var errSilent = errors.New("no response within " + patience.String())

// Away returns nil while the database responds to reads, and otherwise the error for what this node
// does not know. It does not wait.
func (s *Store) Away() error { return s.away.err() }

func (o *absence) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		return nil
	}
	return outage(nil)
}

// patience returns a channel that receives when a reader has waited for long enough.
func (o *absence) patience() (late <-chan time.Time, stop func()) {
	if o.stale <= 0 || !o.remote {
		return nil, func() {}
	}
	timer := time.NewTimer(patience)
	return timer.C, func() { timer.Stop() }
}

// reads reports whether another read may go on in an outage, although nobody waits for it.
func (o *absence) reads() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slow && o.active < readsWhileSlow
}

// read calls a function that reads from the database. An error of the database begins an outage,
// unless the database responds to a probe: then only this read has failed.
func (o *absence) read(ctx context.Context, read func(context.Context) error) error {
	if !o.start() {
		return outage(errClosed)
	}
	defer o.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	defer context.AfterFunc(o.life, cancel)()
	err := read(ctx)
	if err == nil || !weir.Retriable(err) || o.stale <= 0 {
		return err
	}
	if o.err() == nil {
		ctx, cancel := context.WithTimeout(o.life, probeTimeout)
		defer cancel()
		if o.probe(ctx) == nil {
			return err
		}
		o.begin(err)
	}
	return outage(err)
}

// start counts a read, unless the store is closed.
func (o *absence) start() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.active++
	o.running.Add(1)
	return true
}

func (o *absence) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.active--
	o.running.Done()
}

// begin begins an outage, unless there is one.
func (o *absence) begin(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || !o.since.IsZero() {
		return
	}
	o.since, o.slow = time.Now(), false
	o.log.Warn("database does not respond; viewers get what this node knows", "for", o.stale, "err", cause)
	o.running.Go(o.awaitEnd)
}

// awaitEnd ends the outage when the database responds.
func (o *absence) awaitEnd() {
	for o.life.Err() == nil {
		start := time.Now()
		ctx, cancel := context.WithTimeout(o.life, probeTimeout)
		err := o.probe(ctx)
		cancel()
		if err == nil && (!o.remote || time.Since(start) <= responsive) {
			o.finish()
			return
		}
		o.mu.Lock()
		o.slow = err == nil
		o.mu.Unlock()
		select {
		case <-time.After(probeEvery):
		case <-o.life.Done():
		}
	}
}

func (o *absence) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log.Info("database responds again", "after", time.Since(o.since).Round(time.Millisecond))
	o.since = time.Time{}
}

// close ends all reads and waits for them.
func (o *absence) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.end()
	o.running.Wait()
}

// probeReads reads from the tables that viewers need, so that it waits as they would.
func (s *Store) probeReads(ctx context.Context) error {
	_, err := one(ctx, s.conn, scanInt, `SELECT (SELECT count(*) FROM (SELECT id FROM stream LIMIT 1) AS a)
		+ (SELECT count(*) FROM (SELECT id FROM asset LIMIT 1) AS b) + (SELECT count(*) FROM (SELECT id FROM account LIMIT 1) AS c)
		+ (SELECT count(*) FROM (SELECT id FROM signing_key LIMIT 1) AS d) + (SELECT count(*) FROM (SELECT node FROM live LIMIT 1) AS e)`)
	return err
}
