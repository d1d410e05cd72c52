package codec

import (
	"bytes"
	"io"
	"math"

	"github.com/Eyevinn/mp4ff/av1"
	"github.com/Eyevinn/mp4ff/avc"
	"github.com/Eyevinn/mp4ff/hevc"

	"weir/internal/weir"
)

// Config is the configuration of a track, which a decoder needs before the first sample.
type Config struct {
	Kind    Kind
	Codec   string // one of the constants; "" = another one
	RFC6381 string // the name in playlists: avc1.64001f, mp4a.40.2 …

	// Record is the configuration in the form that containers share: an avcC, hvcC or av1C
	// record, an AudioSpecificConfig, or an OpusHead; nil = the codec has none of these.
	Record []byte

	Width, Height           int // of a frame, in pixels
	PixelWidth, PixelHeight int // the aspect ratio of a pixel; 0 = square

	SampleRate, Channels int
}

// maxPixels is the maximum width and height of a frame. No level of a supported coding allows more.
const maxPixels = 16888

const impossibleForm = "the sequence parameter set has an invalid chroma format or bit depth"

// unusable is an error about a configuration that an encoder sent.
func unusable(coding, format string, args ...any) error {
	return weir.Errorf(weir.Invalid, "unusable "+coding+" configuration: "+format, args...)
}

// ParameterSets returns those of H.264 or H.265.
func (c Config) ParameterSets() (ParameterSets, error) {
	switch c.Codec {
	case H264:
		return ParseAVCC(c.Record)
	case H265:
		return ParseHVCC(c.Record)
	}
	return ParameterSets{}, weir.Errorf(weir.Invalid, "%s has no parameter sets", c.RFC6381)
}

// H264Config returns the configuration of H.264 with these parameter sets.
func H264Config(sps, pps []byte) (Config, error) {
	const coding = "H.264"
	sets, err := parameterSets(coding, H264NAL, []NAL{NALSPS, NALPPS}, sps, pps)
	if err != nil {
		return Config{}, err
	}
	s, err := avc.ParseSPSNALUnit(sets[0], false)
	if err != nil {
		return Config{}, unusable(coding, "the sequence parameter set can't be read: %v", err)
	}
	if s.ChromaFormatIDC > 3 || s.BitDepthLumaMinus8 > 6 || s.BitDepthChromaMinus8 > 6 {
		return Config{}, unusable(coding, impossibleForm)
	}
	c := Config{Codec: H264}
	if s.VUI != nil {
		c.setPixelAspect(s.VUI.SampleAspectRatioWidth, s.VUI.SampleAspectRatioHeight)
	}
	return c.video(coding, "avc1", uint64(s.Width), uint64(s.Height), &avc.DecConfRec{
		AVCProfileIndication: byte(s.Profile),
		ProfileCompatibility: byte(s.ProfileCompatibility),
		AVCLevelIndication:   byte(s.Level),
		SPSnalus:             sets[:1],
		PPSnalus:             sets[1:],
		ChromaFormat:         s.ChromaFormatIDC,
		BitDepthLumaMinus1:   byte(s.BitDepthLumaMinus8),
		BitDepthChromaMinus1: byte(s.BitDepthChromaMinus8),
	})
}

