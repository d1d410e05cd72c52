// Package ingest receives the streams of encoders: a connection becomes a publisher of package live.
//
// [RTMP] listens for RTMP and, behind a TLS listener, RTMPS. rtmp.go accepts and limits connections
// and checks stream keys; package rtmp implements the protocol and returns packets. A [feed] makes
// tracks and frames of the packets with the decoders of package codec, for all protocols.
//
// [SRT] listens for SRT. Package srt implements the protocol; srt.go checks the stream key of a
// caller, accepts or rejects it, and demuxes its transport stream for a feed.
//
// [WHIP] takes WebRTC offers over HTTP; package rtc implements the protocol, and whip.go gives the
// frames to a feed.
//
// [Puller] fetches streams from other servers: pull.go has what all sources share, pullhls.go (with
// pullplaylist.go), pullmp4.go, pullts.go (SRT too) and pullrtmp.go (FLV too) read one kind of
// source each, for a feed.
//
// Nothing that comes from a connection is trusted. Each step has limits and is fuzzed, an error
// ends only its own connection, and a stream key is never logged. slot.go limits the invalid stream
// keys of an address and the log lines that unauthenticated clients can cause; package budget limits
// the connections.
package ingest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/weir"
)

const (
	// Timeouts of connections over SRT and WebRTC: for the handshake, from then to the first media,
	// and without media after that. Package rtmp has its own.
	handshakeTime  = 10 * time.Second
	firstMediaTime = 10 * time.Second
	idleTime       = 10 * time.Second
)

// publisher is what a feed needs of a live.Publisher.
type publisher interface {
	StreamID() string
	Files() int
	SetTracks(ctx context.Context, tracks []cmaf.Track) error
	SetIssue(what string)
	Write(f live.Frame) error
	Done() <-chan struct{}
	Close(clean bool)
}

// publishFunc is Publish of a hub. Tests replace it.
type publishFunc = func(ctx context.Context, key string, from live.Source) (publisher, error)

func publishTo(hub *live.Hub) publishFunc {
	return func(ctx context.Context, key string, from live.Source) (publisher, error) {
		p, err := hub.Publish(ctx, key, from)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// end closes the publisher after its connection has ended with err, and logs why. clean says that
// the encoder ended the stream in order, stopping that weir is shutting down.
func (f *feed) end(ctx context.Context, log *slog.Logger, err error, clean, stopping bool) {
	var ended error // by the hub
	select {
	case <-f.to.Done():
		ended = f.to.Write(live.Frame{})
	default:
		err = errors.Join(err, f.flush(ctx))
	}
	f.to.Close(clean)
	switch {
	case stopping:
		log.Info("connection closed: shutting down")
	case ended != nil:
		log.Info("publisher was stopped", "reason", ended)
	case clean:
		log.Info("publisher ended")
	case weir.KindOf(err) != weir.Internal:
		log.Warn("publisher sent unusable media", "reason", err)
	default:
		log.Warn("publisher lost", "reason", lost(err))
	}
}

// lost says how a connection was lost.
func lost(err error) string {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, io.EOF):
		return "the connection was closed"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed in the middle of a message"
	case ok && timeout.Timeout():
		return "no data arrived in time"
	}
	return err.Error()
}

// refusedKey returns why an encoder can't publish with its stream key, in words for the encoder.
func (s *unauthenticatedLog) refusedKey(err error, log *slog.Logger) string {
	if weir.KindOf(err) == weir.NotFound {
		return "no stream has this stream key"
	}
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal {
		return strings.Join(e.Messages, "; ")
	}
	s.report(log, slog.LevelError, "stream key could not be looked up", err.Error())
	return "the stream key could not be looked up; try again"
}
