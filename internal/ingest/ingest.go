// Package ingest lets encoders in: a connection becomes a publisher of package live.
//
// [RTMP] listens for RTMP and, behind a TLS listener, RTMPS. Bytes walk one way:
// rtmp.go accepts connections and bounds them; connection.go speaks with one encoder
// until its stream key is known to be good; chunk.go makes messages of its bytes, tag.go
// packets of the messages, and a [feed] makes tracks and frames of the packets,
// with picture.go and sound.go knowing what the codecs look like. The feed does not
// know RTMP: other protocols end in it too.
//
// Everything that comes from a connection is foreign. Each step has a limit of what it
// keeps and is fuzzed, an error ends the connection and nothing else, and a stream key
// never reaches a log: it is of the same use to whoever reads it there.
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
	Write(f live.Frame) error
	Done() <-chan struct{}
	Close(clean bool)
}
