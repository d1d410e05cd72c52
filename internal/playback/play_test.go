package playback

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/weir"
)

// eachStorage runs a test on every kind of storage.
func eachStorage(t *testing.T, test func(h *fixture)) {
	t.Run("disk", func(t *testing.T) { test(newFixture(t, newDisk(t))) })
	t.Run("s3", func(t *testing.T) {
		bucket, err := blob.Open(s3test.Start(t).URL(), blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = bucket.Close() })
		test(newFixture(t, bucket))
	})
}

// An asset decodes without errors to its frames, each once.
func TestPlays(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	eachStorage(t, func(h *fixture) {
		t := h.TB
		film := makeFilm(t)
		source := writeTemp(t, film.source)
		want, _ := decoded(t, source, "v:0")
		if len(want) != videoSeconds*rate {
			t.Fatalf("the film has %d frames", len(want))
		}
		wantAudio, _ := decoded(t, source, "a:0")
		a := h.newAsset(nil)
		for _, path := range []string{large + "/index.m3u8", large + "/ts.m3u8", large + ".mp4"} {
			got, _ := decoded(t, h.at(a, path), "v:0")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: frames differ (-want +got):\n%s", path, diff)
			}
		}
		for _, path := range []string{"index.m3u8", "ts.m3u8", large + ".mp4", "audio0/index.m3u8", "audio0/ts.m3u8", "audio0.mp4", large + "/ts.m3u8"} {
			got, end := decoded(t, h.at(a, path), "a:0")
			if len(got) < len(wantAudio)-2 || len(got) > len(wantAudio) || math.Abs(end-audioSeconds) > 0.1 {
				t.Errorf("%s: %d audio packets up to %.3f s, want %d up to %d s", path, len(got), end, len(wantAudio), audioSeconds)
			}
		}
		for _, path := range []string{small + "/index.m3u8", small + "/ts.m3u8", small + ".mp4", "index.m3u8", "ts.m3u8"} {
			if got, _ := decoded(t, h.at(a, path), "v:0"); len(got) != len(want) {
				t.Errorf("%s: %d frames, want %d", path, len(got), len(want))
			}
		}
		if text := h.logged.String(); strings.Contains(text, "level=ERROR") {
			t.Errorf("the log has errors:\n%s", text)
		}
	})
}

// The master playlist names the renditions by addresses that work, and everything that they name is
// there.
func TestAllURIsExist(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	for _, policy := range []*weir.PlaybackPolicy{nil, {Type: weir.PolicyJWT}} {
		a := h.newAsset(policy)
		query := ""
		if policy != nil {
			query = "?jwt=" + h.newSigner().sign(a.PlaybackID)
		}
		for _, master := range []string{"index.m3u8", "ts.m3u8"} {
			url := h.at(a, master+query)
			lists := h.named(url, h.want(url).body)
			wantLists := map[string]int{"index.m3u8": 3, "ts.m3u8": 2}[master] // in MPEG-TS the audio is inside
			if len(lists) != wantLists {
				t.Errorf("%s names %q", master, lists)
			}
			for _, list := range lists {
				files := h.named(list, h.want(list).body)
				if len(files) < videoSeconds {
					t.Errorf("%s names %q", list, files)
				}
				for _, file := range files {
					if g := h.want(file); len(g.body) == 0 || g.ContentLength != int64(len(g.body)) {
						t.Errorf("%s has %d bytes, Content-Length %d", file, len(g.body), g.ContentLength)
					}
				}
			}
		}
		// A thumbnail list, and playlists that are not in a master playlist.
		for _, path := range []string{"thumbnails/thumbnails.vtt", large + "/index.m3u8", large + "/ts.m3u8"} {
			url := h.at(a, path+query)
			files := h.named(url, thumbnails(h.want(url).body))
			if len(files) == 0 {
				t.Errorf("%s names nothing", path)
			}
			for _, file := range files {
				h.want(file)
			}
		}
	}
}

// thumbnails turns a WebVTT list into a text for named; other texts stay as they are.
func thumbnails(text string) string {
	if !strings.HasPrefix(text, "WEBVTT") {
		return text
	}
	var names strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, ".jpg") {
			names.WriteString(line)
		}
	}
	return names.String()
}

// Audio after the end of the video is in segments of its own.
func TestAudioAfterVideo(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	url := h.at(a, large+"/ts.m3u8")
	text := h.want(url).body
	if n := strings.Count(text, "#EXTINF"); n != audioSeconds {
		t.Errorf("the list has %d segments, want %d:\n%s", n, audioSeconds, text)
	}
	var total float64
	for line := range strings.Lines(text) {
		var length float64
		if n, _ := fmt.Sscanf(line, "#EXTINF:%f,", &length); n == 1 {
			total += length
		}
	}
	if math.Abs(total-audioSeconds) > 0.05 {
		t.Errorf("the segments last %.3f s, want %d", total, audioSeconds)
	}
	if g := h.get(h.at(a, fmt.Sprintf("%s/%d.ts", large, audioSeconds))); g.StatusCode != http.StatusNotFound {
		t.Errorf("a segment after the last: %d", g.StatusCode)
	}
	if g := h.get(h.at(a, fmt.Sprintf("%s/%d.m4s", large, videoSeconds))); g.StatusCode != http.StatusNotFound {
		t.Errorf("a segment of the video after its last: %d", g.StatusCode)
	}
}
