package playback

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/c2pa/c2patest"
	"weir/internal/media"
	"weir/internal/wait"
	"weir/internal/weir"
)

// sign signs an asset and returns the root certificate.
func (h *fixture) sign(a weir.Asset) []byte {
	h.Helper()
	signer, root := c2patest.NewSigner(h)
	prefix := "asset/" + a.ID
	p, err := media.LoadPresentation(h.Context(), h.media, prefix)
	if err != nil {
		h.Fatal(err)
	}
	content := func([]string) c2patest.Content {
		return c2patest.Content{Title: a.Name, Generator: "weir", When: time.Now()}
	}
	if _, err := media.Sign(h.Context(), h.media, prefix, &p, media.Signing{Signer: signer, Source: &c2patest.Source{Title: "film.mp4"}, Content: content}); err != nil {
		h.Fatal(err)
	}
	h.present(a, p)
	return root
}

// checkPlaylist verifies the segments of a playlist, each with its init segment.
func (h *fixture) checkPlaylist(url string, root []byte) (reports []c2patest.Report) {
	h.Helper()
	var v *c2patest.Fragments
	end := func() {
		if v != nil {
			reports = append(reports, v.Report())
		}
	}
	for _, address := range h.named(url, h.want(url).body) {
		body := h.want(address).body
		if strings.Contains(address, "/init") {
			end()
			v = c2patest.VerifyInit([]byte(body), root)
			continue
		}
		if _, _, err := v.Segment(address, strings.NewReader(body), int64(len(body))); err != nil {
			h.Fatal(err)
		}
	}
	end()
	return reports
}

// What viewers get of a signed asset is signed: playlists with segments, and MP4 files.
func TestSignedAsset(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	for name, make := range map[string]func() weir.Asset{
		"upload":             func() weir.Asset { return h.newAsset(nil) },
		"recording":          func() weir.Asset { return h.newRecording(false) },
		"recording, changed": func() weir.Asset { return h.newRecording(true) },
	} {
		a := make()
		before := h.want(h.at(a, "index.m3u8"))
		h.changeAsset(a, func(a *weir.Asset) { a.Sign, a.Status.UpdatedAt = true, weir.At(time.Now()) })
		wait.Until(t, "it is not played unsigned", func() bool { return h.get(h.at(a, "index.m3u8")).StatusCode == http.StatusNotFound })
		root := h.sign(a)
		wait.Until(t, "it is played signed", func() bool { return h.get(h.at(a, "index.m3u8")).StatusCode == http.StatusOK })
		if after := h.want(h.at(a, "index.m3u8")); after.body != before.body {
			t.Errorf("%s: the playlist is\n%s\nwas\n%s", name, after.body, before.body)
		}
		p, err := media.LoadPresentation(t.Context(), h.media, "asset/"+a.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range append(p.Renditions, p.Audio...) {
			for i, report := range h.checkPlaylist(h.at(a, r.Name+"/index.m3u8"), root) {
				if report.State != c2patest.Trusted {
					t.Errorf("%s, %s, init segment %d: %+v", name, r.Name, i, report)
				}
			}
			for _, path := range []string{"/ts.m3u8", "/0.ts"} {
				if g := h.get(h.at(a, r.Name+path)); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "MPEG-TS does not support") {
					t.Errorf("%s%s: %d %s", r.Name, path, g.StatusCode, g.body)
				}
			}
		}
		if g := h.get(h.at(a, "ts.m3u8")); g.StatusCode != http.StatusNotFound {
			t.Errorf("ts.m3u8: %d", g.StatusCode)
		}
		if name == "recording, changed" {
			continue // it can't be one file
		}
		h.checkSignedFile(a, p.Renditions[0].Name, root)
	}
}

func (h *fixture) checkSignedFile(a weir.Asset, name string, root []byte) {
	h.Helper()
	file := h.want(h.at(a, name+".mp4"))
	if report := c2patest.Verify(h, []byte(file.body), root); report.State != c2patest.Trusted {
		h.Errorf("%s.mp4: %+v", name, report)
	}
	// Ranges of files and of segments fit together.
	for path, whole := range map[string]string{name + ".mp4": file.body, name + "/0.m4s": h.want(h.at(a, name+"/0.m4s")).body, name + "/init.mp4": h.want(h.at(a, name+"/init.mp4")).body} {
		var parts bytes.Buffer
		step := len(whole)/3 + 1
		for from := 0; from < len(whole); from += step {
			g := h.get(h.at(a, path), "Range", fmt.Sprintf("bytes=%d-%d", from, from+step-1))
			if g.StatusCode != http.StatusPartialContent {
				h.Errorf("%s from %d: %d", path, from, g.StatusCode)
			}
			parts.WriteString(g.body)
		}
		if parts.String() != whole {
			h.Errorf("%s is something else in parts", path)
		}
	}
	// The pictures are those of the unsigned file, and so are those of the playlist.
	film := makeFilm(h)
	once, _ := decoded(h, writeTemp(h, film.source), "v")
	for what, input := range map[string]string{"the file": writeTemp(h, []byte(file.body)), "the playlist": h.at(a, name+"/index.m3u8")} {
		if frames, _ := decoded(h, input, "v"); len(frames) == 0 || strings.Join(frames[:min(len(once), len(frames))], " ") != strings.Join(once, " ") {
			h.Errorf("%s has other pictures: %d, of %d", what, len(frames), len(once))
		}
	}
}

// A byte that is changed in the storage is noticed.
func TestSignedAssetChanged(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	h.changeAsset(a, func(a *weir.Asset) { a.Sign = true })
	root := h.sign(a)
	film := makeFilm(t)
	changed := bytes.Clone(film.large.data[1])
	changed[len(changed)-1] ^= 1
	h.put("asset/"+a.ID+"/"+large+"/1.m4s", string(changed))
	for _, report := range h.checkPlaylist(h.at(a, large+"/index.m3u8"), root) {
		if report.State != c2patest.Invalid || len(report.Problems) != 1 || !strings.HasSuffix(report.Problems[0].Where, "/1.m4s") {
			t.Errorf("segments: %+v", report)
		}
	}
	file := h.want(h.at(a, large+".mp4")).body
	if report := c2patest.Verify(t, []byte(file), root); report.State != c2patest.Invalid {
		t.Errorf("file: %+v", report)
	}
}
