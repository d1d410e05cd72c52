// Package store keeps all durable state, on SQLite or on PostgreSQL.
//
// Only Open knows which of the two is in use: a single node is a cluster of one. The SQL is written
// once, in the dialect that both understand: text, integers, booleans, placeholders $1, $2, …; what
// differs is in the methods of the engine (sqlite.go, postgres.go).
//
// Reads are methods of both [Store] and [Tx], writes only of Tx, so that a change, its event and
// its job are written in one transaction:
//
//	err := st.Tx(ctx, func(tx *store.Tx) error {
//		if err := tx.CreateStream(ctx, &stream); err != nil {
//			return err
//		}
//		return tx.Emit(ctx, event)
//	})
//
// A resource is a row with the columns that lists are filtered and ordered by, a document (JSON)
// with everything that is shown, and a sealed part with its secrets (seal.go). There is one file
// per resource; table.go reads and writes all of them. To add a resource, write its file and a
// migration in schema/.
//
// Jobs run on River (job.go), nodes detect dead nodes (node.go), and Watch waits for changes
// (watch.go). What viewers need is read through [Recent], which remembers it for the time in which the
// database does not respond (away.go).
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

	"weir/internal/weir"
)

// Options are the settings of a store beside the URL of its database.
type Options struct {
	Secret   []byte // the master secret, 32 bytes, from which the keys of the sealed parts are derived
	NodeID   string // stays the same over restarts of a node; "" for a command that runs no jobs
	Log      *slog.Logger
	MaxConns int // of PostgreSQL, unless the URL has pool_max_conns; 0 = a default
	// Adopt lets this node make the recordings of dead nodes: their files are in a storage that all
	// nodes share.
	Adopt bool
	// Report returns what this node says about itself with each heartbeat; nil = nothing.
	Report func() weir.NodeReport
	// Stale is how old a result of Recent may be that is used while the database does not respond; 0 =
	// none is used.
	Stale time.Duration
}

// Store is all durable state.
type Store struct {
	queries
	engine engine
	log    *slog.Logger
	seal   *sealer
	node   node
	watch  watchers
	auth   cache[weir.Caller] // by the hash of a key, or by user and project
	shown  cache[Shown]       // rows as they are shown
	batch  batch
	jobs   running
	epochs sync.Map // stream → the epoch with which this process took it last
	adopt  bool     // see Options

	away    *absence
	forgets forgets

	cacheShown bool
	counts     counts
}

// queries are the reads. A Store runs them on any connection, a Tx on that of the transaction.
type queries struct {
	conn conn
	seal *sealer
}

// Tx is a transaction: the reads of a Store and the writes.
type Tx struct {
	queries
	tx      engineTx
	store   *Store
	bumped  map[string]bool
	touched []string // changed rows that may be in a cache
	queues  map[string]bool
	later   map[string]bool // topics to bump at the end

	outdated []string // ids of what Recent forgets
}

// conn runs SQL with the placeholders $1, $2, …
type conn interface {
	exec(ctx context.Context, sql string, args ...any) (int64, error)
	query(ctx context.Context, sql string, args ...any) (rows, error)
}

// rows is the result of a query; both drivers have it.
type rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// engine is a kind of database.
type engine interface {
	conn
	begin(ctx context.Context) (engineTx, error)
	// alone runs single statements that write and return rows.
	alone() conn
	// now returns the SQL expression for the time of the database's clock, in Unix milliseconds.
	now() string
	// ahead returns by how much the clock of the database is ahead of that of this machine; 0 = it is
	// the same, as far as one can tell.
	ahead(ctx context.Context, c conn) (time.Duration, error)
	// jobClient returns the SQL expression for the client that last took a job.
	jobClient() string
	// runJobs runs jobs until ctx ends.
	runJobs(ctx context.Context, w worker) error
	// wake makes this process look for new jobs in the queues now; nil = in all queues.
	wake(ctx context.Context, queues []string)
	// listen calls changed for every topic that another connection notifies of, until ctx ends.
	listen(ctx context.Context, changed func(topic string)) error
	// changedSince reports whether another process may have written anything since the last call.
	changedSince(ctx context.Context) (bool, error)
	// noticesOthers reports whether changedSince is sure to be right.
	noticesOthers() bool
	backup(ctx context.Context, path string) error
	tables() string     // SQL that returns the names of all tables
	bytesInUse() string // SQL that returns the size of the database, without free pages
	forUpdate() string  // the end of a SELECT that locks its rows
	// forUpdateOfFree is forUpdate for a SELECT that skips rows which others have locked.
	forUpdateOfFree() string
	poolStats() (PoolStats, bool)
	// members is a table with the members of the JSON object $1, as key and value.
	members() string
	close()
}

// engineTx is a transaction of an engine.
type engineTx interface {
	conn
	enqueue(ctx context.Context, jobs []newJob) error
	notify(ctx context.Context, topic string) error
	commit(ctx context.Context) error
	rollback(ctx context.Context)
}

