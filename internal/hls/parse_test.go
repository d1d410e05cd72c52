package hls

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestParseAttributes(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                       {},
		"TYPE":                   {},
		"TYPE=AUDIO":             {"TYPE": "AUDIO"},
		"A=1, B = 2 ,C=":         {"A": "1", "B": "2", "C": ""},
		`CODECS="avc1,mp4a",B=2`: {"CODECS": "avc1,mp4a", "B": "2"},
		`URI="a=b",B="x"`:        {"URI": "a=b", "B": "x"},
		`URI="no end,B=2`:        {"URI": "no end,B=2"},
		`A="1"junk,B=2,junk`:     {"A": "1", "B": "2"},
	} {
		if diff := cmp.Diff(want, parseAttributes(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestParseMedia(t *testing.T) {
	const text = "\ufeff#EXTM3U\r\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-DISCONTINUITY-SEQUENCE:2\n" +
		"#EXT-X-PLAYLIST-TYPE:EVENT\n#EXT-X-PART-INF:PART-TARGET=0.5\n#EXT-X-SKIP:SKIPPED-SEGMENTS=3\n" +
		"#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10\"\n#EXT-X-PROGRAM-DATE-TIME:2026-03-04T05:06:07.5+01:00\n#EXTINF:2.002,title\n#EXT-X-BYTERANGE:100@10\na\n" +
		"#EXT-X-DISCONTINUITY\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1,KEYFORMAT=\"identity\"\n#EXTINF:1\n#EXT-X-BYTERANGE:5\na\n" +
		"#EXT-X-KEY:METHOD=NONE\n#EXT-X-MAP:URI=\"j.mp4\"\n#EXT-X-GAP\n#EXTINF:x,\nb?c#d\n" +
		"#EXT-X-PART:DURATION=0.5,URI=\"c.0\",INDEPENDENT=YES\n#EXT-X-PART:DURATION=0.25,URI=\"c.1\"\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"c.2\"\n" +
		"#EXT-X-RENDITION-REPORT:URI=\"../v\",LAST-MSN=13,LAST-PART=1\n#EXT-X-RENDITION-REPORT:URI=\"../w\",LAST-MSN=12\n#EXT-X-UNKNOWN:1\n"
	key := Key{Method: "AES-128", URI: "k", IV: "0x1", Format: "identity"}
	first, second := &File{"i.mp4", 0, 10}, &File{URI: "j.mp4"}
	want := &Media{
		Type: Event, Version: 7, Target: 4 * time.Second, PartTarget: 500 * time.Millisecond, Sequence: 7, DiscontinuitySequence: 2, Skipped: 3,
		Segments: []Segment{
			{File: File{"a", 10, 100}, Duration: 2002 * time.Millisecond, Date: time.Date(2026, 3, 4, 4, 6, 7, 5e8, time.UTC), Map: first, Number: 10, Breaks: 2},
			{File: File{"a", 110, 5}, Duration: time.Second, Map: first, Key: &key, Discontinuity: true, Number: 11, Breaks: 3},
			{File: File{URI: "b?c#d"}, Duration: -1, Map: second, Gap: true, Number: 12, Breaks: 3},
			{
				Duration: 750 * time.Millisecond, Map: second, Open: true, Number: 13, Breaks: 3,
				Parts: []Part{{"c.0", 500 * time.Millisecond, true}, {"c.1", 250 * time.Millisecond, false}},
			},
		},
		Hint: "c.2", Reports: []Report{{"../v", 13, 1}, {"../w", 12, -1}}, Keys: []Key{key},
	}
	master, got, err := Parse([]byte(text))
	if err != nil || master != nil {
		t.Fatalf("%+v, %v", master, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseMaster(t *testing.T) {
	const text = "#EXTM3U\n#EXT-X-SESSION-KEY:METHOD=SAMPLE-AES,URI=\"k\"\n" +
		"#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"Deutsch\",LANGUAGE=\"de\",DEFAULT=YES,AUTOSELECT=YES,CHANNELS=\"2\",URI=\"a.m3u8\"\n" +
		"#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"x\",CHANNELS=\"16/JOC\"\n#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"s\",URI=\"s.m3u8\"\n" +
		"#EXT-X-STREAM-INF:BANDWIDTH=5,AVERAGE-BANDWIDTH=4,CODECS=\"a,BANDWIDTH=900\",RESOLUTION=640x360,FRAME-RATE=29.970,AUDIO=\"g\",NAME=\"n\"\nlow.m3u8\n" +
		"#EXT-X-STREAM-INF:BANDWIDTH=x\nhigh.m3u8\n"
	want := &Master{
		Variants: []Variant{
			{URI: "low.m3u8", Name: "n", Bandwidth: 5, Average: 4, Codecs: []string{"a", "BANDWIDTH=900"}, Width: 640, Height: 360, FrameRate: 29.97, Audio: "g"},
			{URI: "high.m3u8"},
		},
		Audio: []Audio{
			{URI: "a.m3u8", Group: "g", Name: "Deutsch", Language: "de", Channels: 2, Default: true, AutoSelect: true},
			{Group: "g", Name: "x"},
		},
		SessionKeys: []Key{{Method: "SAMPLE-AES", URI: "k"}},
	}
	got, media, err := Parse([]byte(text))
	if err != nil || media != nil {
		t.Fatalf("%+v, %v", media, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]error{
		"<html>":                                ErrHeader,
		"#EXTM3U\xff":                           ErrHeader,
		"#EXTM3U\n#EXT-X-DEFINE:NAME=\"x\"\n":   ErrVariables,
		"#EXTM3U\n0.ts\n":                       errNoEXTINF,
		"#EXTM3U\n#EXT-X-MAP:BYTERANGE=\"5@0\"": errNoMap,
		"#EXTM3U\n#EXT-X-STREAM-INF:A=B\nx\n#EXTINF:6,\n0.ts\n":         errMixed,
		"#EXTM3U\n" + strings.Repeat("#EXTINF:1\na\n", MaxEntries+1):    ErrTooLong,
		"#EXTM3U\n" + strings.Repeat("#EXT-X-KEY:\n", MaxEntries+1):     ErrTooLong,
		"#EXTM3U\n" + strings.Repeat("#EXT-X-PART:A=B\n", MaxEntries+1): ErrTooLong,
	} {
		if _, _, err := Parse([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.60q: error = %v, want %v", text, err, want)
		}
	}
	for _, byteRange := range []string{"5", "5@-1", "0@5", "x@5", "5@", "@5", "-5@5"} {
		_, _, err := Parse(fmt.Appendf(nil, "#EXTM3U\n#EXT-X-BYTERANGE:%s\n#EXTINF:6,\n0.ts\n", byteRange))
		if e, ok := errors.AsType[*RangeError](err); !ok || e.Text != byteRange {
			t.Errorf("%q: error = %v", byteRange, err)
		}
	}
}

// FuzzParse reads texts that may be anything. What is written of them is read as the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"#EXTM3U\n#EXTINF:6,\n0.ts\n#EXT-X-ENDLIST",
		"#EXTM3U\n#EXT-X-MAP:URI=\"a\",BYTERANGE=\"9@1\"\n#EXT-X-BYTERANGE:5@10\n#EXTINF:6,\na\n#EXT-X-BYTERANGE:5\n#EXTINF:6,\na\n#EXT-X-ENDLIST",
		"#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",URI=\"x\"\n#EXT-X-STREAM-INF:BANDWIDTH=5,AUDIO=\"g\"\nlow.m3u8\n",
		"#EXTM3U\n#EXT-X-BYTERANGE:4611686018427387903@4611686018427387903\n#EXTINF:6,\na\n#EXT-X-ENDLIST",
		"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10@0\"\n#EXTINF:2.0,\n#EXT-X-BYTERANGE:100@10\na\n#EXT-X-DISCONTINUITY\n#EXTINF:1,x\n#EXT-X-BYTERANGE:5\na\n#EXT-X-ENDLIST\n",
		"#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",URI=\"s\",DEFAULT=YES\n#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS=\"avc1.1,mp4a\",AUDIO=\"a\"\nv\n",
		"#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1\n#EXT-X-GAP\n#EXTINF:3\nb\n",
		"#EXTM3U\n#EXT-X-PART-INF:PART-TARGET=1\n#EXT-X-MEDIA-SEQUENCE:3\n#EXTINF:2.0,\n3.m4s\n#EXTINF:2.0,\n4.m4s\n#EXT-X-PART:DURATION=1,URI=\"5.0.m4s\"\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"5.1.m4s\"\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		master, media, err := Parse(data)
		if err != nil {
			return
		}
		if (master == nil) == (media == nil) {
			t.Fatalf("%v and %v", master, media)
		}
		if master != nil {
			text := string(master.Text())
			if again, _, err := Parse([]byte(text)); err != nil || len(again.Variants) != len(master.Variants) {
				t.Errorf("%v in:\n%s", err, text)
			}
			return
		}
		for _, s := range media.Segments {
			if (s.URI == "") != s.Open || s.Offset < 0 || s.Length < 0 || s.Map != nil && (s.Map.URI == "" || s.Map.Offset < 0 || s.Map.Length < 0) {
				t.Errorf("segment %+v", s)
			}
		}
		if bytes.ContainsFunc(data, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
			return // in attributes they become spaces
		}
		media.Sequence = max(0, media.Sequence)
		for _, m := range []Media{*media, media.Delta()} {
			text := string(m.Text())
			_, again, err := Parse([]byte(text))
			if err != nil || len(again.Segments) != len(m.Segments) {
				t.Fatalf("%v in:\n%s", err, text)
			}
			if diff := cmp.Diff(text, string(again.Text())); diff != "" {
				t.Errorf("written again (-once +twice):\n%s", diff)
			}
		}
	})
}
