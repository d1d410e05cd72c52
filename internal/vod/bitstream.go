package vod

import (
	"bytes"
	"slices"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

// bitstream checks the H.264 or H.265 of a track for anything that keeps players from playing it as it is, or
// frames from being beside others. It does nothing for other codecs.
type bitstream struct {
	sets    codec.ParameterSets // of the track
	kind    func([]byte) codec.NAL
	several bool   // there are several sequence parameter sets
	open    bool   // a group of pictures needs the one before it
	noCopy  string // why frames can't be used elsewhere; "" = no reason so far
}

func newBitstream(track cmaf.Track) bitstream {
	config := track.Config()
	b := bitstream{kind: codec.H264NAL}
	switch {
	case config.Record == nil || config.Codec != codec.H264 && config.Codec != codec.H265:
		b.noCopy = "it is neither H.264 nor H.265"
		return b
	case config.Codec == codec.H265:
		b.kind = codec.H265NAL
	}
	var err error
	if b.sets, err = config.ParameterSets(); err != nil {
		b.noCopy = "its parameter sets are damaged"
		return b
	}
	sequences := 0
	for _, set := range b.sets.Units {
		if b.kind(set) == codec.NALSPS {
			sequences++
		}
	}
	b.several = sequences != 1
	return b
}

func (b *bitstream) inspect(s cmaf.Sample, data []byte) {
	if b.noCopy != "" {
		return
	}
	key := false
	for unit, err := range codec.Units(data, b.sets.LengthSize) {
		if err != nil {
			b.noCopy = "a frame is damaged"
			return
		}
		switch kind := b.kind(unit); {
		case kind == codec.NALKeySlice:
			key = true
		case kind.ParameterSet():
			if !slices.ContainsFunc(b.sets.Units, func(set []byte) bool { return bytes.Equal(set, unit) }) {
				b.noCopy = "its parameter sets change"
				return
			}
		}
	}
	b.open = b.open || s.Sync && !key
}

// whyEncode returns why players can't play the track as it is; "" = they can.
func (b *bitstream) whyEncode() string {
	switch {
	case b.noCopy != "":
		return b.noCopy
	case b.several:
		return "it has several sequence parameter sets"
	case b.open:
		return "its groups of pictures are open"
	}
	return ""
}
