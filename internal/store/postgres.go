package store

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// postgres is the engine for several nodes.
type postgres struct {
	pool  *pgPool
	river jobClient[pgx.Tx]
	woken chan string // queues that have new jobs
}

// migrateLock keeps two nodes that start together from migrating at the same time. The number is
// arbitrary and must never change.
const migrateLock = 7_305_229_001

func openPostgres(ctx context.Context, url, client string, maxConns int, log *slog.Logger) (_ *postgres, err error) {
	e := &postgres{woken: make(chan string, 64)}
	if e.pool, err = openPool(ctx, url, maxConns, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if err := e.pool.checkSessions(ctx); err != nil {
		return nil, err
	}
	if err := e.migrate(long(ctx, migrateLimit), log); err != nil {
		return nil, err
	}
	e.river, err = newJobClient(riverOnPostgres{riverpgxv5.New(e.pool.Pool)}, client, log)
	return e, err
}

// riverOnPostgres is River's driver without its listener, which would need another connection of
// each node. Transactions that enqueue jobs notify on the channel of weir.
type riverOnPostgres struct{ *riverpgxv5.Driver }

// SupportsListener turns the listener off.
func (riverOnPostgres) SupportsListener() bool { return false }

// SupportsListenNotify turns notifications off.
func (riverOnPostgres) SupportsListenNotify() bool { return false }

func (e *postgres) migrate(ctx context.Context, log *slog.Logger) error {
	// The pool may be so small that all its connections are needed to migrate.
	lock, err := pgx.ConnectConfig(ctx, e.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer closeConn(ctx, lock) // which unlocks it
	if _, err := lock.Exec(ctx, "SELECT pg_advisory_lock($1)", migrateLock); err != nil {
		return err
	}
	m, err := rivermigrate.New(riverpgxv5.New(e.pool.Pool), &rivermigrate.Config{Logger: quiet(log)})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(e.pool.Pool)
	defer func() { _ = db.Close() }()
	return migrate(ctx, goose.DialectPostgres, db)
}

func (e *postgres) close() { e.pool.Close() }

func (e *postgres) poolStats() (PoolStats, bool) { return e.pool.stats(), true }

func (e *postgres) exec(ctx context.Context, query string, args ...any) (int64, error) {
	conn, err := e.pool.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	return pgExec(conn.Exec(ctx, query, args...))
}

func (e *postgres) query(ctx context.Context, query string, args ...any) (rows, error) {
	conn, err := e.pool.acquire(ctx)
	if err != nil {
		return nil, err
	}
	r, err := conn.Query(ctx, query, args...)
	if err != nil {
		conn.Release()
		return nil, pgError(err)
	}
	return &pgRows{r, conn}, nil
}

func (e *postgres) begin(ctx context.Context) (engineTx, error) {
	conn, err := e.pool.acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return nil, pgError(err)
	}
	return &pgTx{tx: tx, conn: conn, river: e.river, end: time.Now().Add(limitOf(ctx, txLimit))}, nil
}

// alone returns the pool: what is not in a transaction is one of its own.
func (e *postgres) alone() conn { return e }

// now has no schema, so that a test can put another clock into the search path.
func (e *postgres) now() string {
	return "CAST(floor(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)"
}

func (e *postgres) ahead(ctx context.Context, c conn) (time.Duration, error) {
	before := time.Now()
	there, err := one(ctx, c, scanInt, "SELECT "+e.now())
	after := time.Now()
	if err != nil || before.UnixMilli() <= there && there <= after.UnixMilli() {
		return 0, err
	}
	return time.UnixMilli(there).Sub(before.Add(after.Sub(before) / 2)), nil
}

func (e *postgres) jobClient() string { return "attempted_by[array_upper(attempted_by, 1)]" }

func (e *postgres) runJobs(ctx context.Context, w worker) error { return e.river.runJobs(ctx, w) }

// wake has nothing to do: listen receives the notification of the transaction.
func (e *postgres) wake(context.Context, []string) {}

const (
	// notifyChannel is the channel of LISTEN and NOTIFY.
	notifyChannel = "weir"
	// queuePrefix is before the name of a queue, where a notification is not of a topic.
	queuePrefix = "queue "
	// checkListener is how often the server is checked that sends the notifications.
	checkListener = 5 * time.Second
)

func (e *postgres) listen(ctx context.Context, changed func(topic string)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { e.wakeQueues(ctx) })
	for ctx.Err() == nil {
		if err := e.listenOnce(ctx, changed); err != nil && ctx.Err() == nil {
			select { // Store.poll continues meanwhile
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (e *postgres) listenOnce(ctx context.Context, changed func(topic string)) error {
	conn, err := e.pool.acquire(ctx)
	if err != nil {
		return err
	}
	// A connection that has listened is not given back: it would keep receiving notifications.
	listener := conn.Hijack()
	defer closeConn(ctx, listener)
	if _, err := listener.Exec(ctx, "LISTEN "+notifyChannel); err != nil {
		return err
	}
	for {
		// A primary that was demoted keeps its connections, and sends no notifications any more.
		if err := takesWrites(ctx, listener); err != nil {
			return err
		}
		if err := e.receive(ctx, listener, changed); err != nil {
			return err
		}
	}
}

// takesWrites returns an error if the server of a connection is a standby, or refuses writes.
func takesWrites(ctx context.Context, conn *pgx.Conn) error {
	var readOnly string
	if err := conn.QueryRow(ctx, "SHOW transaction_read_only").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly == "on" {
		return errors.New("the server takes no writes")
	}
	return nil
}

// receive passes notifications on until its server is to be checked again.
func (e *postgres) receive(ctx context.Context, listener *pgx.Conn, changed func(topic string)) error {
	wait, cancel := context.WithTimeout(ctx, checkListener)
	defer cancel()
	for {
		n, err := listener.WaitForNotification(wait)
		if err != nil {
			if wait.Err() != nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
		queue, ok := strings.CutPrefix(n.Payload, queuePrefix)
		if !ok {
			changed(n.Payload)
			continue
		}
		select {
		case e.woken <- queue:
		default: // River polls too
		}
	}
}

// wakeQueues makes River look for the jobs that listen was notified of.
func (e *postgres) wakeQueues(ctx context.Context) {
	for {
		select {
		case queue := <-e.woken:
			queues := map[string]bool{queue: true}
			for len(e.woken) > 0 { // those of many transactions count once
				queues[<-e.woken] = true
			}
			e.river.wake(ctx, slices.Collect(maps.Keys(queues)))
		case <-ctx.Done():
			return
		}
	}
}

func (e *postgres) changedSince(context.Context) (bool, error) { return true, nil }

func (e *postgres) noticesOthers() bool { return false }

func (e *postgres) backup(context.Context, string) error {
	return errors.New("weir does not back up PostgreSQL; use its own tools, for example pg_dump or pg_basebackup")
}

func (e *postgres) tables() string {
	return "SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
}

func (e *postgres) bytesInUse() string {
	return `SELECT CAST(COALESCE(sum(pg_total_relation_size(c.oid)), 0) AS BIGINT) FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname = current_schema()`
}

func (e *postgres) forUpdate() string { return " FOR UPDATE" }

func (e *postgres) forUpdateOfFree() string { return " FOR UPDATE SKIP LOCKED" }

// members is not json_each, whose values are parsed again for each column.
func (e *postgres) members() string { return "jsonb_each($1)" }

type pgTx struct {
	tx    pgx.Tx
	conn  *pgxpool.Conn
	river jobClient[pgx.Tx]
	end   time.Time // when it must have ended
}

// within gives a statement the end of its transaction.
func (t *pgTx) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, endKey{}, t.end)
}

func (t *pgTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return pgExec(t.tx.Exec(t.within(ctx), query, args...))
}

func (t *pgTx) query(ctx context.Context, query string, args ...any) (rows, error) {
	r, err := t.tx.Query(t.within(ctx), query, args...)
	if err != nil {
		return nil, pgError(err)
	}
	return &pgRows{r, nil}, nil
}

func (t *pgTx) enqueue(ctx context.Context, jobs []newJob) error {
	if err := t.river.enqueue(t.within(ctx), t.tx, jobs); err != nil {
		return pgError(err)
	}
	queues := map[string]bool{}
	for _, job := range jobs {
		if job.at.IsZero() && !queues[job.queue()] {
			queues[job.queue()] = true
			if err := t.notify(ctx, queuePrefix+job.queue()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *pgTx) notify(ctx context.Context, topic string) error {
	_, err := t.exec(ctx, "SELECT pg_notify($1, $2)", notifyChannel, topic)
	return err
}

func (t *pgTx) commit(ctx context.Context) error {
	err := t.tx.Commit(t.within(ctx))
	t.conn.Release()
	return pgError(err)
}

func (t *pgTx) rollback(ctx context.Context) {
	_ = t.tx.Rollback(ctx)
	t.conn.Release() // does nothing after that of a commit that failed
}

func pgExec(tag pgconn.CommandTag, err error) (int64, error) {
	return tag.RowsAffected(), pgError(err)
}

// pgRows gives the connection back when it is closed.
type pgRows struct {
	pgx.Rows
	conn *pgxpool.Conn // nil in a transaction
}

func (r *pgRows) Err() error { return pgError(r.Rows.Err()) }

func (r *pgRows) Close() {
	r.Rows.Close()
	if r.conn != nil {
		r.conn.Release()
	}
}
