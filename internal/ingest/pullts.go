package ingest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"weir/internal/codec"
	"weir/internal/mpegts"
)

// readTS reads a file or a live stream in MPEG-TS over HTTP.
func (s *pullSource) readTS(ctx context.Context, a *answer, in *bufio.Reader) error {
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
			return s.addNow(ctx, p, at)
		case from > 0 && at < from: // it was on air before
			return ctx.Err()
		}
		s.reached(a, at)
		return s.add(ctx, p, at)
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
