// Package codec parses the content of samples: H.264, H.265, AV1, AAC and Opus. It has the only
// parser of each parameter set and configuration record, and derives codec strings, frame sizes,
// durations and key frames from them.
//
// A [Packet] is the data of a track in a message of a transport. A [Decoder] makes samples of
// packets, and has the [Config] of their track, of which cmaf makes a sample entry. [Units]
// iterates over the NAL units of a sample, and [ParameterSets] reads avcC and hvcC records.
//
// The package does no I/O.
package codec

import "time"

// Kind is the kind of a track.
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

// Packet is the data of one track in a message of a transport: a frame, or the configuration of the
// frames that follow.
type Packet struct {
	Kind        Kind
	Codec       string        // one of the constants above; anything else is a name for people
	Track       byte          // distinguishes several tracks of a kind
	Config      bool          // Data is the configuration of the codec, not a frame
	Offset      time.Duration // from the time of the message to the decode time
	Composition time.Duration // from the decode time to the presentation time
	Data        []byte
}

// MaxFrame is the maximum size of a frame from outside: more than a key frame of 4K at 100 Mbit/s.
const MaxFrame = 8 << 20

// Duration returns the duration of n ticks or samples. Whole seconds are converted apart from the
// rest, so that large numbers do not overflow.
func Duration(n, rate int64) time.Duration {
	return time.Duration(n/rate)*time.Second + time.Duration(n%rate)*time.Second/time.Duration(rate)
}
