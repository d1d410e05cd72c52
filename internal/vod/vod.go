// Package vod makes renditions of a file. It is the engine without the service, without accounts and jobs:
// `weir transcode` and the workers use it in the same way.
//
// A source passes through these steps:
//
//	Import      demuxes the file: video and audio become tracks of package media
//	Plan        decides about the results; pure, so all machines decide alike
//	Encode      encodes a part of the video as every rendition, chunk by chunk
//	EncodeAudio makes an audio track of the result
//	Thumbnails  makes images of the key frames
//
// Package publish renders the results in the caller's formats, and puts them to the caller's storage. Run
// does all of it in one process. Recode encodes some frames of a stored track again, for package clip.
//
// The input of a step is JSON ([Source], [Plan], [ChunkResult]) and the store; steps may run on different
// machines, and twice: they write the same bytes under the same keys. Only an encode that is resumed has
// other bytes; see [EncodeOptions.Folder].
//
// All tracks share one timeline, on which 0 is the start of the presentation. Frames are never guessed: the
// table of frames comes from the packets of the source, every rendition gets the times in that table, and a
// step with another number of frames fails.
package vod

import (
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// Request selects the results of a source.
type Request struct {
	Profiles       []weir.Profile `json:"profiles,omitempty"`       // none = the default ladder
	SegmentSeconds float64        `json:"segmentSeconds,omitempty"` // target duration of segments; 0 = 10
	EncodeAll      bool           `json:"encodeAll,omitempty"`      // also renditions that could be copied
	SourceOnly     bool           `json:"sourceOnly,omitempty"`     // of a recording: no renditions but the recorded one
	Encoders       int            `json:"encoders,omitempty"`       // encodes that can run at once; see [Encoders]. 0 = 1
}

// segmentSeconds returns the target duration of segments within the bounds of the API.
func segmentSeconds(requested float64) float64 {
	if !(requested > 0) {
		return 10
	}
	return min(max(requested, 2), 20)
}

// Source is an imported file.
type Source struct {
	Prefix string       `json:"prefix"` // of its tracks in the store
	Probe  ffmpeg.Probe `json:"probe"`

	Duration float64       `json:"duration"` // seconds, by its packets
	Video    *SourceVideo  `json:"video,omitempty"`
	Audio    []SourceAudio `json:"audio,omitempty"`
	Text     []SourceText  `json:"text,omitempty"`
	Unread   []string      `json:"unread,omitempty"` // why tracks of text were not imported: sentences

	// Captions are the channels of closed captions in the frames of the video, see cmaf.Master.
	Captions []int `json:"captions,omitzero"`

	// Sequential is the reason why the video can't be demuxed; "" = it was. Such a source is encoded as one
	// chunk, from the file.
	Sequential string `json:"sequential,omitempty"`

	Damage ffmpeg.Damage `json:"damage,omitzero"` // of the container

	// From and To bound what was imported, if it is a part of the file: see ImportOptions.Excerpt. To 0 = up to
	// the end.
	From time.Duration `json:"from,omitzero"`
	To   time.Duration `json:"to,omitzero"`
}

// SourceVideo is the video of a source. Times are ticks on the timeline.
type SourceVideo struct {
	Track     ffmpeg.Track `json:"stream"`
	Width     int          `json:"width"`  // as shown: upright, with square pixels
	Height    int          `json:"height"` // as shown
	Bitrate   int          `json:"bitrate"`
	Timescale int64        `json:"timescale,omitempty"`

	// The visible frames. Others are only needed to decode them.
	Start  int64 `json:"start,omitempty"`
	End    int64 `json:"end,omitempty"`
	Frames int   `json:"frames,omitempty"`

	MaxGOP float64 `json:"longestGOP,omitempty"` // maximum of seconds between key frames

	// Encode is the reason why the stored track can't be a rendition; "" = it can.
	Encode string `json:"encode,omitempty"`
	// NoCopy is the reason why frames of it can't be in a clip beside frames that are encoded; "" = they can,
	// if our encoders know the codec.
	NoCopy string `json:"noCopy,omitempty"`
}

// frames returns the table of the visible frames; index is that of the stored track.
func (v SourceVideo) frames(index cmaf.TrackIndex) cmaf.Frames {
	return cmaf.NewFrames(index, v.Start, v.End)
}

// SourceAudio is an audio track of a source. AAC is stored as a track, everything else
// as Matroska.
type SourceAudio struct {
	Track   ffmpeg.Track `json:"stream"`
	Dir     string       `json:"dir"`             // below the prefix
	AsTrack bool         `json:"track,omitempty"` // it is stored as a track
	Copy    bool         `json:"copy,omitempty"`  // the track can be used as it is: AAC without gaps
}

// SourceText is a track of text of a source, which is stored as WebVTT below the prefix.
type SourceText struct {
	Track ffmpeg.Track `json:"stream"`
	ID    string       `json:"id"`
	weir.TrackFile
}

// sourceDir is the folder of the source's video below its prefix, and of the rendition that is copied from it.
const sourceDir = media.RecordedVideo

// Describe returns what the output of a transcode task says of the source.
func (s Source) Describe() weir.TranscodeOutput {
	spec := s.Probe.VideoSpec()
	return weir.TranscodeOutput{VideoSpec: &spec, InputVideo: weir.InputVideo{Duration: s.Duration, Size: s.Probe.Size}}
}

// ChunkResult describes an encoded chunk.
type ChunkResult struct {
	Chunk      int               `json:"chunk"`
	Renditions []RenditionResult `json:"renditions"` // the encoded ones, in the order of the plan
	Damage     ffmpeg.Damage     `json:"damage,omitzero"`
}

// RenditionResult describes a chunk of a rendition, or a whole audio track.
type RenditionResult struct {
	Name   string     `json:"name"`
	Track  cmaf.Track `json:"track"`
	Index  []byte     `json:"index"` // entries of its segments, as cmaf.AppendEntry writes them
	Bytes  int64      `json:"bytes"`
	Frames int        `json:"frames"`
	SHA256 string     `json:"sha256"` // of the bytes of its segments

	Folder string `json:"folder,omitempty"` // of its segments; see cmaf.Folder

	Damage ffmpeg.Damage `json:"damage,omitzero"` // of an audio track that was decoded
}

// resultOf describes the segments of a rendition that were stored since the last call.
func resultOf(w *media.Writer, name string) RenditionResult {
	index, sum := w.Take()
	r := RenditionResult{Name: name, Track: index.Track, Bytes: index.Size(), Frames: index.Frames(), SHA256: sum}
	for _, s := range index.Segments {
		r.Index = cmaf.AppendEntry(r.Index, s)
	}
	return r
}

func (r RenditionResult) segments() ([]cmaf.Segment, error) {
	segments, _, err := cmaf.ReadIndex(r.Index)
	return segments, err
}
