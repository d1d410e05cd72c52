package pgtest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/wait"
)

// Server is a PostgreSQL of one test, which may crash, start again, have a standby and be promoted.
// What it has answered survives a crash.
type Server struct{ cluster *cluster }

// serverSettings are those of a Server: a later line counts.
const serverSettings = settings + `
max_connections = 100
synchronous_commit = on
hot_standby = on
`

// NewServer starts a PostgreSQL, which is removed when the test ends.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	return newServer(tb, "")
}

// Standby starts a standby of the server, which follows it.
func (s *Server) Standby(tb testing.TB) *Server {
	tb.Helper()
	return newServer(tb, strconv.Itoa(s.cluster.port))
}

func newServer(tb testing.TB, primary string) *Server {
	tb.Helper()
	c, err := startCluster(serverSettings, primary)
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	tb.Cleanup(func() {
		if err := c.stop(); err != nil {
			tb.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return &Server{c}
}

// URL returns the URL of the server's database.
func (s *Server) URL() string { return s.cluster.url("postgres") }

// Address returns the host and the port of the server.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.cluster.port) }

// Crash stops the server at once.
func (s *Server) Crash(tb testing.TB) { s.do(tb, "crash") }

// Start starts a server that has crashed, on its port.
func (s *Server) Start(tb testing.TB) { s.do(tb, "start "+strconv.Itoa(s.cluster.port)) }

// Promote makes a standby the primary.
func (s *Server) Promote(tb testing.TB) { s.do(tb, "promote") }

func (s *Server) do(tb testing.TB, order string) {
	tb.Helper()
	ready, err := s.cluster.order(order)
	if err != nil || !ready {
		tb.Fatalf("order PostgreSQL to %s: %v", order, err)
	}
}

// Exec runs statements on the server, each by itself.
func (s *Server) Exec(tb testing.TB, statements ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), wait.Limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			tb.Fatalf("%s: %v", statement, err)
		}
	}
}
