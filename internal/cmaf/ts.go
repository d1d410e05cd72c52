package cmaf

import (
	"cmp"
	"io"
	"slices"
	"time"

	"weir/internal/mpegts"
	"weir/internal/weir"
)

// TSState is the state of a TS after a segment, which the next one needs.
type TSState = mpegts.State

// TS writes MPEG-TS segments of a video track, an audio track, or one of each.
type TS struct {
	muxer        *mpegts.Muxer
	video, audio Track         // the zero track = there is none
	units        []mpegts.Unit // reused by every fragment
}

// NewTS returns a TS that continues after a segment with this state. Either track may be nil. It is
// an error if MPEG-TS does not support a codec.
func NewTS(video, audio *Track, state TSState) (*TS, error) {
	videoTS, err := video.forTS(Video)
	if err != nil {
		return nil, err
	}
	audioTS, err := audio.forTS(Audio)
	if err != nil {
		return nil, err
	}
	muxer, err := mpegts.NewMuxer(videoTS, audioTS, state)
	if err != nil {
		return nil, err
	}
	ts := &TS{muxer: muxer}
	if video != nil {
		ts.video = *video
	}
	if audio != nil {
		ts.audio = *audio
	}
	return ts, nil
}

// forTS describes a track to a muxer, which takes it as one of this kind.
func (t *Track) forTS(kind Kind) (*mpegts.Track, error) {
	switch {
	case t == nil:
		return nil, nil
	case t.Kind != kind || t.Timescale == 0:
		return nil, weir.Errorf(weir.Invalid,
			"a track of kind %q with timescale %d can't be the %s of a transport stream", t.Kind, t.Timescale, kind)
	case len(t.Entry) < 8:
		return nil, weir.Errorf(weir.Invalid, "the track has no sample entry")
	}
	return &mpegts.Track{Config: t.Config(), Language: t.Language, Delay: t.ticksTS(t.Delay)}, nil
}

// ticksTS turns a time of the track into ticks of MPEG-TS.
func (t *Track) ticksTS(ticks int64) int64 {
	return rescale(ticks, max(1, int64(t.Timescale)), mpegts.ClockRate)
}

// TSAlone returns the state from which any segment of a track can be written without those
// before it.
func TSAlone(t TrackIndex) TSState {
	delay := t.Track.Delay
	for _, s := range t.Segments {
		for _, p := range s.Parts {
			for _, sample := range p.Samples {
				delay = max(delay, -int64(sample.Offset))
			}
		}
	}
	return mpegts.StateAlone(t.Track.ticksTS(delay))
}

// State returns what NewTS needs to continue after the last segment.
func (t *TS) State() TSState { return t.muxer.State() }

// Segment writes a segment of these fragments, which are in order of time and, if there is
// video, start with a sync sample. After an error the state is what it was before.
func (t *TS) Segment(w io.Writer, video, audio []Fragment) error {
	for _, list := range [][]Fragment{video, audio} {
		for _, f := range list {
			if Bytes(f.Samples) > int64(len(f.Data)) {
				return weir.Errorf(weir.Invalid,
					"fragment at %d: its samples are longer than its data", f.Start)
			}
		}
	}
	for _, f := range video {
		t.muxer.AddVideo(t.unitsOf(f, t.video)...)
	}
	for _, f := range audio {
		t.muxer.AddAudio(t.unitsOf(f, t.audio)...)
	}
	clear(t.units[:cap(t.units)]) // so that the caller's bytes can be freed
	return t.muxer.WriteSegment(w)
}

// unitsOf turns the samples of a fragment into units.
func (t *TS) unitsOf(f Fragment, track Track) []mpegts.Unit {
	t.units = slices.Grow(t.units[:0], len(f.Samples))
	data, start := f.Data, f.Start
	dts := track.ticksTS(start)
	for _, s := range f.Samples {
		end := start + int64(s.Duration)
		next := track.ticksTS(end)
		pts := track.ticksTS(start + int64(s.Offset))
		t.units = append(t.units, mpegts.Unit{
			PTS: pts, DTS: dts, Duration: next - dts, Sync: s.Sync, Data: data[:s.Size],
		})
		data, start, dts = data[s.Size:], end, next
	}
	return t.units
}

// rescale turns ticks of one timescale into ticks of another, rounded down.
func rescale(t, from, to int64) int64 {
	seconds, rest := t/from, t%from
	if rest < 0 {
		seconds, rest = seconds-1, rest+from
	}
	return seconds*to + rest*to/from
}

// RescaleUp turns ticks of one timescale into ticks of another, rounded up.
func RescaleUp(t, from, to int64) int64 { return -rescale(-t, from, to) }

// tsSize returns a function that estimates the size of a segment of the track in MPEG-TS.
func tsSize(t Track) func(Segment) int64 {
	sizer := mpegts.NewSizer(t.Config())
	return func(s Segment) int64 {
		if t.Kind == Audio {
			var size int64
			for _, p := range s.Parts {
				size += Bytes(p.Samples)
			}
			return sizer.Audio(s.Frames(), size, t.ticksTS(s.Duration()))
		}
		size := int64(mpegts.TablesSize)
		for _, p := range s.Parts {
			for _, sample := range p.Samples {
				size += sizer.Frame(int64(sample.Size), sample.Sync)
			}
		}
		return size
	}
}

// TSAudio returns which segments of audio are in segment n of a rendition in MPEG-TS, from
// first up to end. Each segment of audio is in one of them:
//   - in the segment of video in which it starts;
//   - in the first one if it starts before all video;
//   - where the video has a gap, in the segment before the gap, or in the one behind it if a
//     new connection of the encoder begins with the audio;
//   - in an extra segment of its own, numbered on, if it starts after all video.
func TSAudio(video, audio TrackIndex, n int) (first, end int) {
	if extra := n - len(video.Segments); extra >= 0 {
		first = min(firstAudio(video, audio, len(video.Segments))+extra, len(audio.Segments))
		return first, min(first+1, len(audio.Segments))
	}
	return firstAudio(video, audio, n), firstAudio(video, audio, n+1)
}

// TSExtra returns the durations of the extra segments, in which there is only audio.
func TSExtra(video, audio TrackIndex) (durations []time.Duration) {
	for _, s := range audio.Segments[firstAudio(video, audio, len(video.Segments)):] {
		durations = append(durations, audio.Track.Time(s.Duration()))
	}
	return durations
}

// firstAudio returns the first segment of audio that is in segment n of the video or later.
func firstAudio(video, audio TrackIndex, n int) int {
	compare := func(s Segment, at time.Duration) int {
		return cmp.Compare(audio.Track.Time(s.Start()), at)
	}
	from := func(ticks int64) int {
		i, _ := slices.BinarySearchFunc(audio.Segments, video.Track.Time(ticks), compare)
		return i
	}
	if n == 0 {
		return 0
	}
	over := from(video.Segments[n-1].End())
	if n == len(video.Segments) {
		return over
	}
	first := from(video.Segments[n].Start())
	for i := first - 1; i >= over; i-- {
		if audio.Segments[i].Discontinuity {
			return i
		}
	}
	return first
}
