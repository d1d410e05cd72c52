package ingest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
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
	Admission  *Admission

	// For tests.
	publish   publishFunc    // nil = that of Hub
	listening func(net.Addr) // gets the address that is listened on
}

// srtAnswerTime is the maximum time to check a stream key: callers give up after three seconds.
const srtAnswerTime = 3 * time.Second

// errUnpublished is the error of a stream that its encoder ended in order.
var errUnpublished = errors.New("the encoder ended the stream")

// Run accepts connections until ctx ends, and returns when the last one has ended.
func (r SRT) Run(ctx context.Context) error {
	if r.publish == nil {
		r.publish = publishTo(r.Hub)
	}
	s := &srtServer{SRT: r, unauthenticated: newUnauthenticatedLog()}
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
		slot, err := s.Admission.admit(addressOf(request.RemoteAddr()))
		if err != nil {
			request.Reject(srt.ErrOverload)
			continue
		}
		s.connections.Go(func() { s.serve(ctx, request, slot) })
	}
}

// srtServer is a running SRT.
type srtServer struct {
	SRT
	unauthenticated *unauthenticatedLog
	connections     sync.WaitGroup
}

func (s *srtServer) serve(ctx context.Context, request *srt.Request, t *slot) {
	defer t.free()
	from := live.Source{Protocol: "srt", Remote: request.RemoteAddr().String()}
	log := s.Log.With("remote", from.Remote)
	refuse := func(err error, why string) {
		request.Reject(err)
		s.unauthenticated.report(log, slog.LevelWarn, "publisher refused", why)
	}
	key, err := request.StreamKey()
	if err != nil {
		t.fail()
		refuse(err, err.Error())
		return
	}
	publisher, err := s.check(ctx, request, key, from)
	if errors.Is(err, srt.ErrOverload) {
		request.Reject(err)
		return
	}
	if err != nil {
		if !weir.Retriable(err) {
			t.fail()
		}
		refuse(err, s.unauthenticated.refusedKey(err, log))
		return
	}
	if err := t.goOnAir(publisher); err != nil {
		request.Reject(err)
		return
	}
	c := newSRTConnection(publisher, log.With("stream", publisher.StreamID()))
	conn, err := request.Accept()
	if err != nil {
		publisher.Close(false)
		log.Warn("connection could not be accepted", "err", err)
		return
	}
	// A panic that an encoder causes ends only its own connection.
	defer func() {
		if problem := recover(); problem != nil {
			publisher.Close(false)
			log.Error("connection ended by a panic", "err", problem, "stack", string(debug.Stack()))
		}
	}()
	c.log.Info("publisher connected", "protocol", from.Protocol)
	c.run(ctx, conn)
}

// check checks the stream key of a caller, which has a place of the budget meanwhile. The error is
// srt.ErrOverload if it has none, or lost it to another caller.
func (s *srtServer) check(ctx context.Context, request *srt.Request, key string, from live.Source) (publisher, error) {
	asking, cancel := context.WithTimeout(ctx, srtAnswerTime)
	defer cancel()
	asking, lose := context.WithCancelCause(asking)
	defer lose(nil)
	place, err := s.Admission.budget.Wait(request.RemoteAddr(), func() { lose(srt.ErrOverload) })
	if err != nil {
		return nil, srt.ErrOverload
	}
	defer place.Leave()
	p, err := s.publish(asking, key, from)
	if err != nil && errors.Is(context.Cause(asking), srt.ErrOverload) {
		return nil, srt.ErrOverload
	}
	return p, err
}

// srtConn is what a connection needs of an srt.Conn.
type srtConn interface {
	io.ReadCloser
	Lost() bool
	Ended() bool
	Latency() time.Duration
}

// srtConnection is the connection of an encoder.
type srtConnection struct {
	log       *slog.Logger
	publisher publisher
	feed      *feed
}

func newSRTConnection(p publisher, log *slog.Logger) *srtConnection {
	return &srtConnection{log, p, newFeed(p, bounded(log))}
}

// errPublisherEnded is why a connection ends whose publisher was ended by the hub.
var errPublisherEnded = errors.New("the stream was ended here")

// run receives the stream, and closes the publisher at the end.
func (c *srtConnection) run(ctx context.Context, conn srtConn) {
	err := c.receive(ctx, conn)
	c.feed.end(ctx, c.log, err, errors.Is(err, errUnpublished), errors.Is(err, context.Canceled))
}

// receive reads until the connection ends, closes it, and returns why it ended.
func (c *srtConnection) receive(ctx context.Context, conn srtConn) error {
	reading, cancel := context.WithCancelCause(ctx)
	var closing sync.WaitGroup
	defer closing.Wait()
	defer cancel(nil)
	closing.Go(func() {
		select {
		case <-c.publisher.Done():
			cancel(errPublisherEnded)
		case <-reading.Done():
		}
		_ = conn.Close()
	})
	timeout := idleTime + conn.Latency()
	silent := time.AfterFunc(timeout, func() { cancel(errNoMedia) })
	defer silent.Stop()
	stream := mpegts.NewDemuxer(func(p codec.Packet, at time.Duration) error {
		silent.Reset(timeout)
		return c.feed.addPacket(ctx, p, at)
	}, c.feed.announce, c.feed.log)
	err := c.read(conn, stream)
	if reading.Err() != nil {
		return context.Cause(reading)
	}
	return err
}

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
			return errors.New("the connection was lost")
		case err != nil:
			return err
		}
	}
}
