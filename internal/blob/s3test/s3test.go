// Package s3test gives tests a real S3 server, versitygw.
//
// The first Start of a test process starts one server on a free port of 127.0.0.1, whose buckets
// are folders in a temporary one; every Start returns another bucket. WEIR_TEST_VERSITYGW is the
// path of the program. Without it, the go command builds the version pinned in tools/go.mod.
//
// The parent of the server is a shell whose standard input is a pipe from the test process. When
// the process ends in any way, the pipe closes, and the shell stops the server and removes the
// folder. Runner only makes the process wait for that.
//
// Only tests import this package.
package s3test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/wait"
)

// The credentials of every bucket. They have characters that must be escaped in a URL, and that are
// easy to find in a log.
const (
	Key    = "test+key"
	Secret = "test:secret/with+odd@signs%2F"
)

// CopyLimit is the size from which on the server copies an object only in parts.
const CopyLimit = 6 << 20

// keeper is the shell that runs the server: $1 is the program, $2 its address, $3 the folder with
// the buckets. It ends when its standard input does.
const keeper = `
"$1" --access "$4" --secret "$5" --port "$2" --quiet --keep-alive --copy-object-threshold "$6" posix --nometa=false "$3/data" >"$3/log" 2>&1 &
server=$!
trap 'kill -9 $server 2>/dev/null; wait $server 2>/dev/null; cd / && rm -rf "$3"' EXIT
while read -r line; do :; done
`

// shared is global because all tests of a process use one server.
var shared process

type process struct {
	mu      sync.Mutex
	server  *server
	failure error // of the first attempt to start; there is no second one
	buckets int
}

// Bucket is a bucket of the server.
type Bucket struct {
	Name     string
	Endpoint string // http://127.0.0.1:port
	Dir      string // the folder with the objects as files
}

// URL returns the bucket as a storage URL, with its credentials.
func (b Bucket) URL() string {
	return "s3+http://" + url.QueryEscape(Key) + ":" + url.QueryEscape(Secret) + "@" + b.Endpoint[len("http://"):] + "/" + b.Name
}

// Start returns an empty bucket of a running server. It is removed with the test.
func Start(tb testing.TB) Bucket {
	tb.Helper()
	s, n, err := shared.next()
	if err != nil {
		tb.Fatalf("start versitygw: %v", err)
	}
	b := Bucket{Name: "bucket-" + strconv.Itoa(n), Endpoint: "http://" + s.address}
	b.Dir = filepath.Join(s.dir, "data", b.Name)
	if err := os.Mkdir(b.Dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(b.Dir); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// Runner runs the tests of M and then stops the server. It is the argument of
// goleak.VerifyTestMain.
type Runner struct {
	M interface{ Run() int }
}

func (r Runner) Run() int {
	code := r.M.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintf(os.Stderr, "stop versitygw: %v\n", err)
		return max(code, 1)
	}
	return code
}

func (p *process) next() (*server, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil && p.failure == nil {
		p.server, p.failure = startServer()
	}
	p.buckets++
	return p.server, p.buckets, p.failure
}

func (p *process) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		return nil
	}
	err := p.server.stop()
	p.server = nil
	return err
}

// server is a running versitygw and its shell.
type server struct {
	dir     string
	address string
	shell   *exec.Cmd
	stdin   *os.File
}

func startServer() (*server, error) {
	program, err := program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-s3test-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	if err := s.start(program); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, errors.Join(fmt.Errorf("%w; its log says:\n%s", err, log), s.stop())
	}
	return s, nil
}

func (s *server) start(program string) error {
	if err := os.Mkdir(filepath.Join(s.dir, "data"), 0o755); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	stdin, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	s.address, s.stdin = address, orders
	s.shell = exec.Command("/bin/sh", "-c", keeper, "s3test", program, address, s.dir, Key, Secret, strconv.Itoa(CopyLimit))
	s.shell.Stdin = stdin
	s.shell.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.dir}
	// A session of its own: Ctrl-C must reach the tests, not what cleans up after them.
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.shell.Start(); err != nil {
		return err
	}
	return s.ready()
}

// ready waits until the server accepts connections.
func (s *server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	for tick := time.Tick(20 * time.Millisecond); ; {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return errors.New("it does not listen")
		}
	}
}

// stop ends the server and waits until its folder is removed.
func (s *server) stop() error {
	var err error
	if s.stdin != nil {
		err = s.stdin.Close()
	}
	if s.shell != nil && s.shell.Process != nil {
		_ = s.shell.Wait() // the status is of no interest
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// program returns the path of versitygw. The go command builds it and keeps it in its cache.
func program() (string, error) {
	if path := os.Getenv("WEIR_TEST_VERSITYGW"); path != "" {
		return path, nil
	}
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	tools := filepath.Join(filepath.Dir(string(module)), "tools", "go.mod")
	path, err := exec.Command("go", "tool", "-modfile="+tools, "-n", "versitygw").Output()
	if err != nil {
		return "", fmt.Errorf("go tool versitygw: %w", err)
	}
	return strings.TrimSpace(string(path)), nil
}
