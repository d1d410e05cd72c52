package codec

import (
	"bytes"
	"fmt"
	"slices"
)

// Decoder makes samples of the packets of encoders, and has the configuration of their track. It
// decodes no frame: it removes what must not be in a sample, finds key frames, and notices changes
// of the configuration.
type Decoder interface {
	// Configure takes the record that is sent before the frames.
	Configure(record []byte) error
	// Sample makes a sample of a frame, whose bytes belong to the decoder afterwards. A sample
	// without data must be ignored.
	Sample(frame []byte) (Sample, error)
	// Changed reports whether the configuration has changed since the last call.
	Changed() bool
	// Config returns the configuration; ok is false as long as it is incomplete.
	Config() (c Config, ok bool, err error)
}

// Sample is a frame of video or a packet of audio, as a file has it.
type Sample struct {
	Data []byte
	Sync bool // decoding can start here

	// Duration of audio, in ticks of 1/Timescale seconds. Timescale is 0 for video, whose duration
	// is known only with the next frame.
	Duration, Timescale int64
}

// NewDecoder returns the decoder of a codec, nil if there is none.
func NewDecoder(name string) Decoder {
	switch name {
	case H264:
		return &nalDecoder{lengthSize: 4}
	case H265:
		return &nalDecoder{lengthSize: 4, h265: true}
	case AV1:
		return &av1Decoder{}
	case AAC:
		return &aacDecoder{}
	case Opus:
		return &opusDecoder{}
	}
	return nil
}

// change is the state that all decoders have.
type change struct{ changed bool }

func (c *change) Changed() bool {
	was := c.changed
	c.changed = false
	return was
}

// maxSets is the maximum size of all parameter sets beside those of the record.
const maxSets = 16 << 10

// nalDecoder is the decoder of H.264 and H.265, whose frames are NAL units with their
// lengths before them.
//
// Parameter sets belong to the configuration. Encoders repeat them in the stream, where they are
// removed, or change them there, which changes the configuration. It has one set of each type;
// other picture parameter sets are inserted before each key frame.
type nalDecoder struct {
	change
	h265          bool
	lengthSize    int
	vps, sps, pps []byte
	others        []otherPPS
	insert        bool // others changed, so they must be inserted before the next frame
}

// otherPPS is a picture parameter set that is not in the record.
type otherPPS struct {
	id  uint32
	nal []byte
}

func (d *nalDecoder) Configure(record []byte) error {
	parse := ParseAVCC
	if d.h265 {
		parse = ParseHVCC
	}
	sets, err := parse(record)
	if err != nil {
		return err
	}
	d.lengthSize = sets.LengthSize
	for _, unit := range sets.Units {
		if err := d.set(unit); err != nil {
			return err
		}
	}
	return nil
}

func (d *nalDecoder) Sample(frame []byte) (Sample, error) {
	var array [16][]byte // avoids an allocation for usual frames
	kept := array[:0]
	var size int
	var slice, key bool
	asItIs := d.lengthSize == 4
	for unit, err := range Units(frame, d.lengthSize) {
		if err != nil {
			return Sample{}, err
		}
		kind := d.kind(unit)
		switch {
		case len(unit) < 2, kind == NALDelimiter, kind == NALFiller:
			asItIs = false
			continue
		case kind.ParameterSet():
			if err := d.set(unit); err != nil {
				return Sample{}, err
			}
			asItIs = false
			continue
		case kind == NALKeySlice:
			slice, key = true, true
		case kind == NALSlice, kind == NALPartition:
			slice = true
		}
		kept, size = append(kept, unit), size+4+len(unit)
	}
	if !slice {
		return Sample{}, nil
	}
	if len(d.others) > 0 && (key || d.insert) {
		sets := make([][]byte, 0, len(d.others)+len(kept))
		for _, other := range d.others {
			sets, size = append(sets, other.nal), size+4+len(other.nal)
		}
		kept, asItIs = append(sets, kept...), false
	}
	d.insert = false
	if asItIs {
		return Sample{Data: frame, Sync: key}, nil
	}
	data := make([]byte, 0, size)
	for _, unit := range kept {
		data = AppendUnit(data, unit)
	}
	return Sample{Data: data, Sync: key}, nil
}

