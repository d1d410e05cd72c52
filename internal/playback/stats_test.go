package playback

import (
	"testing"
	"time"
)

func TestStatsOfViewers(t *testing.T) {
	s := Server{}
	s.views = newViews(func(viewer) string { return "" })
	now := time.Now()
	for i, ago := range []time.Duration{0, time.Second, time.Minute} {
		s.views.note(&content{playbackID: "p"}, viewer{token: string(rune('a' + i))}, nil, now.Add(-ago))
	}
	s.views.begun.AtOnce = 0
	s.views.note(&content{playbackID: "p"}, viewer{token: "d"}, nil, now)
	s.reloads.Add(3)
	s.waits.Add(1)
	s.full.Add(4)
	s.throttled.Add(5)
	if got, want := s.Stats(), (Stats{Viewers: 2, Reloads: 3, Waits: 1, Uncounted: 1, Full: 4, Throttled: 5}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}
