package mpegts

import (
	"weir/internal/codec"
	"weir/internal/weir"
)

// Track describes a track to a muxer.
type Track struct {
	Config   codec.Config
	Language string // ISO 639-2; "" = unknown
	// Delay is the minimum number of ticks by which the track is decoded before the DTS of its units.
	Delay int64
}

// muxTrack is a track in a transport stream.
type muxTrack struct {
	pid         uint16
	delay       int64
	streamType  byte
	streamID    byte // of its PES packets
	descriptors []byte

	nal  *nalFraming // of H.264 and H.265
	adts []byte      // of AAC: the header of a frame, without its length
}

// nalFraming turns samples of H.264 or H.265 into access units of Annex B.
type nalFraming struct {
	lengthSize int
	kind       func(unit []byte) codec.NAL
	delimiter  string // starts every access unit
	parameters []byte // stand before every sync sample
}

// The stream ids of PES packets.
const (
	idVideo   = 0xE0
	idAudio   = 0xC0
	idPrivate = 0xBD
)

func newMuxTrack(t Track, pid uint16) (*muxTrack, error) {
	s := &muxTrack{pid: pid, delay: t.Delay, streamID: idAudio}
	switch t.Config.Codec {
	case codec.H264:
		s.streamType, s.streamID = typeH264, idVideo
		s.nal = &nalFraming{kind: codec.H264NAL, delimiter: codec.StartCode + "\x09\xF0"}
		return s, s.nal.configure(t.Config, "avcC")
	case codec.H265:
		s.streamType, s.streamID, s.descriptors = typeH265, idVideo, registration("HEVC")
		s.nal = &nalFraming{kind: codec.H265NAL, delimiter: codec.StartCode + "\x46\x01\x50"}
		return s, s.nal.configure(t.Config, "hvcC")
	case codec.AAC:
		var err error
		if s.adts, err = adtsHeader(t.Config.Record); err != nil {
			return nil, err
		}
		s.streamType = typeAAC
	case codec.MP3:
		s.streamType = typeMPEG1Audio
		if t.Config.RFC6381 == "mp4a.69" { // with half the sample rate
			s.streamType = typeMPEG2Audio
		}
	case codec.AC3:
		s.streamType, s.streamID, s.descriptors = typeAC3, idPrivate, registration("AC-3")
	case codec.EAC3:
		s.streamType, s.streamID, s.descriptors = typeEAC3, idPrivate, registration("EAC3")
	default:
		return nil, weir.Errorf(weir.Invalid, "MPEG-TS can't carry %s; use CMAF segments", t.Config.RFC6381)
	}
	if len(t.Language) == 3 && t.Language != "und" {
		s.descriptors = append(append(s.descriptors, tagLanguage, 4), t.Language...)
		s.descriptors = append(s.descriptors, 0)
	}
	return s, nil
}

// adtsHeader returns the header of AAC frames with this AudioSpecificConfig.
func adtsHeader(record []byte) ([]byte, error) {
	if len(record) == 0 {
		return nil, weir.Errorf(weir.Invalid, "the audio track has no AudioSpecificConfig")
	}
	config, _ := codec.ParseAudioConfig(record)
	if config.Channels == 0 {
		return nil, weir.Errorf(weir.Invalid, "MPEG-TS can't carry AAC with a channel layout that ADTS does not have")
	}
	return config.ADTSHeader()
}

func registration(name string) []byte { return append([]byte{tagRegistration, 4}, name...) }

// appendFrame appends a frame in the format of a transport stream.
func (s *muxTrack) appendFrame(dst, frame []byte, sync bool) ([]byte, error) {
	switch {
	case s.nal != nil:
		return s.nal.appendAccessUnit(dst, frame, sync)
	case s.adts != nil:
		return codec.AppendADTS(dst, s.adts, frame)
	}
	return append(dst, frame...), nil
}

// configure reads the parameter sets of a track. box is the MP4 box that has them.
func (n *nalFraming) configure(c codec.Config, box string) error {
	sets, err := c.ParameterSets()
	if err != nil || sets.LengthSize == 3 {
		return weir.Errorf(weir.Invalid, "the %s box of the video track can't be read", box)
	}
	n.lengthSize, n.parameters = sets.LengthSize, sets.AnnexB()
	return nil
}

// appendAccessUnit appends a sample with start codes instead of lengths before its NAL units.
func (n *nalFraming) appendAccessUnit(dst, sample []byte, sync bool) ([]byte, error) {
	dst = append(dst, n.delimiter...)
	if sync {
		dst = append(dst, n.parameters...)
	}
	for unit, err := range codec.Units(sample, n.lengthSize) {
		if err != nil {
			return nil, weir.Errorf(weir.Invalid, "a video sample is damaged: the lengths of its NAL units are wrong")
		}
		if len(unit) > 0 && n.kind(unit) != codec.NALDelimiter {
			dst = append(append(dst, codec.StartCode...), unit...)
		}
	}
	return dst, nil
}

// Sizer estimates how many bytes a track takes in a transport stream.
type Sizer struct{ track *muxTrack }

// NewSizer returns the estimator of a track with this configuration. A codec that a transport
// stream can't carry has no overhead of its own.
func NewSizer(c codec.Config) Sizer {
	s, err := newMuxTrack(Track{Config: c}, 0)
	if err != nil {
		s = &muxTrack{}
	}
	return Sizer{s}
}

const (
	// TablesSize is the size of the tables at the start of a segment.
	TablesSize = 2 * PacketSize

	pesHeaderSize  = 19
	clockFieldSize = 8
)

func packetsSize(payload int64) int64 { return (payload + payloadSize - 1) / payloadSize * PacketSize }

// Frame returns the size of a frame of video.
func (s Sizer) Frame(size int64, sync bool) int64 {
	size += pesHeaderSize + clockFieldSize
	if n := s.track.nal; n != nil {
		size += int64(len(n.delimiter))
		if sync {
			size += int64(len(n.parameters))
		}
	}
	return packetsSize(size)
}

// Audio returns the size of audio frames that follow one another. duration is in ticks.
func (s Sizer) Audio(frames int, size, duration int64) int64 {
	units := duration/maxAudioRun + 1
	return packetsSize(size+int64(frames*len(s.track.adts))+units*pesHeaderSize) + units*PacketSize
}
