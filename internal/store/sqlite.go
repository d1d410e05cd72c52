package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"weir/internal/weir"
)

// sqlite is the embedded engine: one connection writes, several read. Every commit is on the disk
// before it is reported (synchronous=FULL).
type sqlite struct {
	writer  *sql.DB
	reader  *sql.DB
	stmts   stmtCache // of the reader
	writes  stmtCache // of the writer
	river   jobClient[*sql.Tx]
	version atomic.Int64 // the last value of PRAGMA data_version
}

func openSQLite(ctx context.Context, path, client string, log *slog.Logger) (_ *sqlite, err error) {
	if path == "" {
		return nil, errors.New("the URL has no path; write it as sqlite:PATH")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	dsn := func(more string) string {
		return "file:" + (&url.URL{Path: path}).EscapedPath() +
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
			"&_pragma=foreign_keys(1)&_pragma=journal_size_limit(67108864)" + more
	}
	e := &sqlite{}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.writer, err = sql.Open("sqlite", dsn("&_txlock=immediate")); err != nil {
		return nil, err
	}
	e.writer.SetMaxOpenConns(1)
	if err := e.migrate(ctx, log); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	if e.reader, err = sql.Open("sqlite", dsn("&_pragma=query_only(1)")); err != nil {
		return nil, err
	}
	e.reader.SetMaxOpenConns(max(4, 2*runtime.GOMAXPROCS(0)))
	e.reader.SetMaxIdleConns(max(4, 2*runtime.GOMAXPROCS(0)))
	e.stmts.db, e.writes.db = e.reader, e.writer
	e.river, err = newJobClient(riverOnSQLite{riversqlite.New(e.writer)}, client, log)
	e.river.reindex = river.NeverSchedule() // it warns about missing indexes, which only PostgreSQL has
	return e, err
}

// riverOnSQLite is River's driver without the listener, which would query the database 20 times a
// second. This process knows when it enqueues a job, and notices the writes of others (see wake).
type riverOnSQLite struct{ *riversqlite.Driver }

// SupportsListener turns the listener off.
func (riverOnSQLite) SupportsListener() bool { return false }

// SupportsListenNotify turns notifications off.
func (riverOnSQLite) SupportsListenNotify() bool { return false }

func (e *sqlite) migrate(ctx context.Context, log *slog.Logger) error {
	if err := e.writer.PingContext(ctx); err != nil {
		return err
	}
	m, err := rivermigrate.New(riversqlite.New(e.writer), &rivermigrate.Config{Logger: quiet(log)})
	if err != nil {
		return err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	return migrate(ctx, goose.DialectSQLite3, e.writer)
}

func (e *sqlite) close() {
	e.stmts.close()
	e.writes.close()
	for _, db := range []*sql.DB{e.reader, e.writer} {
		if db != nil {
			_ = db.Close()
		}
	}
}

// poolStats has nothing to return: there is one writer, and readers do not wait for long.
func (e *sqlite) poolStats() (PoolStats, bool) { return PoolStats{}, false }

func (e *sqlite) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return sqlExec(e.writer.ExecContext(ctx, query, args...))
}

func (e *sqlite) query(ctx context.Context, query string, args ...any) (rows, error) {
	stmt, err := e.stmts.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return sqlQuery(e.reader.QueryContext(ctx, query, args...))
	}
	return sqlQuery(stmt.QueryContext(ctx, args...))
}

func (e *sqlite) begin(ctx context.Context) (engineTx, error) {
	tx, err := e.writer.BeginTx(ctx, nil)
	if err != nil {
		return nil, sqliteError(err)
	}
	return &sqliteTx{tx: tx, writes: &e.writes, river: e.river}, nil
}

func (e *sqlite) jobClient() string { return "json_extract(attempted_by, '$[#-1]')" }

func (e *sqlite) runJobs(ctx context.Context, w worker) error { return e.river.runJobs(ctx, w) }

func (e *sqlite) wake(ctx context.Context, queues []string) { e.river.wake(ctx, queues) }

// listen only waits: changedSince notices other processes.
func (e *sqlite) listen(ctx context.Context, _ func(string)) error {
	<-ctx.Done()
	return nil
}

// changedSince queries the connection that writes: there the version changes only with commits of
// other processes.
func (e *sqlite) changedSince(ctx context.Context) (bool, error) {
	var version int64
	if err := e.writer.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version); err != nil {
		return false, err
	}
	return e.version.Swap(version) != version, nil
}

