package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/wait"
)

// Server is a PostgreSQL of one test, which may crash, start again, have a standby and be promoted.
// What it has answered survives a crash.
type Server struct {
	cluster *cluster
	frozen  []int // processes
}

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
	s := &Server{cluster: c}
	tb.Cleanup(func() {
		s.Thaw(tb)
		if err := c.stop(); err != nil {
			tb.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return s
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

// Freeze suspends all processes of the server: connections stay open, nothing responds.
func (s *Server) Freeze(tb testing.TB) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.cluster.dir, "data", "postmaster.pid"))
	if err != nil {
		tb.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	main, err := strconv.Atoi(first)
	if err != nil {
		tb.Fatal(err)
	}
	s.suspend(main) // first, so that it starts no others
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ") // the name of the program
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == first {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			s.suspend(pid)
		}
	}
}

func (s *Server) suspend(pid int) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err == nil {
		s.frozen = append(s.frozen, pid)
	}
}

// Thaw ends Freeze.
func (s *Server) Thaw(testing.TB) {
	for _, pid := range s.frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
	}
	s.frozen = nil
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
