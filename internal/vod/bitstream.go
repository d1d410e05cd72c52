package vod

import (
	"bytes"
	"slices"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

// bitstream checks the H.264 of a track for anything that keeps players from playing it as it is. It does
// nothing for other codecs.
type bitstream struct {
	sets codec.ParameterSets // of the track
	odd  string              // why it can't be played; "" = no reason so far
}

func newBitstream(track cmaf.Track) bitstream {
	config := track.Config()
	if config.Codec != codec.H264 || config.Record == nil {
		return bitstream{odd: "it is not H.264"}
	}
	sets, err := config.ParameterSets()
	if err != nil {
		return bitstream{odd: "its parameter sets are damaged"}
	}
	b := bitstream{sets: sets}
	sequences := 0
	for _, set := range sets.Units {
		if codec.H264NAL(set) == codec.NALSPS {
			sequences++
		}
	}
	if sequences != 1 {
		b.odd = "it has several sequence parameter sets"
	}
	return b
}

func (b *bitstream) look(s cmaf.Sample, data []byte) {
	if b.odd != "" {
		return
	}
	idr := false
	for unit, err := range codec.Units(data, b.sets.LengthSize) {
		if err != nil {
			b.odd = "a frame is damaged"
			return
		}
		switch codec.H264NAL(unit) {
		case codec.NALKeySlice:
			idr = true
		case codec.NALSPS, codec.NALPPS:
			if !slices.ContainsFunc(b.sets.Units, func(set []byte) bool { return bytes.Equal(set, unit) }) {
				b.odd = "its parameter sets change"
				return
			}
		}
	}
	if s.Sync && !idr {
		b.odd = "its groups of pictures are open"
	}
}
