package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/mpegts"
	"weir/internal/srt"
	"weir/internal/weir"
)

// SRT lets encoders publish MPEG-TS over SRT, with their stream key in the stream id.
type SRT struct {
	Addr string
	Hub  *live.Hub
	Log  *slog.Logger

	// Passphrase is what encoders must encrypt with; empty = they must not encrypt.
	Passphrase weir.Secret

	// Counters, if there are some, count the connections.
	Counters *Counters
	// MaxConnections is how many there may be at once; 0 = 1000.
	MaxConnections int
	// MaxWaiting is how many connections from one address may be there without having
	// shown a good stream key; 0 = 32.
	MaxWaiting int

	// listening, if a test wants to know, gets the address that is listened on.
	listening func(net.Addr)
	// publish is Hub.Publish, if a test does not want another one.
	publish func(ctx context.Context, key string, from live.Source) (publisher, error)
}

// srtAnswerTime is how long a handshake may take here: callers give up after three seconds.
const srtAnswerTime = 3 * time.Second

// Run lets encoders in until ctx ends, and returns when the last of them is gone.
func (r SRT) Run(ctx context.Context) error {
	if r.publish == nil {
		r.publish = publishTo(r.Hub)
	}
	slots := newSlots(cmp.Or(r.MaxConnections, 1000), cmp.Or(r.MaxWaiting, 32), r.Log)
	s := &srtServer{SRT: r, slots: slots.countBy(r.Counters)}
	listener, err := srt.Listen(r.Addr, r.Passphrase)
	if err != nil {
		return err
	}
	if r.listening != nil {
		r.listening(listener.Addr())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer s.connections.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, listener.Close)
	defer listener.Close()
	defer stop()
	for {
		request, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		slot, ok := s.admit(request.RemoteAddr())
		if !ok {
			request.Reject(srt.ErrOverload)
			continue
		}
		s.connections.Go(func() { s.serve(ctx, request, slot) })
	}
}

// srtServer is a running SRT.
type srtServer struct {
	SRT
	*slots
	connections sync.WaitGroup
}

// serve serves one connection.
func (s *srtServer) serve(ctx context.Context, request *srt.Request, t *slot) {
	defer t.leave()
	from := live.Source{Protocol: "srt", Remote: request.RemoteAddr().String()}
	log := s.Log.With("remote", from.Remote)
	refuse := func(err error, why string) {
		request.Reject(err)
		t.fail()
		s.unauthenticated.tell(log, slog.LevelWarn, "publisher refused", why)
	}
	key, err := request.StreamKey()
	if err != nil {
		refuse(err, err.Error())
		return
	}
	asking, cancel := context.WithTimeout(ctx, srtAnswerTime)
	defer cancel()
	publisher, err := s.publish(asking, key, from)
	if err != nil {
		refuse(err, refusedKey(err, log))
		return
	}
	t.settle()
	c := newSRTConnection(publisher, log.With("stream", publisher.StreamID()))
	conn, err := request.Accept()
	if err != nil {
		publisher.Close(false)
		log.Warn("connection could not be accepted", "err", err)
		return
	}
	// Whatever an encoder can make us do, it happens to it alone.
	defer func() {
		if problem := recover(); problem != nil {
			c.leave(false)
			log.Error("connection ended by a defect", "err", problem, "stack", string(debug.Stack()))
		}
	}()
	c.log.Info("publisher connected", "protocol", from.Protocol)
	c.end(ctx, c.run(ctx, conn))
}

// refusedKey returns why an encoder can't publish with its stream key.
func refusedKey(err error, log *slog.Logger) string {
	if weir.KindOf(err) == weir.NotFound {
		return "no stream has this stream key"
	}
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal {
		return strings.Join(e.Messages, "; ")
	}
	log.Error("stream key could not be looked up", "err", err)
	return "the stream key could not be looked up"
}

// srtConn is what a connection needs of an srt.Conn.
type srtConn interface {
	io.ReadCloser
	Lost() bool
	Ended() bool
	Latency() time.Duration
}

// srtConnection takes what one encoder sends.
type srtConnection struct {
	log       *slog.Logger
	publisher publisher
	feed      *feed
}

func newSRTConnection(p publisher, log *slog.Logger) *srtConnection {
	return &srtConnection{log, p, newFeed(p, bounded(log))}
}

// errToldToEnd ends a connection whose publisher must end.
var errToldToEnd = errors.New("the stream was ended here")

// run reads until the connection ends, closes it, and returns why it ended.
func (c *srtConnection) run(ctx context.Context, conn srtConn) error {
	reading, cancel := context.WithCancelCause(ctx)
	var closing sync.WaitGroup
	defer closing.Wait()
	defer cancel(nil)
	closing.Go(func() {
		select {
		case <-c.publisher.Done():
			cancel(errToldToEnd)
		case <-reading.Done():
		}
		_ = conn.Close()
	})
	timeout := idleTime + conn.Latency()
	silent := time.AfterFunc(timeout, func() { cancel(errors.New("no picture and no sound came in time")) })
	defer silent.Stop()
	stream := mpegts.NewDemuxer(func(p codec.Packet, at time.Duration) error {
		silent.Reset(timeout)
		return c.feed.add(ctx, p, at)
	}, c.feed.promise, c.feed.log)
	err := c.read(conn, stream)
	if reading.Err() != nil {
		return context.Cause(reading)
	}
	return err
}

// read reads to the end.
func (c *srtConnection) read(conn srtConn, stream *mpegts.Demuxer) error {
	buffer := make([]byte, 8*mpegts.PacketSize)
	for {
		n, err := conn.Read(buffer)
		if conn.Lost() {
			stream.Lost()
		}
		if err == nil {
			err = stream.Write(buffer[:n])
		}
		switch {
		case errors.Is(err, io.EOF) && conn.Ended():
			return errors.Join(errUnpublished, stream.Flush())
		case errors.Is(err, io.EOF):
			return errors.New("nothing came any more")
		case err != nil:
			return err
		}
	}
}

// end lets the publisher go and says why in the log.
func (c *srtConnection) end(ctx context.Context, err error) {
	var ended error // by the hub
	select {
	case <-c.publisher.Done():
		ended = c.publisher.Write(live.Frame{})
	default:
		err = errors.Join(err, c.feed.finish(ctx))
	}
	clean := errors.Is(err, errUnpublished)
	c.leave(clean)
	logEnd(c.log, ending{stopping: errors.Is(err, context.Canceled), ended: ended, clean: clean, why: err, lost: fmt.Sprint(err)})
}

// leave lets the publisher go.
func (c *srtConnection) leave(clean bool) {
	if p := c.publisher; p != nil {
		c.publisher = nil
		p.Close(clean)
	}
}
