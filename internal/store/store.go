// Package store keeps all durable state, on SQLite or on PostgreSQL.
//
// Open is the only place that knows which of the two there is: a node alone is a
// cluster of one. The SQL is written once, in what both understand: text,
// integers, booleans, placeholders $1, $2, …; the few statements that differ are
// methods of the engine (sqlite.go, postgres.go).
//
// Reads are methods of both [Store] and [Tx], writes only of Tx, so that a change,
// the event that tells of it and the job that follows from it are written in one
// transaction:
//
//	err := st.Tx(ctx, func(tx *store.Tx) error {
//		if err := tx.CreateStream(ctx, &stream); err != nil {
//			return err
//		}
//		return tx.Emit(ctx, event)
//	})
//
// A resource is a row with the columns that lists are filtered and ordered by, a
// document (JSON) with everything that may be seen, and a sealed part with what
// may not (seal.go). One file a resource says which is which; table.go does the
// rest. To add a resource, write its file and a migration in schema/.
//
// Jobs run on River (job.go), nodes notice when one of them is gone (node.go),
// and whoever waits for a change uses Watch (watch.go).
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

// Options are what Open needs beside the address of the database.
type Options struct {
	Secret   []byte // the master secret, 32 bytes; everything sealed is sealed with it
	NodeID   string // stays the same over restarts of a node; "" for a command that runs no jobs
	Log      *slog.Logger
	MaxConns int // of PostgreSQL; 0 = a sane number
	// Adopt lets this node make the recordings of nodes that are gone: their files are in a
	// storage that all nodes have.
	Adopt bool
}

// Store is all durable state.
type Store struct {
	queries
	engine engine
	log    *slog.Logger
	seal   *sealer
	node   node
	watch  watchers
	auth   authCache
	shown  shownCache
	batch  batch
	jobs   running
	epochs sync.Map // stream → the epoch with which this process took it last
	adopt  bool     // see Options
}

// queries are the reads; a Store runs them on a connection of its own choice, a
// Tx on that of the transaction.
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
	touched []string // rows that a cache may have
	queues  map[string]bool
	later   map[string]bool // topics to count up at the end
}

// conn runs SQL with the placeholders $1, $2, …
type conn interface {
	exec(ctx context.Context, sql string, args ...any) (int64, error)
	query(ctx context.Context, sql string, args ...any) (rows, error)
}

// rows is what a query gives; both drivers have it.
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
	// takeOver ends the running jobs of clients, those with one of the prefixes and
	// not the one id, and returns them, so that they can be enqueued anew.
	takeOver(ctx context.Context, c conn, prefixes []string, except string) ([]newJob, error)
	// jobOwner locks a job's row and returns its attempt and the client that has it.
	jobOwner(ctx context.Context, c conn, jobID int64) (attempt int, client string, err error)
	// work runs jobs until ctx ends.
	work(ctx context.Context, w worker) error
	// wake tells this process's own producers of queues that there are new jobs, nil =
	// those of all.
	wake(ctx context.Context, queues []string)
	// listen calls changed for every topic told of by another connection, until
	// ctx ends.
	listen(ctx context.Context, changed func(topic string)) error
	// changedSince reports whether another process may have written anything since
	// the last call.
	changedSince(ctx context.Context) (bool, error)
	// noticesOthers reports whether changedSince is sure to be right.
	noticesOthers() bool
	backup(ctx context.Context, path string) error
	forUpdate() string // what a SELECT needs at its end to lock its rows
	// forUpdateOfFree is forUpdate for rows that nobody has locked; the others are left out.
	forUpdateOfFree() string
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

