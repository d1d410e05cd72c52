package media

import (
	"math"
	"time"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// Callers name times in milliseconds: of the wall clock since 1970, or from the start of a
// presentation. These are the conversions from and to the timeline of its tracks.

// Spans are the time ranges of a track without a discontinuity, by the wall clock.
type Spans []weir.ClipRange

// Add adds the next segment of the track.
func (s *Spans) Add(segment cmaf.Segment, track cmaf.Track) {
	start := segment.Wall
	end := start.Add(track.Time(segment.ShownUntil()) - track.Time(segment.Start()))
	if last := len(*s) - 1; last >= 0 && !segment.Discontinuity {
		(*s)[last].End = max((*s)[last].End, millis(end))
		return
	}
	*s = append(*s, weir.ClipRange{Start: millis(start), End: millis(end)})
}

// SpansOf returns the spans of a track.
func SpansOf(index cmaf.TrackIndex) (s Spans) {
	for n, segment := range index.Segments {
		s.Add(segment, index.TrackOf(n))
	}
	return s
}

// millis returns a time in milliseconds; whole ones are exact.
func millis(t time.Time) float64 { return float64(t.UnixMilli()) + float64(t.Nanosecond()%1e6)/1e6 }

// Times converts times of the first of several tracks, which share a timeline.
type Times struct {
	index      cmaf.TrackIndex
	start, end time.Duration
	gaps       []cmaf.Gap
}

// NewTimes returns the times of tracks. The first one must have a segment.
func NewTimes(tracks ...*Track) Times {
	indexes := make([]cmaf.TrackIndex, len(tracks))
	for i, track := range tracks {
		indexes[i] = track.Index()
	}
	t := Times{index: indexes[0], gaps: cmaf.Gaps(indexes)}
	for n, segment := range t.index.Segments {
		if n == 0 {
			t.start = t.index.TrackOf(n).Time(segment.Start())
		}
		t.end = max(t.end, t.index.TrackOf(n).Time(segment.ShownUntil()))
	}
	return t
}

// Start returns when the first frame is shown on the timeline.
func (t Times) Start() time.Duration { return t.start }

// End returns when the last frame ends on the timeline.
func (t Times) End() time.Duration { return t.end }

// Length returns the duration of the presentation in milliseconds, without gaps.
func (t Times) Length() float64 {
	length := t.end - t.start
	for _, gap := range t.gaps {
		length -= max(0, min(gap.To, t.end)-max(gap.From, t.start))
	}
	return float64(length) / 1e6
}

// AfterStart returns where on the timeline a time is that counts from the start of the presentation,
// as players show it: without gaps.
func (t Times) AfterStart(ms float64) time.Duration {
	at := t.start + time.Duration(math.Round(ms*1e6))
	for _, gap := range t.gaps {
		if gap.From >= t.start && gap.From <= at {
			at += gap.To - gap.From
		}
	}
	return at
}

// Played is the reverse of AfterStart: how long after its start players show a time of the timeline.
func (t Times) Played(at time.Duration) time.Duration {
	played := at - t.start
	for _, gap := range t.gaps {
		if gap.From >= t.start && gap.From < at {
			played -= min(gap.To, at) - gap.From
		}
	}
	return played
}

// AtWall returns where on the timeline a time of the wall clock is. If it is in a gap, so is the
// result.
func (t Times) AtWall(ms float64) time.Duration {
	wall := time.Unix(0, int64(math.Round(ms*1e6)))
	at := t.start
	for n, segment := range t.index.Segments {
		if n > 0 && segment.Wall.After(wall) {
			break
		}
		track := t.index.TrackOf(n)
		at = track.Time(segment.Start()) + wall.Sub(segment.Wall)
		if n < len(t.index.Segments)-1 {
			next := t.index.Segments[n+1]
			at = min(at, t.index.TrackOf(n+1).Time(next.Start()))
		}
	}
	return at
}
