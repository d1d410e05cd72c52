package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// slowKind is a way to keep a server busy with nothing.
type slowKind struct {
	name  string
	limit time.Duration // within which weir must close the connection
	// run connects and returns when weir has had enough, or with an error when it
	// let the client go on.
	run func(s *slowClients, ctx context.Context, limit time.Duration) error
}

// The limits are those that weir sets, and a while for a busy machine.
const busy = 15 * time.Second

func slowKinds() []slowKind {
	return []slowKind{
		{"slow headers", 10*time.Second + busy, func(s *slowClients, ctx context.Context, limit time.Duration) error {
			return s.drip(ctx, limit, "GET /api/stream HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		}},
		{"slow body", 20*time.Second + busy, func(s *slowClients, ctx context.Context, limit time.Duration) error {
			return s.drip(ctx, limit, "POST /api/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.key+"\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow body without a key", 20*time.Second + busy, func(s *slowClients, ctx context.Context, limit time.Duration) error {
			return s.drip(ctx, limit, "POST /api/stream HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow body nobody wants", 20*time.Second + busy, func(s *slowClients, ctx context.Context, limit time.Duration) error {
			return s.drip(ctx, limit, "GET /api/stream?limit=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.key+"\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow body to no endpoint", 20*time.Second + busy, func(s *slowClients, ctx context.Context, limit time.Duration) error {
			return s.drip(ctx, limit, "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
		}},
		{"slow reader", 30*time.Second + busy, (*slowClients).read},
		{"silent", 10*time.Second + busy, (*slowClients).silent},
		{"idle", 2*time.Minute + busy, (*slowClients).idle},
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
	errs    []error
}

// start keeps so many of them at work, of all kinds in turn, until ctx ends; each
// then sees its connection to its end. Without the patience for it the idle ones
// leave by themselves. wait waits for all.
func (s *slowClients) start(ctx context.Context, n int, patient bool) (wait func()) {
	s.closed, s.longest = map[string]int{}, map[string]time.Duration{}
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
				began := time.Now()
				err := kind.run(s, life, kind.limit)
				if life.Err() != nil {
					return
				}
				s.note(kind.name, time.Since(began), err)
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
		s.errs = append(s.errs, fmt.Errorf("%s: %w", kind, err))
		return
	}
	s.closed[kind]++
}

func (s *slowClients) dial(ctx context.Context) (net.Conn, func(), error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		// Little room for what the server sends, set before the two agree on it.
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, func() {
		stop()
		_ = conn.Close()
	}, nil
}

// drip sends a beginning and then a byte at a time, until weir hangs up.
func (s *slowClients) drip(ctx context.Context, limit time.Duration, beginning string) error {
	conn, leave, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := io.WriteString(conn, beginning); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if _, err := conn.Write([]byte{' '}); err != nil {
			return nil
		}
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := conn.Read(answer); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
	}
	return fmt.Errorf("still connected after %v", limit)
}

// silent connects and says nothing.
func (s *slowClients) silent(ctx context.Context, limit time.Duration) error {
	conn, leave, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return hungUp(conn, limit)
}

// idle asks once and then says nothing.
func (s *slowClients) idle(ctx context.Context, limit time.Duration) error {
	conn, leave, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := io.WriteString(conn, "GET /api/did HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	return hungUp(conn, limit)
}

// hungUp waits for weir to close the connection.
func hungUp(conn net.Conn, limit time.Duration) error {
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("still connected after %v", limit)
	}
	return nil
}

// read asks for a large answer and reads it so slowly that weir must give up. What
// the kernel holds can still be read then, but the end of the answer is not there.
func (s *slowClients) read(ctx context.Context, limit time.Duration) error {
	conn, leave, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := io.WriteString(conn, "GET "+s.list+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.key+"\r\n\r\n"); err != nil {
		return err
	}
	few := make([]byte, 256)
	var start strings.Builder // the head is in it
	got := int64(0)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit - busy + 5*time.Second); time.Now().Before(end); {
		n, err := conn.Read(few)
		got += int64(n)
		if start.Len() < 2048 {
			start.Write(few[:n])
		}
		if err != nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(start.String())), nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK || answer.ContentLength >= 0 && answer.ContentLength < 4<<20 {
		return fmt.Errorf("the list is answered with %d and %d bytes, which is too little to be slow with", answer.StatusCode, answer.ContentLength)
	}
	_ = conn.SetReadDeadline(time.Now().Add(busy))
	rest, err := io.Copy(io.Discard, conn)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("still connected after %v", limit)
	case answer.ContentLength >= 0 && got+rest >= answer.ContentLength:
		return fmt.Errorf("weir sent all %d bytes in spite of a client that did not read them", got+rest)
	}
	return nil
}
