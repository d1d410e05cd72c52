package codec

import (
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
)

// Form is what a decoder of a video track must be able to do, by the numbers of its codec.
type Form struct {
	Profile int
	Level   int // 41 is 4.1 of H.264, 123 is 4.1 of H.265
	Chroma  int // 1 = 4:2:0
	Bits    int // of a sample
}

// Form returns the form of H.264 or H.265; the zero value for others, and if the configuration can't be read.
func (c Config) Form() (f Form) {
	sets, err := c.ParameterSets()
	switch {
	case err != nil:
	case c.Codec == H265:
		const profile, level, chroma, bits = 1, 12, 16, 17
		return Form{int(c.Record[profile] & 31), int(c.Record[level]), int(c.Record[chroma] & 3), 8 + int(c.Record[bits]&7)}
	case c.Codec == H264:
		var s h264.SPS
		if err := s.Unmarshal(sets.find(NALSPS, H264NAL)); err != nil {
			return f
		}
		f = Form{Profile: int(s.ProfileIdc), Level: int(s.LevelIdc), Chroma: 1, Bits: 8}
		if s.ProfileIdc >= 100 { // others have no such fields
			f.Chroma, f.Bits = int(s.ChromaFormatIdc), 8+int(s.BitDepthLumaMinus8)
		}
	}
	return f
}

// StartsDecoding reports whether decoding can start with a sample of H.264 or H.265 so that neither it nor
// any later one needs an earlier one: it is an IDR frame. Key frames of open groups of pictures are not.
func (c Config) StartsDecoding(sample []byte, lengthSize int) bool {
	for unit, err := range Units(sample, lengthSize) {
		if err != nil || len(unit) == 0 {
			return false
		}
		if c.Codec == H264 && H264NAL(unit) == NALKeySlice {
			return true
		}
		if t := unit[0] >> 1 & 63; c.Codec == H265 && (t == 19 || t == 20) {
			return true
		}
	}
	return false
}
