package playback

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"weir/internal/weir"
)

// Whatever the path, nothing of a private asset comes out, nothing breaks, and no response of a
// public one has bytes that lie outside of what viewers may see.
func FuzzPath(f *testing.F) {
	for _, path := range append(everyPath(), "", "/", "t//x", "t/x/index.m3u8", "../x", "thumbnails/../video", "download/..", large+"/0.ts.m4s") {
		f.Add(path)
	}
	h := newFixture(f, newDisk(f))
	public, private := h.newAsset(nil), h.newAsset(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	h.put("asset/"+public.ID+"/hidden", "planted")
	h.put("asset/"+public.ID+"/thumbnails/hidden", "planted")
	f.Fuzz(func(t *testing.T, path string) {
		for _, a := range []weir.Asset{public, private} {
			w := &memory{header: http.Header{}}
			r := &http.Request{Method: "GET", URL: &url.URL{Path: "/hls/" + a.PlaybackID + "/" + path}, Header: http.Header{}, RemoteAddr: "192.0.2.1:1"}
			h.server.ServeHTTP(w, r.WithContext(t.Context()))
			switch {
			case w.status == 0 || w.status >= 500:
				t.Errorf("%q: %d %s", path, w.status, w.body.String())
			case a.ID == private.ID && w.status != http.StatusForbidden:
				t.Errorf("%q of a private asset: %d", path, w.status)
			case strings.Contains(w.body.String(), "planted"):
				t.Errorf("%q shows what is hidden", path)
			}
		}
	})
}
