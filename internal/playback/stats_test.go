package playback

import (
	"testing"

	"weir/internal/view"
)

func TestStats(t *testing.T) {
	s := Server{views: view.New(view.Options{ViewerID: func(view.Viewer) string { return "" }})}
	s.views.Start(&view.Title{PlaybackID: "p"}, view.Viewer{Token: "a"})
	s.reloads.Add(3)
	s.waits.Add(1)
	s.throttled.Add(5)
	if got, want := s.Stats(), (Stats{Viewers: 1, Reloads: 3, Waits: 1, Throttled: 5}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}
