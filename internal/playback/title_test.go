package playback

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/wait"
	"weir/internal/weir"
)

// An unfinished asset can be played, and new segments appear soon.
func TestUnfinishedAsset(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	h := newFixture(t, newDisk(t))
	film := makeFilm(t)
	a := h.newRow(nil, weir.AssetProcessing)
	prefix := "asset/" + a.ID
	for _, path := range []string{"index.m3u8", "poster.jpg", "180p/0.m4s"} {
		if g := h.get(h.at(a, path)); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "asset is not ready for playback") {
			t.Errorf("%s before there is anything: %d %s", path, g.StatusCode, g.body)
		}
	}
	h.putTrack(prefix+"/audio0", film.audio, len(film.audio.data))
	p := media.Presentation{Duration: videoSeconds, Audio: []media.Rendition{{Name: "audio0", Dir: "audio0", Complete: true}}}
	p.Renditions = []media.Rendition{{Name: large, Dir: large}, {Name: small, Dir: small}}
	list := func(path string) string { return h.want(h.at(a, path)).body }
	known := map[string]string{}
	for n := 1; n <= videoSeconds; n++ {
		h.putTrack(prefix+"/"+large, film.large, n)
		h.putTrack(prefix+"/"+small, film.small, n)
		h.present(a, p)
		for _, path := range []string{large + "/index.m3u8", large + "/ts.m3u8", "audio0/index.m3u8"} {
			wait.Until(t, fmt.Sprintf("%s has %d segments", path, n), func() bool {
				g := h.get(h.at(a, path))
				return g.StatusCode == 200 && strings.Count(g.body, "#EXTINF") == n
			})
			text := list(path)
			if !strings.Contains(text, "#EXT-X-PLAYLIST-TYPE:EVENT") || strings.Contains(text, "ENDLIST") || !strings.Contains(text, "#EXT-X-START:TIME-OFFSET=0") {
				t.Errorf("%s with %d segments:\n%s", path, n, text)
			}
			if !strings.HasPrefix(text, known[path]) {
				t.Errorf("%s does not go on where it was. Before:\n%s\nnow:\n%s", path, known[path], text)
			}
			known[path] = text
			for _, file := range h.named(h.at(a, path), text) {
				h.want(file)
			}
		}
		if text := list("index.m3u8"); strings.Count(text, "#EXT-X-STREAM-INF") != 2 {
			t.Errorf("the master playlist has not both renditions:\n%s", text)
		}
		if g := h.want(h.at(a, large+"/0.m4s")); strings.Contains(g.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("Cache-Control %q of an asset that may fail yet", g.Header.Get("Cache-Control"))
		}
	}
	if g := h.get(h.at(a, large+".mp4")); g.StatusCode != http.StatusNotFound {
		t.Errorf("an MP4 file that is not complete: %d", g.StatusCode)
	}
	// One is complete before the other: it alone is offered.
	p.Renditions[0].Complete = true
	h.present(a, p)
	wait.Until(t, "the list has ended", func() bool { return strings.Contains(list(large+"/index.m3u8"), "ENDLIST") })
	if text := list("index.m3u8"); strings.Count(text, "#EXT-X-STREAM-INF") != 1 || !strings.Contains(text, large+"/index.m3u8") {
		t.Errorf("a rendition that is behind is offered:\n%s", text)
	}
	laidOut := func() int {
		t.Helper()
		title, err := h.server.titles.find(t.Context(), a.PlaybackID)
		if err != nil {
			t.Fatal(err)
		}
		return len(title.files)
	}
	if text := list("audio0/index.m3u8"); !strings.Contains(text, "ENDLIST") || strings.Count(text, "#EXTINF") != audioSeconds {
		t.Errorf("the audio is not complete:\n%s", text)
	}
	// A complete file is not laid out again, though the asset is not ready.
	p.Renditions = p.Renditions[:1]
	h.present(a, p)
	wait.Until(t, "only one rendition is there", func() bool { return h.get(h.at(a, small+"/index.m3u8")).StatusCode == http.StatusNotFound })
	h.want(h.at(a, large+".mp4"))
	h.server.titles.known.Expire(a.PlaybackID)
	if n := laidOut(); n != 1 {
		t.Errorf("%d MP4 files are laid out after the title was looked at again", n)
	}
	p.Renditions = p.Renditions[:2]
	p.Renditions[1].Complete, p.Complete = true, true
	h.present(a, p)
	h.changeAsset(a, func(a *weir.Asset) { a.Ready(time.Now()) })
	wait.Until(t, "both renditions are offered", func() bool { return strings.Count(list("index.m3u8"), "#EXT-X-STREAM-INF") == 2 })
	if text := list(large + "/ts.m3u8"); strings.Count(text, "#EXTINF") != audioSeconds || !strings.Contains(text, "ENDLIST") {
		t.Errorf("at the end:\n%s", text)
	}
}

