package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
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
func videoTag(body []byte, take func(codec.Packet) error) error {
	b := reader{body}
	first, err := b.byte()
	if err != nil {
		return err
	}
	const commandFrame = 5 // of servers, for players that seek
	if first>>4&7 == commandFrame {
		return nil
	}
	p := codec.Packet{Kind: cmaf.Video}
	if first&0x80 != 0 {
		return extendedTag(b, p, first&0xF, take)
	}
	switch id := first & 0xF; id {
	case 7:
		p.Codec = codec.H264
	case 12: // what encoders did before there was a rule
		p.Codec = codec.H265
	default:
		p.Codec = fmt.Sprintf("FLV picture codec %d", id)
	}
	kind, err := b.byte()
	if err != nil {
		return err
	}
	if p.Composition, err = b.shown(); err != nil {
		return err
	}
	if kind > tagFrame {
		return nil
	}
	p.Config, p.Data = kind == tagConfig, b.rest
	return take(p)
}

// audioTag hands the packets in a message of audio to take.
func audioTag(body []byte, take func(codec.Packet) error) error {
	b := reader{body}
	first, err := b.byte()
	if err != nil {
		return err
	}
	p := codec.Packet{Kind: cmaf.Audio}
	switch id := first >> 4; id {
	case 9:
		return extendedTag(b, p, first&0xF, take)
	case 10:
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

// extendedTag reads what Enhanced RTMP has behind the first byte: newer codecs, times
// finer than a millisecond, several tracks.
func extendedTag(b reader, p codec.Packet, kind byte, take func(codec.Packet) error) (err error) {
	for kind == tagModified {
		if kind, err = b.modified(&p); err != nil {
			return err
		}
	}
	several := p.Kind == cmaf.Video && kind == tagMultitrack || p.Kind == cmaf.Audio && kind == tagMultitrackAudio
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
		if p.Codec, err = b.codec(); err != nil {
			return err
		}
	}
	if !several {
		return takeBody(p, b.rest, kind, take)
	}
	for len(b.rest) > 0 {
		if form == many {
			if p.Codec, err = b.codec(); err != nil {
				return err
			}
		}
		if p.Track, err = b.byte(); err != nil {
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
		if err := takeBody(p, data, kind, take); err != nil {
			return err
		}
	}
	return nil
}

// takeBody hands a packet on with its data, if it is of a kind that matters.
func takeBody(p codec.Packet, data []byte, kind byte, take func(codec.Packet) error) (err error) {
	switch {
	case kind == tagConfig:
		p.Config = true
	case kind == tagFrame && (p.Codec == codec.H264 || p.Codec == codec.H265):
		b := reader{data}
		if p.Composition, err = b.shown(); err != nil {
			return err
		}
		data = b.rest
	case kind == tagFrame:
	case kind == tagFrameAtOnce && p.Kind == cmaf.Video:
	default:
		return nil
	}
	p.Data = data
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
		return codec.H264, nil
	case "hvc1":
		return codec.H265, nil
	case "av01":
		return codec.AV1, nil
	case "mp4a":
		return codec.AAC, nil
	case "Opus":
		return codec.Opus, nil
	default:
		return fmt.Sprintf("%q", letters), nil
	}
}

// modified reads a modifier and returns the kind of tag behind it.
func (b *reader) modified(p *codec.Packet) (kind byte, err error) {
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
