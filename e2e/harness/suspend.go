package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// SuspendedDir is the variable of the environment that names a folder with a file for each process
// that a test has stopped. e2e/busy sets it: it stops processes too, and must not let those go on.
const SuspendedDir = "WEIR_E2E_SUSPENDED"

// Suspend stops a process until Resume.
func Suspend(t *testing.T, pid int) {
	t.Helper()
	if dir := os.Getenv(SuspendedDir); dir != "" {
		file := filepath.Join(dir, strconv.Itoa(pid))
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(file) })
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// Resume lets a process go on that a test has stopped.
func Resume(t *testing.T, pid int) {
	t.Helper()
	if dir := os.Getenv(SuspendedDir); dir != "" {
		_ = os.Remove(filepath.Join(dir, strconv.Itoa(pid)))
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