// counting is a storage that counts requests, and can be made to wait.
type counting struct {
	blob.Store
	gets atomic.Int64
	wait chan struct{}
}

func (c *counting) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	c.gets.Add(1)
	if c.wait != nil {
		<-c.wait
	}
	return c.Store.Get(ctx, key, offset, length)
}

// Concurrent requests load a title once, and complete tracks are not loaded again.
func TestLoadedOnce(t *testing.T) {
	t.Parallel()
	storage := &counting{Store: newDisk(t)}
	h := newFixture(t, storage)
	a := h.newAsset(nil)
	storage.gets.Store(0)
	storage.wait = make(chan struct{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := h.server.titles.find(t.Context(), a.PlaybackID); err != nil {
				t.Error(err)
			}
		})
	}
	close(storage.wait)
	wg.Wait()
	const once = 1 + 3 // the presentation and the tracks
	if n := storage.gets.Load(); n != once {
		t.Errorf("the storage was asked %d times, want %d", n, once)
	}
	// A request that missed it in the cache, and comes here when it is loaded.
	known, err := h.server.titles.find(t.Context(), a.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.server.titles.refresh(t.Context(), h.server.titles.cached[known.PlaybackID].of); err != nil || storage.gets.Load() != once {
		t.Errorf("the storage was asked %d times for a late request, error %v", storage.gets.Load(), err)
	}
	h.server.titles.known.Expire(a.PlaybackID)
	if _, err := h.server.titles.find(t.Context(), a.PlaybackID); err != nil || storage.gets.Load() != once {
		t.Errorf("the storage was asked %d times, error %v", storage.gets.Load(), err)
	}
}

// The cache has a limit, also for titles that do not exist.
func TestCacheLimits(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	all := &h.server.titles
	old := time.Now().Add(-time.Hour)
	total := func() (n int, memory int64) {
		all.mu.Lock()
		defer all.mu.Unlock()
		for _, k := range all.cached {
			memory += k.title.memory.Load()
		}
		return len(all.cached), memory
	}
	for i := range 2 * maxTitles {
		all.remember(fmt.Sprint(i), &cachedTitle{title: &title{tracks: &tracks{}}, used: old.Add(time.Duration(i) * time.Second)})
	}
	if n, _ := total(); n != maxTitles {
		t.Errorf("%d titles are remembered, want %d", n, maxTitles)
	}
	if all.cached["0"] != nil || all.cached[fmt.Sprint(2*maxTitles-1)] == nil {
		t.Error("not the oldest were forgotten")
	}
	clear(all.cached)
	for i := range 10 {
		big := &tracks{}
		big.memory.Store(maxMemory / 3)
		all.remember(fmt.Sprint(i), &cachedTitle{title: &title{tracks: big}, used: old.Add(time.Duration(i) * time.Second)})
	}
	if n, memory := total(); n != 3 || memory > maxMemory {
		t.Errorf("%d titles of %d bytes are cached", n, memory)
	}
	big := &tracks{}
	big.memory.Store(2 * maxMemory)
	all.remember("big", &cachedTitle{title: &title{tracks: big}})
	if n, _ := total(); n != 1 || all.cached["big"] == nil {
		t.Errorf("%d titles are remembered beside one that is too big", n-1)
	}
	clear(all.cached)
	for i := range 10 {
		h.get(fmt.Sprintf("%s/hls/nobody%d/index.m3u8", h.web.URL, i))
	}
	if n, _ := total(); n != 0 {
		t.Errorf("%d titles are remembered that are not there", n)
	}
	a := h.newAsset(nil)
	h.want(h.at(a, "index.m3u8"))
	_, before := total()
	if before < videoSeconds*rate*2*16 {
		t.Errorf("a title weighs %d bytes", before)
	}
	h.want(h.at(a, large+".mp4"))
	if _, after := total(); after <= before {
		t.Errorf("an MP4 file weighs %d bytes", after-before)
	}
}

