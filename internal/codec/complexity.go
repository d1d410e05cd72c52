package codec

import (
	"math"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
)

// Complexity measures how hard the frames of H.264 were to encode. Their sizes alone do not show
// it: an encoder with a constant bitrate spends the same on all frames and lets the quality differ.
// So the size of each slice is scaled by its quantizer, as if all slices had the same one.
type Complexity struct {
	lengthSize int // bytes of the length before each NAL unit
	sps        h264.SPS
	pps        map[uint32]picParams
}

// picParams are the fields of a picture parameter set on which a slice header depends.
type picParams struct {
	cabac              bool
	bottomOrder        bool // bottom_field_pic_order_in_frame_present_flag
	refs               [2]uint32
	weighted           bool // P-frames
	weightedExplicitly bool // B-frames
	quantizer          int32
	redundant          bool
}

const (
	// normalQuantizer is the quantizer to which sizes are scaled.
	normalQuantizer = 28
	// octaves is how often 6 steps of the quantizer halve the size of a slice.
	octaves = 1.2
	// headerBytes is how many bytes of a slice are read; its header is much shorter.
	headerBytes = 256
	maxRefs     = 32
)

// NewComplexity returns a Complexity for a track with these parameter sets; false = they can't be
// used.
func NewComplexity(sets ParameterSets) (*Complexity, bool) {
	c := &Complexity{lengthSize: sets.LengthSize, pps: map[uint32]picParams{}}
	known := false
	for _, set := range sets.Units {
		switch H264NAL(set) {
		case NALSPS:
			if c.sps.Unmarshal(set) != nil {
				return nil, false
			}
			known = true
		case NALPPS:
			if !c.addPPS(set) {
				return nil, false
			}
		}
	}
	return c, known && len(c.pps) > 0 && c.lengthSize >= 1 && c.lengthSize <= 4
}

// Of returns the complexity of a sample, in bytes; false = unknown.
func (c *Complexity) Of(sample []byte) (float64, bool) {
	sum := 0.0
	for unit, err := range Units(sample, c.lengthSize) {
		if err != nil {
			return 0, false
		}
		switch H264NAL(unit) {
		case NALPPS:
			if !c.addPPS(unit) {
				return 0, false
			}
		case NALKeySlice, NALSlice:
			quantizer, ok := c.quantizer(unit)
			if !ok {
				return 0, false
			}
			sum += float64(len(unit)) * math.Exp2(octaves*float64(quantizer-normalQuantizer)/6)
		}
	}
	return sum, true
}

// newHeader returns a reader of the fields of a parameter set or of a slice header.
func newHeader(unit []byte) *bitReader {
	unit = unit[:min(len(unit), headerBytes)]
	return &bitReader{data: h264.EmulationPreventionRemove(unit), at: 8}
}

// addPPS reads a picture parameter set (H.264 7.3.2.2).
func (c *Complexity) addPPS(unit []byte) bool {
	h := newHeader(unit)
	id := h.golomb()
	h.golomb() // the id of the sequence parameter set
	var p picParams
	p.cabac = h.flag()
	p.bottomOrder = h.flag()
	if h.golomb() > 0 { // slice groups, which encoders do not use
		return false
	}
	p.refs = [2]uint32{h.golomb() + 1, h.golomb() + 1}
	p.weighted = h.flag()
	p.weightedExplicitly = h.take(2) == 1
	p.quantizer = 26 + h.signedGolomb()
	h.signedGolomb() // the quantizer of switching slices
	h.signedGolomb() // the offset of chroma
	h.flag()         // deblocking
	h.flag()         // constrained intra prediction
	p.redundant = h.flag()
	if h.short || id > 255 {
		return false
	}
	c.pps[id] = p
	return true
}

// quantizer reads a slice header (7.3.3) as far as its quantizer.
func (c *Complexity) quantizer(unit []byte) (int32, bool) {
	h := newHeader(unit)
	idr := H264NAL(unit) == NALKeySlice
	h.golomb() // the first macroblock
	kind := h.golomb() % 5
	p, ok := c.pps[h.golomb()]
	if !ok {
		return 0, false
	}
	const (
		kindP = 0
		kindB = 1
		kindI = 2
	)
	if kind > kindI {
		return 0, false
	}
	if c.sps.SeparateColourPlaneFlag {
		h.take(2)
	}
	h.take(int(c.sps.Log2MaxFrameNumMinus4) + 4)
	field := false
	if !c.sps.FrameMbsOnlyFlag {
		if field = h.flag(); field {
			h.flag()
		}
	}
	if idr {
		h.golomb()
	}
	switch c.sps.PicOrderCntType {
	case 0:
		h.take(int(c.sps.Log2MaxPicOrderCntLsbMinus4) + 4)
		if p.bottomOrder && !field {
			h.signedGolomb()
		}
	case 1:
		if !c.sps.DeltaPicOrderAlwaysZeroFlag {
			h.signedGolomb()
			if p.bottomOrder && !field {
				h.signedGolomb()
			}
		}
	}
	if p.redundant {
		h.golomb()
	}
	if kind == kindB {
		h.flag()
	}
	lists := 0
	switch kind {
	case kindP:
		lists = 1
	case kindB:
		lists = 2
	}
	if lists > 0 && h.flag() {
		for l := range lists {
			p.refs[l] = h.golomb() + 1
		}
	}
	for range lists {
		c.reorder(h)
	}
	if p.weighted && kind == kindP || p.weightedExplicitly && kind == kindB {
		c.weigh(h, p.refs[:lists])
	}
	if unit[0]>>5&3 != 0 {
		c.mark(h, idr)
	}
	if p.cabac && kind != kindI {
		h.golomb()
	}
	quantizer := p.quantizer + h.signedGolomb()
	return quantizer, !h.short && quantizer >= -48 && quantizer <= 51
}

// reorder skips the changes of a list of reference frames (7.3.3.1).
func (c *Complexity) reorder(h *bitReader) {
	if !h.flag() {
		return
	}
	for !h.short && h.golomb() != 3 {
		h.golomb()
	}
}

// weigh skips the weights of reference frames (7.3.3.2).
func (c *Complexity) weigh(h *bitReader, refs []uint32) {
	colors := c.sps.ChromaFormatIdc != 0 && !c.sps.SeparateColourPlaneFlag
	h.golomb()
	if colors {
		h.golomb()
	}
	for _, n := range refs {
		for range min(n, maxRefs) {
			if h.flag() {
				h.signedGolomb()
				h.signedGolomb()
			}
			if colors && h.flag() {
				for range 4 {
					h.signedGolomb()
				}
			}
		}
	}
}

// mark skips how reference frames are marked (7.3.3.3).
func (c *Complexity) mark(h *bitReader, idr bool) {
	if idr {
		h.take(2)
		return
	}
	if !h.flag() {
		return
	}
	for !h.short {
		switch h.golomb() {
		case 0:
			return
		case 1, 2, 4, 6:
			h.golomb()
		case 3:
			h.golomb()
			h.golomb()
		}
	}
}
