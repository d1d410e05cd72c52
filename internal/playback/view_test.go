package playback

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
)

// saveViews writes the views to the store: Run does at its end.
func (h *fixture) saveViews() {
	h.Helper()
	ended, cancel := context.WithCancel(h.Context())
	cancel()
	if err := h.server.views.Run(ended); err != nil {
		h.Fatal(err)
	}
}

// seen returns the views of an asset in the store.
func (h *fixture) seen(a weir.Asset) weir.ViewSums {
	h.Helper()
	h.busy.Wait() // a viewer has the last byte before the server has noted it
	h.saveViews()
	rows, err := h.store.Views(h.Context(), store.ViewQuery{UserID: h.ann.ID, AssetID: a.ID})
	if err != nil || len(rows) != 1 {
		h.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows[0].ViewSums
}

// delivered returns how many milliseconds ann's content was watched.
func (h *fixture) delivered() int64 {
	h.Helper()
	rows, err := h.store.Usage(h.Context(), store.UsageQuery{UserID: h.ann.ID})
	if err != nil || len(rows) != 1 {
		h.Fatalf("%d rows, %v", len(rows), err)
	}
	return rows[0].DeliveryMs
}

// watch requests the master, the playlists and the segments like a player, each once.
func (h *fixture) watch(master string, headers ...string) {
	h.Helper()
	lists := h.named(master, h.want(master, headers...).body)
	// The first is the audio where there are three, then the renditions.
	for _, list := range append(lists[:len(lists)-2], lists[len(lists)-1]) {
		for _, file := range h.named(list, h.want(list, headers...).body) {
			h.want(file, headers...)
		}
	}
}

func near(got int64, seconds float64) bool { return math.Abs(float64(got)-seconds*1000) <= 20 }

func TestViews(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newSigner()
	private := &weir.PlaybackPolicy{Type: weir.PolicyJWT}
	chrome := []string{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36"}
	phone := []string{"User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605 Version/17.0 Mobile/15E148 Safari/604.1"}
	for _, tt := range []struct {
		name    string
		policy  *weir.PlaybackPolicy
		watch   func(a weir.Asset)
		views   int64
		seconds float64
		exits   int64
	}{
		{"one viewer", nil, func(a weir.Asset) { h.watch(h.at(a, "index.m3u8"), chrome...) }, 1, videoSeconds, 0},
		{"the same again", nil, func(a weir.Asset) {
			h.watch(h.at(a, "index.m3u8"), chrome...)
			h.watch(h.at(a, "index.m3u8"), chrome...)
		}, 1, 2 * videoSeconds, 0},
		{"two viewers", nil, func(a weir.Asset) {
			h.watch(h.at(a, "index.m3u8"), chrome...)
			h.watch(h.at(a, "index.m3u8"), phone...)
		}, 2, 2 * videoSeconds, 0},
		{"in MPEG-TS", nil, func(a weir.Asset) { h.watch(h.at(a, "ts.m3u8"), chrome...) }, 1, audioSeconds, 0},
		{"a file", nil, func(a weir.Asset) { h.want(h.at(a, large+".mp4"), chrome...) }, 1, videoSeconds, 0},
		{"parts of a file", nil, func(a weir.Asset) {
			size := h.ask("HEAD", h.at(a, large+".mp4")).ContentLength
			for range 3 {
				h.get(h.at(a, large+".mp4"), append(chrome, "Range", rangeOf(0, size/4))...)
			}
		}, 1, 0.75 * videoSeconds, 0},
		{"half a segment", nil, func(a weir.Asset) {
			size := h.ask("HEAD", h.at(a, large+"/0.m4s")).ContentLength
			h.get(h.at(a, large+"/0.m4s"), append(chrome, "Range", rangeOf(0, size/2))...)
		}, 1, 0.5, 0},
		{"what the viewer has already", nil, func(a weir.Asset) {
			etag := h.ask("HEAD", h.at(a, large+"/0.m4s")).Header.Get("ETag")
			h.get(h.at(a, large+"/0.m4s"), append(chrome, "If-None-Match", etag)...)
		}, 1, 0, 0},
		{"only the playlist", nil, func(a weir.Asset) { h.want(h.at(a, "index.m3u8"), chrome...) }, 1, 0, 1},
		{"only a look", nil, func(a weir.Asset) {
			for _, path := range everyPath() {
				h.ask("HEAD", h.at(a, path))
			}
			for _, path := range []string{"poster.jpg", "thumbnails/thumbnails.vtt", "download/x", large + "/init.mp4", large + "/99.m4s"} {
				h.get(h.at(a, path))
			}
		}, 0, 0, 0},
		{"refused", private, func(a weir.Asset) {
			for _, path := range everyPath() {
				h.get(h.at(a, path))
			}
		}, 0, 0, 0},
		{"one viewer with a token", private, func(a weir.Asset) {
			h.watch(h.at(a, "index.m3u8?jwt="+s.sign(a.PlaybackID)), chrome...)
		}, 1, videoSeconds, 0},
		{"two viewers behind one address", private, func(a weir.Asset) {
			h.watch(h.at(a, "index.m3u8?jwt="+s.signFor(a.PlaybackID, time.Hour, "bob")), chrome...)
			h.watch(h.at(a, "index.m3u8?jwt="+s.signFor(a.PlaybackID, time.Hour, "cleo")), chrome...)
		}, 2, 2 * videoSeconds, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, before := h.newAsset(tt.policy), h.delivered()
			tt.watch(a)
			got := h.seen(a)
			if got.Views != tt.views || !near(got.PlaytimeMs, tt.seconds) || got.Exits != tt.exits {
				t.Errorf("%d views of %d ms, %d left early; want %d of %g s, %d", got.Views, got.PlaytimeMs, got.Exits, tt.views, tt.seconds, tt.exits)
			}
			if used := h.delivered() - before; !near(used, tt.seconds) {
				t.Errorf("usage is %d ms, want %g s", used, tt.seconds)
			}
			if again := h.seen(a); again != got {
				t.Errorf("saved twice, it is %+v, was %+v", again, got)
			}
		})
	}
	rows, err := h.store.Views(t.Context(), store.ViewQuery{UserID: h.ann.ID, By: []string{"deviceType", "os", "browser"}})
	if err != nil {
		t.Fatal(err)
	}
	var devices [][]string
	for _, row := range rows {
		devices = append(devices, row.By)
	}
	if diff := cmp.Diff([][]string{{"desktop", "Linux", "Chrome"}, {"mobile", "iOS", "Safari"}}, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// What a node knows of a title, it reads once a second for all viewers; they cost no more statements.
func TestViewersCostNoStatements(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newSigner()
	const viewers, perSecond = 300, 15
	for _, policy := range []*weir.PlaybackPolicy{nil, {Type: weir.PolicyJWT}} {
		a := h.newAsset(policy)
		before, start := h.store.Counts().Statements, time.Now()
		for i := range viewers {
			from, master := h.from(h.newAddress()), h.at(a, "index.m3u8")
			if policy != nil {
				master += "?jwt=" + s.signFor(a.PlaybackID, time.Hour, fmt.Sprint("viewer ", i))
			}
			lists := h.named(master, h.want(master, from...).body)
			list := lists[len(lists)-1]
			files := h.named(list, h.want(list, from...).body)
			h.want(files[len(files)-1], from...)
		}
		n, seconds := h.store.Counts().Statements-before, int64(time.Since(start)/store.Fresh)+1
		t.Logf("%d viewers with 3 requests each: %d statements in %d s", viewers, n, seconds)
		if n > perSecond*seconds {
			t.Errorf("%d statements, want at most %d a second", n, perSecond)
		}
		if seen := h.seen(a); seen.Views != viewers {
			t.Errorf("%d views, want %d", seen.Views, viewers)
		}
	}
}

func rangeOf(from, to int64) string { return fmt.Sprintf("bytes=%d-%d", from, to-1) }

// Run writes views, and the remaining ones at its end.
func TestRun(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.server.Run(ctx) }()
	if g := h.get(h.at(a, large+"/0.m4s")); g.StatusCode != http.StatusOK {
		t.Fatal(g.StatusCode)
	}
	h.busy.Wait() // a viewer has the last byte before the server has noted it
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	rows, err := h.store.Views(t.Context(), store.ViewQuery{AssetID: a.ID})
	if err != nil || len(rows) != 1 || rows[0].Views != 1 {
		t.Errorf("%+v, %v", rows, err)
	}
}
