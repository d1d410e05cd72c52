package pgtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Freeze suspends all processes of the server, until Thaw or the end of the test: connections stay open,
// and nothing responds.
func (s *Server) Freeze(tb testing.TB) {
	tb.Helper()
	tb.Cleanup(func() { s.Thaw(tb) })
	// The main process first, so that it starts no others.
	s.signal(tb, syscall.SIGSTOP)
	s.signal(tb, syscall.SIGSTOP)
}

// Thaw ends Freeze.
func (s *Server) Thaw(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGCONT)
}

// signal sends a signal to the main process of the server, and then to its children.
func (s *Server) signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(s.cluster.dir, "data", "postmaster.pid"))
	if signal == syscall.SIGCONT && errors.Is(err, fs.ErrNotExist) {
		return // it has crashed since
	}
	if err != nil {
		tb.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	main, err := strconv.Atoi(first)
	if err != nil {
		tb.Fatal(err)
	}
	if err := syscall.Kill(main, signal); err != nil {
		tb.Fatal(err)
	}
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
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				_ = syscall.Kill(pid, signal) // it may have ended
			}
		}
	}
}
