package playback

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/view"
	"weir/internal/weir"
)

// No text opens an asset but one that was issued for it.
func FuzzToken(f *testing.F) {
	var keys tokens
	if err := keys.use([]byte("0123456789abcdef0123456789abcdef")); err != nil {
		f.Fatal(err)
	}
	contents := []content{
		{view.Title{PlaybackID: "p", AssetID: "a"}, &weir.PlaybackPolicy{Type: weir.PolicyJWT}},
		{view.Title{PlaybackID: "p", StreamID: "s"}, &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"}},
	}
	good := make([]*token, len(contents))
	for i, c := range contents {
		good[i] = keys.issue(&title{content: c, tracks: &tracks{}}, access.Decision{KeyID: "key", Expires: time.Now().Add(time.Hour)}, "access key", "viewer", time.Now())
		text := good[i].text
		for _, seed := range []string{"", "x", text, text[1:], text + "A", text + "=", strings.ToUpper(text)} {
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i := range contents {
			token, err := keys.open(&contents[i], text)
			if (err == nil) != (text == good[i].text) {
				t.Errorf("open(%q) = %+v, %v", text, token, err)
			}
			if err != nil && weir.KindOf(err) != weir.Denied {
				t.Errorf("open(%q): %v", text, err)
			}
		}
	})
}

// Whatever the path, nothing of a private asset comes out, nothing breaks, and no answer of a
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
