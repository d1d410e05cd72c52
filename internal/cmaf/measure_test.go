package cmaf

import (
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