// Open opens the database named by url, brings its tables up to date and checks
// that it belongs to the master secret.
func Open(ctx context.Context, url string, opt Options) (*Store, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	seal, err := newSealer(opt.Secret)
	if err != nil {
		return nil, err
	}
	s := &Store{log: opt.Log, seal: seal, node: newNode(opt.NodeID), adopt: opt.Adopt}
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		s.engine, err = openSQLite(ctx, rest, s.node.client(), opt.Log)
	case "postgres", "postgresql":
		s.engine, err = openPostgres(ctx, url, s.node.client(), opt.MaxConns, opt.Log)
	default:
		err = fmt.Errorf("want sqlite:PATH or postgres://…") // never the URL: it has the password in it
	}
	if err != nil {
		return nil, fmt.Errorf("database of scheme %q: %w", scheme, err)
	}
	s.queries = queries{conn: s.engine, seal: seal}
	s.shown.on = s.engine.noticesOthers() && opt.NodeID != "" // only a node polls
	if err := s.checkSecret(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close lets go of the database.
func (s *Store) Close() { s.engine.close() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	_, err := one(ctx, s.conn, scanInt, "SELECT 1")
	return err
}

// Backup writes a consistent copy of the database to a new file. PostgreSQL has
// its own tools for that and returns an error that names one.
func (s *Store) Backup(ctx context.Context, path string) error { return s.engine.backup(ctx, path) }

// Run keeps the store's own house: it shows that this node is alive, gives the
// jobs of dead ones to others, tells watchers what changed elsewhere, writes what
// was put together since the last time, and forgets what is old. It returns when
// ctx ends.
func (s *Store) Run(ctx context.Context, keep Retention) error {
	if err := s.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before it had begun
		}
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.every(ctx, heartbeatEvery, "heartbeat", s.heartbeat) })
	wg.Go(func() { s.every(ctx, time.Second, "let go of its jobs", s.letGo) })
	wg.Go(func() { s.every(ctx, batchEvery, "write counters", s.flush) })
	wg.Go(func() { s.every(ctx, pollEvery, "look for changes", s.poll) })
	wg.Go(func() { s.every(ctx, cancelEvery, "look for cancelled jobs", s.cancelFlagged) })
	wg.Go(func() { s.every(ctx, lapseEvery, "end what other nodes left on air", s.endLapsed) })
	wg.Go(func() { s.every(ctx, reviveEvery, "look for deliveries that nobody makes", s.reviveDeliveries) })
	wg.Go(func() {
		s.every(ctx, pruneEvery, "forget what is old", func(ctx context.Context) error { return s.prune(ctx, keep) })
	})
	wg.Go(func() { s.listen(ctx) })
	wg.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(s.flush(last), s.unregister(last))
}

// every does something again and again until ctx ends. A failure is logged and
// tried again at the next turn.
func (s *Store) every(ctx context.Context, pause time.Duration, what string, do func(context.Context) error) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "store could not "+what, "err", err)
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
	tx := &Tx{queries: queries{conn: etx, seal: s.seal}, tx: etx, store: s}
	defer func() {
		if tx.tx != nil { // do panicked or failed
			etx.rollback(context.WithoutCancel(ctx))
		}
	}()
	if err := do(tx); err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(tx.later)) { // all in one order, so that no two wait for one another
		if _, err := tx.bump(ctx, topic); err != nil {
			return err
		}
	}
	if err := etx.commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	tx.tx = nil
	s.shown.forget(tx.touched)
	for topic := range tx.bumped {
		s.changed(topic)
	}
	if len(tx.queues) > 0 {
		names := make([]string, 0, len(tx.queues))
		for name := range tx.queues {
			names = append(names, name)
		}
		s.engine.wake(ctx, names)
	}
	return nil
}

// one returns the single row of a query, or a NotFound error.
func one[T any](ctx context.Context, c conn, scan func(rows) (T, error), sql string, args ...any) (T, error) {
	var zero T
	all, err := many(ctx, c, scan, sql, args...)
	if err != nil {
		return zero, err
	}
	if len(all) == 0 {
		return zero, weir.ErrNotFound()
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
	if err != nil && weir.KindOf(err) == weir.NotFound {
		return v, false, nil
	}
	return v, err == nil, err
}

func scanInt(r rows) (n int64, err error) { return n, r.Scan(&n) }

func scanText(r rows) (s string, err error) { return s, r.Scan(&s) }
