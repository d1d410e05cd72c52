//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib"

	"weir/internal/wait"
)

// broadcast is a stream of a server: where it is sent to, and where it is watched.
type broadcast struct {
	rtmp     string // rtmp://host/app#key
	playlist string // of HLS; "" = the server has none
}

// late is how late a message may be sent without being counted.
const late = 200 * time.Millisecond

// publishers are the streams that are sent to a server.
type publishers struct {
	film   *film
	group  sync.WaitGroup
	late   atomic.Int64 // messages
	failed atomic.Pointer[error]
}

// publish begins to send a stream, until ctx ends, and returns when its first byte of media
// is sent.
func (l *publishers) publish(ctx context.Context, t *testing.T, b broadcast) time.Time {
	t.Helper()
	conn, err := dial(ctx, b)
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
	began := time.Now()
	l.group.Go(func() {
		if err := l.send(ctx, conn, began); err != nil && ctx.Err() == nil {
			l.failed.CompareAndSwap(nil, &err)
		}
	})
	return began
}

// dial connects and says what will be sent.
func dial(ctx context.Context, b broadcast) (net.Conn, error) {
	address, err := url.Parse(b.rtmp)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	client := gortmplib.Client{URL: address, Publish: true}
	client.DialContext = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return conn, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait.Limit)
	defer cancel()
	return conn, client.Initialize(ctx)
}

// send sends the film until ctx ends, each message when it is due.
func (l *publishers) send(ctx context.Context, conn net.Conn, start time.Time) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	l.group.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // acknowledgements
	defer conn.Close()
	var b []byte
	for _, tag := range l.film.head {
		b = tag.appendTo(b, 0)
	}
	if _, err := conn.Write(b); err != nil {
		return err
	}
	for begin := time.Duration(0); ; begin += l.film.length {
		for i := range l.film.frames {
			tag := &l.film.frames[i]
			at := begin + tag.at
			wait := time.Until(start.Add(at))
			if wait > 0 {
				time.Sleep(wait)
			} else if wait < -late {
				l.late.Add(1)
			}
			b = tag.appendTo(b[:0], at)
			if _, err := conn.Write(b); err != nil {
				return err
			}
		}
	}
}

// check fails when a stream has ended.
func (l *publishers) check(t *testing.T) {
	t.Helper()
	if err := l.failed.Load(); err != nil {
		t.Fatalf("a publisher was disconnected: %v", *err)
	}
}

// sleep waits, unless the test ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the benchmark was ended: %w", errors.Join(ctx.Err(), context.Cause(ctx)))
	}
}
