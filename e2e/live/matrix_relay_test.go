//go:build soak

package live

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// sentLog is the log of when a publisher sent something. What it sends late, weir can't
// deliver in time.
type sentLog struct {
	mu    sync.Mutex
	times []time.Time
}

func (l *sentLog) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, time.Now())
}

// silence returns the longest time without anything between two moments.
func (l *sentLog) silence(from, to time.Time) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range append(l.times, to) {
		if t.After(to) {
			t = to
		}
		if t.After(from) {
			longest, from = max(longest, t.Sub(from)), t
		}
	}
	return longest
}

// relayTCP hands on what comes to the address that it returns, and back, until the test
// ends.
func (l *sentLog) relayTCP(t *testing.T, to string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			closed := func() { _, _ = in.Close(), out.Close() }
			open.Go(func() {
				defer closed()
				_, _ = io.Copy(out, noted{in, l})
			})
			open.Go(func() {
				defer closed()
				_, _ = io.Copy(in, out)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		open.Wait()
	})
	return listener.Addr().String()
}

// noted notes what is read.
type noted struct {
	io.Reader
	log *sentLog
}

func (n noted) Read(p []byte) (int, error) {
	count, err := n.Reader.Read(p)
	n.log.note()
	return count, err
}

// relayUDP is relayTCP for datagrams of one sender.
func (l *sentLog) relayUDP(t *testing.T, to string) string {
	t.Helper()
	in, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	var mu sync.Mutex
	var sender net.Addr
	open.Go(func() {
		for packet := make([]byte, 1<<16); ; {
			n, from, err := in.ReadFrom(packet)
			if err != nil {
				return
			}
			mu.Lock()
			sender = from
			mu.Unlock()
			if n > 188 { // else it is SRT's own
				l.note()
			}
			_, _ = out.Write(packet[:n])
		}
	})
	open.Go(func() {
		for packet := make([]byte, 1<<16); ; {
			n, err := out.Read(packet)
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue // nobody listens there at the moment
			}
			mu.Lock()
			back := sender
			mu.Unlock()
			if back != nil {
				_, _ = in.WriteTo(packet[:n], back)
			}
		}
	})
	t.Cleanup(func() {
		_, _ = in.Close(), out.Close()
		open.Wait()
	})
	return in.LocalAddr().String()
}
