package playback

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/caption"
	"weir/internal/media"
	"weir/internal/wait"
	"weir/internal/weir"
)

// addText adds a track of text to an asset.
func (h *fixture) addText(a weir.Asset, n weir.NewAssetTrack, start float64, cues ...caption.Cue) (track weir.AssetTrack) {
	h.Helper()
	h.changeAsset(a, func(a *weir.Asset) {
		n.Type = weir.TextTrack
		t, err := a.AddTrack(n, time.Now())
		if err != nil {
			h.Fatal(err)
		}
		file, err := media.SaveText(h.Context(), h.media, media.AssetFolder(a.ID), t.ID, cues)
		if err != nil {
			h.Fatal(err)
		}
		if track, err = a.TrackStored(t.ID, file, time.Now()); err != nil {
			h.Fatal(err)
		}
		a.Tracks[len(a.Tracks)-1].Start = start
	})
	return track
}

func cue(start, end float64, text string) caption.Cue {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return caption.Cue{Start: seconds(start), End: seconds(end), Text: text}
}

func TestText(t *testing.T) {
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	english := h.addText(a, weir.NewAssetTrack{Language: "en", Name: "English", Default: true}, 0, cue(1, 2, "<i>Hello</i>"), cue(2.5, 90, "world"))
	german := h.addText(a, weir.NewAssetTrack{Language: "de", ClosedCaptions: true}, 100, cue(99, 101, "a<00:01:40.500>b"), cue(200, 201, "never"))
	h.addText(a, weir.NewAssetTrack{Kind: weir.Chapters}, 0, cue(0, 2, "Opening"))

	master := h.want(h.at(a, "index.m3u8")).body
	for _, want := range []string{
		`#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="text",NAME="English",LANGUAGE="en",DEFAULT=YES,AUTOSELECT=YES,URI="text/` + english.ID + `/index.m3u8"`,
		`NAME="de",LANGUAGE="de",AUTOSELECT=YES,CHARACTERISTICS="public.accessibility.transcribes-spoken-dialog,public.accessibility.describes-music-and-sound",URI="text/` + german.ID + `/index.m3u8"`,
		`,SUBTITLES="text",NAME="0-`,
	} {
		if !strings.Contains(master, want) {
			t.Errorf("the master playlist lacks %s:\n%s", want, master)
		}
	}
	if strings.Count(master, "TYPE=SUBTITLES") != 2 {
		t.Errorf("chapters are no subtitles:\n%s", master)
	}

	folder := "text/" + english.ID + "/"
	list := h.want(h.at(a, folder+"index.m3u8"))
	name := english.SHA256[:16] + "-0.vtt"
	if !strings.Contains(list.body, "#EXT-X-PLAYLIST-TYPE:VOD") || !strings.Contains(list.body, "\n"+name+"\n#EXT-X-ENDLIST") {
		t.Errorf("the media playlist:\n%s", list.body)
	}
	segment := h.want(h.at(a, folder+name))
	want := "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000\n\n00:00:01.000 --> 00:00:02.000\n<i>Hello</i>\n\n00:00:02.500 --> 00:01:30.000\nworld\n\n"
	if diff := cmp.Diff(want, segment.body); diff != "" {
		t.Errorf("the segment differs (-want +got):\n%s", diff)
	}
	if kind, keep := segment.Header.Get("Content-Type"), segment.Header.Get("Cache-Control"); kind != "text/vtt; charset=utf-8" || !strings.Contains(keep, "immutable") {
		t.Errorf("the segment is %s, %s", kind, keep)
	}

	folder = "text/" + german.ID + "/"
	want = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:01:40.000\n\n00:01:39.000 --> 00:01:41.000\na<00:01:40.500>b\n\n"
	if diff := cmp.Diff(want, h.want(h.at(a, folder+german.SHA256[:16]+"-0.vtt")).body); diff != "" {
		t.Errorf("the segment of a text that starts later differs (-want +got):\n%s", diff)
	}
	for extension, want := range map[string]string{
		".vtt": "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na<00:00:00.500>b\n\n00:01:40.000 --> 00:01:41.000\nnever\n\n",
		".srt": "1\n00:00:00,000 --> 00:00:01,000\nab\n\n2\n00:01:40,000 --> 00:01:41,000\nnever\n\n",
		".txt": "ab\nnever\n",
	} {
		if diff := cmp.Diff(want, h.want(h.at(a, "text/"+german.ID+extension)).body); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", extension, diff)
		}
	}
	for _, path := range []string{
		"text/" + german.ID + ".mp4", "text/" + weir.NewID() + ".vtt", folder + "x-0.vtt/", folder + german.SHA256[:16] + "-1.vtt", folder + german.SHA256[:16] + "-00.vtt",
		folder + "ts.m3u8", folder + "0.vtt", "text/" + german.ID, "text/", "text/x/index.m3u8",
	} {
		if got := h.get(h.at(a, path)); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

// A player that has the playlist of a text which was replaced gets the new text, but no cache keeps it
// under the old name.
func TestTextReplaced(t *testing.T) {
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	track := h.addText(a, weir.NewAssetTrack{Language: "en"}, 0, cue(1, 2, "one"))
	old := h.at(a, "text/"+track.ID+"/"+track.SHA256[:16]+"-0.vtt")
	h.want(old)
	h.changeAsset(a, func(a *weir.Asset) {
		file, err := media.SaveText(t.Context(), h.media, media.AssetFolder(a.ID), track.ID, []caption.Cue{cue(1, 2, "two")})
		if err == nil {
			_, err = a.TrackStored(track.ID, file, time.Now())
		}
		if err == nil {
			err = media.DeleteText(t.Context(), h.media, media.AssetFolder(a.ID), track.Object)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	var got got
	wait.Until(t, "viewers get the new text", func() bool {
		got = h.want(old)
		return strings.Contains(got.body, "two")
	})
	if strings.Contains(got.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("%v: %s", got.Header, got.body)
	}
}

// Text is as protected as the video, and the addresses in its playlist have the token of the viewer.
func TestTextGated(t *testing.T) {
	h := newFixture(t, newDisk(t))
	policy, _ := h.accessHook()
	a := h.newAsset(policy)
	track := h.addText(a, weir.NewAssetTrack{Language: "en"}, 0, cue(1, 2, "secret"))
	folder := "text/" + track.ID
	for _, path := range []string{folder + ".vtt", folder + ".txt", folder + "/index.m3u8", folder + "/" + track.SHA256[:16] + "-0.vtt"} {
		if got := h.get(h.at(a, path)); got.StatusCode != http.StatusUnauthorized && got.StatusCode != http.StatusForbidden {
			t.Errorf("%s without a key: %d", path, got.StatusCode)
		}
	}
	list := h.want(h.at(a, folder+"/index.m3u8") + "?accessKey=right")
	name := ""
	for line := range strings.Lines(list.body) {
		if strings.Contains(line, ".vtt") {
			name = strings.TrimSpace(line)
		}
	}
	if !strings.HasPrefix(name, "../../t/") || !strings.Contains(name, "/"+folder+"/") {
		t.Fatalf("the playlist has the segment %q", name)
	}
	address, err := url.JoinPath(h.at(a, folder), name)
	if err != nil {
		t.Fatal(err)
	}
	segment := h.want(address)
	if !strings.Contains(segment.body, "secret") || strings.Contains(segment.Header.Get("Cache-Control"), "public") {
		t.Errorf("%v: %s", segment.Header, segment.body)
	}
}

// A rendition that is called as the folder of texts keeps playing.
func TestRenditionCalledText(t *testing.T) {
	h := newFixture(t, newDisk(t))
	a := h.newRow(nil, weir.AssetReady)
	film := makeFilm(t)
	h.putTrack(media.AssetFolder(a.ID)+"/text", film.large, len(film.large.data))
	h.present(a, media.Presentation{Duration: film.seconds, Complete: true, Renditions: []media.Rendition{{Name: "text", Dir: "text", Complete: true}}})
	track := h.addText(a, weir.NewAssetTrack{Language: "en"}, 0, cue(1, 2, "x"))
	for _, path := range []string{"text/index.m3u8", "text/init.mp4", "text/0.m4s", "text.mp4", "text/" + track.ID + ".vtt", "text/" + track.ID + "/index.m3u8"} {
		h.want(h.at(a, path))
	}
}

// MP4 files have the texts inside, and another tag when these change.
func TestTextInFiles(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	path := h.at(a, large+".mp4")
	plain := h.want(path)
	h.addText(a, weir.NewAssetTrack{Language: "de-AT", Name: "Deutsch"}, 100, cue(99, 101.25, "Anfang"), cue(200, 201, "nie"))
	h.addText(a, weir.NewAssetTrack{Kind: weir.Chapters}, 0, cue(0, 2, "Opening"))
	english := h.addText(a, weir.NewAssetTrack{Language: "en", Default: true}, 0, cue(1, 2, "<i>Hello</i>"), cue(3, 90, "end"))
	file := h.wantChanged(path, plain)
	h.checkParts(path, file)
	for stream, want := range map[string]string{
		"0:s:0": "1\n00:00:01,000 --> 00:00:02,000\n<i>Hello</i>\n\n2\n00:00:03,000 --> 00:00:04,000\nend\n\n",
		"0:s:1": "1\n00:00:00,000 --> 00:00:01,250\nAnfang\n\n",
	} {
		got, err := ffmpeg("-i", writeTemp(t, []byte(file.body)), "-map", stream, "-f", "srt", "-")
		if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", stream, err, diff)
		}
	}
	if strings.Contains(file.body, "Opening") {
		t.Error("the file has the chapters")
	}
	if got := h.want(h.at(a, "audio0.mp4")); !strings.Contains(got.body, "Anfang") {
		t.Error("the file of the audio has no text")
	}

	h.changeAsset(a, func(a *weir.Asset) {
		name := "EN" // as long as before
		if _, err := a.PatchTrack(english.ID, weir.AssetTrackPatch{Name: &name}, time.Now()); err != nil {
			t.Fatal(err)
		}
	})
	named := h.wantChanged(path, file)
	if !strings.Contains(named.body, "sbtl\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00EN\x00") {
		t.Error("the text has no name")
	}
	h.changeAsset(a, func(a *weir.Asset) { a.Tracks = nil })
	if got := h.wantChanged(path, named); got.body != plain.body || got.Header.Get("ETag") != plain.Header.Get("ETag") {
		t.Error("without texts the file is not what it was before")
	}
}

// wantChanged waits until an address has something else than it had.
func (h *fixture) wantChanged(url string, old got) (changed got) {
	h.Helper()
	tag := old.Header.Get("ETag")
	wait.Until(h, "viewers get another file", func() bool {
		changed = h.get(url, "If-None-Match", tag)
		return changed.StatusCode != http.StatusNotModified
	})
	if changed.StatusCode != http.StatusOK || changed.Header.Get("ETag") == tag || changed.body == old.body {
		h.Fatalf("%s: %d, %d bytes, tag %s", url, changed.StatusCode, len(changed.body), changed.Header.Get("ETag"))
	}
	return changed
}

// checkParts reads a file in parts, of which some begin or end in its head and in texts.
func (h *fixture) checkParts(url string, file got) {
	h.Helper()
	size := int64(len(file.body))
	text := int64(strings.Index(file.body, "Hello"))
	for _, r := range [][2]int64{{0, 100}, {0, text + 1}, {100, text + 100}, {text, text + 5}, {text + 2, size}, {size - 1, size}} {
		part := h.get(url, "Range", rangeOf(r[0], r[1]))
		if part.StatusCode != http.StatusPartialContent || part.body != file.body[r[0]:r[1]] {
			h.Errorf("bytes %d to %d: %d, %d bytes that are those of the file: %t", r[0], r[1], part.StatusCode, len(part.body), part.body == file.body[r[0]:r[1]])
		}
	}
	if head := h.ask("HEAD", url); head.ContentLength != size || head.Header.Get("ETag") != file.Header.Get("ETag") {
		h.Errorf("HEAD says %d bytes with the tag %s", head.ContentLength, head.Header.Get("ETag"))
	}
}

// The MP4 file of a recording continues without the time in which its encoder was away, and so does text.
// Its audio goes on after its video when a connection ends, which is in the file and not in playlists.
func TestTextInRecording(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newRecording(false)
	h.addText(a, weir.NewAssetTrack{Language: "en"}, 0, cue(1, 2, "first"), cue(videoSeconds-0.5, videoSeconds+0.5, "both"), cue(videoSeconds+2, videoSeconds+3, "second"))
	file := h.want(h.at(a, "download/show.mp4"))
	got, err := ffmpeg("-i", writeTemp(t, []byte(file.body)), "-map", "0:s:0", "-f", "srt", "-")
	want := "1\n00:00:01,000 --> 00:00:02,000\nfirst\n\n2\n00:00:03,500 --> 00:00:04,000\nboth\n\n" +
		"3\n00:00:07,000 --> 00:00:07,500\nboth\n\n4\n00:00:09,000 --> 00:00:10,000\nsecond\n\n"
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// What was signed has no text, which may change.
func TestTextOfSigned(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	h.changeAsset(a, func(a *weir.Asset) { a.Sign = true })
	h.sign(a)
	before := h.want(h.at(a, large+".mp4"))
	track := h.addText(a, weir.NewAssetTrack{Language: "en"}, 0, cue(1, 2, "Hello"))
	wait.Until(t, "viewers get the text", func() bool { return h.get(h.at(a, "text/"+track.ID+".vtt")).StatusCode == http.StatusOK })
	after := h.want(h.at(a, large+".mp4"))
	if after.body != before.body || after.Header.Get("ETag") != before.Header.Get("ETag") {
		t.Error("the signed file has changed")
	}
}
