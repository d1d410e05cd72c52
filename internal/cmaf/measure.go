package cmaf

import (
	"math"
	"slices"
	"time"
)

// End returns when the part's last sample ends.
func (p Part) End() int64 { return p.Start + Span(p.Samples) }

// Size returns the number of bytes of the part, with its boxes.
func (p Part) Size() int64 { return int64(p.Head) + Bytes(p.Samples) }

// Start returns when the segment starts to be shown, in ticks.
func (s Segment) Start() int64 {
	if len(s.Parts) == 0 {
		return 0
	}
	return s.Parts[0].Start
}

// End returns when the segment ends, in ticks.
func (s Segment) End() int64 {
	if len(s.Parts) == 0 {
		return 0
	}
	return s.Parts[len(s.Parts)-1].End()
}

// EndAt returns the segment with the last sample as long as it must be to end at the given time.
// Its duration may have been predicted (see package live), and a stored moof box keeps the
// prediction; the time of the next part is exact. Others who have the segment keep what they have.
func (s Segment) EndAt(at int64) Segment {
	if len(s.Parts) == 0 || s.End() == at {
		return s
	}
	last := len(s.Parts) - 1
	samples := slices.Clone(s.Parts[last].Samples)
	duration := int64(samples[len(samples)-1].Duration) + at - s.End()
	if duration < 1 || duration > math.MaxUint32 {
		return s
	}
	samples[len(samples)-1].Duration = uint32(duration)
	s.Parts = slices.Clone(s.Parts)
	s.Parts[last].Samples = samples
	return s
}

// Duration returns the duration of the segment in ticks.
func (s Segment) Duration() int64 { return s.End() - s.Start() }

// Size returns the number of bytes of the segment.
func (s Segment) Size() int64 {
	var n int64
	for _, p := range s.Parts {
		n += p.Size()
	}
	return n
}

// Gap reports whether the segment stands for a missing one: it has a time and a number, but no
// media.
func (s Segment) Gap() bool {
	for _, p := range s.Parts {
		if Bytes(p.Samples) > 0 {
			return false
		}
	}
	return len(s.Parts) > 0
}

// GapFragment returns the samples of a segment that is a gap.
func GapFragment(start, duration int64) Fragment {
	return Fragment{Start: start, Samples: []Sample{{Duration: uint32(duration)}}}
}

// Frames returns the number of samples of the segment.
func (s Segment) Frames() int {
	n := 0
	for _, p := range s.Parts {
		n += len(p.Samples)
	}
	return n
}

// Sync reports whether decoding can start with the segment.
func (s Segment) Sync() bool {
	return len(s.Parts) > 0 && len(s.Parts[0].Samples) > 0 && s.Parts[0].Samples[0].Sync
}

// End returns when the fragment's last sample ends.
func (f Fragment) End() int64 { return f.Start + Span(f.Samples) }

// PTS returns when each sample of the fragment is shown, in decode order.
func (f Fragment) PTS() []int64 {
	times := make([]int64, len(f.Samples))
	at := f.Start
	for i, s := range f.Samples {
		times[i] = at + int64(s.Offset)
		at += int64(s.Duration)
	}
	return times
}

// Span returns the duration of the samples together, in ticks.
func Span(samples []Sample) int64 {
	var n int64
	for _, s := range samples {
		n += int64(s.Duration)
	}
	return n
}

// Bytes returns the size of the samples together.
func Bytes(samples []Sample) int64 {
	var n int64
	for _, s := range samples {
		n += int64(s.Size)
	}
	return n
}

// Time turns ticks of the track into a duration.
func (t Track) Time(ticks int64) time.Duration {
	if t.Timescale == 0 {
		return 0
	}
	scale := int64(t.Timescale)
	return time.Duration(ticks/scale)*time.Second + time.Duration(ticks%scale*int64(time.Second)/scale)
}

