package cmaf

import (
	"slices"

	"github.com/Eyevinn/mp4ff/av1"
	"github.com/Eyevinn/mp4ff/avc"
	"github.com/Eyevinn/mp4ff/hevc"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
)

// Look is what the configuration of a video track says of how its pictures are to be shown.
type Look struct {
	Interlaced bool // its frames may have lines of two moments
	FullRange  bool // black is 0 and not 16

	// How colours are coded, by the numbers that all codings share (ISO/IEC 23091-2); 0 =
	// it does not say.
	Primaries, Transfer, Matrix int
}

// Look returns what the configuration says; nothing of a track whose configuration can't be
// read.
func (t Track) Look() Look {
	config := t.DecoderConfig()
	if t.Kind != Video || config == nil {
		return Look{}
	}
	switch string(t.Entry[4:8]) {
	case "avc1", "avc3":
		return lookAVC(config)
	case "hvc1", "hev1":
		return lookHEVC(config)
	case "av01":
		return lookAV1(config)
	}
	return Look{}
}

func lookAVC(config []byte) (l Look) {
	c, err := avc.DecodeAVCDecConfRec(config)
	if err != nil || len(c.SPSnalus) == 0 {
		return Look{}
	}
	// The other library takes as much memory as the parameter set says.
	var s h264.SPS
	if err := s.Unmarshal(c.SPSnalus[0]); err != nil {
		return Look{}
	}
	l.Interlaced = !s.FrameMbsOnlyFlag
	if v := s.VUI; v != nil {
		l.FullRange = v.VideoFullRangeFlag
		if v.ColourDescriptionPresentFlag {
			l.Primaries, l.Transfer, l.Matrix = int(v.ColourPrimaries), int(v.TransferCharacteristics), int(v.MatrixCoefficients)
		}
	}
	return l
}

func lookHEVC(config []byte) (l Look) {
	c, err := hevc.DecodeHEVCDecConfRec(config)
	if err != nil {
		return Look{}
	}
	i := slices.IndexFunc(c.NaluArrays, func(a hevc.NaluArray) bool { return a.NaluType() == hevc.NALU_SPS })
	if i < 0 || len(c.NaluArrays[i].Nalus) == 0 {
		return Look{}
	}
	s, err := hevc.ParseSPSNALUnit(c.NaluArrays[i].Nalus[0])
	if err != nil || s.VUI == nil {
		return Look{}
	}
	// Fields that are pictures of their own are not put together by any decoder.
	l.FullRange = s.VUI.VideoFullRangeFlag
	if v := s.VUI; v.ColourDescriptionFlag {
		l.Primaries, l.Transfer, l.Matrix = int(v.ColourPrimaries), int(v.TransferCharacteristics), int(v.MatrixCoefficients)
	}
	return l
}

func lookAV1(config []byte) Look {
	const before = 4 // of the OBUs
	units, err := av1.SplitOBUs(config[min(before, len(config)):])
	if err != nil {
		return Look{}
	}
	for _, unit := range units {
		if unit.Header.Type != av1.OBUSequenceHeader {
			continue
		}
		s, err := av1.ParseSequenceHeader(unit.Payload)
		if err != nil {
			return Look{}
		}
		return Look{FullRange: s.ColorRange, Primaries: int(s.ColorPrimaries), Transfer: int(s.TransferCharacteristics), Matrix: int(s.MatrixCoefficients)}
	}
	return Look{}
}
