package vod

import (
	"context"
	"io"

	"weir/internal/cmaf"
	"weir/internal/media"
)

// feed is a part of a stored track as fragmented MP4 for ffmpeg. It reads parts from the store when ffmpeg
// needs them.
//
// Composition offsets must not be negative, because ffmpeg's demuxer would shift all times. So decode times
// are earlier by as much as these parts need.
type feed struct {
	parts []framePart
	next  func(framePart) ([]byte, error)
	ready []byte
}

func newFeed(ctx context.Context, track *media.Track, parts []framePart) *feed {
	described := track.Index().Track
	if len(parts) > 0 {
		described = track.Index().TrackOf(parts[0].segment)
	}
	f := &feed{parts: parts, ready: cmaf.Init(described)}
	for _, part := range parts {
		described.Delay = max(described.Delay, part.delay)
	}
	sequence := uint32(0)
	f.next = func(at framePart) ([]byte, error) {
		part := track.Index().Segments[at.segment].Parts[at.part]
		data, err := track.Part(ctx, at.segment, at.part)
		if err != nil {
			return nil, err
		}
		sequence++
		_, data = cmaf.EncodePart(sequence, described, cmaf.Fragment{Start: part.Start, Samples: part.Samples, Data: data[part.Head:]})
		return data, nil
	}
	return f
}

func (f *feed) Read(p []byte) (int, error) {
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

func allParts(index cmaf.TrackIndex) (parts []framePart) {
	for n, segment := range index.Segments {
		for i := range segment.Parts {
			parts = append(parts, framePart{segment: n, part: i})
		}
	}
	return parts
}
