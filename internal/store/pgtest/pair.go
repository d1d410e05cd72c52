package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/wait"
)

// pairSettings are those of a PostgreSQL as most people run it, except for fsync: a crash of the process
// loses nothing that was written.
const pairSettings = `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 32MB
fsync = off
full_page_writes = off
wal_level = replica
jit = off
`

// pairKeeper is the shell that makes, runs and removes a pair. $1 is the folder of the binaries, $2 the
// settings, $3 and $4 the ports. It runs each line of its standard input and replies with "ok" or "failed".
const pairKeeper = `
pids() { pm=$(head -1 "$1/postmaster.pid") && echo "$pm" $(cat "/proc/$pm/task/$pm/children"); }
stop() { kill -CONT $(pids "$1"); "$bin/pg_ctl" -D "$1" -m immediate -w stop; }
start() { "$bin/pg_ctl" -D "$1" -l "$1.log" -w -t 60 start; }
make() {
	"$bin/initdb" -D 0 -U ` + superuser + ` -A trust -E UTF8 --locale=C --no-sync --no-instructions &&
	printf '%s\n' "$1" >>0/postgresql.conf && echo "port = $2" >>0/postgresql.conf && start 0 &&
	"$bin/createdb" -h 127.0.0.1 -p "$2" -U ` + superuser + ` weir &&
	"$bin/pg_basebackup" -D 1 -h 127.0.0.1 -p "$2" -U ` + superuser + ` -R -X stream -c fast &&
	echo "port = $3" >>1/postgresql.conf && start 1 &&
	echo "synchronous_standby_names = '*'" >>0/postgresql.conf && "$bin/pg_ctl" -D 0 reload
}
bin=$1
trap '{ stop 0; stop 1; } >/dev/null 2>&1; cd / && rm -rf "$OLDPWD"' EXIT
if make "$2" "$3" "$4" >log 2>&1; then echo ok; else echo failed; fi
while read -r order; do
	if eval "$order" >>log 2>&1; then echo ok; else echo failed; fi
done
`

// Pair are two PostgreSQL: 0, the primary, and 1, its synchronous standby. A write is answered when both
// have it. Unlike the cluster of Start, a pair belongs to one test, which lets it fail.
type Pair struct {
	Addrs [2]string

	tb      testing.TB
	dir     string
	mu      sync.Mutex
	orders  *os.File
	replies *bufio.Scanner
}

// StartPair starts a pair that listens on these addresses of 127.0.0.1 until the test ends.
func StartPair(tb testing.TB, addrs [2]string) *Pair {
	tb.Helper()
	p := &Pair{Addrs: addrs, tb: tb}
	if err := p.start(); err != nil {
		tb.Fatalf("start two PostgreSQL: %v", err)
	}
	return p
}

func (p *Pair) start() error {
	bin, err := binaries()
	if err != nil {
		return err
	}
	owner, err := unprivileged()
	if err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "weir-pgpair-"); err != nil {
		return err
	}
	if owner != nil {
		if err := os.Chown(p.dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return errors.Join(err, os.RemoveAll(p.dir))
		}
	}
	stdin, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	replies, stdout, err := os.Pipe()
	if err != nil {
		return errors.Join(err, orders.Close())
	}
	defer stdout.Close()
	args := []string{"-c", pairKeeper, "pgtest", bin, pairSettings}
	for _, addr := range p.Addrs {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return err
		}
		args = append(args, port)
	}
	shell := exec.Command("/bin/sh", args...)
	shell.Dir = p.dir
	shell.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + p.dir, "LC_ALL=C"}
	shell.Stdin, shell.Stdout = stdin, stdout
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner}
	if err := shell.Start(); err != nil {
		return errors.Join(err, orders.Close(), replies.Close())
	}
	p.orders, p.replies = orders, bufio.NewScanner(replies)
	p.tb.Cleanup(func() {
		_ = orders.Close()
		_ = shell.Wait() // its status does not matter
		_ = replies.Close()
		_ = os.RemoveAll(p.dir)
	})
	return p.reply("start")
}

func (p *Pair) reply(order string) error {
	if !p.replies.Scan() {
		return fmt.Errorf("%s: the shell ended", order)
	}
	if p.replies.Text() == "ok" {
		return nil
	}
	var logs []string
	for _, name := range []string{"log", "0.log", "1.log"} {
		text, _ := os.ReadFile(filepath.Join(p.dir, name))
		logs = append(logs, string(text[max(0, len(text)-2000):]))
	}
	return fmt.Errorf("%s failed; the logs say:\n%s", order, strings.Join(logs, "\n"))
}

// order runs a line of shell.
func (p *Pair) order(format string, args ...any) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	order := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(p.orders, order); err != nil {
		p.tb.Fatal(err)
	}
	if err := p.reply(order); err != nil {
		p.tb.Fatal(err)
	}
}

// Crash ends one of the two at once.
func (p *Pair) Crash(i int) { p.tb.Helper(); p.order("stop %d", i) }

// Start starts one that has crashed.
func (p *Pair) Start(i int) { p.tb.Helper(); p.order("start %d", i) }

// Freeze stops all processes of one, which keeps its connections.
func (p *Pair) Freeze(i int) { p.tb.Helper(); p.order("kill -STOP $(pids %d)", i) }

// Thaw lets one go on that was frozen.
func (p *Pair) Thaw(i int) { p.tb.Helper(); p.order("kill -CONT $(pids %d)", i) }

// Promote makes the standby a primary, which has no standby then.
func (p *Pair) Promote() { p.tb.Helper(); p.order(`"$bin/pg_ctl" -D 1 -w -t 60 promote`) }

// Demote makes the first read-only. It keeps its connections: they can read, and writes fail.
func (p *Pair) Demote() {
	p.tb.Helper()
	p.order(`echo "default_transaction_read_only = on" >>0/postgresql.conf && "$bin/pg_ctl" -D 0 reload`)
	// A write that comes before all of its processes know it would wait for the standby for ever.
	wait.NoError(p.tb, func() error {
		if _, err := p.query(p.Addrs[0], "SELECT 1::text"); err == nil {
			return errors.New("the demoted one can still be written")
		}
		return nil
	})
}

// URL returns the URL of the database on both, through whatever listens on these addresses instead: that
// on which it can be written.
func (p *Pair) URL(addrs ...string) string {
	if len(addrs) == 0 {
		addrs = p.Addrs[:]
	}
	return "postgres://" + superuser + "@" + strings.Join(addrs, ",") + "/weir?sslmode=disable&target_session_attrs=read-write&connect_timeout=3"
}

// Exec runs a statement, past everything between weir and the pair.
func (p *Pair) Exec(statement string) error {
	_, err := p.Query(statement)
	return err
}

// Query returns the first column of a query as text.
func (p *Pair) Query(statement string) (column []string, err error) {
	return p.query(strings.Join(p.Addrs[:], ","), statement)
}

// query is Query on those of the two that have these addresses.
func (p *Pair) query(addrs, statement string) (column []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.tb.Context()), wait.Limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL(addrs))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