// A title that is loaded again keeps its MP4 files.
func TestManyViewersAtOnce(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	sizes := sync.Map{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for _, path := range everyPath()[i:] {
				g := h.get(h.at(a, path), "User-Agent", fmt.Sprint("viewer ", i))
				if g.StatusCode != http.StatusOK {
					t.Errorf("%s: %d", path, g.StatusCode)
				}
				if size, seen := sizes.LoadOrStore(path, len(g.body)); seen && size != len(g.body) {
					t.Errorf("%s has %d bytes, then %d", path, size, len(g.body))
				}
				if i%2 == 0 {
					h.server.titles.known.Expire(a.PlaybackID)
				}
			}
		})
	}
	for range 5 {
		wg.Go(h.saveViews)
	}
	wg.Wait()
	title, err := h.server.titles.find(t.Context(), a.PlaybackID)
	if err != nil || len(title.files) != 3 {
		t.Errorf("%d MP4 files are laid out, error %v", len(title.files), err)
	}
}

// BenchmarkTitle finds what is behind a playback id, which every request of a player does.
func BenchmarkTitle(b *testing.B) {
	h := newFixture(b, newDisk(b))
	a := h.newAsset(nil)
	titles := &h.server.titles
	for name, find := range map[string]func() (*title, error){
		"cached": func() (*title, error) { return titles.find(b.Context(), a.PlaybackID) },
		"checked": func() (*title, error) {
			titles.known.Expire(a.PlaybackID)
			return titles.find(b.Context(), a.PlaybackID)
		},
		"read": func() (*title, error) {
			titles.known.Expire(a.PlaybackID)
			titles.forget(a.PlaybackID)
			return titles.find(b.Context(), a.PlaybackID)
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := find(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSegment requests a segment, as most requests of a player do: with the title, the admission
// and the view in memory.
func BenchmarkSegment(b *testing.B) {
	h := newFixture(b, newDisk(b))
	signer := h.newSigner()
	for name, policy := range map[string]*weir.PlaybackPolicy{"public": nil, "token": {Type: weir.PolicyJWT}} {
		a := h.newAsset(policy)
		path := large + "/0.m4s"
		if policy != nil {
			path = "t/" + h.tokenOf(h.at(a, "index.m3u8?jwt="+signer.sign(a.PlaybackID))) + "/" + path
		}
		r := httptest.NewRequestWithContext(b.Context(), "GET", "/hls/"+a.PlaybackID+"/"+path, nil)
		r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36")
		b.Run("serve/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &memory{header: http.Header{}}
				if h.server.ServeHTTP(w, r); w.status != http.StatusOK {
					b.Fatal(w.status, w.body.String())
				}
			}
		})
		b.Run("enter/"+name, func(b *testing.B) {
			b.ReportAllocs()
			req := &request{Request: r, server: h.server, id: a.PlaybackID}
			req.text, req.path, req.inPath = cutToken(path)
			for b.Loop() {
				if err := h.server.admit(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
