// Package cmaf defines the one form in which weir stores media, and renders it in the forms that
// players request.
//
// Media is a number of tracks. A [Track] is described by its init segment. Its samples are stored
// in segments, each of one or more parts (a moof box and an mdat box). An append-only index holds
// the start, the duration, the size and the samples of each [Segment]. HLS playlists, MPEG-TS,
// DASH and MP4 files are rendered from that index and those samples. A [Packer] makes segments,
// a [Retimer] puts the samples of files into weir's form, a [Reader] reads fragmented MP4.
//
// Times are ticks of the track's timescale on a timeline that all tracks of one presentation
// share. In weir's form, the decode time of the i-th sample in decode order is the i-th smallest
// presentation time: composition offsets may be negative, and a segment starts exactly when its
// first frame is shown. In the bytes of segments, times are [Lead] later and decode times earlier
// by the track's Delay, because players need that.
//
// The package does no input or output but through readers and writers that it is given. Package
// media stores the bytes.
package cmaf

import (
	"time"

	"weir/internal/codec"
)

// Lead is how much later times are in stored segments than on the timeline: a frame that is shown
// at 0 has the time Lead there. So frames before 0, and frames that are decoded before they are
// shown, have times that are not negative. Players start a presentation with its first frame,
// whatever its time is. Files for download start at 0: see ZeroShift.
const Lead = 10 * time.Second

// MaxDelaySeconds bounds the Delay of a track: with Lead, no time in stored segments is negative.
const MaxDelaySeconds = 5

// Kind is what a track carries.
type Kind = codec.Kind

// The kinds of tracks.
const (
	Video = codec.Video
	Audio = codec.Audio
)

// Track describes a track, as its init segment does.
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
	Default  bool   `json:"default,omitempty"`  // of several audio tracks, the one to play unless the viewer chooses

	// Delay is by how many ticks decode times are earlier in stored segments than in weir's form.
	// It is at least the largest -Offset of the samples, so that no stored offset is negative:
	// ffmpeg presents a track with negative offsets late. Stored init segments have no edit list
	// that compensates for it, because GStreamer ignores edit lists in HLS.
	Delay int64 `json:"delay,omitempty"`

	// Priming is how many ticks of audio at the start only prepare the decoder. Files for download hide
	// them with an edit list; players of segments start with the video anyway.
	Priming int64 `json:"priming,omitempty"`

	// Entry is the sample entry (avc1, hvc1, vp09, av01, mp4a …) with its box header. Tracks with
	// equal entries can be played one after the other.
	Entry []byte `json:"entry"`
}

// Sample is a frame of video or a packet of audio.
type Sample struct {
	Duration uint32 // ticks until the next sample is decoded
	Offset   int32  // ticks from decode time to presentation time; may be negative
	Size     uint32 // bytes
	Sync     bool   // decoding can start here
}

// Part is a moof box and its mdat box.
type Part struct {
	Start   int64 // when its first sample is decoded
	Head    int   // bytes before its first sample
	Samples []Sample
}

// Segment is a section of a track that a player fetches as one file. A video segment starts with a
// sync sample.
type Segment struct {
	Parts         []Part
	Wall          time.Time // when it was recorded; zero = not known
	Discontinuity bool      // it does not continue where the one before it ended
}

// Fragment is a run of consecutive samples with their bytes.
type Fragment struct {
	Track   int   // position in what Reader.Tracks returned
	Start   int64 // when the first sample is decoded
	Samples []Sample
	Data    []byte
}

// TrackIndex is a track and all its segments.
type TrackIndex struct {
	Track    Track
	Segments []Segment
	Changes  []Change // of the codec configuration, in the order of the segments; most tracks have none
	Folders  []Folder // in the order of the segments; none = all segments are in the track's own
}

// Folder is where the segments of a track are stored, from one of them on. An encode that was
// resumed writes to a folder of its own: an earlier attempt may still write elsewhere.
type Folder struct {
	First int    `json:"first"`          // segment
	Name  string `json:"name,omitempty"` // below the track's own; "" = that
}

// FolderOf returns the name of the folder of segment n.
func (t TrackIndex) FolderOf(n int) (name string) {
	for _, f := range t.Folders {
		if f.First > n {
			break
		}
		name = f.Name
	}
	return name
}
