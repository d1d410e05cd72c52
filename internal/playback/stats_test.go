package playback

import (
	"testing"

	"weir/internal/access"
	"weir/internal/view"
)

func TestStatsOfViewers(t *testing.T) {
	s := Server{control: &access.Control{}, views: view.New(view.Options{ViewerID: func(view.Viewer) string { return "" }})}
	s.views.Start(&view.Title{PlaybackID: "p"}, view.Viewer{Token: "a"})
	s.reloads.Add(3)
	s.waits.Add(1)
	if got, want := s.Stats(), (Stats{Viewers: 1, Reloads: 3, Waits: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}
