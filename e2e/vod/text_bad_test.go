package vod

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
	words "weir/internal/weir"
)

// vtt is WebVTT with one cue, or with what comes in its place.
func vtt(text string) []byte { return []byte("WEBVTT\n\n00:00.000 --> 00:09.000\n" + text) }

// badTexts are files that are no text, and what their senders are told; "" = they are taken, as text that
// does nothing.
var badTexts = []struct {
	name string
	file []byte
	says string
}{
	{"an empty file", nil, "is empty"},
	{"blanks", []byte(" \r\n\t"), "is empty"},
	{"a picture", []byte("\x89PNG\r\n\x1a\n\x00\xff\xfe"), "neither UTF-8 nor UTF-16"},
	{"a PDF", []byte("%PDF-1.7\n1 0 obj"), "before the first cue"},
	{"Windows-1252", vtt("Gr\xfc\xdfe"), "neither UTF-8 nor UTF-16"},
	{"half of a UTF-8 character", vtt("caf\xc3"), "neither UTF-8"},
	{"plain text", []byte("Hello\nyou"), `line 1: this is neither WebVTT, SubRip (.srt) nor TTML`},
	{"JSON", []byte(`{"cues":[]}`), "line 1: this is neither"},
	{"HTML", []byte("<!DOCTYPE html><html><body>Hello</body></html>"), "line 1"},
	{"a playlist", []byte("#EXTM3U\n#EXT-X-VERSION:3\n"), "line 1: this is neither"},
	{"WebVTT without a cue", []byte("WEBVTT\n\nNOTE nothing"), "has no cues"},
	{"a word that begins so", []byte("WEBVTTX\n\n00:00.000 --> 00:09.000\na"), "line 1: the first line"},
	{"end before start", []byte("WEBVTT\n\n00:05.000 --> 00:04.000\na"), "line 3: the cue ends at"},
	{"no length", []byte("WEBVTT\n\n00:05.000 --> 00:05.000\na"), "line 3: the cue ends at"},
	{"no milliseconds", []byte("WEBVTT\n\n00:05 --> 00:06\na"), `line 3: "00:05" is not a time`},
	{"61 minutes", []byte("1\n00:61:00,000 --> 00:62:00,000\na"), `line 2: "00:61:00,000" is not a time`},
	{"a negative time", []byte("1\n-00:00:01,000 --> 00:00:02,000\na"), "is not a time"},
	{"no end", []byte("WEBVTT\n\n00:05.000 -->\na"), "is not a time"},
	{"a thousand hours", []byte("WEBVTT\n\n00:05.000 --> 1000:00:00.001\na"), "after 1000 hours"},
	{"the text of another video", []byte("WEBVTT\n\n05:00:00.000 --> 05:00:01.000\na"), "it is not the text of this video"},
	{"a cue of 20 KiB", vtt(strings.Repeat("abcdefghi\n", 2048)), "longer than 16 KiB"},
	{"a million cues", append([]byte("WEBVTT\n"), bytes.Repeat([]byte("\n0:01.000 --> 0:02.000\nabcdefghijklm\n"), 260_000)...), "more than 100,000 cues"},
	{"11 MB", append([]byte("WEBVTT\n\n"), bytes.Repeat([]byte("NOTE x\n\n"), 11<<17)...), "larger than 10 MiB"},
	{"100 MB", bytes.Repeat([]byte("a\n"), 50<<20), "larger than 10 MiB"},
	{"XML that breaks off", []byte(`<tt xmlns="http://www.w3.org/ns/ttml"><body><div><p begin="1s"`), "the XML is broken"},
	{"an XML bomb", []byte(`<?xml version="1.0"?><!DOCTYPE tt [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><tt xmlns="http://www.w3.org/ns/ttml"><body><div><p begin="0s" end="1s">&b;</p></div></body></tt>`), "DOCTYPE"},
	{"an external entity", []byte(`<?xml version="1.0"?><!DOCTYPE tt SYSTEM "file:///etc/passwd"><tt/>`), "DOCTYPE"},
	{"XML of 100 levels", []byte(`<tt xmlns="http://www.w3.org/ns/ttml"><body>` + strings.Repeat("<div>", 100) + strings.Repeat("</div>", 100) + `</body></tt>`), "elements are in each other"},
	{"pictures in XML", []byte(`<tt xmlns="http://www.w3.org/ns/ttml" xmlns:smpte="http://www.smpte-ra.org/schemas/2052-1/2010/smpte-tt"><body><div smpte:backgroundImage="#i"><p begin="0s" end="1s"/></div></body></tt>`), "pictures"},
	{"a clock of a broadcast", []byte(`<tt xmlns="http://www.w3.org/ns/ttml" xmlns:ttp="http://www.w3.org/ns/ttml#parameter" ttp:timeBase="clock"><body><div><p begin="0s" end="1s">a</p></div></body></tt>`), "timeBase"},

	{"NUL and control characters", vtt("a\x00b\x01\x1b[31mc"), ""},
	{"a script", vtt("<script>document.title='broken'</script>Hello"), ""},
	{"an image", vtt(`<img src=x onerror="document.title='broken'">Hello`), ""},
	{"markup behind escapes", vtt("&lt;img src=x onerror=&quot;document.title='broken'&quot;&gt; &amp;lt;b&amp;gt;"), ""},
	{"a voice with markup", vtt(`<v "><img src=x onerror=document.title='broken'>>Hello</v>`), ""},
	{"a class with markup", vtt(`<c.a"onmouseover="document.title='broken'">Hello</c>`), ""},
	{"a style", append([]byte("WEBVTT\n\nSTYLE\n::cue { background: url(http://127.0.0.1:1/broken) }\n\n"), vtt("Hello")[8:]...), ""},
	{"SubRip with a link", []byte("1\n00:00:00,000 --> 00:00:09,000\n<a href=\"javascript:alert(1)\">Hello</a><iframe src=x>"), ""},
	{"TTML with HTML in it", []byte(`<tt xmlns="http://www.w3.org/ns/ttml"><body><div><p begin="0s" end="9s">&lt;script&gt;document.title='broken'&lt;/script&gt;Hello</p></div></body></tt>`), ""},
}

