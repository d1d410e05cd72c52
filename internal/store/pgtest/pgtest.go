// Package pgtest gives tests a real PostgreSQL.
//
// The first Start of a test process makes one cluster in a temporary folder, on
// a free port of 127.0.0.1, from the binaries that Debian installs; every Start
// hands out a fresh database on it. Nothing is skipped on a machine without
// PostgreSQL: the test fails and names the package to install.
//
// The cluster is kept by a small shell whose standard input is a pipe from the
// test process. When that pipe closes, the shell stops PostgreSQL and removes the
// folder. The kernel closes the pipe however the process ends, so a panic, a
// time-out or kill -9 leaves nothing behind; Main only makes the process wait
// until the cleaning is done.
//
// Only tests import this package.
package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// superuser is the role that owns the cluster and every database in it.
const superuser = "weir"

// timeout bounds each statement sent to the cluster, so that a broken machine
// shows as a failed test and not as a hanging one.
const timeout = time.Minute

// portAttempts is how often another port is tried when somebody else took the
// free one before PostgreSQL could.
const portAttempts = 5

// settings trade durability, which no test of ours needs from the server, for speed.
const settings = `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = 32MB
fsync = off
synchronous_commit = off
full_page_writes = off
jit = off
`

// keeper is the shell program that makes, holds and ends the cluster. $1 is the
// folder of the binaries, $2 the settings; it reads ports to try from its
// standard input and answers each with a line, "ready" or "failed". An initdb that
// fails shows there too: the server has nothing to start from.
const keeper = `
trap '"$1/pg_ctl" -D data -m immediate stop >/dev/null 2>&1; cd / && rm -rf "$OLDPWD"' EXIT
"$1/initdb" -D data -U ` + superuser + ` -A trust -E UTF8 --locale=C --no-sync --no-instructions >log 2>&1
printf '%s' "$2" >>data/postgresql.conf
while read -r port; do
	if "$1/pg_ctl" -D data -l log -w -t 60 -o "-p $port" start >/dev/null 2>&1; then echo ready; else echo failed; fi
done
`

// The cluster belongs to the process, as its name says, which is why this is the
// one variable outside of functions.
var shared process

// process is what this test process shares between its tests.
type process struct {
	mu       sync.Mutex
	cluster  *cluster
	failure  error // of the first attempt to start; there is no second one
	database int   // the number of the last database handed out

	filling sync.Once
	filled  string // the database that Copy copies
	unfit   error  // why there is none
}

// Start returns the URL of a fresh, empty database, which is dropped when the test ends.
func Start(tb testing.TB) string {
	tb.Helper()
	return start(tb, "")
}

// Copy is Start for a database that fill has made tables in. It fills one, the first time
// in a test process, which must have no connections after it; every Copy is one of that.
func Copy(tb testing.TB, fill func(url string) error) string {
	tb.Helper()
	shared.filling.Do(func() {
		c, name, err := shared.next()
		if err == nil {
			err = c.exec("create database " + name)
		}
		if err == nil {
			err = fill(c.url(name))
		}
		shared.filled, shared.unfit = name, err
	})
	if shared.unfit != nil {
		tb.Fatalf("make the database that tests copy: %v", shared.unfit)
	}
	return start(tb, " template "+shared.filled)
}

func start(tb testing.TB, options string) string {
	tb.Helper()
	c, name, err := shared.next()
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	if err := c.exec("create database " + name + options); err != nil {
		tb.Fatalf("create database: %v", err)
	}
	tb.Cleanup(func() {
		// force: a test that failed may have left connections open.
		if err := c.exec("drop database if exists " + name + " with (force)"); err != nil {
			tb.Errorf("drop database: %v", err)
		}
	})
	return c.url(name)
}

// Main runs the tests of m, stops the cluster if one was started, and returns the
// exit code. It is the body of a TestMain: os.Exit(pgtest.Main(m)).
func Main(m interface{ Run() int }) int {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintf(os.Stderr, "stop PostgreSQL: %v\n", err)
		return max(code, 1)
	}
	return code
}