func (d *nalDecoder) kind(unit []byte) NAL {
	if d.h265 {
		return H265NAL(unit)
	}
	return H264NAL(unit)
}

// set takes a parameter set.
func (d *nalDecoder) set(nal []byte) error {
	if len(nal) < 2 {
		return nil
	}
	var slot *[]byte
	switch d.kind(nal) {
	case NALVPS:
		slot = &d.vps
	case NALSPS:
		slot = &d.sps
	case NALPPS:
		if slot = &d.pps; d.pps != nil && d.ppsID(nal) != d.ppsID(d.pps) {
			return d.setOther(nal)
		}
	default:
		return nil
	}
	if bytes.Equal(*slot, nal) {
		return nil
	}
	if slot == &d.sps {
		// The picture parameter sets belong to the old one.
		d.pps, d.others = nil, nil
	}
	*slot, d.changed = bytes.Clone(nal), true
	return nil
}

// setOther takes a picture parameter set that is not in the record.
func (d *nalDecoder) setOther(nal []byte) error {
	id, total := d.ppsID(nal), len(nal)
	for i, other := range d.others {
		if other.id != id {
			total += len(other.nal)
			continue
		}
		if bytes.Equal(other.nal, nal) {
			return nil
		}
		d.others = slices.Delete(d.others, i, i+1)
		return d.setOther(nal)
	}
	if total > maxSets {
		return fmt.Errorf("more than %d bytes of parameter sets", maxSets)
	}
	d.others, d.insert = append(d.others, otherPPS{id, bytes.Clone(nal)}), true
	return nil
}

// ppsID returns the id of a picture parameter set, the first number in it.
func (d *nalDecoder) ppsID(nal []byte) uint32 {
	b := bitReader{data: nal, at: 8}
	if d.h265 {
		b.at = 16
	}
	return b.golomb()
}

func (d *nalDecoder) Config() (c Config, ok bool, err error) {
	switch {
	case d.sps == nil || d.pps == nil || d.h265 && d.vps == nil:
		return c, false, nil
	case d.h265:
		c, err = H265Config(d.vps, d.sps, d.pps)
	default:
		c, err = H264Config(d.sps, d.pps)
	}
	return c, err == nil, err
}

// audioDecoder is the state that all decoders of audio have.
type audioDecoder struct {
	change
	config Config
}

func (d *audioDecoder) Config() (c Config, ok bool, err error) {
	return d.config, d.config.Record != nil, nil
}

// aacDecoder is the decoder of AAC.
type aacDecoder struct {
	audioDecoder
	audio AudioConfig
}

func (d *aacDecoder) Configure(record []byte) error {
	if len(record) == 0 || bytes.Equal(record, d.config.Record) {
		return nil // some encoders send an empty one first
	}
	c, err := AACConfig(record)
	if err != nil {
		return err
	}
	d.config, d.changed = c, true
	d.audio, _ = ParseAudioConfig(record)
	return nil
}

func (d *aacDecoder) Sample(frame []byte) (Sample, error) {
	return Sample{
		Data: frame, Sync: true,
		Duration: int64(d.audio.FrameSamples), Timescale: int64(d.audio.CoreRate),
	}, nil
}

// opusDecoder is the decoder of Opus.
type opusDecoder struct{ audioDecoder }

func (d *opusDecoder) Configure(record []byte) error {
	channels, err := opusChannels(record)
	if err != nil || channels == d.config.Channels {
		return err
	}
	c, err := OpusConfig(channels)
	if err == nil {
		d.config, d.changed = c, true
	}
	return err
}

func (d *opusDecoder) Sample(frame []byte) (Sample, error) {
	return Sample{Data: frame, Sync: true, Duration: OpusSamples(frame), Timescale: OpusRate}, nil
}
