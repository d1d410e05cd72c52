package playback

import (
	"net/http"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
)

// A bucket that is away, or hangs, holds nobody up, and caches keep that for a second. When it is
// back, all is as before.
func TestBucketAway(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	behind, line := s3test.Start(t).Behind(t)
	bucket, err := blob.Open(behind.URL(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	h := newFixture(t, bucket)
	a, unknown := h.newAsset(nil), h.newAsset(nil)
	paths := []string{large + "/0.m4s", large + "/0.ts", "download/x", "poster.jpg"}
	h.put("asset/"+a.ID+"/poster.jpg", "picture")
	h.put("asset/"+a.ID+"/video", "film")
	for _, path := range paths {
		h.want(h.at(a, path))
	}
	wait := func(at time.Duration) {
		h.server.Media = impatient{bucket, at}
		h.server.titles.media = h.server.Media
	}
	for name, fault := range map[string]func(){"is cut off": line.Cut, "hangs": line.Hang} {
		fault()
		wait(100 * time.Millisecond)
		h.server.titles.forget(unknown.PlaybackID)
		for _, address := range []string{h.at(a, paths[0]), h.at(a, paths[2]), h.at(a, paths[3]), h.at(unknown, "index.m3u8")} {
			g := h.get(address)
			if g.StatusCode != http.StatusServiceUnavailable || g.Header.Get("Retry-After") != "1" || g.Header.Get("Cache-Control") != "public, max-age=1" {
				t.Errorf("the bucket %s: %d %s %v", name, g.StatusCode, g.body, g.Header)
			}
		}
		line.Mend()
		wait(storageWait)
		for _, path := range paths {
			h.want(h.at(a, path))
		}
	}
	h.want(h.at(unknown, "index.m3u8"))
}
