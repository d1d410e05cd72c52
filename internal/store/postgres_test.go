package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"weir/internal/store/pgtest"
	"weir/internal/wait"
	"weir/internal/wait/linetest"
	"weir/internal/weir"
)

// TestKindsOfPostgresErrors checks which errors tell callers to try again later.
func TestKindsOfPostgresErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		err  error
		want weir.Kind
	}{
		{&pgconn.PgError{Code: "25006", Severity: "ERROR"}, weir.Outage},
		{&pgconn.PgError{Code: "57P01", Severity: "FATAL"}, weir.Outage},
		{&pgconn.PgError{Code: "57P03", Severity: "FATAL"}, weir.Outage},
		{&pgconn.PgError{Code: "53300", Severity: "FATAL"}, weir.Outage},
		{&pgconn.PgError{Code: "08006", Severity: "ERROR"}, weir.Outage},
		{&pgconn.PgError{Code: "28P01", Severity: "FATAL"}, weir.Outage},
		{fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), weir.Outage},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, weir.Outage},
		{pgconn.ErrConnClosed, weir.Outage},
		{context.DeadlineExceeded, weir.Outage},
		{ended.Err(), weir.Internal}, // the caller has gone
		{&pgconn.PgError{Code: "42P01", Severity: "ERROR"}, weir.Internal},
		{&pgconn.PgError{Code: "40P01", Severity: "ERROR"}, weir.Internal},
		{&pgconn.PgError{Code: "53100", Severity: "ERROR"}, weir.Full},
		{errors.New("can't scan into dest[0]"), weir.Internal},
	} {
		got := pgError(tt.err)
		if weir.KindOf(got) != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("%v is %q, want %q", tt.err, weir.KindOf(got), tt.want)
		}
		if e, ok := errors.AsType[*weir.Error](got); tt.want == weir.Outage && (!ok || e.RetryAfter == 0) {
			t.Errorf("%v does not say when to try again", tt.err)
		}
	}
}

func TestPoolSize(t *testing.T) {
	t.Parallel()
	url := engines[1].url(t)
	for _, tt := range []struct {
		more string
		opt  int
		want int64
	}{
		{"", 0, 3},
		{"", 4, 4},
		{"&pool_max_conns=7", 0, 7},
		{"&pool_max_conns=7", 4, 7},
	} {
		st, err := Open(t.Context(), url+tt.more, Options{Secret: testSecret, MaxConns: tt.opt})
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := st.PoolStats(); !ok || s.Max != tt.want || s.InUse != 0 {
			t.Errorf("%q and %d: %+v, want %d connections", tt.more, tt.opt, s, tt.want)
		}
		st.Close()
	}
}

// TestPoolWaits checks that a transaction that finds no free connection waits for one, and that
// the numbers show it.
func TestPoolWaits(t *testing.T) {
	t.Parallel()
	st := open(t, engines[1].url(t)+"&pool_max_conns=1", "node-a")
	entered, leave, second := make(chan bool), make(chan bool), make(chan error)
	go func() {
		_ = st.Tx(t.Context(), func(*Tx) error { close(entered); <-leave; return nil })
	}()
	wait.Receive(t, "the first transaction", entered)
	if s, _ := st.PoolStats(); s.InUse != 1 {
		t.Errorf("%d connections are in use, want 1", s.InUse)
	}
	go func() { second <- st.Ping(t.Context()) }()
	time.AfterFunc(50*time.Millisecond, func() { close(leave) })
	if err := wait.Receive(t, "the second", second); err != nil {
		t.Error(err)
	}
	wait.Until(t, "a wait is counted", func() bool {
		s, _ := st.PoolStats()
		return s.Waits > 0 && s.Waited > 0 && s.InUse == 0
	})
}

// TestTwentyNodes has the nodes on a PostgreSQL with its default of 100 connections, of which three
// are for superusers, all busy at once.
func TestTwentyNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty nodes")
	}
	t.Parallel()
	server := pgtest.NewServer(t)
	server.Exec(t, "CREATE ROLE weir_node LOGIN", "GRANT ALL ON DATABASE postgres TO weir_node", "GRANT ALL ON SCHEMA public TO weir_node")
	url := strings.Replace(server.URL(), "weir@", "weir_node@", 1)
	var all sync.WaitGroup
	defer all.Wait()
	for n := range 20 {
		st := open(t, url, fmt.Sprintf("node-%d", n))
		run(t, st)
		work(t, st, 1, JobTask)
		for range 8 {
			all.Go(func() {
				s := newStream(t, "many")
				for range 5 {
					s.ID = weir.NewID()
					if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.CreateStream(t.Context(), &s) }); err != nil {
						t.Errorf("node %d: %v", n, err)
					}
				}
			})
		}
	}
}

