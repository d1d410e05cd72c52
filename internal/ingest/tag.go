package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weir/internal/cmaf"
)

// packet is what a message of audio or video brings for one track.
type packet struct {
	kind   cmaf.Kind
	codec  string        // one of the constants below; anything else is for people
	track  byte          // of several of a kind
	config bool          // data tells about the codec, and is no frame
	offset time.Duration // from the message's time to being decoded
	shown  time.Duration // from being decoded to being shown
	data   []byte
}

// The codecs that a feed can take.
const (
	codecH264 = "h264"
	codecH265 = "h265"
	codecAV1  = "av1"
	codecAAC  = "aac"
	codecOpus = "opus"
)

// What a tag brings. The numbers of audio and video differ only from 3 on.
const (
	tagConfig = 0
	tagFrame  = 1

	tagFrameAtOnce     = 3 // picture: shown when it is decoded
	tagMultitrackAudio = 5
	tagMultitrack      = 6 // picture
	tagModified        = 7
)

var errShortTag = errors.New("a tag of sound or picture ends too early")

// videoTag hands the packets in a message of pictures to take.
func videoTag(body []byte, take func(packet) error) error {
	b := reader{body}
	first, err := b.byte()
	if err != nil {
		return err
	}
	const commandFrame = 5 // of servers, for players that seek
	if first>>4&7 == commandFrame {
		return nil
	}
	p := packet{kind: cmaf.Video}
	if first&0x80 != 0 {
		return extendedTag(b, p, first&0xF, take)
	}
	switch id := first & 0xF; id {
	case 7:
		p.codec = codecH264
	case 12: // what encoders did before there was a rule
		p.codec = codecH265
	default:
		p.codec = fmt.Sprintf("FLV picture codec %d", id)
	}
	kind, err := b.byte()
	if err != nil {
		return err
	}
	if p.shown, err = b.shown(); err != nil {
		return err
	}
	if kind > tagFrame {
		return nil
	}
	p.config, p.data = kind == tagConfig, b.rest
	return take(p)
}

// audioTag hands the packets in a message of audio to take.
func audioTag(body []byte, take func(packet) error) error {
	b := reader{body}
	first, err := b.byte()
	if err != nil {
		return err
	}
	p := packet{kind: cmaf.Audio}
	switch id := first >> 4; id {
	case 9:
		return extendedTag(b, p, first&0xF, take)
	case 10:
		kind, err := b.byte()
		if err != nil || kind > tagFrame {
			return err
		}
		p.codec, p.config = codecAAC, kind == tagConfig
	default:
		p.codec = fmt.Sprintf("FLV sound codec %d", id)
	}
	p.data = b.rest
	return take(p)
}

// extendedTag reads what Enhanced RTMP has behind the first byte: newer codecs, times
// finer than a millisecond, several tracks.
func extendedTag(b reader, p packet, kind byte, take func(packet) error) (err error) {
	for kind == tagModified {
		if kind, err = b.modified(&p); err != nil {
			return err
		}
	}
	several := p.kind == cmaf.Video && kind == tagMultitrack || p.kind == cmaf.Audio && kind == tagMultitrackAudio
	const (
		one         = 0
		manyOfCodec = 1
		many        = 2
	)
	form := byte(one)
	if several {
		next, err := b.byte()
		if err != nil {
			return err
		}
		if form, kind = next>>4, next&0xF; form > many {
			return fmt.Errorf("tracks in form %d", form)
		}
	}
	if form != many {
		if p.codec, err = b.codec(); err != nil {
			return err
		}
	}
	if !several {
		return p.fill(b.rest, kind, take)
	}
	for len(b.rest) > 0 {
		if form == many {
			if p.codec, err = b.codec(); err != nil {
				return err
			}
		}
		if p.track, err = b.byte(); err != nil {
			return err
		}
		data := b.rest
		if form != one {
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
		if err := p.fill(data, kind, take); err != nil {
			return err
		}
	}
	return nil
}

// fill hands the packet on with its data, if it is of a kind that matters.
func (p packet) fill(data []byte, kind byte, take func(packet) error) (err error) {
	switch {
	case kind == tagConfig:
		p.config = true
	case kind == tagFrame && (p.codec == codecH264 || p.codec == codecH265):
		b := reader{data}
		if p.shown, err = b.shown(); err != nil {
			return err
		}
		data = b.rest
	case kind == tagFrame:
	case kind == tagFrameAtOnce && p.kind == cmaf.Video:
	default:
		return nil
	}
	p.data = data
	return take(p)
}

// reader walks through the bytes of a tag.
type reader struct{ rest []byte }

func (b *reader) take(n int) ([]byte, error) {
	if len(b.rest) < n {
		return nil, errShortTag
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

// shown reads how long after being decoded a picture is shown. It may be negative.
func (b *reader) shown() (time.Duration, error) {
	taken, err := b.take(3)
	if err != nil {
		return 0, err
	}
	return time.Duration(int32(uint24(taken)<<8)>>8) * time.Millisecond, nil
}

// codec reads four letters.
func (b *reader) codec() (string, error) {
	taken, err := b.take(4)
	if err != nil {
		return "", err
	}
	switch letters := string(taken); letters {
	case "avc1":
		return codecH264, nil
	case "hvc1":
		return codecH265, nil
	case "av01":
		return codecAV1, nil
	case "mp4a":
		return codecAAC, nil
	case "Opus":
		return codecOpus, nil
	default:
		return fmt.Sprintf("%q", letters), nil
	}
}

// modified reads a modifier and returns the kind of tag behind it.
func (b *reader) modified(p *packet) (kind byte, err error) {
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
		p.offset = time.Duration(uint24(data))
	}
	return next & 0xF, nil
}
