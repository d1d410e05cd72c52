package playback

import (
	"testing"
	"time"
)

func TestStatsOfViewers(t *testing.T) {
	s := Server{views: views{active: map[string]*viewing{}}}
	now := time.Now()
	for i, ago := range []time.Duration{0, 20 * time.Second, time.Minute} {
		s.views.note(&content{playbackID: "p"}, viewer{key: string(rune('a' + i))}, nil, now.Add(-ago))
	}
	s.reloads.Add(3)
	s.waits.Add(1)
	if got, want := s.Stats(), (Stats{Viewers: 2, Reloads: 3, Waits: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}
