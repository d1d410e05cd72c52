package rtmp

import (
	"errors"
	"fmt"
	"time"

	"weir/internal/codec"
)

// A tag is the payload of a message for audio or video, and of a tag of FLV: a header, and the
// configuration of a codec or a frame. These are the types of tags, for audio and video.
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
	{"avc1", codec.H264},
	{"hvc1", codec.H265},
	{"av01", codec.AV1},
	{"mp4a", codec.AAC},
	{"Opus", codec.Opus},
}

// fourCCList returns the codecs that each end announces.
func fourCCList() (all []string) {
	for _, c := range fourCCs {
		all = append(all, c.letters)
	}
	return all
}

var errShort = errors.New("a tag or a command ends too early")

// readTag gives the packets in a tag to take. Its kind is that of the message.
func readTag(kind byte, body []byte, take func(codec.Packet) error) error {
	if kind == messageAudio {
		return audioTag(body, take)
	}
	return videoTag(body, take)
}

func videoTag(body []byte, take func(codec.Packet) error) error {
	b := reader{rest: body}
	p := codec.Packet{Kind: codec.Video}
	first := b.byte()
	const commandFrame = 5 // for players that seek
	if first>>4&7 == commandFrame {
		return nil
	}
	if first&videoExtra != 0 {
		return extendedTag(b, p, first&0xF, take)
	}
	switch id := first & 0xF; id {
	case videoH264:
		p.Codec = codec.H264
	case videoH265:
		p.Codec = codec.H265
	default:
		p.Codec = fmt.Sprintf("FLV video codec %d", id)
	}
	kind := b.byte()
	p.Composition = b.composition()
	if b.err != nil || kind > tagFrame {
		return b.err
	}
	p.Config, p.Data = kind == tagConfig, b.rest
	return take(p)
}

func audioTag(body []byte, take func(codec.Packet) error) error {
	b := reader{rest: body}
	p := codec.Packet{Kind: codec.Audio}
	first := b.byte()
	switch id := first >> 4; id {
	case audioExtra:
		return extendedTag(b, p, first&0xF, take)
	case audioAAC:
		kind := b.byte()
		if kind > tagFrame {
			return nil
		}
		p.Codec, p.Config = codec.AAC, kind == tagConfig
	default:
		p.Codec = fmt.Sprintf("FLV audio codec %d", id)
	}
	if b.err != nil {
		return b.err
	}
	p.Data = b.rest
	return take(p)
}

// extendedTag reads the rest of a tag of Enhanced RTMP, which has more codecs, times in
// nanoseconds, and several tracks.
func extendedTag(b reader, p codec.Packet, kind byte, take func(codec.Packet) error) error {
	for kind == tagModifier {
		kind = b.modifier(&p)
	}
	multitrack := p.Kind == codec.Video && kind == tagMultitrackVideo || p.Kind == codec.Audio && kind == tagMultitrackAudio
	const oneTrack, manyCodecs = 0, 2 // 1 = several tracks with one codec
	form := byte(oneTrack)
	if multitrack {
		next := b.byte()
		if form, kind = next>>4, next&0xF; form > manyCodecs {
			return fmt.Errorf("unknown multitrack type %d", form)
		}
	}
	if form != manyCodecs {
		p.Codec = b.fourCC()
	}
	if !multitrack {
		return takePacket(p, b, kind, take)
	}
	for len(b.rest) > 0 {
		if form == manyCodecs {
			p.Codec = b.fourCC()
		}
		p.Track = b.byte()
		size := len(b.rest)
		if form != oneTrack {
			size = int(b.uint(3))
		}
		track := reader{b.take(size), b.err}
		if err := takePacket(p, track, kind, take); err != nil {
			return err
		}
	}
	return b.err
}

// takePacket gives a packet with the rest of its tag to take, if it is a configuration or a frame.
func takePacket(p codec.Packet, b reader, kind byte, take func(codec.Packet) error) error {
	switch {
	case kind == tagConfig:
		p.Config = true
	case kind == tagFrame && (p.Codec == codec.H264 || p.Codec == codec.H265):
		p.Composition = b.composition()
	case kind == tagFrame:
	case kind == tagFrameNoOffset && p.Kind == codec.Video:
	default:
		return b.err
	}
	if b.err != nil {
		return b.err
	}
	p.Data = b.rest
	return take(p)
}

// reader reads the bytes of a tag or of a command. After an error it reads zeros.
type reader struct {
	rest []byte
	err  error
}

func (b *reader) fail(err error) {
	if b.err == nil {
		b.err = err
	}
	b.rest = nil
}

func (b *reader) take(n int) []byte {
	if n < 0 || len(b.rest) < n {
		b.fail(errShort)
		return nil
	}
	taken := b.rest[:n:n]
	b.rest = b.rest[n:]
	return taken
}

func (b *reader) byte() byte { return byte(b.uint(1)) }

// uint reads a number of size bytes.
func (b *reader) uint(size int) (n uint64) {
	for _, c := range b.take(size) {
		n = n<<8 | uint64(c)
	}
	return n
}

// composition reads a composition offset. It may be negative.
func (b *reader) composition() time.Duration {
	return time.Duration(int32(b.uint(3)<<8)>>8) * time.Millisecond
}

func (b *reader) fourCC() string {
	letters := b.take(4)
	for _, c := range fourCCs {
		if string(letters) == c.letters {
			return c.codec
		}
	}
	return fmt.Sprintf("%q", letters)
}

// modifier reads a modifier and returns the type of the tag behind it.
func (b *reader) modifier(p *codec.Packet) (kind byte) {
	size := b.uint(1)
	if size == 255 {
		size = b.uint(2)
	}
	data := b.take(int(size) + 1)
	next := b.byte()
	const nanoseconds = 0
	if next>>4 == nanoseconds && len(data) >= 3 {
		p.Offset = time.Duration(uint24(data))
	}
	return next & 0xF
}
