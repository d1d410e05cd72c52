package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"weir/internal/codec"
	"weir/internal/mpegts"
	"weir/internal/srt"
	"weir/internal/weir"
)

// readTS reads a file or a live stream in MPEG-TS over HTTP.
func (s *pullSource) readTS(ctx context.Context, a *httpResponse, in *bufio.Reader) error {
	from := s.resumeAt(a)
	var first time.Duration
	started := false
	take := func(p codec.Packet, at time.Duration) error {
		if !started {
			first, started = at, true
		}
		at -= first
		switch {
		case p.Config:
			return s.addPacketNow(ctx, p, at)
		case from > 0 && at < from: // it was on air before
			return ctx.Err()
		}
		s.reached(a, at)
		return s.addPacket(ctx, p, at)
	}
	return s.ended(a, s.demuxTS(ctx, in, take))
}

// demuxTS gives the packets of a transport stream to take.
func (s *pullSource) demuxTS(ctx context.Context, in io.Reader, take func(codec.Packet, time.Duration) error) error {
	d := mpegts.NewDemuxer(take, s.announce, s.feed.log)
	buffer := make([]byte, 64*mpegts.PacketSize)
	for {
		n, err := in.Read(buffer)
		if n > 0 {
			if err := d.Write(buffer[:n]); err != nil {
				return unreadable(err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return unreadable(d.Flush())
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// announce tells the feed which kinds of tracks there are.
func (s *pullSource) announce(video, audio bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.announce(video, audio)
}

// readSRT calls a source and reads its stream.
func (s *pullSource) readSRT(ctx context.Context) error {
	conn, err := srt.Dial(ctx, s.where.Source, s.Guard.Resolve)
	if err != nil {
		return s.srtProblem(err)
	}
	// Closing takes seconds. Only the end of the pull waits for it.
	closing := sync.OnceFunc(func() { s.closing.Go(func() { _ = conn.Close() }) })
	defer closing()
	silent := time.AfterFunc(firstMediaTime, closing)
	defer silent.Stop()
	stop := context.AfterFunc(ctx, closing)
	defer stop()
	take := func(p codec.Packet, at time.Duration) error {
		silent.Reset(idleTime)
		return s.addPacketNow(ctx, p, at)
	}
	if err := s.demuxTS(ctx, conn, take); err != nil {
		if _, ok := errors.AsType[*weir.Error](err); ok || ctx.Err() != nil {
			return err
		}
		return weir.Wrap(weir.Upstream, err, "%s stopped sending", s.host)
	}
	return weir.Errorf(weir.Upstream, "the stream at %s has ended, or it sent nothing for %d seconds", s.host, int(idleTime.Seconds()))
}

// srtProblem returns an error of Dial in words for the owner.
func (s *pullSource) srtProblem(err error) error {
	switch {
	case errors.Is(err, srt.ErrURL), errors.Is(err, srt.ErrOptions):
		return weir.Errorf(weir.Invalid, "the pull source must be srt://<host>:<port>?streamid=<id>; "+
			"passphrase, pbkeylen and latency (in milliseconds) may follow")
	case errors.Is(err, srt.ErrMode):
		return weir.Errorf(weir.Invalid, "weir is the SRT caller of the pull source: leave out mode, or write mode=caller")
	case errors.Is(err, srt.ErrLatency):
		return weir.Errorf(weir.Invalid, "the latency of the pull source must be given in milliseconds, at most %d", srt.MaxLatency.Milliseconds())
	case errors.Is(err, srt.ErrConnect):
		return weir.Wrap(weir.Upstream, err, "%s did not accept the connection over SRT; check the address, the streamid and the passphrase", s.host)
	}
	return err
}