// Open opens the database at url, migrates its tables and checks that it belongs to the master
// secret.
func Open(ctx context.Context, url string, opt Options) (*Store, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	seal, err := newSealer(opt.Secret)
	if err != nil {
		return nil, err
	}
	s := &Store{log: opt.Log, seal: seal, node: newNode(opt.NodeID, opt.Report), adopt: opt.Adopt}
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		s.engine, err = openSQLite(ctx, rest, s.node.client(), opt.Log)
	case "postgres", "postgresql":
		s.engine, err = openPostgres(ctx, url, s.node.client(), opt.MaxConns, opt.Log)
	default:
		err = errors.New("the URL is not valid; write it as sqlite:PATH or postgres://user:password@host:5432/name") // never the URL: it has the password in it
	}
	if err != nil {
		return nil, fmt.Errorf("database of scheme %q: %w", scheme, err)
	}
	s.queries = queries{conn: counted{s.engine, &s.counts}, seal: seal}
	s.away = newAbsence(opt.Stale, scheme != "sqlite", s.probeReads, opt.Log)
	s.cacheShown = s.engine.noticesOthers() && opt.NodeID != "" // only a node polls
	if err := s.checkSecret(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the database.
func (s *Store) Close() {
	s.away.close()
	s.engine.close()
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	_, err := one(ctx, s.conn, scanInt, "SELECT 1")
	return err
}

// PoolStats say how the connections to PostgreSQL are used. The one that listens is not counted.
type PoolStats struct {
	InUse  int64
	Max    int64
	Waits  int64         // how often a connection was not there at once, since the start
	Waited time.Duration // how long that took, in total
}

// PoolStats returns how the connections are used; false = the database has no pool.
func (s *Store) PoolStats() (PoolStats, bool) { return s.engine.poolStats() }

// Backup writes a consistent copy of the database to a new file. For PostgreSQL it returns an error
// that names the tools to use.
func (s *Store) Backup(ctx context.Context, path string) error { return s.engine.backup(ctx, path) }

const (
	registerRetry = 200 * time.Millisecond
	// lastWrites is how long the last writes of a process may take, lastRetry the pause before they are
	// tried again.
	lastWrites = 5 * time.Second
	lastRetry  = 50 * time.Millisecond
)

// Run does the background work of the store until ctx ends: it sends the heartbeats of this node,
// takes jobs and deliveries from dead nodes, notifies watchers of changes by other nodes, writes
// batches, and deletes old rows.
func (s *Store) Run(ctx context.Context, keep Retention) error {
	for err := s.register(ctx); err != nil; err = s.register(ctx) {
		if ctx.Err() == nil { // the database was there a moment ago, when it was opened
			s.log.WarnContext(ctx, "node could not be registered in the database; retrying", "err", err)
		}
		select {
		case <-time.After(registerRetry):
		case <-ctx.Done():
			return nil // stopped before it had started
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.every(ctx, heartbeatEvery, "heartbeat could not be written", s.heartbeat) })
	wg.Go(func() {
		s.every(ctx, time.Second, "jobs that this node may have lost could not be stopped", s.stopLostJobs)
	})
	wg.Go(func() { s.every(ctx, batchEvery, "batched writes failed; they are repeated", s.flush) })
	wg.Go(func() { s.every(ctx, pollEvery, "changes of other processes could not be read", s.poll) })
	wg.Go(func() { s.every(ctx, cancelEvery, "cancelled jobs could not be read", s.cancelFlagged) })
	wg.Go(func() { s.every(ctx, lapseEvery, "streams of dead nodes could not be ended", s.endLapsed) })
	wg.Go(func() {
		s.every(ctx, pruneEvery, "old rows could not be deleted", func(ctx context.Context) error { return s.Prune(ctx, keep) })
	})
	wg.Go(func() { s.listen(ctx) })
	wg.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
	defer cancel()
	// Connections of PostgreSQL may be dead: the end of ctx has stopped a query on them, or the server
	// was restarted. Each is gone once it was tried.
	for {
		err := errors.Join(s.flush(last), s.unregister(last))
		if err == nil {
			return nil
		}
		select {
		case <-time.After(lastRetry):
		case <-last.Done():
			return err
		}
	}
}

// every calls do again and again until ctx ends. It logs errors with the message failed.
func (s *Store) every(ctx context.Context, pause time.Duration, failed string, do func(context.Context) error) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, failed, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Tx runs do in a transaction, which is committed when do returns nil.
func (s *Store) Tx(ctx context.Context, do func(*Tx) error) error {
	etx, err := s.engine.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	tx := &Tx{queries: queries{conn: counted{etx, &s.counts}, seal: s.seal}, tx: etx, store: s}
	defer func() {
		if tx.tx != nil { // do panicked or failed
			etx.rollback(context.WithoutCancel(ctx))
		}
	}()
	if err := do(tx); err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(tx.later)) { // in a fixed order, so that transactions can't deadlock
		if _, err := tx.bump(ctx, topic); err != nil {
			return err
		}
	}
	if err := etx.commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	tx.tx = nil
	s.counts.transactions.Add(1)
	s.shown.forget(tx.touched)
	for _, id := range tx.outdated {
		s.forgets.forget(id)
	}
	for topic := range tx.bumped {
		s.changed(topic)
	}
	if len(tx.queues) > 0 {
		s.engine.wake(ctx, slices.Collect(maps.Keys(tx.queues)))
	}
	return nil
}

// one returns the single row of a query, or a NotFound error.
func one[T any](ctx context.Context, c conn, scan func(rows) (T, error), sql string, args ...any) (T, error) {
	return first(many(ctx, c, scan, sql, args...))
}

// first returns the first of the rows, or a NotFound error.
func first[T any](all []T, err error) (T, error) {
	if err == nil && len(all) == 0 {
		err = weir.ErrNotFound()
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return all[0], nil
}

// many returns the rows of a query.
func many[T any](ctx context.Context, c conn, scan func(rows) (T, error), sql string, args ...any) ([]T, error) {
	r, err := c.query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []T
	for r.Next() {
		v, err := scan(r)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, r.Err()
}

// found turns a NotFound error into false.
func found[T any](v T, err error) (T, bool, error) {
	return v, err == nil, ignoreNotFound(err)
}

func scanInt(r rows) (n int64, err error) { return n, r.Scan(&n) }

func scanText(r rows) (s string, err error) { return s, r.Scan(&s) }
