package media

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
)

// timesIndex returns a track at 10 frames a second on the timeline of a broadcast that began at a time.
func timesIndex(began time.Time, stretches ...[2]time.Duration) cmaf.TrackIndex {
	index := cmaf.TrackIndex{Track: cmaf.Track{Timescale: 1000}}
	for i, s := range stretches {
		for at := s[0]; at < s[1]; at += time.Second {
			segment := cmaf.Segment{Wall: began.Add(at), Discontinuity: i > 0 && at == s[0], Parts: []cmaf.Part{{Start: at.Milliseconds()}}}
			for range min(time.Second, s[1]-at) / (100 * time.Millisecond) {
				segment.Parts[0].Samples = append(segment.Parts[0].Samples, cmaf.Sample{Duration: 100})
			}
			index.Segments = append(index.Segments, segment)
		}
	}
	return index
}

func TestTimes(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_123)
	video := timesIndex(began, [2]time.Duration{500 * time.Millisecond, 3 * time.Second}, [2]time.Duration{10 * time.Second, 12 * time.Second})
	audio := timesIndex(began, [2]time.Duration{0, 3200 * time.Millisecond}, [2]time.Duration{10 * time.Second, 12 * time.Second})
	times := NewTimes(NewTrack(nil, "", video), NewTrack(nil, "", audio))
	if times.Start() != 500*time.Millisecond || times.End() != 12*time.Second || times.Length() != 4700 {
		t.Errorf("from %v to %v, %v ms", times.Start(), times.End(), times.Length())
	}
	for ms, want := range map[float64]time.Duration{
		0: 500 * time.Millisecond, 1000.5: 1500500 * time.Microsecond, 2699: 3199 * time.Millisecond, 2701: 10001 * time.Millisecond, 4700: 12 * time.Second, 5000: 12300 * time.Millisecond,
	} {
		if got := times.AfterStart(ms); got != want {
			t.Errorf("%v ms after the start is %v, want %v", ms, got, want)
		}
	}
	for _, ms := range []int64{400, 500, 2345, 5000, 10_000, 11_900, 60_000} {
		at := time.Duration(ms) * time.Millisecond
		if got := times.AtWall(millis(began.Add(at))); (got - at).Abs() > time.Microsecond {
			t.Errorf("%v of the wall clock is %v", at, got)
		}
	}
	at := func(d time.Duration) float64 { return millis(began.Add(d)) }
	want := Spans{{Start: at(500 * time.Millisecond), End: at(3 * time.Second)}, {Start: at(10 * time.Second), End: at(12 * time.Second)}}
	if diff := cmp.Diff(want, SpansOf(video)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// Segments whose wall clock does not follow their timeline keep their order.
func TestTimesOfUnevenClock(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_000)
	video := timesIndex(began, [2]time.Duration{0, 3 * time.Second})
	video.Segments[2].Wall = began.Add(5 * time.Second)
	times := NewTimes(NewTrack(nil, "", video))
	for wall, want := range map[time.Duration]time.Duration{1500 * time.Millisecond: 1500 * time.Millisecond, 4 * time.Second: 2 * time.Second, 5500 * time.Millisecond: 2500 * time.Millisecond} {
		if got := times.AtWall(millis(began.Add(wall))); got != want {
			t.Errorf("%v of the wall clock is %v, want %v", wall, got, want)
		}
	}
}