// Runner is m with Main around it, for a caller that wants to run the tests by
// itself: goleak.VerifyTestMain(pgtest.Runner{M: m}).
type Runner struct {
	M interface{ Run() int }
}

// Run is Main.
func (r Runner) Run() int { return Main(r.M) }

// next returns the cluster, started if need be, and an unused name for a database.
func (p *process) next() (*cluster, string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cluster == nil && p.failure == nil {
		p.cluster, p.failure = startCluster()
	}
	if p.failure != nil {
		return nil, "", p.failure
	}
	p.database++
	return p.cluster, "test_" + strconv.Itoa(p.database), nil
}

func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cluster == nil {
		return nil
	}
	err := p.cluster.stop()
	p.cluster = nil
	return err
}

// cluster is a running PostgreSQL and the shell that keeps it.
type cluster struct {
	dir     string
	port    int
	shell   *exec.Cmd
	orders  *os.File // standard input of the shell; closing it ends the cluster
	answers *os.File // its standard output
}

func startCluster() (*cluster, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-pgtest-")
	if err != nil {
		return nil, err
	}
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	c, err := startShell(bin, dir, owner)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.listen(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		_ = c.stop() // the reason is in err
		return nil, fmt.Errorf("%w; its log says:\n%s", err, log)
	}
	return c, nil
}

// startShell starts the keeper. Its standard streams are plain pipes, so that no
// goroutine of this process serves them: tests look for leaked goroutines.
func startShell(bin, dir string, owner *syscall.Credential) (*cluster, error) {
	stdin, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	answers, stdout, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer stdout.Close()

	shell := exec.Command("/bin/sh", "-c", keeper, "pgtest", bin, settings)
	shell.Dir = dir
	shell.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C"}
	shell.Stdin, shell.Stdout = stdin, stdout
	// A session of its own: Ctrl-C on the terminal must reach the tests, not the
	// shell that cleans up after them.
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner}
	if err := shell.Start(); err != nil {
		orders.Close()
		answers.Close()
		return nil, err
	}
	return &cluster{dir: dir, shell: shell, orders: orders, answers: answers}, nil
}

// listen makes PostgreSQL listen on a free port.
func (c *cluster) listen() error {
	answers := bufio.NewScanner(c.answers)
	for range portAttempts {
		port, err := freePort()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(c.orders, port); err != nil {
			return err
		}
		if !answers.Scan() {
			return errors.New("the shell that starts PostgreSQL ended")
		}
		if answers.Text() == "ready" {
			c.port = port
			return nil
		}
	}
	return errors.New("PostgreSQL does not start")
}

// stop ends the cluster and waits until its folder is gone.
func (c *cluster) stop() error {
	err := c.orders.Close()
	// The shell's exit status says how the cluster ended, which nobody needs.
	if e := c.shell.Wait(); e != nil && c.shell.ProcessState == nil {
		err = errors.Join(err, e)
	}
	// The shell removed it, unless the folder above is closed to its user.
	return errors.Join(err, c.answers.Close(), os.RemoveAll(c.dir))
}

func (c *cluster) url(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, c.port, database)
}

// exec runs one statement on the cluster's own database.
func (c *cluster) exec(statement string) error {
	// Not the context of the test: that one is over when the clean-up runs.
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// binaries returns the folder of the newest PostgreSQL of this machine.
func binaries() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	newest, version := "", -1
	for _, initdb := range found {
		bin := filepath.Dir(initdb)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && v > version {
			newest, version = bin, v
		}
	}
	if newest != "" {
		return newest, nil
	}
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("the programs of PostgreSQL are neither in /usr/lib/postgresql/*/bin nor in PATH; " +
			"install them with: apt-get install postgresql")
	}
	// A link in PATH may stand alone; its target has pg_ctl and postgres beside it.
	initdb, err = filepath.EvalSymlinks(initdb)
	return filepath.Dir(initdb), err
}

// unprivileged returns whom PostgreSQL runs as: nil for the user of this process,
// or somebody else when that is root, as whom PostgreSQL refuses to run.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and this machine has neither a user postgres nor a user nobody")
}

// freePort returns a port of 127.0.0.1 that nobody listens on at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(port))
}
