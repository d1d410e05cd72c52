package codec

import (
	"bytes"
	"encoding/binary"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/opus"
)

const (
	// OpusRate is the sample rate of Opus in any file, independent of the original audio.
	OpusRate = 48000
	// OpusPreSkip is the look-ahead of an Opus encoder in samples, which a decoder drops.
	OpusPreSkip = 312

	opusMagic = "OpusHead"
)

// OpusHead returns the identification header (RFC 7845, 5.1) of Opus with the number of channels,
// in the order of Vorbis if there are more than two; nil if there is no such layout.
func OpusHead(channels int) []byte {
	// For more than two channels: how many streams there are, how many of them are stereo,
	// and which of the decoded channels each channel is.
	layouts := [...]string{
		1: "", 2: "", 3: "\x02\x01\x00\x02\x01", 4: "\x02\x02\x00\x01\x02\x03",
		5: "\x03\x02\x00\x04\x01\x02\x03", 6: "\x04\x02\x00\x04\x01\x02\x03\x05",
		7: "\x04\x03\x00\x04\x01\x02\x03\x05\x06", 8: "\x05\x03\x00\x06\x01\x02\x03\x04\x05\x07",
	}
	if channels < 1 || channels >= len(layouts) {
		return nil
	}
	family := byte(0)
	if channels > 2 {
		family = 1
	}
	head := append([]byte(opusMagic), 1, byte(channels))
	head = binary.LittleEndian.AppendUint16(head, OpusPreSkip)
	head = binary.LittleEndian.AppendUint32(head, OpusRate)
	head = append(head, 0, 0, family) // no gain
	return append(head, layouts[channels]...)
}

// opusChannels returns the number of channels in an identification header.
func opusChannels(head []byte) (int, error) {
	const size = 19 // without a table of channels
	if len(head) < size || !bytes.HasPrefix(head, []byte(opusMagic)) || head[8] != 1 {
		return 0, unusable("Opus", "the identification header is invalid")
	}
	return int(head[9]), nil
}

// OpusSamples returns the duration of a packet of Opus, in samples at OpusRate.
func OpusSamples(packet []byte) int64 { return opus.PacketDuration2(packet) }
