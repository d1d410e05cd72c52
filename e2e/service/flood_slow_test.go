package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"weir/e2e/harness"
	"weir/internal/wait"
)

// slowKind is a way to keep a server busy with nothing.
type slowKind struct {
	name  string
	limit time.Duration // after which weir closes the connection
	// run is slow until weir has had enough; it returns an error when weir let it go on.
	run func(s *slowClients, conn net.Conn, limit time.Duration) error
}

func slowKinds() []slowKind {
	return []slowKind{
		{"slow headers", 10 * time.Second, func(s *slowClients, conn net.Conn, limit time.Duration) error {
			return drip(conn, limit, "GET /api/stream HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		}},
		{"slow body", 20 * time.Second, func(s *slowClients, conn net.Conn, limit time.Duration) error {
			return drip(conn, limit, "POST /api/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.key+"\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow body without a key", 20 * time.Second, func(s *slowClients, conn net.Conn, limit time.Duration) error {
			return drip(conn, limit, "POST /api/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow body nobody wants", 20 * time.Second, func(s *slowClients, conn net.Conn, limit time.Duration) error {
			return drip(conn, limit, "GET /api/stream?limit=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.key+"\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow body to no endpoint", 20 * time.Second, func(s *slowClients, conn net.Conn, limit time.Duration) error {
			return drip(conn, limit, "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow body to healthz", 20 * time.Second, func(s *slowClients, conn net.Conn, limit time.Duration) error {
			return drip(conn, limit, "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow reader", 30 * time.Second, (*slowClients).read},
		{"silent", 10 * time.Second, (*slowClients).silent},
		{"idle", 2 * time.Minute, (*slowClients).idle},
	}
}

// slowClients are clients that take their time.
type slowClients struct {
	addr string
	key  string
	list string // path of a list that is larger than the buffers of a connection

	mu      sync.Mutex
	closed  map[string]int           // by kind
	longest map[string]time.Duration // by kind
	errs    map[string]int           // what went wrong → how often
}

// start keeps so many of them at work, of all kinds in turn, until ctx ends; each
// then sees its connection to its end. Without the timeout for it the idle ones
// leave by themselves. wait waits for all.
func (s *slowClients) start(ctx context.Context, n int, patient bool) (wait func()) {
	s.closed, s.longest, s.errs = map[string]int{}, map[string]time.Duration{}, map[string]int{}
	kinds := slowKinds()
	var wg sync.WaitGroup
	for i := range n {
		kind := kinds[i%len(kinds)]
		wg.Go(func() {
			// One after the other, as clients come.
			select {
			case <-time.After(time.Duration(i) * 20 * time.Millisecond):
			case <-ctx.Done():
			}
			life := context.WithoutCancel(ctx)
			if kind.name == "idle" && !patient {
				life = ctx
			}
			for ctx.Err() == nil {
				took, err := s.run(life, kind)
				if life.Err() != nil {
					return
				}
				s.note(kind.name, took, err)
			}
		})
	}
	return wg.Wait
}

func (s *slowClients) note(kind string, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest[kind] = max(s.longest[kind], took)
	if err != nil {
		s.errs[kind+": "+err.Error()]++
		return
	}
	s.closed[kind]++
}

// run connects, is slow, and says for how long weir stood that.
func (s *slowClients) run(ctx context.Context, kind slowKind) (time.Duration, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		// Little room for what weir sends, set before the two agree on it.
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	began := time.Now()
	err = kind.run(s, conn, kind.limit)
	return time.Since(began), err
}

// drip sends a beginning and then a byte at a time, until weir hangs up.
func drip(conn net.Conn, limit time.Duration, beginning string) error {
	if _, err := io.WriteString(conn, beginning); err != nil {
		return err
	}
	response := make([]byte, 4096)
	for end := time.Now().Add(limit + wait.Limit); time.Now().Before(end); {
		if _, err := conn.Write([]byte{' '}); err != nil {
			return nil
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := conn.Read(response); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
	}
	return harness.ErrConnected
}

// silent says nothing.
func (s *slowClients) silent(conn net.Conn, limit time.Duration) error {
	return harness.HungUp(conn, limit)
}

// idle asks once and then says nothing.
func (s *slowClients) idle(conn net.Conn, limit time.Duration) error {
	if _, err := io.WriteString(conn, "GET /api/did HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	return harness.HungUp(conn, limit)
}

// read asks for a large response and reads it so slowly that weir must give up. What
// the kernel holds can still be read then, but the end of the response is not there.
func (s *slowClients) read(conn net.Conn, limit time.Duration) error {
	if _, err := io.WriteString(conn, "GET "+s.list+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.key+"\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(&slowReader{conn: conn, long: limit + 10*time.Second}), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the list is answered with %d", response.StatusCode)
	}
	_, err = io.Copy(io.Discard, response.Body)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return harness.ErrConnected
	case err == nil:
		return errors.New("weir sent all of the response although nobody read it for a long time")
	}
	return nil
}

// slowReader reads a little at a time for long after the first byte, then the rest
// at once.
type slowReader struct {
	conn net.Conn
	long time.Duration
	end  time.Time
}

// Read implements io.Reader.
func (r *slowReader) Read(p []byte) (int, error) {
	if !r.end.IsZero() && time.Now().After(r.end) {
		_ = r.conn.SetReadDeadline(r.end.Add(wait.Limit))
		return r.conn.Read(p)
	}
	n, err := r.conn.Read(p[:min(len(p), 256)])
	if r.end.IsZero() { // to make the response took weir a while, which is not the client's
		r.end = time.Now().Add(r.long)
	}
	time.Sleep(500 * time.Millisecond)
	return n, err
}
