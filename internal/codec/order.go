package codec

import "github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"

// DecodeTimes computes the decode times of H.264 from a transport that has only presentation times.
// They differ if encoders use B-frames.
type DecodeTimes struct {
	extractor *h264.DTSExtractor // nil = it begins with the next key frame
}

// Next returns the decode time of an access unit with a presentation time, both in ticks of
// any clock; key says that decoding can start there. It returns the presentation time if
// the order of the stream is unknown.
func (d *DecodeTimes) Next(units [][]byte, pts int64, key bool) int64 {
	if d.extractor == nil {
		if !key {
			return pts
		}
		d.extractor = &h264.DTSExtractor{}
		d.extractor.Initialize()
	}
	dts, err := d.extractor.Extract(units, pts)
	if err != nil {
		d.extractor = nil
		return pts
	}
	return dts
}
