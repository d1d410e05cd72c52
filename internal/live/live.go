// Package live carries streams that are on air.
//
// A connection of an encoder (package ingest) is a [Publisher] of a [Hub]. Its frames go one way: the
// clock puts them on the timeline of the session, the packer makes parts and segments, which are
// written to disk at once (media.Recorder), and a [Broadcast] serves them to viewers (package
// playback).
//
// A session outlives its connections: an encoder that reconnects before the session's timeout
// continues it, with a discontinuity. So does weir after it was killed. Playlists are derived from the
// files, so that both use the same code.
//
// The files:
//
//	hub, publisher, broadcast   what other packages use: all sessions, one encoder, one session for viewers
//	returning                   encoders that come back while the store does not answer
//	session                     one broadcast on this node, and what it is made of
//	connection, clock, pack     the way of a frame from the encoder into segments; limit: how much it may send
//	renditions, rendition       what viewers can fetch; recording: from the first segment on; target: duration
//	space                       what streams do without when the disk runs full
//	clip                        what clips are cut from
//	tap                         frames for other readers: multistream targets, WebRTC, the ladder
//	audio, aac, opus            transcoding of audio
//	ladder, ladder_*            transcoding of video: rungs that follow the segments of the source
//	handover, handover_*        sessions that continue on another node; upload: their segments in the storage
//	health, stats, poster, pull measurements, numbers, an image of the stream, streams that weir fetches
package live

import (
	"context"
	"log/slog"
	"time"

	"weir/internal/blob"
	"weir/internal/ffmpeg"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// DefaultPart is the duration of parts if neither the server nor the stream sets another one.
	DefaultPart = 200 * time.Millisecond
	// shortestPart is the minimum duration of a part, in percent of the maximum, but for the last one
	// of a segment.
	shortestPart = 85
	// SegmentTarget is the minimum duration of a segment; it ends before the next key frame. The
	// waits and cache headers of package playback follow from it and from the duration of parts.
	SegmentTarget = 2 * time.Second
	// window is the duration of live playlists.
	window = time.Minute
)

// partTarget returns the maximum duration of a part, with some room: 0.2 s become 0.21 s, with which
// parts are long enough at all usual frame rates.
func partTarget(duration time.Duration) time.Duration { return duration + duration/20 }

// partDuration returns the duration of parts of a session; 0 = its playlists have none.
func (o *Options) partDuration(s *weir.Session) time.Duration {
	if s.PartDuration == nil {
		return o.PartDuration
	}
	return time.Duration(*s.PartDuration * float64(time.Second))
}

// Frame is a frame as an encoder sends it.
type Frame struct {
	Track    int           // position in the tracks of the publisher
	PTS, DTS time.Duration // on the clock of the encoder
	Sync     bool          // decoding can start here
	Data     []byte        // as cmaf stores samples; the hub owns it from here on
}

// Source is where frames come from.
type Source struct {
	Protocol string // rtmp, rtmps, srt, whip, pull
	Remote   string // address of the encoder

	// Reuse, if set, gets back the data of frames that is not used any more, within Write.
	Reuse func(data []byte)
}

// Options are the parts and settings of a hub.
type Options struct {
	Store *store.Store
	Dir   string // folder of open sessions
	Node  string // name of this node, as the store knows it

	// PartDuration is the duration of parts of streams that do not set it; 0 = no parts.
	PartDuration time.Duration

	// Targets returns the state of the multistream targets of a session, and their issues, in
	// sentences; nil = there are no targets. It is called with a lock held, and must not call the hub.
	Targets func(sessionID string) (health []weir.TargetHealth, issues []string)

	// FFmpeg encodes rungs, audio and posters; nil = there is only the source.
	FFmpeg *ffmpeg.Engine

	// Upload is the storage, if nodes share it: recorded segments are uploaded as they are finished.
	// nil = they stay here until the recording is an asset.
	Upload blob.Store

	// SessionTimeout is how long a session waits for its encoder to reconnect.
	SessionTimeout time.Duration

	// Release asks another node, at a URL, to disconnect the encoder of a stream and to say how far it
	// was; nil = there is no other node.
	Release func(ctx context.Context, node, url, streamID string) (weir.Numbers, error)

	// Space returns the free space of the disk with Dir; nil = there is always enough.
	Space func() (Space, error)

	// Published is called for every part, with how long it took from its last frame until viewers can
	// fetch it; nil = nobody wants to know.
	Published func(lag time.Duration)

	Log *slog.Logger

	maxLoad   time.Duration // see there
	maxStore  time.Duration // storeTimeout
	maxUpload time.Duration // maxUploadTime
}
