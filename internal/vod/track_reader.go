package vod

import (
	"context"
	"io"

	"weir/internal/cmaf"
	"weir/internal/media"
)

// trackReader reads a range of a stored track as fragmented MP4 for ffmpeg. It reads parts from the store when ffmpeg
// needs them.
//
// Composition offsets must not be negative, because ffmpeg's demuxer would shift all times. So decode times
// are earlier by as much as these parts need.
type trackReader struct {
	parts []cmaf.FramePart
	next  func(cmaf.FramePart) ([]byte, error)
	ready []byte
}

func newTrackReader(ctx context.Context, track *media.Track, parts []cmaf.FramePart) *trackReader {
	described := track.Index().Track
	if len(parts) > 0 {
		described = track.Index().TrackOf(parts[0].Segment)
	}
	f := &trackReader{parts: parts, ready: cmaf.Init(described)}
	for _, part := range parts {
		described.Delay = max(described.Delay, part.Delay)
	}
	sequence := uint32(0)
	f.next = func(at cmaf.FramePart) ([]byte, error) {
		part := track.Index().Segments[at.Segment].Parts[at.Part]
		data, err := track.Part(ctx, at.Segment, at.Part)
		if err != nil {
			return nil, err
		}
		sequence++
		_, data = cmaf.EncodePart(sequence, described, cmaf.Fragment{Start: part.Start, Samples: part.Samples, Data: data[part.Head:]})
		return data, nil
	}
	return f
}

func (f *trackReader) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if len(f.parts) == 0 {
			return 0, io.EOF
		}
		data, err := f.next(f.parts[0])
		if err != nil {
			return 0, err
		}
		f.ready, f.parts = data, f.parts[1:]
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

func allParts(index cmaf.TrackIndex) (parts []cmaf.FramePart) {
	for n, segment := range index.Segments {
		for i := range segment.Parts {
			parts = append(parts, cmaf.FramePart{Segment: n, Part: i})
		}
	}
	return parts
}
