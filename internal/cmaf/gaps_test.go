package cmaf

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A gap is where no track has a segment.
func TestGaps(t *testing.T) {
	segment := func(start, end int64, broken bool) Segment {
		return Segment{Discontinuity: broken, Parts: []Part{{Start: start, Samples: []Sample{{Duration: uint32(end - start)}}}}}
	}
	video := TrackIndex{Track: Track{Timescale: 1000}, Segments: []Segment{segment(100, 2000, false), segment(5000, 6000, true), segment(6000, 8000, true), segment(20_000, 21_000, true)}}
	audio := TrackIndex{Track: Track{Timescale: 1000}, Segments: []Segment{segment(0, 2500, false), segment(5100, 9000, true), segment(20_000, 21_000, true)}}
	want := []Gap{{2500 * time.Millisecond, 5 * time.Second}, {9 * time.Second, 20 * time.Second}}
	if diff := cmp.Diff(want, Gaps([]TrackIndex{video, audio})); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
	var gaps time.Duration
	for _, gap := range want {
		gaps += gap.To - gap.From
	}
	if played := Played([]TrackIndex{video, audio}); played != 21*time.Second-gaps {
		t.Errorf("%v are played", played)
	}
	if got := Gaps([]TrackIndex{{Track: video.Track, Segments: video.Segments[:1]}}); got != nil {
		t.Errorf("gaps of one segment: %v", got)
	}
}
