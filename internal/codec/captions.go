package codec

import (
	"bytes"
	"encoding/binary"
)

// CaptionPair is two bytes of closed captions (CEA-608), with their parity bits. Field 1 has the
// channels CC1 and CC2, field 2 has CC3 and CC4.
type CaptionPair struct {
	Field int // 1 or 2
	Data  [2]byte
}

// Captions returns the closed captions that a sample of H.264, H.265 or AV1 has beside its picture,
// in their order. Filler is left out, and so is CEA-708. lengthSize is that of NAL units.
//
// It is called for every frame, most of which have none: so it looks at the first byte of units,
// and allocates nothing before it has found a pair. Damaged data ends the list and is no error,
// because a picture without its captions is better than none.
func (c Config) Captions(sample []byte, lengthSize int) (pairs []CaptionPair) {
	switch c.Codec {
	case H264, H265:
		for unit, err := range Units(sample, lengthSize) {
			if err != nil {
				break
			}
			pairs = appendSEI(pairs, seiMessages(c.Codec, unit))
		}
	case AV1:
		for unit, err := range obus(sample) {
			if err != nil {
				break
			}
			pairs = appendMetadata(pairs, unit)
		}
	}
	return pairs
}

// seiMessages returns what a NAL unit of supplemental enhancement information has behind its
// header, nil for others.
func seiMessages(codec string, unit []byte) []byte {
	const h264SEI, h265PrefixSEI = 6, 39
	switch {
	case len(unit) < 2:
	case codec == H264 && unit[0]&31 == h264SEI:
		return unit[1:]
	case codec == H265 && unit[0]>>1&63 == h265PrefixSEI:
		return unit[2:]
	}
	return nil
}

// captionMark begins registered user data (ITU-T T.35) of ATSC, which has captions (ATSC A/53-4).
var captionMark = []byte("\xb5\x00\x31GA94\x03")

// appendSEI adds the captions in messages of a NAL unit.
func appendSEI(pairs []CaptionPair, messages []byte) []CaptionPair {
	const registered = 4 // the type of messages with registered user data
	if !bytes.Contains(messages, captionMark) {
		return pairs // without a copy of those that encoders send for themselves
	}
	rest := unescape(messages)
	for len(rest) > 1 { // the last byte ends the unit
		var kind, size int
		kind, rest = seiNumber(rest)
		size, rest = seiNumber(rest)
		if size > len(rest) {
			break
		}
		if kind == registered {
			pairs = appendCaptions(pairs, rest[:size])
		}
		rest = rest[size:]
	}
	return pairs
}

// seiNumber reads a type or a size: bytes of 255, and the last one, are added.
func seiNumber(data []byte) (n int, rest []byte) {
	for i, b := range data {
		n += int(b)
		if b != 255 {
			return n, data[i+1:]
		}
	}
	return n, nil
}

// appendMetadata adds the captions of an OBU.
func appendMetadata(pairs []CaptionPair, unit obu) []CaptionPair {
	const obuMetadata, registered = 5, 4
	if unit.kind != obuMetadata {
		return pairs
	}
	kind, n := binary.Uvarint(unit.payload)
	if n <= 0 || kind != registered {
		return pairs
	}
	return appendCaptions(pairs, unit.payload[n:])
}

// appendCaptions adds the captions in registered user data.
func appendCaptions(pairs []CaptionPair, data []byte) []CaptionPair {
	const present, count, valid, cea708, second = 0x40, 31, 4, 2, 1
	data, ok := bytes.CutPrefix(data, captionMark)
	if !ok || len(data) < 2 || data[0]&present == 0 {
		return pairs
	}
	triplets := data[2:]
	for n := data[0] & count; n > 0 && len(triplets) >= 3; n-- {
		head, a, b := triplets[0], triplets[1], triplets[2]
		filler := (a|b)&0x7f == 0
		if head&valid != 0 && head&cea708 == 0 && !filler {
			pairs = append(pairs, CaptionPair{Field: 1 + int(head&second), Data: [2]byte{a, b}})
		}
		triplets = triplets[3:]
	}
	return pairs
}