// Ticks turns a duration into the nearest number of ticks of the track.
func (t Track) Ticks(d time.Duration) int64 {
	scale := int64(t.Timescale)
	rest := int64(d % time.Second)
	half := int64(time.Second) / 2
	if rest < 0 {
		half = -half
	}
	return int64(d/time.Second)*scale + (rest*scale+half)/int64(time.Second)
}

// Start returns when the track starts to be shown, in ticks.
func (t TrackIndex) Start() int64 {
	for _, s := range t.Segments {
		if len(s.Parts) > 0 {
			return s.Start()
		}
	}
	return 0
}

// End returns when the track ends, in ticks.
func (t TrackIndex) End() int64 {
	for _, s := range slices.Backward(t.Segments) {
		if len(s.Parts) > 0 {
			return s.End()
		}
	}
	return 0
}

// Duration returns the time from the first sample of the track to its end.
func (t TrackIndex) Duration() time.Duration { return t.Track.Time(t.End() - t.Start()) }

// Frames returns the number of samples of the track.
func (t TrackIndex) Frames() int {
	n := 0
	for _, s := range t.Segments {
		n += s.Frames()
	}
	return n
}

// Size returns the number of bytes of all segments of the track.
func (t TrackIndex) Size() int64 {
	var n int64
	for _, s := range t.Segments {
		n += s.Size()
	}
	return n
}

// ticks returns the duration of all segments together, without gaps between them.
func (t TrackIndex) ticks() (n int64) {
	for _, s := range t.Segments {
		n += s.Duration()
	}
	return n
}

// AverageBitrate returns the bits per second of the track as a whole.
func (t TrackIndex) AverageBitrate() int {
	ticks := t.ticks()
	if ticks <= 0 {
		return 0
	}
	return int(math.Ceil(float64(t.Size()) * 8 * float64(t.Track.Timescale) / float64(ticks)))
}

// FrameRate returns the frames per second of the track on average; 0 = not known.
func (t TrackIndex) FrameRate() float64 {
	ticks := t.ticks()
	if ticks <= 0 {
		return 0
	}
	return float64(t.Frames()) * float64(t.Track.Timescale) / float64(ticks)
}

// BitRates returns the peak and the average bit rate of the track; size returns the size of a
// segment. The peak is that of RFC 8216: of any run of segments that is between half and one and a
// half target durations long, so that a short last segment does not count too much.
func (t TrackIndex) BitRates(size func(Segment) int64) (peak, average int64) {
	scale := max(1, int64(t.Track.Timescale))
	rate := func(bytes, ticks int64) int64 {
		return int64(math.Ceil(float64(bytes) * 8 * float64(scale) / float64(ticks)))
	}
	sizes := make([]int64, len(t.Segments))
	var bytes, target int64
	for i, s := range t.Segments {
		sizes[i] = size(s)
		bytes += sizes[i]
		target = max(target, s.Duration())
	}
	ticks := t.ticks()
	if ticks <= 0 {
		return 0, 0
	}
	average = rate(bytes, ticks)
	peak = average
	for i := range t.Segments {
		var bytes, ticks int64
		for j := i; j < len(t.Segments); j++ {
			bytes += sizes[j]
			ticks += t.Segments[j].Duration()
			if 2*ticks > 3*target {
				break
			}
			if 2*ticks >= target && ticks > 0 {
				peak = max(peak, rate(bytes, ticks))
			}
		}
	}
	return peak, average
}

// frameRate returns the frames per second of video for a decoder: if the rate varies, that of the
// fastest segment. Timestamps that jitter by a percent do not make a rate vary, nor does the one
// extra frame of a segment that is cut anywhere, like the last one of a broadcast.
func frameRate(t TrackIndex) float64 {
	average := t.FrameRate()
	fastest := average
	for _, s := range t.Segments {
		d, frames := float64(s.Duration())/float64(max(1, t.Track.Timescale)), float64(s.Frames())
		if d >= 0.5 && (frames-1)/d > average*1.01 {
			fastest = max(fastest, frames/d)
		}
	}
	return fastest
}
