package ingest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"weir/internal/live"
)

// RTMP lets encoders publish to rtmp://host/live/<streamKey>. With a TLS listener it is
// RTMPS.
type RTMP struct {
	Listener net.Listener
	Hub      *live.Hub
	Log      *slog.Logger

	// Counters, if there are some, count the connections.
	Counters *Counters
	// MaxConnections is how many there may be at once; 0 = 1000.
	MaxConnections int
	// MaxWaiting is how many connections from one address may be there without having
	// shown a good stream key; 0 = 32.
	MaxWaiting int

	// publish is Hub.Publish, if a test does not want another one.
	publish func(ctx context.Context, key string, from live.Source) (publisher, error)
}

// acceptPause is how long to wait when a connection could not be accepted, because the
// process has too many files open, say.
const acceptPause = 100 * time.Millisecond

// Run accepts connections until ctx ends, and returns when the last one has ended.
func (r RTMP) Run(ctx context.Context) error {
	s := newServer(r)
	ctx, cancel := context.WithCancel(ctx)
	defer s.connections.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.Listener.Close() })
	defer stop()
	for {
		conn, err := s.Listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			s.Log.Warn("connection could not be accepted", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		seat, ok := s.admit(conn.RemoteAddr())
		if !ok {
			_ = conn.Close()
			continue
		}
		s.connections.Go(func() { s.serve(ctx, conn, seat) })
	}
}

// server is a running RTMP.
type server struct {
	RTMP
	*seats
	connections sync.WaitGroup
}

func newServer(r RTMP) *server {
	if r.publish == nil {
		r.publish = publishTo(r.Hub)
	}
	return &server{RTMP: r, seats: newSeats(cmp.Or(r.MaxConnections, 1000), cmp.Or(r.MaxWaiting, 32), r.Log).countBy(r.Counters)}
}

// serve serves one connection.
func (s *server) serve(ctx context.Context, conn net.Conn, t *seat) {
	defer t.leave()
	c := newConnection(s, conn, t)
	stop := context.AfterFunc(ctx, c.cut)
	defer stop()
	// Whatever an encoder can make us do, it happens to it alone.
	defer func() {
		if problem := recover(); problem != nil {
			c.leave(false)
			c.cut()
			c.log.Error("connection ended by a defect", "err", problem, "stack", string(debug.Stack()))
		}
	}()
	err := c.run(ctx)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	c.end(ctx, err)
}

// protocol returns the name of the protocol of a connection.
func protocol(conn net.Conn) string {
	if _, ok := conn.(*tls.Conn); ok {
		return "rtmps"
	}
	return "rtmp"
}
