package vod

import (
	"bytes"
	"encoding/binary"
	"slices"

	"weir/internal/cmaf"
)

// bitstream looks into H.264 while it comes, for what keeps a track from being played
// as it is. For other codecs it does nothing.
type bitstream struct {
	sets   [][]byte // parameter sets that the track declares
	length int      // bytes of the length before every unit
	odd    string   // what is wrong; "" = nothing so far
}

// Types of units in H.264.
const (
	unitIDR = 5
	unitSPS = 7
	unitPPS = 8
)

func newBitstream(track cmaf.Track) bitstream {
	config, ok := avcConfig(track.Entry)
	if !ok {
		return bitstream{odd: "it is not H.264"}
	}
	b := bitstream{length: int(config[4]&3) + 1}
	rest := config[5:]
	for _, mask := range []byte{0x1f, 0xff} { // SPS, then PPS
		if len(rest) == 0 {
			break
		}
		count := int(rest[0] & mask)
		rest = rest[1:]
		if mask == 0x1f && count != 1 {
			b.odd = "it has several sequence parameter sets"
		}
		for range count {
			if len(rest) < 2 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
				return bitstream{odd: "its parameter sets are damaged"}
			}
			size := int(binary.BigEndian.Uint16(rest))
			b.sets = append(b.sets, rest[2:2+size])
			rest = rest[2+size:]
		}
	}
	return b
}

// avcConfig finds the avcC box in a sample entry.
func avcConfig(entry []byte) ([]byte, bool) {
	const visual = 8 + 78 // head and fields of a visual sample entry
	if len(entry) < visual {
		return nil, false
	}
	for rest := entry[visual:]; len(rest) >= 8; {
		size := int(binary.BigEndian.Uint32(rest))
		if size < 8 || size > len(rest) {
			break
		}
		if string(rest[4:8]) == "avcC" && size >= 8+6 {
			return rest[8:size], true
		}
		rest = rest[size:]
	}
	return nil, false
}

// look checks a sample.
func (b *bitstream) look(s cmaf.Sample, data []byte) {
	if b.odd != "" {
		return
	}
	idr := false
	for len(data) > 0 {
		var unit []byte
		var ok bool
		if unit, data, ok = cmaf.CutUnit(data, b.length); !ok {
			b.odd = "a frame is damaged"
			return
		}
		if len(unit) == 0 {
			continue
		}
		switch unit[0] & 0x1f {
		case unitIDR:
			idr = true
		case unitSPS, unitPPS:
			if !slices.ContainsFunc(b.sets, func(set []byte) bool { return bytes.Equal(set, unit) }) {
				b.odd = "its parameter sets change"
				return
			}
		}
	}
	if s.Sync && !idr {
		b.odd = "its groups of pictures are open"
	}
}
