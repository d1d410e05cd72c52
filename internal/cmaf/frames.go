package cmaf

import (
	"math"
	"slices"
)

// Frames is the table of the frames of a track, or of some segments of it, from its index.
type Frames struct {
	Times []int64     // when they are shown, in ticks, ascending; without hidden frames
	End   int64       // of the last frame
	Parts []FramePart // in decode order
}

// FramePart is a part of the track.
type FramePart struct {
	Segment, Part int
	Delay         int64 // maximum of decode time minus presentation time of its samples

	sync     bool  // decoding can start with it
	first    int64 // presentation time of its first sample
	earliest int64 // the smallest presentation time of its samples
}

// NewFrames returns the table of a track. Frames shown before start, or at end or later, are hidden.
func NewFrames(index TrackIndex, start, end int64) Frames {
	f := Frames{End: end, Times: make([]int64, 0, index.Frames())}
	for n, segment := range index.Segments {
		f.addSegment(n, segment, start, end)
	}
	slices.Sort(f.Times)
	return f
}

// FramesOf returns the table of some segments of a track. No frame is hidden.
func FramesOf(index TrackIndex, segments []int) Frames {
	var f Frames
	for _, n := range segments {
		f.addSegment(n, index.Segments[n], math.MinInt64, math.MaxInt64)
		f.End = max(f.End, index.Segments[n].ShownUntil())
	}
	slices.Sort(f.Times)
	return f
}

func (f *Frames) addSegment(n int, segment Segment, start, end int64) {
	for p, part := range segment.Parts {
		at := part.Start
		for i, s := range part.Samples {
			shown := at + int64(s.Offset)
			if i == 0 {
				f.Parts = append(f.Parts, FramePart{Segment: n, Part: p, sync: s.Sync, first: shown, earliest: shown})
			}
			last := &f.Parts[len(f.Parts)-1]
			last.earliest = min(last.earliest, shown)
			last.Delay = max(last.Delay, -int64(s.Offset))
			if shown >= start && shown < end {
				f.Times = append(f.Times, shown)
			}
			at += int64(s.Duration)
		}
	}
}

// Between returns the times of the frames shown at start or later and before end.
func (f Frames) Between(start, end int64) []int64 {
	first, _ := slices.BinarySearch(f.Times, start)
	last, _ := slices.BinarySearch(f.Times, end)
	return f.Times[first:max(first, last)]
}

// Next returns the time of the first frame at or after t, or the end of the last frame.
func (f Frames) Next(t int64) int64 {
	if i, _ := slices.BinarySearch(f.Times, t); i < len(f.Times) {
		return f.Times[i]
	}
	return f.End
}

// Needed returns the parts that a decoder needs for every frame shown at start or later and before
// end: from the last sync sample that is not after start, because frames shown after a sync sample
// do not need anything before it, up to the last sample shown before end.
func (f Frames) Needed(start, end int64) []FramePart {
	from, to := 0, 0
	for i, part := range f.Parts {
		if part.sync && part.first <= start {
			from = i
		}
		if part.earliest < end {
			to = i + 1
		}
	}
	return f.Parts[from:max(from, to)]
}

// MaxDuration returns the maximum duration of n successive frames.
func (f Frames) MaxDuration(n int) int64 {
	var longest int64
	for i := n; i < len(f.Times); i++ {
		longest = max(longest, f.Times[i]-f.Times[i-n])
	}
	return longest
}
