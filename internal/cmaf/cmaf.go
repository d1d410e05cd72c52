// Package cmaf has the one form that media takes inside weir, and its
// renderings.
//
// Media is a number of tracks. A [Track] is described by its init segment; its
// samples lie in segments, each of one or more parts (a moof box and an mdat box).
// An append-only index tells of each [Segment] when it starts, how long it is, what it
// weighs and which samples it has. Everything else that players ask for (HLS
// playlists, MPEG-TS, DASH, one MP4 file) is rendered from that index and those
// samples.
//
// Times are ticks of the track's timescale on a timeline that all tracks of one
// presentation share. Inside weir, the decode time of the i-th sample in decode order
// is the i-th smallest presentation time: composition offsets may be negative, and
// a segment starts exactly when its first frame is shown. In the bytes of segments, times
// are [Lead] ahead and decoding is earlier by the track's Delay, for the sake of players.
//
// The package is pure: it reads and writes bytes it is given, and nothing else. The
// bytes are kept by package media.
package cmaf

import (
	"time"

	"weir/internal/codec"
)

// Lead is how far times in stored segments are ahead of the timeline: a frame that is
// shown at 0 is at Lead there. So what lies a little before 0, or is decoded before it
// is shown, has a time that a file can say. Players show a presentation from its first
// frame on, whatever its time. What is written for a caller starts at 0: see ZeroShift.
const Lead = 10 * time.Second

// Kind is what a track carries.
type Kind = codec.Kind

// The kinds of tracks.
const (
	Video = codec.Video
	Audio = codec.Audio
)

// Track describes a track: what its init segment says.
type Track struct {
	Kind      Kind   `json:"kind"`
	Codec     string `json:"codec"` // as RFC 6381 writes it: avc1.64001f, mp4a.40.2 …
	Timescale uint32 `json:"timescale"`

	Width  int `json:"width,omitempty"`  // in pixels, as encoded
	Height int `json:"height,omitempty"` // in pixels, as encoded

	Channels   int `json:"channels,omitempty"`
	SampleRate int `json:"sampleRate,omitempty"`

	Language string `json:"language,omitempty"` // ISO 639-2; "" = unknown
	Name     string `json:"name,omitempty"`     // for people
	Default  bool   `json:"default,omitempty"`  // of several audio tracks, the one to play unasked

	// Delay is how many ticks before the sorted presentation times the samples are
	// decoded in stored segments. With the largest -Offset of the samples or more, no
	// offset is negative there: ffmpeg presents a track late that has negative ones. Stored
	// init segments have no edit list that takes it off again, because GStreamer ignores
	// edit lists in HLS.
	Delay int64 `json:"delay,omitempty"`

	// Entry is the sample entry (avc1, hvc1, vp09, av01, mp4a …), box header and
	// all. Two tracks with equal entries can be played one after the other.
	Entry []byte `json:"entry"`
}

// Sample is a frame of video or a packet of audio.
type Sample struct {
	Duration uint32 // ticks until the next one is decoded
	Offset   int32  // ticks from being decoded to being shown; may be negative
	Size     uint32 // bytes
	Sync     bool   // decoding can start here
}

// Part is a moof box and its mdat box.
type Part struct {
	Start   int64 // when its first sample is decoded
	Head    int   // bytes before its first sample
	Samples []Sample
}

// Segment is a piece of a track that a player fetches at once; a video segment
// starts with a sync sample.
type Segment struct {
	Parts         []Part
	Wall          time.Time // when it was recorded; zero = not known
	Discontinuity bool      // it does not go on where the one before it ended
}

// Fragment is a run of samples and their bytes, one after the other.
type Fragment struct {
	Track   int   // position in what Reader.Tracks returned
	Start   int64 // when the first sample is decoded
	Samples []Sample
	Data    []byte
}

// TrackIndex is a track and all there is of it.
type TrackIndex struct {
	Track    Track
	Segments []Segment
	Changes  []Change // of the coding, in the order of the segments; hardly any track has one
}
