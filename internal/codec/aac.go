package codec

import (
	"cmp"
	"slices"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/mpeg4audio"

	"weir/internal/weir"
)

// AudioConfig has the fields of an AudioSpecificConfig of MPEG-4 (ISO/IEC 14496-3, 1.6.2.1).
type AudioConfig struct {
	ObjectType int // 2 = AAC-LC, 5 = HE-AAC, 29 = HE-AAC v2
	SampleRate int // of the decoded audio
	Channels   int // 0 = the frames have it

	CoreType     int // object type of the AAC inside HE-AAC; else ObjectType
	CoreRate     int // sample rate of the AAC inside HE-AAC; else SampleRate
	FrameSamples int // of a frame, at CoreRate

	layout   uint32 // channelConfiguration
	complete bool   // it has all fields that live audio needs
}

// audioRates are the sample rates that have an index in AudioSpecificConfig and ADTS.
var audioRates = [...]int{
	96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350,
}

// ParseAudioConfig reads an AudioSpecificConfig of any object type; ok is false if it has no sample
// rate.
func ParseAudioConfig(config []byte) (c AudioConfig, ok bool) {
	b := bitReader{data: config}
	rate := func() int {
		switch i := int(b.take(4)); {
		case i == 15:
			return int(b.take(24))
		case i < len(audioRates):
			return audioRates[i]
		}
		return 0
	}
	object := func() int {
		if o := b.take(5); o < 31 {
			return int(o)
		}
		return 32 + int(b.take(6))
	}
	c = AudioConfig{ObjectType: object(), SampleRate: rate(), layout: b.take(4), FrameSamples: 1024}
	c.Channels = int(c.layout)
	if c.layout == 7 {
		c.Channels = 8
	}
	c.CoreType, c.CoreRate = c.ObjectType, c.SampleRate
	highEfficiency := c.ObjectType == 5 || c.ObjectType == 29
	if highEfficiency {
		c.SampleRate, c.CoreType = rate(), 2
		if c.ObjectType == 29 {
			c.Channels = 2
		}
	}
	ok = !b.short && c.SampleRate > 0
	if highEfficiency {
		if core := object(); !b.short {
			c.CoreType = core
		}
	}
	if b.flag() {
		c.FrameSamples = 960
	}
	if dependsOnCore := b.flag(); dependsOnCore {
		b.take(14)
	}
	extended := b.flag()
	c.complete = !b.short && !extended
	return c, ok
}

// AACConfig returns the configuration of AAC with this AudioSpecificConfig.
func AACConfig(record []byte) (Config, error) {
	const coding = "AAC"
	c, ok := ParseAudioConfig(record)
	switch {
	case !ok || len(record) > 512: // valid ones are much shorter
		return Config{}, unusable(coding, "the AudioSpecificConfig can't be read")
	case c.ObjectType != 2 && c.ObjectType != 5 && c.ObjectType != 29:
		return Config{}, unusable(coding,
			"object type %d is not supported; use AAC-LC or HE-AAC", c.ObjectType)
	case c.SampleRate < 7350 || c.SampleRate > 192000:
		return Config{}, unusable(coding, "a sample rate of %d Hz is not supported", c.SampleRate)
	case c.layout > 7:
		return Config{}, unusable(coding,
			"channel layout %d is not supported; use at most 7.1 channels", c.layout)
	case c.CoreType != 2 || c.CoreRate == 0 || !c.complete:
		return Config{}, unusable(coding, "the AudioSpecificConfig can't be read")
	}
	return Config{
		Kind: Audio, Codec: AAC,
		Record: slices.Clone(record), RFC6381: mpeg4String("mp4a", mpeg4Audio, record),
		// Without channels in the config the frames have them. Until then players assume stereo.
		SampleRate: c.SampleRate, Channels: cmp.Or(c.Channels, 2),
	}, nil
}

// ADTSHeader returns the header of AAC frames in ADTS, without their lengths; AppendADTS
// adds those. HE-AAC is announced as the AAC-LC inside it; decoders detect HE-AAC.
func (c AudioConfig) ADTSHeader() ([]byte, error) {
	odd := func(format string, args ...any) ([]byte, error) {
		return nil, weir.Errorf(weir.Invalid, "MPEG-TS can't carry AAC "+format, args...)
	}
	rate := slices.Index(audioRates[:], c.CoreRate)
	switch {
	case c.CoreType < 1 || c.CoreType > 4:
		return odd("of object type %d", c.CoreType)
	case rate < 0:
		return odd("with a sample rate that ADTS does not have")
	case c.layout > 7:
		return odd("with a channel layout that ADTS does not have")
	}
	profile, layout := byte(c.CoreType-1), byte(c.layout)
	return []byte{0xff, 0xf1, profile<<6 | byte(rate)<<2 | layout>>2, layout << 6, 0, 0x1f, 0xfc}, nil
}

