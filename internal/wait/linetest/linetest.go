// Package linetest has a TCP connection that tests let fail: between weir and a database, or a bucket.
//
// Only tests import this package.
package linetest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Line is an address that leads to a server, until it fails.
type Line struct {
	listener net.Listener
	moving   sync.WaitGroup

	mu    sync.Mutex
	to    string
	delay time.Duration
	cut   bool
	open  chan struct{} // closed while bytes pass
	conns map[net.Conn]bool
}

// New returns a line to the address of a server. It ends with the test.
func New(tb testing.TB, to string) *Line {
	tb.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Line{listener: listener, to: to, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.open)
	l.moving.Go(l.run)
	tb.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.moving.Wait()
	})
	return l
}

// Address returns the address that leads to the server.
func (l *Line) Address() string { return l.listener.Addr().String() }

// Lead leads new connections to another server.
func (l *Line) Lead(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// Delay makes all that passes so much later, in each direction.
func (l *Line) Delay(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = by
}

// Cut breaks all connections, and refuses new ones.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for c := range l.conns {
		_ = c.Close()
	}
	l.letPass()
}

// Hang holds all bytes back: connections are accepted, and nothing arrives.
func (l *Line) Hang() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.letPass()
	l.open = make(chan struct{})
}

// Mend ends Cut and Hang.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
	l.letPass()
}

// letPass lets bytes pass. The caller holds the lock.
func (l *Line) letPass() {
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

func (l *Line) run() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		to := l.to
		l.mu.Unlock()
		far, err := net.Dial("tcp4", to)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		if l.cut {
			_, _ = near.Close(), far.Close()
		} else {
			l.conns[near], l.conns[far] = true, true
			l.moving.Go(func() { l.move(near, far) })
			l.moving.Go(func() { l.move(far, near) })
		}
		l.mu.Unlock()
	}
}

// move passes bytes on until one of the connections is closed.
func (l *Line) move(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		open, delay := l.open, l.delay
		l.mu.Unlock()
		<-open
		time.Sleep(delay)
		if n > 0 && err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range []any{to, from} {
		c, _ := end.(net.Conn)
		_ = c.Close()
		delete(l.conns, c)
	}
}
