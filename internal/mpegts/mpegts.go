// Package mpegts reads and writes MPEG transport streams.
//
// A [Muxer] writes the segments of a rendition: a video track, an audio track, or one of each. It
// takes [Unit]s, frames in the format of MP4 files, and adds what a transport stream needs: parameter
// sets and delimiters before video, ADTS headers before AAC. A [Demuxer] takes bytes as they arrive
// and returns each frame as a [codec.Packet] with its times; it tolerates loss and damage.
//
// A transport stream is a sequence of packets of 188 bytes (packet.go). Tables say which packets
// belong to which track (table.go). The packets of a track carry PES packets, each with time stamps
// and one frame of video or a few of audio (pes.go).
//
// The package does no I/O of its own.
package mpegts

import (
	"bytes"
	"math"
	"time"
)

const (
	// PacketSize is the length of a transport packet in bytes.
	PacketSize = 188
	// ClockRate is the number of ticks of a time stamp in a second.
	ClockRate = 90000

	headerSize  = 4
	payloadSize = PacketSize - headerSize
	syncByte    = 0x47 // starts every packet
	nullPID     = 0x1FFF
	stampBits   = 33 // of a time stamp
)

// The values of stream_type that the package knows.
const (
	typeMPEG1Video = 0x01
	typeMPEG2Video = 0x02
	typeMPEG1Audio = 0x03
	typeMPEG2Audio = 0x04
	typePrivate    = 0x06
	typeAAC        = 0x0F
	typeMPEG4Video = 0x10
	typeLATM       = 0x11
	typeH264       = 0x1B
	typeH265       = 0x24
	typeVVC        = 0x33
	typeAC3        = 0x81
	typeEAC3       = 0x87
)

// The tags of descriptors.
const (
	tagRegistration = 0x05
	tagLanguage     = 0x0A
	tagAC3          = 0x6A
	tagEAC3         = 0x7A
	tagExtension    = 0x7F
)

// Detect reports whether data may be the start of a transport stream: a packet starts within its
// first 188 bytes.
func Detect(data []byte) bool {
	return bytes.IndexByte(data[:min(len(data), PacketSize)], syncByte) >= 0
}

// Ticks turns a time into ticks of ClockRate, the nearest number.
func Ticks(t time.Duration) int64 { return int64(math.Round(t.Seconds() * ClockRate)) }
