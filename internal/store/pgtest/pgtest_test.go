package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"weir/internal/wait"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(Runner{M: m})
}

func TestStartGivesFreshDatabases(t *testing.T) {
	t.Parallel()
	first, second := connect(t, Start(t)), connect(t, Start(t))
	if _, err := first.Exec(t.Context(), "create table only_here (id int)"); err != nil {
		t.Fatal(err)
	}
	var tables int
	const count = "select count(*) from pg_tables where tablename = 'only_here'"
	if err := second.QueryRow(t.Context(), count).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if tables != 0 {
		t.Errorf("the second database has %d tables of the first, want 0", tables)
	}
}

func TestCopiesAreFilledOnce(t *testing.T) {
	t.Parallel()
	fills := 0
	fill := func(url string) error {
		fills++
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		_, err = conn.Exec(t.Context(), "create table kept (id int)")
		return errors.Join(err, conn.Close(t.Context()))
	}
	for range 2 {
		conn := connect(t, Copy(t, fill))
		var rows int
		if err := conn.QueryRow(t.Context(), "select count(*) from kept").Scan(&rows); err != nil || rows != 0 {
			t.Errorf("a copy has %d rows, error %v; want the table without those of another copy", rows, err)
		}
		if _, err := conn.Exec(t.Context(), "insert into kept values (1)"); err != nil {
			t.Error(err)
		}
	}
	if fills != 1 {
		t.Errorf("the database was filled %d times", fills)
	}
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) { url = Start(t) })
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		_ = conn.Close(t.Context())
		t.Errorf("connected to %s, want an error: its test is over", url)
	}
}

// TestClusterEndsWithItsProcess kills a test process that has a cluster, and sees
// the cluster and its folder go.
func TestClusterEndsWithItsProcess(t *testing.T) {
	if os.Getenv("PGTEST_VICTIM") != "" {
		beVictim(t)
		return
	}
	t.Parallel()
	// Not t.TempDir(): the user of PostgreSQL must be able to remove things in it.
	tmp, err := os.MkdirTemp("", "weir-pgtest-victim-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "PGTEST_VICTIM=1", "TMPDIR="+tmp)
	victim.Stderr = os.Stderr
	stdout, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var url string
	for lines := bufio.NewScanner(stdout); url == "" && lines.Scan(); {
		_, url, _ = strings.Cut(lines.Text(), "url=")
	}
	if url == "" {
		t.Fatalf("the victim gave no URL: %v", victim.Wait())
	}
	conn := connect(t, url)

	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	if _, err := conn.WaitForNotification(ctx); ctx.Err() != nil {
		t.Fatalf("the cluster still serves: %v", err)
	}
	wait.NoError(t, func() error {
		left, err := filepath.Glob(filepath.Join(tmp, "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("these are still there: %v", left)
		}
		return err
	})
}

// beVictim starts a cluster, prints where it is, and waits to be killed.
func beVictim(t *testing.T) {
	_, _ = os.Stdout.WriteString("url=" + Start(t) + "\n")
	<-t.Context().Done()
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}
