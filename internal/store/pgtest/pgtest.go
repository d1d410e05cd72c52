// Package pgtest gives tests a real PostgreSQL.
//
// The first Start of a test process makes one cluster in a temporary folder, on a free port of
// 127.0.0.1, from the binaries that Debian installs. Every Start returns a new database on it. Without
// PostgreSQL the test fails and names the package to install. NewServer makes a cluster for one test,
// which may stop it and add a standby, and Bounce puts PgBouncer before a database.
//
// The cluster is run by a small shell whose standard input is a pipe from the test process. When
// that pipe closes, the shell stops PostgreSQL and removes the folder. The kernel closes the pipe
// however the process ends, so a panic, a timeout or kill -9 leaves nothing behind; Main only waits
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
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"weir/internal/wait"
)

// superuser is the role that owns the cluster and every database in it.
const superuser = "weir"

// portAttempts is how many ports are tried: another process may take a free port before PostgreSQL.
const portAttempts = 5

// settings trade durability for speed.
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

// keeper is the shell program that makes, runs and removes the cluster. $1 is the folder of the
// binaries, $2 the settings, $3 the port of the primary, for a standby. It reads orders from its
// standard input and replies to each with a line, "ready" or "failed". It also replies "failed" if
// the cluster could not be made.
const keeper = `
trap '"$1/pg_ctl" -D data -m immediate stop >/dev/null 2>&1; cd / && rm -rf "$OLDPWD"' EXIT
if [ "$3" ]; then
	"$1/pg_basebackup" -d "host=127.0.0.1 port=$3 user=` + superuser + `" -D data -R -X stream -c fast --no-sync >log 2>&1
else
	"$1/initdb" -D data -U ` + superuser + ` -A trust -E UTF8 --locale=C --no-sync --no-instructions >log 2>&1
	printf '%s' "$2" >>data/postgresql.conf
fi
while read -r order port; do
	case $order in
	start) "$1/pg_ctl" -D data -l log -w -t 60 -o "-p $port" start ;;
	crash) "$1/pg_ctl" -D data -w -m immediate stop ;;
	promote) "$1/pg_ctl" -D data -w promote ;;
	esac >/dev/null 2>&1
	if [ $? = 0 ]; then echo ready; else echo failed; fi
done
`

// All tests of the process share the cluster, which is why this is a global variable.
var shared process

// process is the state that the tests of this process share.
type process struct {
	mu       sync.Mutex
	cluster  *cluster
	failure  error // of the first attempt to start; there is no second one
	database int   // the number of the last database

	filling sync.Once
	filled  string // the database that Copy copies
	unfit   error  // why there is none
}

// Start returns the URL of a fresh, empty database, which is dropped when the test ends.
func Start(tb testing.TB) string {
	tb.Helper()
	return start(tb, "")
}

// Copy is Start for a copy of a database in which fill has made tables. The first Copy of a test
// process fills it; fill must leave no connections open.
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

// Runner runs Main, for a caller that runs the tests itself:
// goleak.VerifyTestMain(pgtest.Runner{M: m}).
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
		p.cluster, p.failure = startCluster(settings, "")
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
	replies *bufio.Scanner
	stdout  *os.File // of the shell
}

// startCluster starts a cluster, a standby if the port of a primary is given.
func startCluster(settings, primary string) (*cluster, error) {
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
	c, err := startShell(owner, dir, bin, settings, primary)
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

// startShell starts the keeper. Its standard streams are plain pipes, which need no goroutine:
// tests look for leaked goroutines.
func startShell(owner *syscall.Credential, dir string, args ...string) (*cluster, error) {
	stdin, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	replies, stdout, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer stdout.Close()

	shell := exec.Command("/bin/sh", append([]string{"-c", keeper, "pgtest"}, args...)...)
	shell.Dir = dir
	shell.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C"}
	shell.Stdin, shell.Stdout = stdin, stdout
	// Its own session: Ctrl-C on the terminal must reach the tests, not the shell that cleans up
	// after them.
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner}
	if err := shell.Start(); err != nil {
		orders.Close()
		replies.Close()
		return nil, err
	}
	return &cluster{dir: dir, shell: shell, orders: orders, replies: bufio.NewScanner(replies), stdout: replies}, nil
}

// listen makes PostgreSQL listen on a free port.
func (c *cluster) listen() error {
	for range portAttempts {
		port, err := freePort()
		if err != nil {
			return err
		}
		ready, err := c.order("start " + strconv.Itoa(port))
		if err != nil {
			return err
		}
		if ready {
			c.port = port
			return nil
		}
	}
	return errors.New("PostgreSQL does not start")
}

// order gives the shell an order, and returns whether it was carried out.
func (c *cluster) order(order string) (ready bool, err error) {
	if _, err := fmt.Fprintln(c.orders, order); err != nil {
		return false, err
	}
	if !c.replies.Scan() {
		return false, errors.New("the shell that runs PostgreSQL ended")
	}
	return c.replies.Text() == "ready", nil
}

// stop ends the cluster and waits until its folder is removed.
func (c *cluster) stop() error {
	err := c.orders.Close()
	// The exit status of the shell does not matter.
	if e := c.shell.Wait(); e != nil && c.shell.ProcessState == nil {
		err = errors.Join(err, e)
	}
	// The shell removed the folder, unless its user may not write to the parent folder.
	return errors.Join(err, c.stdout.Close(), os.RemoveAll(c.dir))
}

func (c *cluster) url(database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, c.port, database)
}

// exec runs one statement on the cluster's own database.
func (c *cluster) exec(statement string) error {
	// Not the context of the test: that has ended when the clean-up runs.
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
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
	// initdb in PATH may be a link; pg_ctl and postgres are beside its target.
	initdb, err = filepath.EvalSymlinks(initdb)
	return filepath.Dir(initdb), err
}

// unprivileged returns the user that runs PostgreSQL: nil for that of this process, or another one
// if that is root, because PostgreSQL refuses to run as root.
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

// freePort returns a free port of 127.0.0.1.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
