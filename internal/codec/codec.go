// Package codec knows what is inside a sample: H.264, H.265, AV1, VP9, AAC and Opus. It
// has the one parser of each parameter set and configuration record, and tells codec
// strings, picture sizes, frame durations and key frames from them.
//
// The formats around samples have packages of their own: a [Packet] is what the readers of
// rtmp and mpegts make of a message, before a decoder of its codec looks inside. The
// package is pure: it reads and writes bytes it is given, and nothing else.
package codec

import "time"

// Kind is what a track carries.
type Kind string

// The kinds of tracks.
const (
	Video Kind = "video"
	Audio Kind = "audio"
)

// The codecs by name. Encoders send the first five; files have the others too.
const (
	H264 = "h264"
	H265 = "h265"
	AV1  = "av1"
	AAC  = "aac"
	Opus = "opus"
	MP3  = "mp3"
	AC3  = "ac3"
	EAC3 = "eac3"
)

// Packet is what a message of a transport brings for one track: a frame, or the
// configuration of the frames that follow.
type Packet struct {
	Kind        Kind
	Codec       string        // one of the constants above; anything else is a name for people
	Track       byte          // tells several tracks of a kind apart
	Config      bool          // Data is the configuration of the codec, not a frame
	Offset      time.Duration // from the time of the message to the decode time
	Composition time.Duration // from the decode time to the presentation time
	Data        []byte
}
