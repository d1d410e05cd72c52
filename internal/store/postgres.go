package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"weir/internal/weir"
)

// postgres is the engine for several nodes.
type postgres struct {
	pool  *pgxpool.Pool
	river jobClient[pgx.Tx]
}

// migrateLock keeps two nodes that start together from migrating at the same time. The number is
// arbitrary and must never change.
const migrateLock = 7_305_229_001

func openPostgres(ctx context.Context, url, client string, maxConns int, log *slog.Logger) (_ *postgres, err error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the URL is not valid; write it as postgres://user:password@host:5432/name") // err repeats it
	}
	if maxConns == 0 {
		maxConns = max(16, 4*runtime.GOMAXPROCS(0))
	}
	cfg.MaxConns = int32(maxConns)
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		// A node that freezes in a transaction must not keep its locks: other nodes take over its
		// work.
		_, err := conn.Exec(ctx, "SET idle_in_transaction_session_timeout = '10s'")
		return err
	}
	e := &postgres{}
	if e.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if err := e.migrate(ctx, log); err != nil {
		e.close()
		return nil, err
	}
	if e.river, err = newJobClient(riverpgxv5.New(e.pool), client, log); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *postgres) migrate(ctx context.Context, log *slog.Logger) error {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", migrateLock); err != nil {
		return err
	}
	defer func() {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", migrateLock)
	}()
	m, err := rivermigrate.New(riverpgxv5.New(e.pool), &rivermigrate.Config{Logger: quiet(log)})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(e.pool)
	defer func() { _ = db.Close() }()
	return migrate(ctx, goose.DialectPostgres, db)
}

func (e *postgres) close() { e.pool.Close() }

func (e *postgres) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return pgExec(e.pool.Exec(ctx, query, args...))
}

func (e *postgres) query(ctx context.Context, query string, args ...any) (rows, error) {
	return pgQuery(e.pool.Query(ctx, query, args...))
}

func (e *postgres) begin(ctx context.Context) (engineTx, error) {
	tx, err := e.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &pgTx{tx: tx, river: e.river}, nil
}

func (e *postgres) jobClient() string { return "attempted_by[array_upper(attempted_by, 1)]" }

func (e *postgres) runJobs(ctx context.Context, w worker) error { return e.river.runJobs(ctx, w) }

// wake has nothing to do: River uses NOTIFY at commit.
func (e *postgres) wake(context.Context, []string) {}

// notifyChannel is the channel of LISTEN and NOTIFY.
const notifyChannel = "weir"

func (e *postgres) listen(ctx context.Context, changed func(topic string)) error {
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
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// A connection that has listened is not given back: it would keep receiving notifications.
	defer func() { _ = conn.Hijack().Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+notifyChannel); err != nil {
		return err
	}
	for {
		n, err := conn.Conn().WaitForNotification(ctx)
		if err != nil {
			return err
		}
		changed(n.Payload)
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
	river jobClient[pgx.Tx]
}

func (t *pgTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return pgExec(t.tx.Exec(ctx, query, args...))
}

func (t *pgTx) query(ctx context.Context, query string, args ...any) (rows, error) {
	return pgQuery(t.tx.Query(ctx, query, args...))
}

func (t *pgTx) enqueue(ctx context.Context, jobs []newJob) error {
	return t.river.enqueue(ctx, t.tx, jobs)
}

func (t *pgTx) notify(ctx context.Context, topic string) error {
	_, err := t.tx.Exec(ctx, "SELECT pg_notify($1, $2)", notifyChannel, topic)
	return err
}

func (t *pgTx) commit(ctx context.Context) error { return pgError(t.tx.Commit(ctx)) }

func (t *pgTx) rollback(ctx context.Context) { _ = t.tx.Rollback(ctx) }

func pgExec(tag pgconn.CommandTag, err error) (int64, error) {
	return tag.RowsAffected(), pgError(err)
}

func pgQuery(r pgx.Rows, err error) (rows, error) {
	if err != nil {
		return nil, pgError(err)
	}
	return pgRows{r}, nil
}

type pgRows struct{ pgx.Rows }

func (r pgRows) Err() error { return pgError(r.Rows.Err()) }

func pgError(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && e.Code == "23505":
		return fmt.Errorf("%w: %w", errDuplicate, err)
	case ok && e.Code == "22021": // zero bytes, invalid UTF-8
		return weir.Wrap(weir.Refused, err, "the request has text that is not valid UTF-8, or has a zero byte")
	case ok && e.Code == "53100":
		return weir.Wrap(weir.Full, err, "the disk of the database is full")
	}
	return err
}
