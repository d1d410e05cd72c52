package ingest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/rtmp"
	"weir/internal/weir"
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
		slot, ok := s.admit(conn.RemoteAddr())
		if !ok {
			_ = conn.Close()
			continue
		}
		s.connections.Go(func() { s.serve(ctx, conn, slot) })
	}
}

// server is a running RTMP.
type server struct {
	RTMP
	*slots
	connections sync.WaitGroup
}

func newServer(r RTMP) *server {
	if r.publish == nil {
		r.publish = publishTo(r.Hub)
	}
	slots := newSlots(cmp.Or(r.MaxConnections, 1000), cmp.Or(r.MaxWaiting, 32), r.Log)
	return &server{RTMP: r, slots: slots.countBy(r.Counters)}
}

// serve serves one connection.
func (s *server) serve(ctx context.Context, conn net.Conn, t *slot) {
	defer t.leave()
	remote := conn.RemoteAddr().String()
	log := s.Log.With("remote", remote)
	c := &rtmpConnection{server: s, conn: rtmp.NewConn(conn), slot: t, log: log}
	c.from = live.Source{Protocol: protocol(conn), Remote: remote, Reuse: c.conn.Reuse}
	stop := context.AfterFunc(ctx, c.conn.Cut)
	defer stop()
	// A defect that one encoder triggers ends its connection alone.
	defer func() {
		if problem := recover(); problem != nil {
			c.leave(false)
			c.conn.Cut()
			c.log.Error("connection ended by a defect", "err", problem, "stack", string(debug.Stack()))
		}
	}()
	err := c.conn.Serve(ctx, rtmp.Handler{
		App:     "live",
		Publish: c.publish,
		Tracks:  func(video, audio bool) { c.feed.promise(video, audio) },
		Packet:  func(p codec.Packet, at time.Duration) error { return c.feed.add(ctx, p, at) },
	})
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

// rtmpConnection is the connection of an encoder.
type rtmpConnection struct {
	server *server
	conn   *rtmp.Conn
	slot   *slot
	log    *slog.Logger
	from   live.Source

	publisher publisher // nil = no stream key was accepted yet
	feed      *feed
	watch     sync.WaitGroup
	left      chan struct{} // closed when the publisher is let go
}

// publish lets in an encoder that has a good stream key. The error is for the encoder.
func (c *rtmpConnection) publish(ctx context.Context, key string) error {
	p, err := c.server.publish(ctx, key, c.from)
	if err != nil {
		return c.refused(err)
	}
	c.slot.settle()
	c.publisher, c.left = p, make(chan struct{})
	c.log = c.log.With("stream", p.StreamID())
	c.feed = newFeed(p, bounded(c.log))
	c.watch.Go(func() {
		select {
		case <-p.Done():
			c.conn.Cut()
		case <-c.left:
		}
	})
	c.log.Info("publisher connected", "protocol", c.from.Protocol)
	return nil
}

// refused returns what the encoder is told about an error of the hub.
func (c *rtmpConnection) refused(err error) error {
	switch e, ok := errors.AsType[*weir.Error](err); {
	case weir.KindOf(err) == weir.NotFound:
		return errors.New("no stream has this stream key")
	case ok && e.Kind != weir.Internal:
		return errors.New(strings.Join(e.Messages, "; "))
	}
	c.log.Error("stream key could not be looked up", "err", err)
	return errors.New("the stream key could not be looked up; try again")
}

// end lets the publisher go, logs why, and closes the connection.
func (c *rtmpConnection) end(ctx context.Context, err error) {
	var ended error // by the hub
	published := c.publisher != nil
	if published {
		select {
		case <-c.publisher.Done():
			ended = c.publisher.Write(live.Frame{})
		default:
			err = errors.Join(err, c.feed.finish(ctx))
		}
	}
	clean := errors.Is(err, rtmp.ErrEnded)
	c.leave(clean)
	refusal, refused := errors.AsType[*rtmp.Refusal](err)
	stopping := errors.Is(err, context.Canceled)
	switch {
	case published || stopping:
		logEnd(c.log, ending{stopping: stopping, ended: ended, clean: clean, why: err, lost: lost(err)})
	case refused:
		c.slot.fail()
		c.slot.slots.unauthenticated.tell(c.log, slog.LevelWarn, "publisher refused", refusal.Reason)
	case c.conn.Received() == 0 && quiet(err):
		c.log.Debug("connection without a byte")
	default:
		c.slot.fail()
		c.slot.slots.unauthenticated.tell(c.log, slog.LevelInfo,
			"connection ended before a stream key was shown", lost(err))
	}
	c.conn.Close()
}

// leave lets the publisher go.
func (c *rtmpConnection) leave(clean bool) {
	p := c.publisher
	if p == nil {
		return
	}
	c.publisher = nil
	close(c.left)
	c.watch.Wait()
	p.Close(clean)
}

// lost says in plain words how a connection was lost.
func lost(err error) string {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, io.EOF):
		return "it closed"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed in the middle of a message"
	case ok && timeout.Timeout():
		return "nothing came in time"
	}
	return err.Error()
}

// quiet reports whether a connection did nothing wrong before it ended. Without TLS, or
// with a bad one, no byte is received either.
func quiet(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || ok && timeout.Timeout()
}
