package ingest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
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

	// MaxConnections is how many there may be at once; 0 = 1000.
	MaxConnections int
	// MaxWaiting is how many connections from one address may be there without having
	// shown a good stream key; 0 = 32.
	MaxWaiting int

	// publish is Hub.Publish, if a test does not want another one.
	publish func(ctx context.Context, key string, from live.Source) (publisher, error)
}

const (
	// acceptPause is how long to wait when a connection could not be accepted, because
	// the process has too many files open, say.
	acceptPause = 100 * time.Millisecond
	// tellEvery is how often the log tells of connections that were turned away.
	tellEvery = 10 * time.Second
)

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
	connections sync.WaitGroup

	mu         sync.Mutex
	open       int
	waiting    map[netip.Prefix]int // connections without a good stream key
	turnedAway int                  // since the log told of it
	told       time.Time
}

func newServer(r RTMP) *server {
	r.MaxConnections, r.MaxWaiting = cmp.Or(r.MaxConnections, 1000), cmp.Or(r.MaxWaiting, 32)
	if r.publish == nil {
		r.publish = func(ctx context.Context, key string, from live.Source) (publisher, error) {
			p, err := r.Hub.Publish(ctx, key, from)
			if err != nil {
				return nil, err
			}
			return p, nil
		}
	}
	return &server{RTMP: r, waiting: map[netip.Prefix]int{}}
}

// seat is the place of a connection among those that are allowed.
type seat struct {
	server  *server
	from    netip.Prefix
	waiting bool
}

// admit gives a connection a seat, if there is one.
func (s *server) admit(remote net.Addr) (*seat, bool) {
	from := network(remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.MaxConnections || s.waiting[from] >= s.MaxWaiting {
		s.turnedAway++
		if now := time.Now(); now.Sub(s.told) > tellEvery {
			s.Log.Warn("too many connections; some were turned away", "count", s.turnedAway, "open", s.open,
				"waiting", s.waiting[from], "remote", remote.String())
			s.turnedAway, s.told = 0, now
		}
		return nil, false
	}
	s.open++
	s.waiting[from]++
	return &seat{s, from, true}, true
}

// settle says that the connection showed a good stream key.
func (t *seat) settle() {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	if !t.waiting {
		return
	}
	t.waiting = false
	if t.server.waiting[t.from]--; t.server.waiting[t.from] == 0 {
		delete(t.server.waiting, t.from)
	}
}

// leave gives the seat back.
func (t *seat) leave() {
	t.settle()
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	t.server.open--
}

// network returns what counts as one address: with IPv6, everybody has many.
func network(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr, bits := tcp.AddrPort().Addr().Unmap().WithZone(""), 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
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
