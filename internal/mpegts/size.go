package mpegts

import "weir/internal/codec"

// Sizer estimates how many bytes a track takes in a transport stream.
type Sizer struct{ stream *stream }

// NewSizer returns the estimator of a track with this configuration. A codec that a transport
// stream can't carry has no overhead of its own.
func NewSizer(c codec.Config) Sizer {
	s, err := newStream(Track{Config: c}, 0)
	if err != nil {
		s = &stream{}
	}
	return Sizer{s}
}

const (
	// TablesSize is the size of the tables at the start of a segment.
	TablesSize = 2 * PacketSize

	pesHeaderSize  = 19
	clockFieldSize = 8
)

func packetsSize(payload int64) int64 {
	return (payload + payloadSize - 1) / payloadSize * PacketSize
}

// Frame returns the size of a frame of video.
func (s Sizer) Frame(size int64, sync bool) int64 {
	size += pesHeaderSize + clockFieldSize
	if n := s.stream.nal; n != nil {
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
	return packetsSize(size+int64(frames*len(s.stream.adts))+units*pesHeaderSize) + units*PacketSize
}
