package rtmp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weir/internal/codec"
)

// A tag is the payload of a message for audio or video, and of a tag of FLV: a header, and
// the configuration of a codec or a frame.

// What a tag carries. The numbers of audio and video are the same up to 2.
const (
	tagConfig = 0
	tagFrame  = 1

	tagFrameNoOffset   = 3 // video without a composition offset
	tagMultitrackAudio = 5
	tagMultitrackVideo = 6
	tagModifier        = 7
)

// Codec numbers in the first byte of a tag, and the bit that replaces them by four letters.
const (
	videoH264  = 7
	videoH265  = 12 // used by encoders before Enhanced RTMP
	audioAAC   = 10
	audioExtra = 9 // Enhanced RTMP
	videoExtra = 0x80
)

// fourCCs are the codecs as Enhanced RTMP names them.
var fourCCs = []struct{ letters, codec string }{
	{"avc1", codec.H264}, {"hvc1", codec.H265}, {"av01", codec.AV1}, {"mp4a", codec.AAC}, {"Opus", codec.Opus},
}

// fourCCList is what each end tells the other about its codecs.
func fourCCList() (all []string) {
	for _, c := range fourCCs {
		all = append(all, c.letters)
	}
	return all
}

var errShort = errors.New("a tag or a command ends too early")

// readTag hands the packets in a tag to take. Its kind is that of the message.
func readTag(kind byte, body []byte, take func(codec.Packet) error) error {
	if kind == messageAudio {
		return audioTag(body, take)
	}
	return videoTag(body, take)
}

func videoTag(body []byte, take func(codec.Packet) error) error {
	b := reader{body}
	first, err := b.byte()
	if err != nil {
		return err
	}
	const commandFrame = 5 // for players that seek
	if first>>4&7 == commandFrame {
		return nil
	}
	p := codec.Packet{Kind: codec.Video}
	if first&videoExtra != 0 {
		return extendedTag(b, p, first&0xF, take)
	}
	switch id := first & 0xF; id {
	case videoH264:
		p.Codec = codec.H264
	case videoH265:
		p.Codec = codec.H265
	default:
		p.Codec = fmt.Sprintf("FLV picture codec %d", id)
	}
	kind, err := b.byte()
	if err != nil {
		return err
	}
	if p.Composition, err = b.composition(); err != nil {
		return err
	}
	if kind > tagFrame {
		return nil
	}
	p.Config, p.Data = kind == tagConfig, b.rest
	return take(p)
}

func audioTag(body []byte, take func(codec.Packet) error) error {
	b := reader{body}
	first, err := b.byte()
	if err != nil {
		return err
	}
	p := codec.Packet{Kind: codec.Audio}
	switch id := first >> 4; id {
	case audioExtra:
		return extendedTag(b, p, first&0xF, take)
	case audioAAC:
		kind, err := b.byte()
		if err != nil || kind > tagFrame {
			return err
		}
		p.Codec, p.Config = codec.AAC, kind == tagConfig
	default:
		p.Codec = fmt.Sprintf("FLV sound codec %d", id)
	}
	p.Data = b.rest
	return take(p)
}

// extendedTag reads what follows the first byte in Enhanced RTMP, which has more codecs, times
// in nanoseconds, and several tracks.
func extendedTag(b reader, p codec.Packet, kind byte, take func(codec.Packet) error) (err error) {
	for kind == tagModifier {
		if kind, err = b.modifier(&p); err != nil {
			return err
		}
	}
	multitrack := p.Kind == codec.Video && kind == tagMultitrackVideo || p.Kind == codec.Audio && kind == tagMultitrackAudio
	const (
		oneTrack   = 0
		oneCodec   = 1
		manyCodecs = 2
	)
	form := byte(oneTrack)
	if multitrack {
		next, err := b.byte()
		if err != nil {
			return err
		}
		if form, kind = next>>4, next&0xF; form > manyCodecs {
			return fmt.Errorf("tracks in form %d", form)
		}
	}
	if form != manyCodecs {
		if p.Codec, err = b.fourCC(); err != nil {
			return err
		}
	}
	if !multitrack {
		return takePacket(p, b.rest, kind, take)
	}
	for len(b.rest) > 0 {
		if form == manyCodecs {
			if p.Codec, err = b.fourCC(); err != nil {
				return err
			}
		}
		if p.Track, err = b.byte(); err != nil {
			return err
		}
		data := b.rest
		if form != oneTrack {
			size, err := b.take(3)
			if err != nil {
				return err
			}
			if data, err = b.take(int(uint24(size))); err != nil {
				return err
			}
		} else {
			b.rest = nil
		}
		if err := takePacket(p, data, kind, take); err != nil {
			return err
		}
	}
	return nil
}

// takePacket hands on a packet with its data, if it is a configuration or a frame.
func takePacket(p codec.Packet, data []byte, kind byte, take func(codec.Packet) error) (err error) {
	switch {
	case kind == tagConfig:
		p.Config = true
	case kind == tagFrame && (p.Codec == codec.H264 || p.Codec == codec.H265):
		b := reader{data}
		if p.Composition, err = b.composition(); err != nil {
			return err
		}
		data = b.rest
	case kind == tagFrame:
	case kind == tagFrameNoOffset && p.Kind == codec.Video:
	default:
		return nil
	}
	p.Data = data
	return take(p)
}

// reader reads the bytes of a tag, or of a command.
type reader struct{ rest []byte }

func (b *reader) take(n int) ([]byte, error) {
	if len(b.rest) < n {
		return nil, errShort
	}
	taken := b.rest[:n:n]
	b.rest = b.rest[n:]
	return taken, nil
}

func (b *reader) byte() (byte, error) {
	taken, err := b.take(1)
	if err != nil {
		return 0, err
	}
	return taken[0], nil
}

// composition reads a composition offset. It may be negative.
func (b *reader) composition() (time.Duration, error) {
	taken, err := b.take(3)
	if err != nil {
		return 0, err
	}
	return time.Duration(int32(uint24(taken)<<8)>>8) * time.Millisecond, nil
}

// fourCC reads the four letters of a codec.
func (b *reader) fourCC() (string, error) {
	taken, err := b.take(4)
	if err != nil {
		return "", err
	}
	for _, c := range fourCCs {
		if string(taken) == c.letters {
			return c.codec, nil
		}
	}
	return fmt.Sprintf("%q", taken), nil
}

// modifier reads a modifier and returns what the tag behind it carries.
func (b *reader) modifier(p *codec.Packet) (kind byte, err error) {
	n, err := b.byte()
	if err != nil {
		return 0, err
	}
	size := int(n) + 1
	if size == 256 {
		long, err := b.take(2)
		if err != nil {
			return 0, err
		}
		size = int(binary.BigEndian.Uint16(long)) + 1
	}
	data, err := b.take(size)
	if err != nil {
		return 0, err
	}
	next, err := b.byte()
	if err != nil {
		return 0, err
	}
	const nanoseconds = 0
	if next>>4 == nanoseconds && len(data) >= 3 {
		p.Offset = time.Duration(uint24(data))
	}
	return next & 0xF, nil
}
