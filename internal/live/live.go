// Package live carries streams that are on air.
//
// A connection of an encoder becomes a [Publisher] of a [Hub] (package ingest makes
// it). Its frames walk one way: clock.go puts them on the timeline of the session,
// pack.go makes parts and segments of them, which go to disk at once (media.Recorder),
// and broadcast.go tells viewers of them (package playback asks it).
//
// A session outlives its connections: an encoder that comes back within the session's
// timeout goes on where it was, with a discontinuity, and so does a weir that was
// killed. What players are told is derived from what is on disk, so that both are one
// way of the code.
package live

import (
	"log/slog"
	"time"

	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/store"
)

const (
	// partTarget is what players are promised that no part exceeds. A part must have 85 %
	// of it: with 210 ms that is so at all usual frame rates.
	partTarget = 210 * time.Millisecond
	// segmentTarget is the least length of a segment; it ends before the next key frame.
	segmentTarget = 2 * time.Second
	// window is what the playlists of a live stream show.
	window = time.Minute
)

// Frame is a frame as an encoder sends it.
type Frame struct {
	Track    int           // position in the tracks of the publisher
	PTS, DTS time.Duration // on the clock of the encoder
	Sync     bool          // decoding can start here
	Data     []byte        // as cmaf keeps samples; the hub's from here on
}

// Source is where frames come from, for the log and the health of a stream.
type Source struct {
	Protocol string // rtmp, rtmps, srt, whip, pull
	Remote   string // address of the encoder
}

// Options are what a hub is made of.
type Options struct {
	Store *store.Store
	Dir   string // folder of the sessions that are open
	Node  string // name of this node, as the store knows it

	// Guard is the way to multistream targets.
	Guard *guard.Guard

	// FFmpeg encodes the renditions of streams; nil = there are none but the source.
	FFmpeg *ffmpeg.Engine

	// SessionTimeout is how long a session stays open for an encoder that is gone.
	SessionTimeout time.Duration

	// Room returns an error when there is not enough disk space to record; nil = there
	// always is.
	Room func() error

	Log *slog.Logger
}
