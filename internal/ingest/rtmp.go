package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"weir/internal/budget"
	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/rtmp"
	"weir/internal/weir"
)

// RTMP lets encoders publish to rtmp://host/live/<streamKey>. With a TLS listener it is RTMPS.
type RTMP struct {
	Listener net.Listener
	Hub      *live.Hub
	Log      *slog.Logger
	// Admission admits the connections; those of a listener of a budget leave it when they are on air.
	Admission *Admission

	publish publishFunc // for tests; nil = that of Hub
}

// acceptPause is the delay after a connection could not be accepted, for example because the
// process has too many files open.
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
			_ = pause(ctx, acceptPause)
			continue
		}
		slot, err := s.Admission.admit(addressOf(conn.RemoteAddr()))
		if err != nil {
			_ = conn.Close()
			continue
		}
		s.connections.Go(func() { s.serve(ctx, conn, slot) })
	}
}

// server is a running RTMP.
type server struct {
	RTMP
	unauthenticated *unauthenticatedLog
	connections     sync.WaitGroup
}

func newServer(r RTMP) *server {
	if r.publish == nil {
		r.publish = publishTo(r.Hub)
	}
	return &server{RTMP: r, unauthenticated: newUnauthenticatedLog()}
}

func (s *server) serve(ctx context.Context, conn net.Conn, t *slot) {
	defer t.free()
	remote := conn.RemoteAddr().String()
	log := s.Log.With("remote", remote)
	c := &rtmpConnection{server: s, conn: rtmp.NewConn(conn), slot: t, place: budget.Of(conn), log: log}
	c.from = live.Source{Protocol: protocol(conn), Remote: remote, Reuse: c.conn.Reuse}
	stop := context.AfterFunc(ctx, c.conn.Cut)
	defer stop()
	// A panic that an encoder causes ends only its own connection.
	defer func() {
		if problem := recover(); problem != nil {
			if c.publisher != nil {
				c.unwatch()
				c.publisher.Close(false)
			}
			c.conn.Cut()
			c.log.Error("connection ended by a panic", "err", problem, "stack", string(debug.Stack()))
		}
	}()
	err := c.conn.Serve(ctx, rtmp.Handler{
		App:     "live",
		Publish: c.publish,
		Tracks:  func(video, audio bool) { c.feed.announce(video, audio) },
		Packet:  func(p codec.Packet, at time.Duration) error { return c.feed.addPacket(ctx, p, at) },
	})
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	c.end(ctx, err)
}

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
	place  *budget.Conn // nil = it is in no budget
	log    *slog.Logger
	from   live.Source

	unchecked bool      // its stream key could not be looked up, which is not its fault
	publisher publisher // nil = no stream key was accepted yet
	feed      *feed
	unwatch   func() // stops waiting for the end of the publisher
}

// publish accepts an encoder with a valid stream key. The error is for the encoder.
func (c *rtmpConnection) publish(ctx context.Context, key string) error {
	p, err := c.server.publish(ctx, key, c.from)
	if err != nil {
		c.unchecked = weir.Retriable(err)
		return errors.New(c.server.unauthenticated.refusedKey(err, c.log))
	}
	if err := c.slot.goOnAir(p); err != nil {
		return errors.New(c.server.unauthenticated.refusedKey(err, c.log))
	}
	c.place.Leave() // it is not evicted from now on
	c.publisher = p
	c.log = c.log.With("stream", p.StreamID())
	c.feed = newFeed(p, bounded(c.log))
	var watch sync.WaitGroup
	left := make(chan struct{})
	watch.Go(func() {
		select {
		case <-p.Done():
			c.conn.Cut()
		case <-left:
		}
	})
	c.unwatch = sync.OnceFunc(func() {
		close(left)
		watch.Wait()
	})
	c.log.Info("publisher connected", "protocol", c.from.Protocol)
	return nil
}

// end closes the publisher, logs why, and closes the connection.
func (c *rtmpConnection) end(ctx context.Context, err error) {
	refusal, refused := errors.AsType[*rtmp.Refusal](err)
	stopping := errors.Is(err, context.Canceled)
	switch {
	case c.publisher != nil:
		c.unwatch()
		c.feed.end(ctx, c.log, err, errors.Is(err, rtmp.ErrEnded), stopping)
	case stopping:
		c.log.Info("connection closed: shutting down")
	case errors.Is(err, net.ErrClosed):
		c.log.Debug("connection closed: another one needed its place")
	case refused:
		if !c.unchecked {
			c.slot.fail()
		}
		c.server.unauthenticated.report(c.log, slog.LevelWarn, "publisher refused", refusal.Reason)
	case c.conn.Received() == 0 && quiet(err):
		c.log.Debug("connection closed without data")
	default:
		c.slot.fail()
		c.server.unauthenticated.report(c.log, slog.LevelInfo, "connection ended before it sent a stream key", lost(err))
	}
	c.conn.Close()
}

// quiet reports whether a connection ended without an error of the client. A client that fails the
// TLS handshake sends no byte of RTMP either.
func quiet(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || ok && timeout.Timeout()
}