func (e *sqlite) noticesOthers() bool { return true }

func (e *sqlite) backup(ctx context.Context, path string) error {
	// On the writer, because the readers are query_only. It only reads the database.
	_, err := e.writer.ExecContext(ctx, "VACUUM INTO $1", path)
	return err
}

func (e *sqlite) tables() string {
	return "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
}

func (e *sqlite) bytesInUse() string {
	return "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
}

// forUpdate is empty: the only writer has the whole database.
func (e *sqlite) forUpdate() string { return "" }

func (e *sqlite) forUpdateOfFree() string { return "" }

type sqliteTx struct {
	tx     *sql.Tx
	writes *stmtCache
	unseen []string // queries that are not prepared yet
	river  jobClient[*sql.Tx]
}

func (t *sqliteTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	if stmt := t.prepared(ctx, query); stmt != nil {
		return sqlExec(stmt.ExecContext(ctx, args...))
	}
	return sqlExec(t.tx.ExecContext(ctx, query, args...))
}

func (t *sqliteTx) query(ctx context.Context, query string, args ...any) (rows, error) {
	if stmt := t.prepared(ctx, query); stmt != nil {
		return sqlQuery(stmt.QueryContext(ctx, args...))
	}
	return sqlQuery(t.tx.QueryContext(ctx, query, args...))
}

// prepared returns the statement of a query, or nil if it is not prepared. The transaction has the
// only connection, so missing statements are prepared after it, for the next transactions.
func (t *sqliteTx) prepared(ctx context.Context, query string) *sql.Stmt {
	stmt := t.writes.get(query)
	if stmt == nil {
		t.unseen = append(t.unseen, query)
		return nil
	}
	return t.tx.StmtContext(ctx, stmt)
}

func (t *sqliteTx) enqueue(ctx context.Context, jobs []newJob) error {
	if err := t.river.enqueue(ctx, t.tx, jobs); err != nil {
		return sqliteError(err)
	}
	return nil
}

func (t *sqliteTx) notify(context.Context, string) error { return nil }

func (t *sqliteTx) commit(ctx context.Context) error {
	if err := t.tx.Commit(); err != nil {
		return sqliteError(err)
	}
	for _, query := range t.unseen {
		// A statement that can't be prepared now is prepared another time.
		_, _ = t.writes.prepare(ctx, query)
	}
	return nil
}

func (t *sqliteTx) rollback(context.Context) { _ = t.tx.Rollback() }

func sqlExec(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, sqliteError(err)
	}
	return result.RowsAffected()
}

func sqlQuery(r *sql.Rows, err error) (rows, error) {
	if err != nil {
		return nil, sqliteError(err)
	}
	return sqlRows{r}, nil
}

type sqlRows struct{ *sql.Rows }

func (r sqlRows) Close() { _ = r.Rows.Close() }

func (r sqlRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return sqliteError(err)
	}
	return nil
}

func sqliteError(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "UNIQUE constraint failed"):
		return fmt.Errorf("%w: %w", errDuplicate, err)
	case strings.Contains(text, "database or disk is full"):
		return weir.Wrap(weir.Full, err, "the disk of this server is full")
	}
	return err
}

// stmtCache keeps prepared statements: preparing one costs more than running it. It is bounded,
// because lists can be filtered and ordered in many ways.
type stmtCache struct {
	db    *sql.DB
	stmts sync.Map // string → *sql.Stmt
	count atomic.Int64
}

// maxStmts bounds the cache; the statements of the fixed queries are far fewer.
const maxStmts = 256

// get returns the statement if it is prepared, or nil.
func (c *stmtCache) get(query string) *sql.Stmt {
	stmt, _ := c.stmts.Load(query)
	prepared, _ := stmt.(*sql.Stmt)
	return prepared
}

// prepare returns the statement, or nil when the cache is full.
func (c *stmtCache) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := c.get(query); stmt != nil {
		return stmt, nil
	}
	if c.count.Load() >= maxStmts {
		return nil, nil
	}
	stmt, err := c.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if other, loaded := c.stmts.LoadOrStore(query, stmt); loaded {
		_ = stmt.Close()
		return other.(*sql.Stmt), nil
	}
	c.count.Add(1)
	return stmt, nil
}

func (c *stmtCache) close() {
	c.stmts.Range(func(_, stmt any) bool {
		_ = stmt.(*sql.Stmt).Close()
		return true
	})
}

var _ river.JobArgs = jobArgs{}