// TestStatementsEnd has a server that accepts statements and does not answer.
func TestStatementsEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for the limit of a statement")
	}
	t.Parallel()
	to := linetest.New(t, pgtest.NewServer(t).Address())
	st := open(t, through(to), "node-a")
	to.Hang()
	for name, do := range map[string]func() error{
		"a query":       func() error { return st.Ping(context.WithoutCancel(t.Context())) },
		"a transaction": func() error { return write(t, st) },
		"River's query": func() error {
			_, err := st.engine.(*postgres).river.insert.JobList(context.WithoutCancel(t.Context()), nil)
			return pgError(err)
		},
	} {
		if err := do(); weir.KindOf(err) != weir.Outage {
			t.Errorf("%s: %v, want an outage", name, err)
		}
	}
	to.Mend()
	wait.NoError(t, func() error { return write(t, st) })
}

// TestTransactionsEnd checks that many short statements do not make a transaction endless.
func TestTransactionsEnd(t *testing.T) {
	t.Parallel()
	e := open(t, engines[1].url(t), "").engine
	tx, err := e.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.rollback(t.Context())
	tx.(*pgTx).end = time.Now() // now it has taken too long
	if _, err := tx.exec(t.Context(), "SELECT 1"); weir.KindOf(err) != weir.Outage {
		t.Errorf("a statement after the end of its transaction: %v", err)
	}
	if err := tx.commit(t.Context()); err == nil {
		t.Error("the transaction was committed after its end")
	}
}

// TestReplacedOnce has eight connections fail at once.
func TestReplacedOnce(t *testing.T) {
	t.Parallel()
	st := open(t, engines[1].url(t)+"&pool_max_conns=9", "node-a")
	p := st.engine.(*postgres).pool
	var all []engineTx
	for range 8 {
		tx, err := st.engine.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tx)
	}
	if _, err := st.conn.exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); err != nil {
		t.Fatal(err)
	}
	for _, tx := range all {
		if _, err := tx.exec(t.Context(), "SELECT 1"); weir.KindOf(err) != weir.Outage {
			t.Errorf("a statement on a connection that was ended: %v", err)
		}
		tx.rollback(t.Context())
	}
	if n := p.generations(); n != 1 {
		t.Errorf("the connections were replaced %d times, want once", n)
	}
	if err := write(t, st); err != nil {
		t.Error(err)
	}
	conn, err := p.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.old(conn.Conn()) {
		t.Error("a connection of before is in use")
	}
	conn.Release()
}

// TestFailover demotes the primary while its connections stay: it still answers queries.
func TestFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("two servers")
	}
	t.Parallel()
	for name, url := range map[string]func(a, b *pgtest.Server, to *linetest.Line) string{
		"two addresses": func(a, b *pgtest.Server, _ *linetest.Line) string {
			return "postgres://weir@" + a.Address() + "," + b.Address() + "/postgres?sslmode=disable&target_session_attrs=read-write"
		},
		"one address": func(_, _ *pgtest.Server, to *linetest.Line) string { return through(to) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := pgtest.NewServer(t)
			standby := primary.Standby(t)
			to := linetest.New(t, primary.Address())
			st := open(t, url(primary, standby, to), "node-a")
			run(t, st)
			jobs, _ := work(t, st, 1, JobTask)
			enqueue(t, st, JobTask, "before")
			wait.Receive(t, "a job before", jobs).end <- nil

			primary.Exec(t, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
			wait.Until(t, "the primary refuses writes", func() bool {
				err := write(t, st)
				return weir.KindOf(err) == weir.Outage || st.engine.(*postgres).pool.generations() > 0
			})
			standby.Promote(t)
			to.Lead(standby.Address())
			promoted := time.Now()
			wait.NoError(t, func() error { return write(t, st) })
			t.Logf("written %v after the standby was promoted", time.Since(promoted).Round(time.Millisecond))
			alive(t, st, jobs, standby)
		})
	}
}

// TestOutage stops PostgreSQL until every loop of a node has met it, and starts it again.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("a server of its own")
	}
	t.Parallel()
	server := pgtest.NewServer(t)
	st := open(t, server.URL(), "node-a")
	run(t, st)
	jobs, _ := work(t, st, 1, JobTask)
	alive(t, st, jobs, server)
	server.Crash(t)
	if err := write(t, st); weir.KindOf(err) != weir.Outage {
		t.Errorf("a write without a server: %v", err)
	}
	seen := st.node.lastBeat.Load()
	wait.Until(t, "heartbeats fail", func() bool { return time.Now().UnixMilli() > seen+4*heartbeatEvery.Milliseconds() })
	server.Start(t)
	started := time.Now()
	wait.NoError(t, func() error { return write(t, st) })
	t.Logf("written %v after the server was back", time.Since(started).Round(time.Millisecond))
	alive(t, st, jobs, server)
	t.Logf("all worked %v after the server was back", time.Since(started).Round(time.Second))
}

