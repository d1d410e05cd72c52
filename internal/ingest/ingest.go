// Package ingest lets encoders in: a connection becomes a publisher of package live.
//
// [RTMP] listens for RTMP and, behind a TLS listener, RTMPS. rtmp.go accepts connections,
// bounds them and decides on stream keys; package rtmp speaks with the encoder and returns
// packets. A [feed] makes tracks and frames of the packets with the decoders of package codec.
// It does not know RTMP: other protocols end in it too.
//
// [SRT] listens for SRT. Package srt has the protocol; srt.go looks up the stream key of a
// caller, accepts it or rejects it, and ts.go, tstable.go and tssound.go make packets of the
// transport stream that it sends for a feed.
//
// [WHIP] takes offers of browsers over HTTP; package rtc speaks with them, and whip.go gives
// their frames to a feed.
//
// [Puller] fetches streams that nobody brings: pull.go has what all sources share, pullhls.go
// (with pullplaylist.go), pullmp4.go, pullts.go, pullrtmp.go (FLV too) and pullsrt.go read one
// kind of source each, and all end in a feed.
//
// Everything that comes from a connection is foreign. Each step has a limit of what it
// keeps and is fuzzed, an error ends the connection and nothing else, and a stream key
// never reaches a log: it is of the same use to whoever reads it there. How many may be at
// an endpoint, and what the log tells of those who have no business there, is in slot.go and
// bounded.go.
package ingest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/weir"
)

const (
	// How long a connection over SRT or WebRTC may take: to begin, from then to the first media,
	// and without media after that. Package rtmp has its own.
	handshakeTime  = 10 * time.Second
	firstMediaTime = 10 * time.Second
	idleTime       = 10 * time.Second
	// maxMessage is how long a frame may be: more than a key frame of 4K at 100 Mbit/s.
	maxMessage = 8 << 20
)

// errUnpublished is the error of a stream that its encoder ended in order, over SRT.
var errUnpublished = errors.New("the encoder ended the stream")

// publisher is what a feed needs of a live.Publisher.
type publisher interface {
	StreamID() string
	SetTracks(ctx context.Context, tracks []cmaf.Track) error
	LeaveOut(what string)
	Write(f live.Frame) error
	Done() <-chan struct{}
	Close(clean bool)
}

// publishTo returns Publish of a hub in a form that tests can put something else for.
func publishTo(hub *live.Hub) func(ctx context.Context, key string, from live.Source) (publisher, error) {
	return func(ctx context.Context, key string, from live.Source) (publisher, error) {
		p, err := hub.Publish(ctx, key, from)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// ending is how a publisher ended.
type ending struct {
	stopping bool   // weir is shutting down
	ended    error  // what the hub said, if the hub ended it
	clean    bool   // the publisher said so before
	why      error  // otherwise
	lost     string // why, in plain words
}

// logEnd logs how a publisher ended that was let in.
func logEnd(log *slog.Logger, e ending) {
	switch {
	case e.stopping:
		log.Info("connection closed: shutting down")
	case e.ended != nil:
		log.Info("publisher was told to end", "reason", e.ended)
	case e.clean:
		log.Info("publisher ended")
	case weir.KindOf(e.why) != weir.Internal:
		log.Warn("publisher can't be taken", "reason", e.why)
	default:
		log.Warn("publisher lost", "reason", e.lost)
	}
}
