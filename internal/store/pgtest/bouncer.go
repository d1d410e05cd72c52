package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/wait"
)

// bouncerConfig is the configuration of PgBouncer: the port of PostgreSQL, its own port, the mode.
const bouncerConfig = `
[databases]
* = host=127.0.0.1 port=%d user=` + superuser + `
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
`

// bouncer is the shell program that runs PgBouncer until its standard input is closed, which the
// kernel does when the test process ends.
const bouncer = `"$1" -q "$2" 2>/dev/null & cat >/dev/null; kill $!; wait`

// Bounce starts a real PgBouncer before the database of a URL that Start or Copy has returned, and
// returns its URL. The mode is that of its pool, such as "transaction".
func Bounce(tb testing.TB, url, mode string) string {
	tb.Helper()
	program, err := exec.LookPath("/usr/sbin/pgbouncer")
	if err != nil {
		tb.Fatal("PgBouncer is not installed; install it with: apt-get install pgbouncer")
	}
	database, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	owner, err := unprivileged() // PgBouncer does not run as root either
	if err != nil {
		tb.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "weir-pgtest-") // not that of the test, which only its user may read
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	err = errors.Join(os.Chmod(dir, 0o755),
		os.WriteFile(file, fmt.Appendf(nil, bouncerConfig, database.Port, port, mode), 0o644))
	if err != nil {
		tb.Fatal(err)
	}
	stdin, running, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	shell := exec.Command("/bin/sh", "-c", bouncer, "pgtest", program, file)
	shell.Stdin = stdin
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner}
	err = shell.Start()
	_ = stdin.Close()
	if err != nil {
		_ = running.Close()
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = running.Close()
		_ = shell.Wait() // its status is that of a process that was killed
	})
	through := fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, port, database.Database)
	wait.NoError(tb, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		conn, err := pgx.Connect(ctx, through)
		if err == nil {
			err = conn.Close(ctx)
		}
		return err
	})
	return through
}