// alive checks that all of a node does its work: heartbeats, jobs, jobs that are due later, which
// the leader of River looks for, and notifications.
func alive(t *testing.T, st *Store, jobs <-chan heldJob, server *pgtest.Server) {
	t.Helper()
	wait.NoError(t, func() error {
		return st.Tx(t.Context(), func(tx *Tx) error {
			for _, at := range []time.Time{{}, time.Now().Add(time.Second)} {
				if err := tx.enqueueAt(t.Context(), JobTask, weir.NewID(), at); err != nil {
					return err
				}
			}
			return nil
		})
	})
	for range 2 {
		wait.Receive(t, "a job", jobs).end <- nil
	}
	before := time.Now()
	wait.Until(t, "heartbeats are written", func() bool {
		stayed := st.node.lastBeat.Load()
		return stayed >= before.UnixMilli() && stayed < before.Add(30*time.Minute).UnixMilli()
	})
	// No table has this topic, so that polls do not find it.
	changed, stop := st.Watch("news")
	defer stop()
	wait.NoError(t, func() error {
		server.Exec(t, "SELECT pg_notify('weir', 'news')")
		select {
		case <-changed:
			return nil
		case <-time.After(50 * time.Millisecond):
			return errors.New("no notification arrives")
		}
	})
}

func write(t testing.TB, st *Store) error {
	ctx := context.WithoutCancel(t.Context())
	s := newStream(t, "written")
	return st.Tx(ctx, func(tx *Tx) error { return tx.CreateStream(ctx, &s) })
}

// through returns the URL of a server over a line.
func through(l *linetest.Line) string {
	return "postgres://weir@" + l.Address() + "/postgres?sslmode=disable"
}

// TestPgBouncer checks the modes of a real PgBouncer.
func TestPgBouncer(t *testing.T) {
	if testing.Short() {
		t.Skip("PgBouncer is not installed for these")
	}
	t.Parallel()
	t.Run("transaction", func(t *testing.T) {
		t.Parallel()
		st, err := Open(t.Context(), pgtest.Bounce(t, engines[1].url(t), "transaction"), Options{Secret: testSecret, NodeID: "node-a"})
		if err == nil {
			st.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "set pool_mode = session in PgBouncer") {
			t.Errorf("weir starts: %v", err)
		}
	})
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		url := engines[1].url(t)
		st := open(t, pgtest.Bounce(t, url, "session"), "node-a")
		run(t, st)
		jobs, _ := work(t, st, 1, JobTask)
		if err := write(t, st); err != nil {
			t.Error(err)
		}
		enqueue(t, st, JobTask, "a")
		wait.Receive(t, "a job", jobs).end <- nil
		// What is set on a session stays.
		if err := st.Tx(t.Context(), func(tx *Tx) error {
			text, err := one(t.Context(), tx.conn, scanText, "SHOW idle_in_transaction_session_timeout")
			if err == nil && text != "5s" {
				err = errors.New(text)
			}
			return err
		}); err != nil {
			t.Errorf("the limit of idle transactions: %v", err)
		}
	})
}

// BenchmarkPool shows what a node gets out of so many connections, of which each round trip takes
// half a millisecond, when 32 callers want to read a stream, or to make one.
func BenchmarkPool(b *testing.B) {
	server := pgtest.NewServer(b)
	to := linetest.New(b, server.Address())
	to.Delay(250 * time.Microsecond)
	for _, size := range []int{1, 2, 3, 4, 8, 16} {
		st, err := Open(b.Context(), through(to), Options{Secret: testSecret, NodeID: "node-a", MaxConns: size})
		if err != nil {
			b.Fatal(err)
		}
		s := newStream(b, "read")
		if err := st.Tx(b.Context(), func(tx *Tx) error { return tx.CreateStream(b.Context(), &s) }); err != nil {
			b.Fatal(err)
		}
		for name, do := range map[string]func() error{
			"read":  func() error { _, err := st.Stream(b.Context(), s.ID); return err },
			"write": func() error { return write(b, st) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetParallelism(max(1, 32/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := do(); err != nil {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
		st.Close()
	}
}
