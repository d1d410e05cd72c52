package vod

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEffortsOfSegments(t *testing.T) {
	e := Efforts{Step: 4, Values: []int64{8, 4, 0, 12, 16}}
	for _, tt := range []struct{ starts, want []int64 }{
		{[]int64{0}, []int64{40}},
		{[]int64{0, 8, 12}, []int64{12, 0, 28}},
		{[]int64{2, 6}, []int64{10, 30}},
		{[]int64{0, 13, 14, 15}, []int64{15, 3, 3, 19}},
		{[]int64{0, 40}, []int64{40, 0}},
	} {
		if diff := cmp.Diff(tt.want, e.weights(tt.starts)); diff != "" {
			t.Errorf("segments from %v (-want +got):\n%s", tt.starts, diff)
		}
	}
}

// TestEffortsOfLongFilms expects that the sum stays the same when values are joined.
func TestEffortsOfLongFilms(t *testing.T) {
	m := effortMeter{step: 1}
	for at := int64(-1); at < 3*maxEfforts; at++ {
		m.add(at, 1)
	}
	if m.step != 4 || len(m.values) != 3*maxEfforts/4 {
		t.Errorf("%d values of %d ticks", len(m.values), m.step)
	}
	for i, v := range m.values {
		if want := 4.0; v != want && (i > 0 || v != want+1) {
			t.Fatalf("value %d is %f, want %f", i, v, want)
		}
	}
}
