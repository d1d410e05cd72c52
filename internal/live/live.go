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

	"weir/internal/blob"
	"weir/internal/ffmpeg"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// partTarget is what players are promised that no part exceeds. With 210 ms parts are
	// long enough at all usual frame rates.
	partTarget = 210 * time.Millisecond
	// shortestPart is how much of that a part must have, in percent, but for the last one
	// of a segment.
	shortestPart = 85
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

	// Reuse, if set, gets the data of frames back that nobody has any more, within Write.
	Reuse func(data []byte)
}

// Options are what a hub is made of.
type Options struct {
	Store *store.Store
	Dir   string // folder of the sessions that are open
	Node  string // name of this node, as the store knows it

	// Targets returns how the multistream targets of a session do, and what is not well with
	// them, in sentences; nil = there are no targets. It is called with a lock held, and must
	// not call the hub.
	Targets func(sessionID string) (health []weir.TargetHealth, issues []string)

	// FFmpeg encodes the renditions of streams; nil = there are none but the source.
	FFmpeg *ffmpeg.Engine

	// Upload is the storage, if it is one for many machines: what is recorded goes there as
	// it is finished. nil = it stays here until it is an asset.
	Upload blob.Store

	// SessionTimeout is how long a session stays open for an encoder that is gone.
	SessionTimeout time.Duration

	// FreeSpace returns an error when there is not enough disk space to record; nil = there
	// always is.
	FreeSpace func() error

	Log *slog.Logger
}
