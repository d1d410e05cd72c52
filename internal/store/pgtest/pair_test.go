package pgtest

import (
	"fmt"
	"slices"
	"testing"

	"weir/internal/wait"
)

// TestPair looks whether a standby has what its primary acknowledged, once that has crashed, and whether
// one that was demoted can be read and not written.
func TestPair(t *testing.T) {
	t.Parallel()
	p := StartPair(t)
	if err := p.Exec("create table kept (n text)"); err != nil {
		t.Fatal(err)
	}
	wait.NoError(t, func() error {
		states, err := p.Query("select sync_state from pg_stat_replication")
		if err == nil && !slices.Equal(states, []string{"sync"}) {
			err = fmt.Errorf("the standbys are %q, want one that is synchronous", states)
		}
		return err
	})
	if err := p.Exec("insert into kept values ('acknowledged')"); err != nil {
		t.Fatal(err)
	}
	p.Primary.Freeze(t)
	p.Primary.Thaw(t)
	p.Primary.Crash(t)
	p.Standby.Promote(t)
	wait.NoError(t, func() error { return p.Exec("insert into kept values ('by the next')") })
	if kept, err := p.Query("select n from kept order by n"); err != nil || !slices.Equal(kept, []string{"acknowledged", "by the next"}) {
		t.Errorf("the standby has %q, error %v", kept, err)
	}
}

// TestPairDemoted looks whether a demoted primary can be read and not written.
func TestPairDemoted(t *testing.T) {
	t.Parallel()
	p := StartPair(t)
	first := connect(t, p.URL(p.Primary.Address()))
	if _, err := first.Exec(t.Context(), "create table kept (n text)"); err != nil {
		t.Fatal(err)
	}
	p.Demote()
	if _, err := first.Exec(t.Context(), "insert into kept values ('x')"); err == nil {
		t.Error("the demoted one takes writes")
	}
	p.Standby.Promote(t)
	if _, err := first.Exec(t.Context(), "select * from kept"); err != nil {
		t.Errorf("the demoted one can't be read: %v", err)
	}
	if err := p.Exec("insert into kept values ('y')"); err != nil {
		t.Errorf("the promoted one can't be written: %v", err)
	}
}