// TestBadTexts sends files that are no text, or that are more than text, and shows what is taken on the
// watch page: nothing of it becomes a part of the page.
func TestBadTexts(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	u, _ := sendUpload(w, harness.SmallClip(t))
	w.Completed(u.Task.ID)
	a := ready(w, u.Asset.ID)
	var taken []words.AssetTrack
	for _, bad := range badTexts {
		var track words.AssetTrack
		w.Must("POST", "/api/asset/"+a.ID+"/track", map[string]any{"type": "text", "language": "en", "name": bad.name}, &track)
		status, body := w.Do("PUT", "/api/asset/"+a.ID+"/track/"+track.ID+"/file", bad.file)
		wanted := status == http.StatusUnprocessableEntity || status == http.StatusRequestEntityTooLarge
		if bad.says == "" {
			wanted = status == http.StatusOK
			taken = append(taken, track)
		}
		if !wanted || !strings.Contains(string(body), strings.ReplaceAll(bad.says, `"`, `\"`)) {
			t.Errorf("%s: %d %s, want %q", bad.name, status, body, bad.says)
		}
		if bad.says != "" {
			t.Logf("| %s | %d | %s |", bad.name, status, strings.TrimSpace(string(body)))
			w.Must("DELETE", "/api/asset/"+a.ID+"/track/"+track.ID, nil, nil)
		}
	}

	browser := harness.NewBrowser(t, t.TempDir())
	for _, track := range taken {
		w.Must("PATCH", "/api/asset/"+a.ID+"/track/"+track.ID, map[string]any{"default": true}, nil)
		browser.Open(fmt.Sprintf("%s/play/%s?%d", w.URL, a.PlaybackID, time.Now().UnixNano()))
		harness.Eventually(t, func() error {
			if shown := browser.Text(`[...(document.querySelector("video")?.textTracks ?? [])].flatMap((t) => [...(t.activeCues ?? [])]).map((c) => c.text).join("|")`); shown == "" {
				return fmt.Errorf("%s: no cue is shown", track.Name)
			}
			return nil
		})
		if got := browser.Text(`document.title + [...document.querySelectorAll("img, script:not([src]), iframe, a[href^=javascript]")].map((e) => e.outerHTML).filter((h) => /broken|alert/.test(h)).join()`); strings.Contains(got, "broken") {
			t.Errorf("%s has changed the page: %s", track.Name, got)
		}
	}
}
