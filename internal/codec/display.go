package codec

import (
	"slices"

	"github.com/Eyevinn/mp4ff/hevc"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
)

// Display is how the frames of a video track are displayed, according to its configuration.
type Display struct {
	Interlaced bool // a frame may have lines of two different times
	FullRange  bool // black is 0 and not 16

	// How colors are coded, by the numbers that all codings share (ISO/IEC 23091-2); 0 =
	// the configuration does not say.
	Primaries, Transfer, Matrix int
}

// Display returns how frames are displayed; the zero value if the configuration can't be read.
func (c Config) Display() (d Display) {
	switch c.Codec {
	case H264:
		d = h264Display(c.Record)
	case H265:
		d = h265Display(c.Record)
	case AV1:
		d = av1Display(c.Record)
	}
	return d
}

// find returns the first parameter set of a kind, nil if there is none.
func (p ParameterSets) find(want NAL, kind func([]byte) NAL) []byte {
	if i := slices.IndexFunc(p.Units, func(u []byte) bool { return kind(u) == want }); i >= 0 {
		return p.Units[i]
	}
	return nil
}

func h264Display(record []byte) (d Display) {
	sets, err := ParseAVCC(record)
	if err != nil {
		return d
	}
	// Not mp4ff, which would allocate as much memory as the parameter set demands.
	var s h264.SPS
	if err := s.Unmarshal(sets.find(NALSPS, H264NAL)); err != nil {
		return d
	}
	d.Interlaced = !s.FrameMbsOnlyFlag
	if v := s.VUI; v != nil {
		d.FullRange = v.VideoFullRangeFlag
		if v.ColourDescriptionPresentFlag {
			d.Primaries, d.Transfer = int(v.ColourPrimaries), int(v.TransferCharacteristics)
			d.Matrix = int(v.MatrixCoefficients)
		}
	}
	return d
}

func h265Display(record []byte) (d Display) {
	sets, err := ParseHVCC(record)
	if err != nil {
		return d
	}
	s, err := hevc.ParseSPSNALUnit(sets.find(NALSPS, H265NAL))
	if err != nil || s.VUI == nil {
		return d
	}
	// Decoders do not combine fields that are separate frames, so they do not count as interlaced.
	d.FullRange = s.VUI.VideoFullRangeFlag
	if v := s.VUI; v.ColourDescriptionFlag {
		d.Primaries, d.Transfer = int(v.ColourPrimaries), int(v.TransferCharacteristics)
		d.Matrix = int(v.MatrixCoefficients)
	}
	return d
}

func av1Display(record []byte) Display {
	_, s, err := parseSequenceHeader(record[min(av1Fixed, len(record)):])
	if err != nil {
		return Display{}
	}
	return Display{
		FullRange: s.ColorRange, Primaries: int(s.ColorPrimaries),
		Transfer: int(s.TransferCharacteristics), Matrix: int(s.MatrixCoefficients),
	}
}
