package media

import (
	"context"

	"weir/internal/cmaf"
)

// Muxed are the tracks of a rendition in MPEG-TS: video and audio, or one of the two. Its segments are
// those of the video; [cmaf.TSAudio] returns the audio of each.
type Muxed struct {
	Video, Audio *Track // one may be nil
}

// Tracks returns the tracks as the init segments of segment n describe them.
func (m Muxed) Tracks(n int) (video, audio *cmaf.Track) {
	if m.Video != nil {
		video = new(m.Video.index.TrackOf(n))
	}
	if m.Audio != nil {
		first, _ := m.audioOf(n)
		audio = new(m.Audio.index.TrackOf(first))
	}
	return video, audio
}

// Fragments reads the samples of segment n.
func (m Muxed) Fragments(ctx context.Context, n int) (video, audio []cmaf.Fragment, err error) {
	if m.Video != nil && n < len(m.Video.index.Segments) {
		if video, err = m.Video.Fragments(ctx, n); err != nil {
			return nil, nil, err
		}
	}
	first, end := m.audioOf(n)
	for i := first; i < end; i++ {
		fragments, err := m.Audio.Fragments(ctx, i)
		if err != nil {
			return nil, nil, err
		}
		audio = append(audio, fragments...)
	}
	return video, audio, nil
}

// audioOf returns which segments of audio are in segment n, from first up to end.
func (m Muxed) audioOf(n int) (first, end int) {
	switch {
	case m.Audio == nil:
		return 0, 0
	case m.Video == nil:
		return n, n + 1
	}
	return cmaf.TSAudio(m.Video.index, m.Audio.index, n)
}
