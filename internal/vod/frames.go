package vod

import (
	"slices"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
)

// frames is the table of the frames of a source, from the index of its stored track.
type frames struct {
	timescale int64
	times     []int64 // presentation times, ascending; without hidden frames
	end       int64   // of the last frame
	parts     []framePart
}

// framePart is a part of the stored track, in decode order.
type framePart struct {
	segment, part int
	sync          bool  // decoding can start with it
	first         int64 // presentation time of its first sample
	earliest      int64 // the smallest presentation time of its samples
	delay         int64 // maximum of decode time minus presentation time of its samples
}

func newFrames(video SourceVideo, index cmaf.TrackIndex) frames {
	f := frames{timescale: video.Timescale, end: video.End, times: make([]int64, 0, video.Frames)}
	for n, segment := range index.Segments {
		f.add(n, segment, video.Start, video.End)
	}
	slices.Sort(f.times)
	return f
}

// add adds segment n. Frames shown before start, or at end or later, are hidden. The caller sorts the times.
func (f *frames) add(n int, segment cmaf.Segment, start, end int64) {
	for p, part := range segment.Parts {
		at := part.Start
		for i, s := range part.Samples {
			shown := at + int64(s.Offset)
			if i == 0 {
				f.parts = append(f.parts, framePart{segment: n, part: p, sync: s.Sync, first: shown, earliest: shown})
			}
			last := &f.parts[len(f.parts)-1]
			last.earliest = min(last.earliest, shown)
			last.delay = max(last.delay, -int64(s.Offset))
			if shown >= start && shown < end {
				f.times = append(f.times, shown)
			}
			at += int64(s.Duration)
		}
	}
}

// between returns the times of the frames shown at start or later and before end.
func (f frames) between(start, end int64) []int64 {
	first, _ := slices.BinarySearch(f.times, start)
	last, _ := slices.BinarySearch(f.times, end)
	return f.times[first:max(first, last)]
}

// needed returns the parts that a decoder needs for every frame shown at start or later and before
// end: from the last sync sample that is not after start, because frames shown after a sync sample
// do not need anything before it, up to the last sample shown before end.
func (f frames) needed(start, end int64) []framePart {
	from, to := 0, 0
	for i, part := range f.parts {
		if part.sync && part.first <= start {
			from = i
		}
		if part.earliest < end {
			to = i + 1
		}
	}
	return f.parts[from:max(from, to)]
}

// maxDuration returns the maximum duration of n successive frames.
func (f frames) maxDuration(n int) int64 {
	var longest int64
	for i := n; i < len(f.times); i++ {
		longest = max(longest, f.times[i]-f.times[i-n])
	}
	return longest
}

// tick returns the greatest common divisor of the times of all frames, and the number of frames a
// second.
func (f frames) tick() (tick, rate ffmpeg.Ratio) {
	var common int64
	even := true
	for i, t := range f.times {
		common = gcd(common, t)
		even = even && (i < 2 || t-f.times[i-1] == f.times[1]-f.times[0])
	}
	if common == 0 {
		common = max(f.end, 1) // one frame, at 0
	}
	tick = ffmpeg.Ratio{Num: common, Den: f.timescale}
	length := f.end - f.times[0]
	switch {
	case even && len(f.times) > 1:
		rate = ffmpeg.Ratio{Num: f.timescale, Den: f.times[1] - f.times[0]}
	case length > 0:
		// It is only for rate control; a thousandth is exact enough.
		rate = ffmpeg.Ratio{Num: max(int64(len(f.times))*f.timescale*1000/length, 1000), Den: 1000}
	}
	return tick, rate
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}
