// Package ingest lets encoders in: a connection becomes a publisher of package live.
//
// [RTMP] listens for RTMP and, behind a TLS listener, RTMPS. Bytes walk one way:
// rtmp.go accepts connections and bounds them; connection.go speaks with one encoder
// until its stream key is known to be good; chunk.go makes messages of its bytes, tag.go
// packets of the messages, and a [feed] makes tracks and frames of the packets,
// with picture.go and audio.go knowing what the codecs look like. The feed does not
// know RTMP: other protocols end in it too.
//
// [SRT] listens for SRT. Package srt has the protocol; srt.go looks up the stream key of a
// caller, accepts it or rejects it, and ts.go, tstable.go and tssound.go make packets of the
// transport stream that it sends for a feed.
//
// [WHIP] takes offers of browsers over HTTP; package rtc speaks with them, and whip.go gives
// their frames to a feed.
//
// [Puller] fetches streams that nobody brings: pull.go has what all sources share, pullhls.go
// (with pullplaylist.go), pullmp4.go, pullflv.go, pullts.go, pullrtmp.go and pullsrt.go read
// one kind of source each, and all end in a feed.
//
// Everything that comes from a connection is foreign. Each step has a limit of what it
// keeps and is fuzzed, an error ends the connection and nothing else, and a stream key
// never reaches a log: it is of the same use to whoever reads it there. How many may be at
// a door, and what the log tells of those who have no business there, is in seat.go and
// bounded.go.
package ingest

import (
	"context"

	"weir/internal/cmaf"
	"weir/internal/live"
)

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
