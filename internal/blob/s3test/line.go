package s3test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Line is the way to a bucket, which can fail.
type Line struct {
	listener net.Listener
	to       string
	moving   sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	open  chan struct{} // closed while bytes pass
	conns map[net.Conn]bool
}

// Behind returns the bucket at the other end of a line.
func (b Bucket) Behind(tb testing.TB) (Bucket, *Line) {
	tb.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Line{listener: listener, to: strings.TrimPrefix(b.Endpoint, "http://"), open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.open)
	l.moving.Go(l.run)
	tb.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		l.moving.Wait()
	})
	b.Endpoint = "http://" + listener.Addr().String()
	return b, l
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
		far, err := net.Dial("tcp4", l.to)
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
		open := l.open
		l.mu.Unlock()
		<-open
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
