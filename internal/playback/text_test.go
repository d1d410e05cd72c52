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
