package cmaf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The parts for a decoder start with the key frame before and end with the last frame in decode
// order.
func TestNeeded(t *testing.T) {
	// An open group: the frames at 90 are decoded after the key frame at 100.
	index := TrackIndex{Segments: []Segment{
		{Parts: []Part{
			{Start: 0, Samples: []Sample{{Duration: 50, Sync: true}}},
			{Start: 50, Samples: []Sample{{Duration: 40}}},
			{Start: 90, Samples: []Sample{{Duration: 10, Offset: 10, Sync: true}, {Duration: 50, Offset: -10}}},
		}},
		{Parts: []Part{{Start: 150, Samples: []Sample{{Duration: 50, Sync: true}}}}},
	}}
	f := NewFrames(index, 0, 200)
	for _, tt := range []struct {
		start, end int64
		want       string
	}{
		{0, 50, "0.0"},
		{0, 90, "0.0 0.1"},
		{0, 95, "0.0 0.1 0.2"},
		{50, 100, "0.0 0.1 0.2"},
		{99, 150, "0.0 0.1 0.2"},
		{100, 150, "0.2"},
		{150, 200, "1.0"},
		{100, 200, "0.2 1.0"},
	} {
		var got []string
		for _, part := range f.Needed(tt.start, tt.end) {
			got = append(got, fmt.Sprintf("%d.%d", part.Segment, part.Part))
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("from %d to %d (-want +got):\n%s", tt.start, tt.end, diff)
		}
	}
	if diff := cmp.Diff([]int64{0, 50, 90, 100, 150}, f.Times); diff != "" {
		t.Errorf("times differ (-want +got):\n%s", diff)
	}
}
