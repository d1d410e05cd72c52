// Package vod makes renditions of a file. It is the engine without the service: it
// knows neither accounts nor jobs, so `weir transcode` is it as much as the workers are.
//
// The walk of a source, one function for each step:
//
//	Import      takes the file apart: video and audio become tracks of package media
//	Plan        decides what is made of it; pure, so two machines decide alike
//	EncodeChunk encodes a stretch of the video as every rendition that needs it
//	EncodeAudio makes an audio track of the result
//	Thumbnails  makes pictures of the key frames
//	Publisher   renders what is there in the caller's formats, where the caller wants it
//
// Everything a step needs of the one before is in JSON ([Source], [Plan],
// [ChunkResult]) and in the store; steps may run on different machines, and twice: they
// write the same bytes under the same keys.
//
// All tracks share one timeline, on which 0 is the start of the presentation. Frames
// are never guessed: the table of frames comes from the packets of the source, every
// rendition gets the times in that table, and a step that ends up with another
// number of frames fails.
package vod

import (
	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

// Request is what somebody wants to be made of a source.
type Request struct {
	Profiles       []weir.Profile `json:"profiles,omitempty"`       // none = the default ladder
	SegmentSeconds float64        `json:"segmentSeconds,omitempty"` // length of segments to aim at; see SegmentSeconds
	EncodeAll      bool           `json:"encodeAll,omitempty"`      // also what could pass through
	SourceOnly     bool           `json:"sourceOnly,omitempty"`     // of a recording: no renditions but what was recorded
	Workers        int            `json:"workers,omitempty"`        // how many chunks will be encoded at the same time, about; 0 = 2
}

// segmentSeconds returns the length of segments to aim at: what was asked for within
// the bounds of the API.
func segmentSeconds(asked float64) float64 {
	switch {
	case !(asked > 0):
		return 10
	case asked < 2:
		return 2
	}
	return min(asked, 20)
}

// Source is a file that was imported.
type Source struct {
	Prefix string       `json:"prefix"` // of its tracks in the store
	Probe  ffmpeg.Probe `json:"probe"`

	Duration float64       `json:"duration"` // seconds that are shown or heard, as counted
	Video    *SourceVideo  `json:"video,omitempty"`
	Audio    []SourceAudio `json:"audio,omitempty"`

	// Sequential is why the video can't be taken apart; "" = it was. Such a source is
	// encoded in one go, from the file.
	Sequential string `json:"sequential,omitempty"`

	Damage ffmpeg.Damage `json:"damage,omitzero"` // of the container
}

// SourceVideo is the video of a source. Times are ticks on the timeline.
type SourceVideo struct {
	Stream    ffmpeg.Stream `json:"stream"`
	Width     int           `json:"width"`  // as shown: upright, with square pixels
	Height    int           `json:"height"` // as shown
	Bitrate   int           `json:"bitrate"`
	Timescale int64         `json:"timescale,omitempty"`

	// What is shown. Frames outside are there because others are decoded with
	// their help.
	Start  int64 `json:"start,omitempty"`
	End    int64 `json:"end,omitempty"`
	Frames int   `json:"frames,omitempty"`

	MaxGOP float64 `json:"longestGOP,omitempty"` // seconds between key frames, at most

	Efforts *Efforts `json:"efforts,omitempty"` // nil = not known

	// Encode is why the stored track can't be a rendition; "" = it can.
	Encode string `json:"encode,omitempty"`
}

// SourceAudio is an audio track of a source. AAC is stored as a track, everything else
// as Matroska.
type SourceAudio struct {
	Stream ffmpeg.Stream `json:"stream"`
	Dir    string        `json:"dir"`             // where it is, below the prefix
	Track  bool          `json:"track,omitempty"` // it is stored as a track
	Copy   bool          `json:"copy,omitempty"`  // that track can be used as it is: AAC without holes
}

// Dir of the source's video below its prefix, which is also that of the rendition
// when the source passes through.
const sourceDir = "source"

// ChunkResult is what became of a chunk.
type ChunkResult struct {
	Chunk      int               `json:"chunk"`
	Renditions []RenditionResult `json:"renditions"` // those that are encoded, in the order of the plan
	Damage     ffmpeg.Damage     `json:"damage,omitzero"`
}

// RenditionResult is a stretch of a rendition, or all of an audio track.
type RenditionResult struct {
	Name   string     `json:"name"`
	Track  cmaf.Track `json:"track"`
	Index  []byte     `json:"index"` // entries of its segments, as cmaf.AppendEntry writes them
	Bytes  int64      `json:"bytes"`
	Frames int        `json:"frames"`
	SHA256 string     `json:"sha256"` // of its segments, one after the other

	// For the rate control: see EncodeStats.
	Quality float64 `json:"quality,omitempty"`
	Bitrate int     `json:"bitrate,omitempty"`
	Factor  float64 `json:"factor,omitempty"`

	Before *EncodeStats `json:"before,omitempty"`

	Damage ffmpeg.Damage `json:"damage,omitzero"` // of an audio track that was decoded
}

// segments returns the segments of the stretch.
func (r RenditionResult) segments() ([]cmaf.Segment, error) {
	segments, _, err := cmaf.ReadIndex(r.Index)
	return segments, err
}