// H265Config returns the configuration of H.265 with these parameter sets.
func H265Config(vps, sps, pps []byte) (Config, error) {
	const coding = "HEVC"
	sets, err := parameterSets(coding, H265NAL, []NAL{NALVPS, NALSPS, NALPPS}, vps, sps, pps)
	if err != nil {
		return Config{}, err
	}
	s, err := hevc.ParseSPSNALUnit(sets[1])
	if err != nil {
		return Config{}, unusable(coding, "the sequence parameter set can't be read: %v", err)
	}
	if s.ChromaFormatIDC > 3 || s.BitDepthLumaMinus8 > 7 || s.BitDepthChromaMinus8 > 7 {
		return Config{}, unusable(coding, impossibleForm)
	}
	record := hevc.DecConfRec{
		ConfigurationVersion:             1,
		GeneralProfileSpace:              s.ProfileTierLevel.GeneralProfileSpace,
		GeneralTierFlag:                  s.ProfileTierLevel.GeneralTierFlag,
		GeneralProfileIDC:                s.ProfileTierLevel.GeneralProfileIDC,
		GeneralProfileCompatibilityFlags: s.ProfileTierLevel.GeneralProfileCompatibilityFlags,
		GeneralConstraintIndicatorFlags:  s.ProfileTierLevel.GeneralConstraintIndicatorFlags,
		GeneralLevelIDC:                  s.ProfileTierLevel.GeneralLevelIDC,
		ChromaFormatIDC:                  s.ChromaFormatIDC,
		BitDepthLumaMinus8:               s.BitDepthLumaMinus8,
		BitDepthChromaMinus8:             s.BitDepthChromaMinus8,
		NumTemporalLayers:                s.MaxSubLayersMinus1 + 1,
		LengthSizeMinusOne:               3,
		NaluArrays: []hevc.NaluArray{
			hevc.NewNaluArray(true, hevc.NALU_VPS, sets[:1]),
			hevc.NewNaluArray(true, hevc.NALU_SPS, sets[1:2]),
			hevc.NewNaluArray(true, hevc.NALU_PPS, sets[2:]),
		},
	}
	if s.TemporalIDNestingFlag {
		record.TemporalIDNested = 1
	}
	c := Config{Codec: H265}
	if s.VUI != nil {
		c.setPixelAspect(s.VUI.SampleAspectRatioWidth, s.VUI.SampleAspectRatioHeight)
	}
	width, height := s.ImageSize()
	return c.video(coding, "hvc1", uint64(width), uint64(height), &record)
}

// parameterSets checks that NAL units are of these kinds, and removes the zeros that some
// transports have between NAL units.
func parameterSets(
	coding string, kind func([]byte) NAL, kinds []NAL, units ...[]byte,
) ([][]byte, error) {
	sets := make([][]byte, len(units))
	for i, unit := range units {
		sets[i] = bytes.TrimRight(unit, "\x00")
		switch {
		case len(sets[i]) < 2:
			return nil, unusable(coding, "a parameter set is missing")
		case kind(sets[i]) != kinds[i]:
			return nil, unusable(coding,
				"a NAL unit that begins with %#02x is in the place of a parameter set", sets[i][0])
		case len(sets[i]) > math.MaxUint16:
			return nil, unusable(coding, "a parameter set has %d bytes", len(sets[i]))
		}
	}
	return sets, nil
}

// AV1Config returns the configuration of AV1 with this sequence header, a whole OBU. There may be
// other OBUs around it.
func AV1Config(sequenceHeader []byte) (Config, error) {
	const coding = "AV1"
	unit, s, err := parseSequenceHeader(sequenceHeader)
	switch {
	case err != nil:
		return Config{}, unusable(coding, "%v", err)
	case s.SeqProfile > 2:
		return Config{}, unusable(coding,
			"the sequence header has profile %d, which does not exist", s.SeqProfile)
	case len(unit.sized()) > math.MaxUint16:
		return Config{}, unusable(coding, "the sequence header has %d bytes", len(unit.sized()))
	}
	record := av1.CodecConfRecFromSequenceHeader(s, unit.sized())
	return Config{Codec: AV1}.video(coding, "av01", uint64(s.Width()), uint64(s.Height()), &record)
}

// OpusConfig returns the configuration of Opus with the number of channels; see OpusHead.
func OpusConfig(channels int) (Config, error) {
	head := OpusHead(channels)
	if head == nil {
		return Config{}, unusable("Opus", "%d channels are not supported; use 1 to 8", channels)
	}
	return Config{
		Kind: Audio, Codec: Opus, RFC6381: opusString, Record: head,
		SampleRate: OpusRate, Channels: channels,
	}, nil
}

// setPixelAspect sets the aspect ratio of pixels. Unknown ones are square.
func (c *Config) setPixelAspect(width, height uint) {
	if width > 0 && height > 0 && width != height {
		c.PixelWidth, c.PixelHeight = int(width), int(height)
	}
}

// video completes the configuration of a video track; entry is its sample entry in MP4 files.
func (c Config) video(
	coding, entry string, width, height uint64, record interface{ Encode(io.Writer) error },
) (Config, error) {
	if width == 0 || height == 0 || width > maxPixels || height > maxPixels {
		return Config{}, unusable(coding,
			"a frame size of %d x %d is not supported; the maximum is %d either way", width, height, maxPixels)
	}
	var b bytes.Buffer
	if err := record.Encode(&b); err != nil {
		return Config{}, unusable(coding, "%v", err)
	}
	c.Kind, c.Width, c.Height = Video, int(width), int(height)
	c.Record, c.RFC6381 = b.Bytes(), RFC6381(entry, b.Bytes())
	return c, nil
}
