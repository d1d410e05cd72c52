package pgtest

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"weir/internal/wait"
)

// TestPair looks whether a standby has what its primary acknowledged, once that has crashed, and whether
// one that was demoted can be read and not written.
func TestPair(t *testing.T) {
	t.Parallel()
	var addrs [2]string
	for i := range addrs {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		addrs[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	p := StartPair(t, addrs)
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
	p.Freeze(0)
	p.Thaw(0)
	p.Crash(0)
	p.Promote()
	wait.NoError(t, func() error { return p.Exec("insert into kept values ('by the next')") })
	if kept, err := p.Query("select n from kept order by n"); err != nil || !slices.Equal(kept, []string{"acknowledged", "by the next"}) {
		t.Errorf("the standby has %q, error %v", kept, err)
	}
}

// TestPairDemoted looks whether a demoted primary can be read and not written.
func TestPairDemoted(t *testing.T) {
	t.Parallel()
	var addrs [2]string
	for i := range addrs {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		addrs[i] = "127.0.0.1:" + strconv.Itoa(port)
	}
	p := StartPair(t, addrs)
	first := connect(t, p.URL(addrs[0]))
	if _, err := first.Exec(t.Context(), "create table kept (n text)"); err != nil {
		t.Fatal(err)
	}
	p.Demote()
	if _, err := first.Exec(t.Context(), "insert into kept values ('x')"); err == nil {
		t.Error("the demoted one takes writes")
	}
	p.Promote()
	if _, err := first.Exec(t.Context(), "select * from kept"); err != nil {
		t.Errorf("the demoted one can't be read: %v", err)
	}
	if err := p.Exec("insert into kept values ('y')"); err != nil {
		t.Errorf("the promoted one can't be written: %v", err)
	}
}
