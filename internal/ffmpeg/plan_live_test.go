package ffmpeg

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A faster preset, fewer frames and fewer rungs must each cost less, or giving them up
// would be for nothing; and what was measured must come out.
func TestLiveCost(t *testing.T) {
	ladder := func(preset string, rate float64) LiveEncode {
		return LiveEncode{Width: 1920, Height: 1080, Rate: 30, Timescale: 90000, Rungs: []LiveRung{
			{Width: 1280, Height: 720, Preset: preset, Rate: rate}, {Width: 854, Height: 480, Preset: preset, Rate: rate}, {Width: 640, Height: 360, Preset: preset, Rate: rate},
		}}
	}
	costs := []int{ladder(PresetBest, 0).Cost(), ladder(PresetFast, 0).Cost(), ladder(PresetFastest, 0).Cost(), ladder(PresetFastest, 15).Cost()}
	for i := 1; i < len(costs); i++ {
		if costs[i] >= costs[i-1] {
			t.Errorf("costs %v do not fall", costs)
		}
	}
	if costs[0] < 1400 || costs[0] > 1700 || costs[1] < 950 || costs[1] > 1150 || costs[2] < 600 || costs[2] > 750 {
		t.Errorf("costs %v are not those that were measured: 1540, 1040, 670", costs)
	}
}

func TestReserve(t *testing.T) {
	l := newLedger(2)
	chosen, release := l.reserve([]int{1600, 1100, 600})
	if chosen != 1 {
		t.Fatalf("of two cores a live encode got offer %d, want that of 1.1 cores", chosen)
	}
	second, releaseSecond := l.reserve([]int{600, 300})
	if second != 1 {
		t.Errorf("the second got offer %d, want that of 0.3 cores", second)
	}
	if third, _ := l.reserve([]int{200}); third != -1 {
		t.Errorf("the third got offer %d, and there is no room", third)
	}
	if s := l.stats(); s.Running[Live] != 2 || s.Busy != 2 {
		t.Errorf("stats: %+v", s)
	}
	// Others may do one thing at a time beside it.
	synctest.Test(t, func(t *testing.T) {
		first, err := l.acquire(t.Context(), Batch, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer first()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := l.acquire(ctx, Batch, 1); err == nil {
			t.Error("two got cores beside a machine full of live streams")
		}
	})
	release()
	release()
	releaseSecond()
	if s := l.stats(); s.Busy != 0 || s.Running[Live] != 0 {
		t.Errorf("stats after all is over: %+v", s)
	}
}
