package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// poolSize is the default number of connections of a node, beside the one that listens. Four for
	// each of twenty nodes fit PostgreSQL's default of 100.
	poolSize = 3
	// connectLimit is the default of connect_timeout in the URL. It counts for each host of the URL.
	connectLimit = 5 * time.Second
	// pingLimit is how long a connection that was idle may take to answer before it is used.
	pingLimit = 2 * time.Second
	// acquireLimit is how long a statement may wait for a connection.
	acquireLimit = 10 * time.Second
	// statementLimit is how long a statement may take, txLimit how long a transaction. long gives some
	// more time.
	statementLimit = 10 * time.Second
	txLimit        = 30 * time.Second
	// idleLimit is how long a transaction may do nothing. A node that freezes in one must not keep its
	// locks: other nodes take over its work, and their statements wait for less than statementLimit.
	idleLimit = statementLimit / 2
	// migrateLimit is how long a statement of a migration may take, or another node's migration.
	migrateLimit = time.Hour
	// sweepLimit is how long a statement may take that deletes or sums up many rows.
	sweepLimit = 5 * time.Minute
	// reindexLimit is how long River may take to make an index anew.
	reindexLimit = time.Minute
	// replaceEvery bounds how often connections are replaced, while new ones fail too.
	replaceEvery = time.Second
)

// errLimit is the cause that ends the context of a statement which took too long.
var errLimit = errors.New("the statement reached its time limit")

type (
	limitKey  struct{} // how long statements of a context may take
	endKey    struct{} // when the transaction of a context must have ended
	cancelKey struct{} // the function that releases the context of a statement
	pingKey   struct{} // whether the statement of a context is a ping of the pool
)

// long allows statements more time than others have. SQLite has no limits.
func long(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

// limitOf returns how long a statement or a transaction may take.
func limitOf(ctx context.Context, usual time.Duration) time.Duration {
	if limit, ok := ctx.Value(limitKey{}).(time.Duration); ok {
		return max(limit, usual)
	}
	return usual
}

// pgPool is a pool of connections in which every statement has a deadline, River's and goose's too.
// When one of them shows that its server has gone, or is a standby now, all connections are
// replaced: the next ones find the new primary. It is a tracer of pgx, which sees every statement
// and may change its context.
type pgPool struct {
	*pgxpool.Pool
	log *slog.Logger

	mu         sync.Mutex
	generation int       // counts replacements; a connection knows the one in which it was made
	replaced   time.Time // when the last one was
}

// generationKey is where a connection has its generation.
const generationKey = "weir.generation"

func openPool(ctx context.Context, url string, maxConns int, log *slog.Logger) (*pgPool, error) {
	invalid := errors.New("the URL is not valid; write it as postgres://user:password@host:5432/name") // pgx repeats it in its error
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, invalid
	}
	given, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, invalid
	}
	p := &pgPool{log: log}
	if given.RuntimeParams["pool_max_conns"] == "" {
		cfg.MaxConns = poolSize
		if maxConns > 0 {
			cfg.MaxConns = int32(maxConns)
		}
	}
	if given.RuntimeParams["pool_ping_timeout"] == "" {
		cfg.PingTimeout = pingLimit
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectLimit
	}
	cfg.ConnConfig.DialFunc = dialer(cfg.ConnConfig.ConnectTimeout).DialContext
	fatal := cfg.ConnConfig.OnPgError
	cfg.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return fatal(conn, err) && !gone(err) // false closes the connection
	}
	cfg.ConnConfig.Tracer = p
	cfg.AfterConnect = p.prepare
	p.mu.Lock() // the pool may connect at once
	defer p.mu.Unlock()
	p.Pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return p, err
}

// prepare prepares a new connection.
func (p *pgPool) prepare(ctx context.Context, conn *pgx.Conn) error {
	p.mu.Lock()
	conn.PgConn().CustomData()[generationKey] = p.generation
	p.mu.Unlock()
	_, err := conn.Exec(ctx, fmt.Sprintf("SET idle_in_transaction_session_timeout = %d", idleLimit.Milliseconds()))
	return err
}

// acquire returns a connection, made if need be.
func (p *pgPool) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := p.Acquire(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		err = outage(err)
	}
	return conn, err
}

