package playback

import (
	"strings"
	"testing"
	"time"

	"weir/internal/media"
	"weir/internal/wait"
	"weir/internal/weir"
)

// A recording gets renditions when it has been watched already.
func TestRecordingGetsRenditions(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newRecording(false)
	variants := func() int { return strings.Count(h.want(h.at(a, "index.m3u8")).body, "#EXT-X-STREAM-INF") }
	if n := variants(); n != 1 {
		t.Fatalf("there are %d renditions before", n)
	}
	p, err := media.LoadPresentation(t.Context(), h.media, "asset/"+a.ID)
	if err != nil {
		t.Fatal(err)
	}
	film := makeFilm(t)
	h.putTrack("asset/"+a.ID+"/"+small, film.small, len(film.small.data))
	p.Renditions = append(p.Renditions, media.Rendition{Name: small, Dir: small, Complete: true})
	h.present(a, p)
	h.changeAsset(a, func(a *weir.Asset) { a.Status.UpdatedAt = weir.At(time.Now()) })
	wait.Until(t, "the rendition is there", func() bool { return variants() == 2 })
	h.want(h.at(a, small+"/0.m4s"))
}
