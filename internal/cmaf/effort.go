package cmaf

import (
	"math"

	"github.com/bluenviron/mediacommon/v2/pkg/bits"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
)

// Effort tells from H.264 how hard its pictures were to encode. Their sizes alone do
// not: an encoder that keeps to a bitrate spends the same on all, and lets the
// quality differ. So each slice counts by its size and by the quantiser that it was made
// with, as if all had been made with the same one.
type Effort struct {
	length int // bytes of the length before every unit
	sps    h264.SPS
	pps    map[uint32]pictureSet
}

// pictureSet is what the head of a slice depends on, of a picture parameter set.
type pictureSet struct {
	arithmetic    bool // CABAC
	bottomOrder   bool // bottom_field_pic_order_in_frame_present_flag
	refs          [2]uint32
	weighted      bool // P-frames
	weightedPairs bool // B-frames, explicitly
	quantiser     int32
	redundant     bool
}

const (
	// ordinaryQuantiser is the one that efforts are told for.
	ordinaryQuantiser = 28
	// octaves is how many times 6 steps of the quantiser halve the size of a slice.
	octaves = 1.2
	// headBytes is what is looked at of a slice; its head ends long before.
	headBytes = 256
	maxRefs   = 32
)

// NewEffort returns a meter for a track with these parameter sets, each of whose units
// has its length before it in so many bytes.
func NewEffort(sets [][]byte, length int) (*Effort, bool) {
	e := &Effort{length: length, pps: map[uint32]pictureSet{}}
	known := false
	for _, set := range sets {
		switch {
		case len(set) == 0:
		case h264.NALUType(set[0]&0x1f) == h264.NALUTypeSPS:
			if e.sps.Unmarshal(set) != nil {
				return nil, false
			}
			known = true
		case h264.NALUType(set[0]&0x1f) == h264.NALUTypePPS:
			if !e.learn(set) {
				return nil, false
			}
		}
	}
	return e, known && len(e.pps) > 0 && length >= 1 && length <= 4
}

// Of returns the effort of a sample in bytes; false = it can't be told.
func (e *Effort) Of(sample []byte) (float64, bool) {
	effort := 0.0
	for len(sample) > 0 {
		var unit []byte
		var ok bool
		if unit, sample, ok = CutUnit(sample, e.length); !ok {
			return 0, false
		}
		if len(unit) == 0 {
			continue
		}
		switch h264.NALUType(unit[0] & 0x1f) {
		case h264.NALUTypePPS:
			if !e.learn(unit) {
				return 0, false
			}
		case h264.NALUTypeIDR, h264.NALUTypeNonIDR:
			quantiser, ok := e.quantiser(unit)
			if !ok {
				return 0, false
			}
			effort += float64(len(unit)) * math.Exp2(octaves*float64(quantiser-ordinaryQuantiser)/6)
		}
	}
	return effort, true
}

// head reads the fields of a parameter set or of a slice. After an error all are 0.
type head struct {
	data []byte
	at   int
	err  error
}

func newHead(unit []byte) *head {
	return &head{data: h264.EmulationPreventionRemove(unit[:min(len(unit), headBytes)]), at: 8}
}

func (h *head) bits(n int) (v uint64) {
	if h.err == nil {
		v, h.err = bits.ReadBits(h.data, &h.at, n)
	}
	return v
}

func (h *head) flag() bool { return h.bits(1) == 1 }

func (h *head) number() (v uint32) {
	if h.err == nil {
		v, h.err = bits.ReadGolombUnsigned(h.data, &h.at)
	}
	return v
}

func (h *head) signed() (v int32) {
	if h.err == nil {
		v, h.err = bits.ReadGolombSigned(h.data, &h.at)
	}
	return v
}

// learn reads a picture parameter set (H.264 7.3.2.2).
func (e *Effort) learn(unit []byte) bool {
	h := newHead(unit)
	id := h.number()
	h.number() // of the sequence parameter set
	var p pictureSet
	p.arithmetic = h.flag()
	p.bottomOrder = h.flag()
	if h.number() > 0 { // slice groups, which nobody uses
		return false
	}
	p.refs = [2]uint32{h.number() + 1, h.number() + 1}
	p.weighted = h.flag()
	p.weightedPairs = h.bits(2) == 1
	p.quantiser = 26 + h.signed()
	h.signed() // of switching pictures
	h.signed() // of colours
	h.flag()   // deblocking
	h.flag()   // constrained intra prediction
	p.redundant = h.flag()
	if h.err != nil || id > 255 {
		return false
	}
	e.pps[id] = p
	return true
}

// quantiser reads the head of a slice (H.264 7.3.3) as far as its quantiser.
func (e *Effort) quantiser(unit []byte) (int32, bool) {
	h := newHead(unit)
	idr := h264.NALUType(unit[0]&0x1f) == h264.NALUTypeIDR
	h.number() // of the first macroblock
	kind := h.number() % 5
	p, ok := e.pps[h.number()]
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
	if e.sps.SeparateColourPlaneFlag {
		h.bits(2)
	}
	h.bits(int(e.sps.Log2MaxFrameNumMinus4) + 4)
	field := false
	if !e.sps.FrameMbsOnlyFlag {
		if field = h.flag(); field {
			h.flag()
		}
	}
	if idr {
		h.number()
	}
	switch e.sps.PicOrderCntType {
	case 0:
		h.bits(int(e.sps.Log2MaxPicOrderCntLsbMinus4) + 4)
		if p.bottomOrder && !field {
			h.signed()
		}
	case 1:
		if !e.sps.DeltaPicOrderAlwaysZeroFlag {
			h.signed()
			if p.bottomOrder && !field {
				h.signed()
			}
		}
	}
	if p.redundant {
		h.number()
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
			p.refs[l] = h.number() + 1
		}
	}
	for range lists {
		e.reorder(h)
	}
	if p.weighted && kind == kindP || p.weightedPairs && kind == kindB {
		e.weigh(h, p.refs[:lists])
	}
	if unit[0]>>5&3 != 0 {
		e.mark(h, idr)
	}
	if p.arithmetic && kind != kindI {
		h.number()
	}
	quantiser := p.quantiser + h.signed()
	return quantiser, h.err == nil && quantiser >= -48 && quantiser <= 51
}

// reorder skips the changes of a list of references (7.3.3.1).
func (e *Effort) reorder(h *head) {
	if !h.flag() {
		return
	}
	for h.err == nil && h.number() != 3 {
		h.number()
	}
}

// weigh skips the weights of references (7.3.3.2).
func (e *Effort) weigh(h *head, refs []uint32) {
	colours := e.sps.ChromaFormatIdc != 0 && !e.sps.SeparateColourPlaneFlag
	h.number()
	if colours {
		h.number()
	}
	for _, n := range refs {
		for range min(n, maxRefs) {
			if h.flag() {
				h.signed()
				h.signed()
			}
			if colours && h.flag() {
				for range 4 {
					h.signed()
				}
			}
		}
	}
}

// mark skips what becomes of references (7.3.3.3).
func (e *Effort) mark(h *head, idr bool) {
	if idr {
		h.bits(2)
		return
	}
	if !h.flag() {
		return
	}
	for h.err == nil {
		switch h.number() {
		case 0:
			return
		case 1, 2, 4, 6:
			h.number()
		case 3:
			h.number()
			h.number()
		}
	}
}
