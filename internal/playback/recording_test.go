package playback

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// newRecording makes an asset of a session whose encoder reconnected a minute later: as it was, or
// with another video size.
func (h *fixture) newRecording(changed bool) weir.Asset {
	h.Helper()
	a := h.newRow(nil, weir.AssetReady)
	h.changeAsset(a, func(a *weir.Asset) { a.Source = weir.AssetSource{Type: weir.SourceRecording, SessionID: a.ID} })
	film := makeFilm(h)
	second := film.large
	if changed {
		second = film.small
	}
	p := media.Presentation{Complete: true}
	for name, connections := range map[string][2]film1{media.RecordedVideo: {film.large, second}, media.RecordedAudio: {film.audio, film.audio}} {
		index := connections[0].index
		later := connections[1].later(time.Minute)
		buffers := slices.Concat(connections[0].data, later.data)
		if changed && name == media.RecordedVideo {
			index.Changes = []cmaf.Change{{First: len(index.Segments), Track: second.index.Track}}
		}
		index.Segments = slices.Concat(index.Segments, later.index.Segments)
		for n, s := range index.Segments {
			if err := media.Put(h.Context(), h.media, "asset/"+a.ID+"/"+name, n, s, buffers[n]); err != nil {
				h.Fatal(err)
			}
		}
		if err := media.Seal(h.Context(), h.media, "asset/"+a.ID+"/"+name, index); err != nil {
			h.Fatal(err)
		}
	}
	p.Renditions = []media.Rendition{{Name: media.RecordedVideo, Dir: media.RecordedVideo, Complete: true}}
	p.Audio = []media.Rendition{{Name: media.RecordedAudio, Dir: media.RecordedAudio, Complete: true}}
	h.present(a, p)
	return a
}

// later returns a track as it is when it was sent so much later, after a gap.
func (f film1) later(by time.Duration) (moved film1) {
	for n, s := range f.index.Segments {
		segment := cmaf.Segment{Discontinuity: n == 0}
		var file []byte
		data := f.data[n]
		for _, p := range s.Parts {
			part, bytes := cmaf.EncodePart(uint32(n+1), f.index.Track, cmaf.Fragment{
				Start: p.Start + f.index.Track.Ticks(by), Samples: p.Samples, Data: data[p.Head:p.Size()],
			})
			segment.Parts, file, data = append(segment.Parts, part), append(file, bytes...), data[p.Size():]
		}
		moved.index.Segments, moved.data = append(moved.index.Segments, segment), append(moved.data, file)
	}
	return moved
}

func TestRecordingPlays(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	film := makeFilm(t)
	a := h.newRecording(false)
	once, _ := decoded(t, writeTemp(t, film.source), "v")
	want := strings.Join(append(once, once...), " ")
	file := h.want(h.at(a, "download/show.mp4"))
	if got := file.Header.Get("Content-Disposition"); got != `attachment; filename=show.mp4` {
		t.Errorf("the file is offered as %q", got)
	}
	if same := h.want(h.at(a, "source.mp4")); same.body != file.body || same.Header.Get("Content-Disposition") != "" {
		t.Error("source.mp4 is another file than the one to download")
	}
	for what, input := range map[string]string{
		"the file": writeTemp(t, []byte(file.body)), "index.m3u8": h.at(a, "index.m3u8"), "ts.m3u8": h.at(a, "ts.m3u8"),
	} {
		frames, _ := decoded(t, input, "v")
		if got := strings.Join(frames, " "); got != want {
			t.Errorf("%s does not show what was sent, twice: %d frames, want %d", what, len(frames), 2*len(once))
		}
	}
	for _, path := range []string{"dvr.m3u8", "source/dvr.m3u8", "source/init-1.mp4", "source/init-0.mp4", "download/", "download/a/b"} {
		if g := h.get(h.at(a, path)); g.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, g.StatusCode)
		}
	}
}

// A playlist can have a change of the video size; an MP4 file can't, which is an error.
func TestRecordingChanges(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newRecording(true)
	url := h.at(a, "source/index.m3u8")
	list := h.want(url).body
	if strings.Count(list, "#EXT-X-MAP") != 2 || !strings.Contains(list, "#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"init-1.mp4\"") {
		t.Errorf("the change is not in the playlist:\n%s", list)
	}
	var first, second strings.Builder // the two connections
	to := &first
	for _, address := range h.named(url, list) {
		if strings.HasSuffix(address, "/init-1.mp4") {
			to = &second
		}
		to.WriteString(h.want(address).body)
	}
	for media, size := range map[string]string{first.String(): "large", second.String(): "small"} {
		if frames, _ := decoded(t, writeTemp(t, []byte(media)), "v"); len(frames) != videoSeconds*rate {
			t.Errorf("the %s part has %d frames", size, len(frames))
		}
	}
	for _, path := range []string{"source.mp4", "download/video.mp4"} {
		if g := h.get(h.at(a, path)); g.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(g.body, "there is no MP4 file of this recording: its video changes from avc1") {
			t.Errorf("%s: %d %s", path, g.StatusCode, g.body)
		}
	}
	if g := h.get(h.at(a, "ts.m3u8")); g.StatusCode != http.StatusOK {
		t.Errorf("ts.m3u8: %d %s", g.StatusCode, g.body)
	}
}

// All of a broadcast is there while it is on, if it is recorded, and gated like the rest.
func TestLiveRecordingSoFar(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	signer := h.newSigner()
	s := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	h.changeStream(s, func(s *weir.Stream) { s.Record = true })
	e := h.publish(s)
	defer e.Close(true)
	e.send(90 * time.Second)
	jwt := "?jwt=" + signer.sign(s.PlaybackID)
	master := h.under(s.PlaybackID, "dvr.m3u8"+jwt)
	for _, list := range h.named(master, h.want(master).body) {
		text := h.want(list).body
		names := h.named(list, text)
		if strings.Count(text, "#EXTINF") < 40 || strings.Contains(text, "EXT-X-PART:") || strings.Contains(text, "ENDLIST") {
			t.Errorf("%s of 90 s:\n%s", list, text)
		}
		for _, file := range []string{names[0], names[1], names[len(names)-1]} {
			h.want(file)
		}
	}
	for _, path := range []string{"dvr.m3u8", "source/dvr.m3u8", "t/x/source/dvr.m3u8"} {
		if g := h.get(h.under(s.PlaybackID, path)); g.StatusCode != http.StatusForbidden {
			t.Errorf("%s without a credential: %d", path, g.StatusCode)
		}
	}
	plain, other := h.broadcast(nil, 5*time.Second)
	defer other.Close(true)
	for _, path := range []string{"dvr.m3u8", "source/dvr.m3u8", "audio/dvr.m3u8"} {
		if g := h.get(h.under(plain.PlaybackID, path)); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "not recorded") {
			t.Errorf("%s of a stream that is not recorded: %d %s", path, g.StatusCode, g.body)
		}
	}
}
