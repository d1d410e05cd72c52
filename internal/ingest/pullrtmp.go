package ingest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"weir/internal/codec"
	"weir/internal/rtmp"
	"weir/internal/weir"
)

// readRTMP reads the stream of an RTMP server.
func (s *pullSource) readRTMP(ctx context.Context) error {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.Guard.DialContext(ctx, network, address)
		if _, ok := errors.AsType[*weir.Error](err); err != nil && !ok {
			err = weir.Wrap(weir.Upstream, err, "%s can't be reached", s.host)
		}
		return conn, err
	}
	conn, err := rtmp.Dial(ctx, s.where.Source, dial)
	if err == nil {
		defer conn.Cut()
		err = conn.Play(ctx, func(p codec.Packet, at time.Duration) error { return s.addPacketNow(ctx, p, at) })
	}
	refusal, refused := errors.AsType[*rtmp.Refusal](err)
	network, isNetwork := errors.AsType[net.Error](err)
	_, isOurs := errors.AsType[*weir.Error](err)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isOurs:
		return err
	case errors.Is(err, rtmp.ErrURL):
		return weir.Errorf(weir.Invalid,
			"the pull source must be rtmp://<host>/<application>/<stream>")
	case errors.Is(err, rtmp.ErrEnded):
		return weir.Errorf(weir.Upstream, "the stream at %s has ended", s.host)
	case refused:
		why := cmp.Or(refusal.Code, "it gives no reason")
		return weir.Errorf(weir.Upstream, "%s refused the stream: %s", s.host, why)
	case isNetwork && network.Timeout():
		return weir.Wrap(weir.Upstream, err, "%s sent nothing in time", s.host)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isNetwork:
		return weir.Wrap(weir.Upstream, err, "%s ended the connection", s.host)
	}
	return unreadable(err)
}

// readFLV reads a file or a live stream in FLV over HTTP.
func (s *pullSource) readFLV(ctx context.Context, a *httpResponse, in *bufio.Reader) error {
	from := s.resumeAt(a)
	err := rtmp.ReadFLV(in, func(p codec.Packet, at time.Duration) error {
		s.reached(a, max(at, from))
		switch {
		case p.Config:
			return s.addPacketNow(ctx, p, at)
		case from > 0 && at < from: // it was on air before
			return ctx.Err()
		}
		return s.addPacket(ctx, p, at)
	})
	return s.ended(a, unreadable(cutOff(err)))
}