// closeConn closes a connection that is not in the pool.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingLimit)
	defer cancel()
	_ = conn.Close(ctx)
}

// stats returns how the pool is used.
func (p *pgPool) stats() PoolStats {
	s := p.Stat()
	return PoolStats{
		InUse: int64(s.AcquiredConns()), Max: int64(s.MaxConns()),
		Waits: s.EmptyAcquireCount(), Waited: s.EmptyAcquireWaitTime(),
	}
}

// TraceAcquireStart gives the wait for a connection a deadline.
func (p *pgPool) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return limited(ctx, time.Now().Add(acquireLimit))
}

// TraceAcquireEnd ends what TraceAcquireStart has begun.
func (p *pgPool) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	release(ctx)
}

// TraceQueryStart gives a statement its deadline.
func (p *pgPool) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	limit := limitOf(ctx, statementLimit)
	if strings.HasPrefix(q.SQL, "REINDEX") {
		limit = max(limit, reindexLimit)
	}
	deadline := time.Now().Add(limit)
	if end, ok := ctx.Value(endKey{}).(time.Time); ok && end.Before(deadline) {
		deadline = end
	}
	if q.SQL == "-- ping" {
		ctx = context.WithValue(ctx, pingKey{}, true)
	}
	return limited(ctx, deadline)
}

// TraceQueryEnd ends what TraceQueryStart has begun. After an error that tells of the server, it
// replaces the connections.
func (p *pgPool) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryEndData) {
	defer release(ctx)
	if q.Err == nil || !gone(q.Err) {
		return
	}
	// A caller that waits for less than our limits says nothing about the server.
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errLimit) && ctx.Value(pingKey{}) == nil {
		return
	}
	p.replace(ctx, conn, q.Err)
}

// limited returns a context for a statement, which ends at the deadline. release releases it.
func limited(ctx context.Context, deadline time.Time) context.Context {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errLimit)
	return context.WithValue(ctx, cancelKey{}, cancel)
}

func release(ctx context.Context) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// replace closes all connections after one has failed: idle ones at once, those in use when they
// are given back. What fails afterwards on connections that were made before does not count again.
func (p *pgPool) replace(ctx context.Context, failed *pgx.Conn, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.old(failed) || time.Since(p.replaced) < replaceEvery {
		return
	}
	p.generation++
	p.replaced = time.Now()
	p.log.WarnContext(ctx, "a connection to the database failed; all are made anew", "err", cause)
	p.Reset()
}

// old reports whether a connection was made before others were replaced.
func (p *pgPool) old(conn *pgx.Conn) bool {
	made, _ := conn.PgConn().CustomData()[generationKey].(int)
	return made != p.generation
}

// generations returns how often connections were replaced.
func (p *pgPool) generations() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// sessionTest is how long a notification may take to arrive.
const sessionTest = 2 * time.Second

// checkSessions returns an error if connections are not sessions of their own: behind PgBouncer in
// transaction mode, two statements of one connection may run on different ones of the server, so
// what was set or is listened for on one is lost.
func (p *pgPool) checkSessions(ctx context.Context) error {
	conn, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	listener := conn.Hijack()
	defer closeConn(ctx, listener)
	// Without arguments, statements are not prepared, which would fail first.
	channel := "weir_" + rand.Text()
	if _, err := listener.Exec(ctx, "LISTEN "+channel); err != nil {
		return readOnly(err)
	}
	if _, err := p.Exec(ctx, "NOTIFY "+channel); err != nil {
		return readOnly(err)
	}
	wait, cancel := context.WithTimeout(ctx, sessionTest)
	defer cancel()
	if _, err := listener.WaitForNotification(wait); err != nil && ctx.Err() == nil && wait.Err() != nil {
		return errors.New("the database delivers no notifications, as PgBouncer in transaction mode does; " +
			"connect to PostgreSQL directly, or set pool_mode = session in PgBouncer")
	} else if err != nil {
		return err
	}
	return nil
}

// readOnly gives the error of a server that takes no writes a sentence for the operator.
func readOnly(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == readOnlyCode {
		return fmt.Errorf("the database is a standby or takes no writes; name the primary, or all servers "+
			"as in postgres://user:password@a,b/name?target_session_attrs=read-write: %w", err)
	}
	return err
}
