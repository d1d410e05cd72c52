package pgtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Server is a PostgreSQL of one test, which the test can take away and give back.
type Server struct {
	tb      testing.TB
	cluster *cluster
	frozen  []int // processes
}

// StartAlone starts a PostgreSQL that no other test uses. It ends with the test.
func StartAlone(tb testing.TB) *Server {
	tb.Helper()
	c, err := startCluster()
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	s := &Server{tb: tb, cluster: c}
	tb.Cleanup(func() {
		s.Thaw()
		if err := c.stop(); err != nil {
			tb.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return s
}

// URL returns the URL of an empty database.
func (s *Server) URL() string { return s.cluster.url("postgres") }

// Address returns the address at which it listens.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.cluster.port) }

// Freeze suspends all processes of PostgreSQL: connections stay open, nothing responds.
func (s *Server) Freeze() {
	s.tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.cluster.dir, "data", "postmaster.pid"))
	if err != nil {
		s.tb.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	main, err := strconv.Atoi(first)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.suspend(main) // first, so that it starts no others
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		s.tb.Fatal(err)
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
func (s *Server) Thaw() {
	for _, pid := range s.frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
	}
	s.frozen = nil
}

// Stop ends PostgreSQL at once, as a crash does: connections break, and new ones are refused.
func (s *Server) Stop() {
	s.tb.Helper()
	bin, err := binaries()
	if err != nil {
		s.tb.Fatal(err)
	}
	owner, err := unprivileged()
	if err != nil {
		s.tb.Fatal(err)
	}
	stop := exec.CommandContext(s.tb.Context(), filepath.Join(bin, "pg_ctl"), "-D", "data", "-m", "immediate", "-w", "stop")
	stop.Dir = s.cluster.dir
	stop.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	if out, err := stop.CombinedOutput(); err != nil {
		s.tb.Fatalf("stop PostgreSQL: %v\n%s", err, out)
	}
}

// Start ends Stop.
func (s *Server) Start() {
	s.tb.Helper()
	if _, err := fmt.Fprintln(s.cluster.orders, s.cluster.port); err != nil {
		s.tb.Fatal(err)
	}
	replies := bufio.NewScanner(s.cluster.replies)
	if !replies.Scan() || replies.Text() != "ready" {
		s.tb.Fatal(errors.New("PostgreSQL does not start again"))
	}
}
