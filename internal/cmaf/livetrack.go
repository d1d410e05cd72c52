package cmaf

import (
	"bytes"
	"cmp"
	"math"

	"github.com/Eyevinn/mp4ff/av1"
	"github.com/Eyevinn/mp4ff/avc"
	"github.com/Eyevinn/mp4ff/hevc"
	"github.com/Eyevinn/mp4ff/mp4"

	"weir/internal/weir"
)

// liveTimescale counts the time of video that encoders send live: the protocols have
// milliseconds or ticks of 90 kHz.
const liveTimescale = 90000

// maxPixels is how wide or high a picture may be. No level of a coding in use allows
// more.
const maxPixels = 16888

// unusable is an error about a configuration that an encoder sent.
func unusable(coding, format string, args ...any) error {
	return weir.Errorf(weir.Invalid, "unusable "+coding+" configuration: "+format, args...)
}

// H264Track returns the track of H.264 with these parameter sets.
func H264Track(sps, pps []byte) (Track, error) {
	const coding = "H.264"
	kind := func(unit []byte) byte { return unit[0] & 31 }
	sets, err := parameterSets(coding, kind, []byte{avcSPS, avcPPS}, sps, pps)
	if err != nil {
		return Track{}, err
	}
	s, err := avc.ParseSPSNALUnit(sets[0], false)
	if err != nil {
		return Track{}, unusable(coding, "the sequence parameter set can't be read: %v", err)
	}
	if s.ChromaFormatIDC > 3 || s.BitDepthLumaMinus8 > 6 || s.BitDepthChromaMinus8 > 6 {
		return Track{}, unusable(coding, "the sequence parameter set says that samples are of no possible form")
	}
	pixels := mp4.PaspBox{}
	if s.VUI != nil {
		pixels = mp4.PaspBox{HSpacing: uint32(s.VUI.SampleAspectRatioWidth), VSpacing: uint32(s.VUI.SampleAspectRatioHeight)}
	}
	return liveVideo(coding, "avc1", uint64(s.Width), uint64(s.Height), pixels, &mp4.AvcCBox{DecConfRec: avc.DecConfRec{
		AVCProfileIndication: byte(s.Profile),
		ProfileCompatibility: byte(s.ProfileCompatibility),
		AVCLevelIndication:   byte(s.Level),
		SPSnalus:             sets[:1],
		PPSnalus:             sets[1:],
		ChromaFormat:         s.ChromaFormatIDC,
		BitDepthLumaMinus1:   byte(s.BitDepthLumaMinus8),
		BitDepthChromaMinus1: byte(s.BitDepthChromaMinus8),
	}})
}

// H265Track returns the track of HEVC with these parameter sets.
func H265Track(vps, sps, pps []byte) (Track, error) {
	const coding = "HEVC"
	kind := func(unit []byte) byte { return hevcType(unit[0]) }
	sets, err := parameterSets(coding, kind, []byte{hevcVPS, hevcSPS, hevcPPS}, vps, sps, pps)
	if err != nil {
		return Track{}, err
	}
	s, err := hevc.ParseSPSNALUnit(sets[1])
	if err != nil {
		return Track{}, unusable(coding, "the sequence parameter set can't be read: %v", err)
	}
	if s.ChromaFormatIDC > 3 || s.BitDepthLumaMinus8 > 7 || s.BitDepthChromaMinus8 > 7 {
		return Track{}, unusable(coding, "the sequence parameter set says that samples are of no possible form")
	}
	config := hevc.DecConfRec{
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
		config.TemporalIDNested = 1
	}
	pixels := mp4.PaspBox{}
	if s.VUI != nil {
		pixels = mp4.PaspBox{HSpacing: uint32(s.VUI.SampleAspectRatioWidth), VSpacing: uint32(s.VUI.SampleAspectRatioHeight)}
	}
	width, height := s.ImageSize()
	return liveVideo(coding, "hvc1", uint64(width), uint64(height), pixels, &mp4.HvcCBox{DecConfRec: config})
}

// parameterSets checks that NAL units are of these kinds, and takes off the zeros that
// stand between NAL units in some transports.
func parameterSets(coding string, kind func([]byte) byte, kinds []byte, units ...[]byte) ([][]byte, error) {
	sets := make([][]byte, len(units))
	for i, unit := range units {
		sets[i] = bytes.TrimRight(unit, "\x00")
		switch {
		case len(sets[i]) < 2:
			return nil, unusable(coding, "a parameter set is missing")
		case kind(sets[i]) != kinds[i]:
			return nil, unusable(coding, "a NAL unit of type %d stands where one of type %d must be", kind(sets[i]), kinds[i])
		case len(sets[i]) > math.MaxUint16:
			return nil, unusable(coding, "a parameter set has %d bytes", len(sets[i]))
		}
	}
	return sets, nil
}

