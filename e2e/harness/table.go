package harness

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Table collects what a soak has measured.
type Table struct {
	mu   sync.Mutex
	rows []string
}

// Add adds a row: what was measured without and with an attack, and whether the limit holds. A limit
// that does not hold fails the test.
func (f *Table) Add(t *testing.T, engine, attack, what, quiet, attacked, limit string, ok bool) {
	t.Helper()
	held := "holds"
	if !ok {
		held = "FAILS"
		t.Errorf("%s: %s is %s, want %s", attack, what, attacked, limit)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, fmt.Sprintf("%-9s %-12s %-44s %14s %14s %16s  %s", engine, attack, what, quiet, attacked, limit, held))
}

// String returns the whole table.
func (f *Table) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	head := fmt.Sprintf("%-9s %-12s %-44s %14s %14s %16s", "database", "attack", "what", "quiet", "attacked", "limit")
	return strings.Join(append([]string{head}, f.rows...), "\n")
}
