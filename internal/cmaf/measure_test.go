package cmaf

import (
	"math"
	"testing"
	"time"
)

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		scale uint32
		ticks int64
		want  time.Duration
	}{
		{90000, 0, 0},
		{90000, 90000, time.Second},
		{90000, -45000, -500 * time.Millisecond},
		{30000, 1001, 33366666 * time.Nanosecond},
		{44100, -1024, -23219954 * time.Nanosecond},
		{12800, 12800 * 86400 * 365 * 100, 100 * 365 * 24 * time.Hour},
	} {
		track := Track{Timescale: tt.scale}
		if got := track.Time(tt.ticks); got != tt.want {
			t.Errorf("%d of %d = %v, want %v", tt.ticks, tt.scale, got, tt.want)
		}
		if got := track.Ticks(tt.want); got != tt.ticks {
			t.Errorf("%v in %d = %d ticks, want %d", tt.want, tt.scale, got, tt.ticks)
		}
	}
}

func TestTrackIndexMeasures(t *testing.T) {
	index := synthetic(Video, 1000, 3, 25, 40, 1000)
	index.Segments = append([]Segment{{}}, append(index.Segments, Segment{})...) // of which there is nothing
	for i := range index.Segments[1:4] {
		index.Segments[i+1].Parts[0].Start += 500
	}
	if index.Start() != 500 || index.End() != 3500 || index.Duration() != 3*time.Second {
		t.Errorf("from %d to %d, %v; want 500 to 3500, 3s", index.Start(), index.End(), index.Duration())
	}
	if index.Frames() != 75 || index.FrameRate() != 25 || index.Size() != 78000 || index.AverageBitrate() != 208000 {
		t.Errorf("%d frames, %v a second, %d bytes, %d bit/s; want 75, 25, 78000, 208000", index.Frames(), index.FrameRate(), index.Size(), index.AverageBitrate())
	}
	if index.Segments[0].Sync() || !index.Segments[1].Sync() {
		t.Error("decoding can start with the second segment, not with the first, which is empty")
	}
}

// TestBitRates: the peak is that of a run of segments about as long as the longest.
func TestBitRates(t *testing.T) {
	second := func(segments ...int) TrackIndex { return madeUp(rung(1, 1), 3000, 0, segments...) }
	for _, tt := range []struct {
		name          string
		index         TrackIndex
		sizes         []int64
		peak, average int64
	}{
		{"even", second(10, 10, 10), []int64{1000, 1000, 1000}, 8000, 8000},
		{"one large", second(10, 10, 10), []int64{1000, 4000, 1000}, 32000, 16000},
		{"a short end does not count alone", second(10, 10, 1), []int64{1000, 1000, 1000}, 14546, 11429},
		{"a single frame", second(1), []int64{1000}, 80000, 80000},
		{"nothing", second(), nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			size := map[int64]int64{} // by the start of the segment
			for i, s := range tt.index.Segments {
				size[s.Start()] = tt.sizes[i]
			}
			peak, average := tt.index.BitRates(func(s Segment) int64 { return size[s.Start()] })
			if peak != tt.peak || average != tt.average {
				t.Errorf("peak %d, average %d; want %d, %d", peak, average, tt.peak, tt.average)
			}
		})
	}
}

// TestFrameRate expects the rate of the fastest segment, but not a faster one of segments
// that are cut just after a frame, as the last of a broadcast is.
func TestFrameRate(t *testing.T) {
	segment := func(durations ...uint32) Segment {
		var part Part
		for _, d := range durations {
			part.Samples = append(part.Samples, Sample{Duration: d})
		}
		return Segment{Parts: []Part{part}}
	}
	// Eight frames a second out of fifteen.
	whole := segment(2, 2, 2, 2, 2, 2, 2, 1)
	for _, tt := range []struct {
		name     string
		segments []Segment
		want     float64
	}{
		{"even", []Segment{whole, whole}, 8},
		{"cut", []Segment{whole, segment(2, 2, 2, 2, 1)}, float64(13*15) / 24},
		{"varies", []Segment{whole, segment(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)}, 15},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := frameRate(TrackIndex{Track: Track{Timescale: 15}, Segments: tt.segments})
			if math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("%g frames a second, want %g", got, tt.want)
			}
		})
	}
}