// AV1Track returns the track of AV1 with this sequence header, a whole OBU. Others may
// stand around it.
func AV1Track(sequenceHeader []byte) (Track, error) {
	const coding = "AV1"
	units, err := av1.SplitOBUs(sequenceHeader)
	if err != nil {
		return Track{}, unusable(coding, "%v", err)
	}
	for _, unit := range units {
		if unit.Header.Type != av1.OBUSequenceHeader {
			continue
		}
		s, err := av1.ParseSequenceHeader(unit.Payload)
		if err != nil {
			return Track{}, unusable(coding, "the sequence header can't be read: %v", err)
		}
		if s.SeqProfile > 2 {
			return Track{}, unusable(coding, "the sequence header has profile %d, which does not exist", s.SeqProfile)
		}
		if unit.Size() > math.MaxUint16 {
			return Track{}, unusable(coding, "the sequence header has %d bytes", unit.Size())
		}
		config := &mp4.Av1CBox{CodecConfRec: av1.CodecConfRecFromSequenceHeader(s, unit.Encode())}
		return liveVideo(coding, "av01", uint64(s.Width()), uint64(s.Height()), mp4.PaspBox{}, config)
	}
	return Track{}, unusable(coding, "there is no sequence header")
}

// liveVideo returns a track of video with this sample entry. Pixels of no known form
// are square.
func liveVideo(coding, entry string, width, height uint64, pixels mp4.PaspBox, config mp4.Box) (Track, error) {
	if width == 0 || height == 0 || width > maxPixels || height > maxPixels {
		return Track{}, unusable(coding, "pictures of %d x %d can't be; at most %d either way can", width, height, maxPixels)
	}
	box := mp4.CreateVisualSampleEntryBox(entry, uint16(width), uint16(height), config)
	box.CompressorName = ""
	if pixels.HSpacing > 0 && pixels.VSpacing > 0 && pixels.HSpacing != pixels.VSpacing {
		box.AddChild(&pixels)
	}
	return liveTrack(Track{Kind: Video, Timescale: liveTimescale}, box), nil
}

// AACTrack returns the track of AAC with this AudioSpecificConfig.
func AACTrack(config []byte) (Track, error) {
	const coding = "AAC"
	c, ok := parseAudioConfig(config)
	switch {
	case !ok || len(config) > 512: // descriptors of any sense are far below
		return Track{}, unusable(coding, "the AudioSpecificConfig can't be read")
	case (c.object < 1 || c.object > 5) && c.object != 29:
		return Track{}, unusable(coding, "object type %d is not supported; use AAC-LC or HE-AAC", c.object)
	case c.rate < 7350 || c.rate > 192000:
		return Track{}, unusable(coding, "a sample rate of %d Hz can't be", c.rate)
	case c.channels > 8:
		return Track{}, unusable(coding, "the layout of channels has the number %d; use one of up to 7.1 channels", c.channels)
	}
	// A config without channels leaves them to the frames; what players read of the
	// entry before those is stereo, as usual.
	return liveAudio("mp4a", c.rate, cmp.Or(c.channels, 2), mp4.CreateEsdsBox(config)), nil
}

// opusRate is that of Opus in any file, whatever rate the audio had before.
const opusRate = 48000

// OpusTrack returns the track of Opus with so many channels, in the order of Vorbis when
// there are more than two.
func OpusTrack(channels int) (Track, error) {
	config := mp4.DopsBox{
		OutputChannelCount: byte(channels),
		PreSkip:            312, // what encoders look ahead
		InputSampleRate:    opusRate,
	}
	// layout says how many streams there are, how many of them are stereo, and which of
	// the decoded channels each channel is.
	layout := func(streams, stereo byte, channels ...byte) {
		config.ChannelMappingFamily = 1
		config.StreamCount, config.CoupledCount, config.ChannelMapping = streams, stereo, channels
	}
	switch channels {
	case 1, 2:
	case 3:
		layout(2, 1, 0, 2, 1)
	case 4:
		layout(2, 2, 0, 1, 2, 3)
	case 5:
		layout(3, 2, 0, 4, 1, 2, 3)
	case 6:
		layout(4, 2, 0, 4, 1, 2, 3, 5)
	case 7:
		layout(4, 3, 0, 4, 1, 2, 3, 5, 6)
	case 8:
		layout(5, 3, 0, 6, 1, 2, 3, 4, 5, 7)
	default:
		return Track{}, unusable("Opus", "%d channels can't be; 1 to 8 can", channels)
	}
	return liveAudio("Opus", opusRate, channels, &config), nil
}

// liveAudio returns a track of audio with this sample entry.
func liveAudio(entry string, rate, channels int, config mp4.Box) Track {
	told := rate
	if told > math.MaxUint16 {
		told = 0 // the config says it
	}
	box := mp4.CreateAudioSampleEntryBox(entry, uint16(channels), 16, uint16(told), config)
	return liveTrack(Track{Kind: Audio, Timescale: uint32(rate), Default: true}, box)
}

// liveTrack completes a track by what its sample entry says, as a reader of its init
// segment would.
func liveTrack(t Track, entry mp4.Box) Track {
	w := new(boxWriter)
	w.box(entry)
	t.Entry = w.data
	box, _, _ := nextBox(t.Entry)
	t.describe(box)
	return t
}