// AppendADTS appends a frame of AAC behind a header with its length.
func AppendADTS(dst, header, frame []byte) ([]byte, error) {
	size := len(header) + len(frame)
	if size > 1<<13-1 {
		return nil, weir.Errorf(weir.Invalid,
			"an AAC frame of %d bytes is too long for MPEG-TS", len(frame))
	}
	n := len(dst)
	dst = append(append(dst, header...), frame...)
	dst[n+3] |= byte(size >> 11)
	dst[n+4] = byte(size >> 3)
	dst[n+5] |= byte(size << 5)
	return dst, nil
}

// ADTSHeaderSize is how many bytes of a frame ParseADTS needs.
const ADTSHeaderSize = 7

// ADTSFrame has the fields of the header of a frame in ADTS.
type ADTSFrame struct {
	Config     [2]byte // the AudioSpecificConfig
	SampleRate int
	Header     int // bytes of the header
	Size       int // bytes of the frame, with its header
	Blocks     int // raw data blocks; one is usual
}

// StartsADTS reports whether a frame in ADTS may begin with these bytes.
func StartsADTS(b []byte) bool {
	return len(b) > 0 && b[0] == 0xff && (len(b) < 2 || b[1]&0xf6 == 0xf0)
}

// ParseADTS reads the header of a frame; ok is false if it is none.
func ParseADTS(b []byte) (f ADTSFrame, ok bool) {
	if len(b) < ADTSHeaderSize || !StartsADTS(b) {
		return f, false
	}
	object, rate, layout := b[2]>>6+1, b[2]>>2&15, b[2]&1<<2|b[3]>>6
	f = ADTSFrame{
		Config: [2]byte{object<<3 | rate>>1, rate<<7 | layout<<3},
		Header: ADTSHeaderSize,
		Size:   int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5])>>5,
		Blocks: int(b[6]&3) + 1,
	}
	if checked := b[1]&1 == 0; checked {
		f.Header += 2
	}
	if f.Size < f.Header || int(rate) >= len(audioRates) {
		return f, false
	}
	f.SampleRate = audioRates[rate]
	return f, true
}

// LATM reads AAC in the form that broadcasters use (ISO/IEC 14496-3, 1.7).
type LATM struct {
	mux *mpeg4audio.StreamMuxConfig // that came last
}

// Read reads an AudioMuxElement: frames, and their AudioSpecificConfig.
func (l *LATM) Read(element []byte) (config []byte, frames [][]byte, err error) {
	e := mpeg4audio.AudioMuxElement{MuxConfigPresent: true, StreamMuxConfig: l.mux}
	if err := e.Unmarshal(element); err != nil {
		return nil, nil, err // also as long as no configuration has come
	}
	l.mux = e.StreamMuxConfig
	if config, err = l.mux.Programs[0].Layers[0].AudioSpecificConfig.Marshal(); err != nil {
		return nil, nil, err
	}
	for _, frame := range e.Payloads {
		frames = append(frames, frame[0][0])
	}
	return config, frames, nil
}

// mpeg4Audio is the object type of MPEG-4 audio in the descriptors of a stream.
const mpeg4Audio = 0x40

// ParseESDS reads the descriptors of an MPEG-4 elementary stream, the body of an esds box:
// the object type, which identifies the coding, and the configuration of its decoder.
func ParseESDS(box []byte) (object byte, specific []byte) {
	b := bitReader{data: box}
	b.take(32) // version and flags
	for b.at < 8*len(b.data) {
		tag := b.take(8)
		size := 0
		for range 4 {
			c := b.take(8)
			size = size<<7 | int(c&0x7f)
			if c&0x80 == 0 {
				break
			}
		}
		switch tag {
		case 3: // elementary stream: go inside
			b.take(16)
			flags := b.take(8)
			if flags&0x80 != 0 {
				b.take(16)
			}
			if flags&0x40 != 0 {
				b.bytes(int(b.take(8)))
			}
			if flags&0x20 != 0 {
				b.take(16)
			}
		case 4: // decoder: go inside
			object = byte(b.take(8))
			b.bytes(12)
		case 5:
			return object, b.bytes(size)
		default:
			b.bytes(size)
		}
	}
	return object, nil
}
