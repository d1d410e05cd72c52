package harness

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// masterList is a master playlist, mediaList one of a rendition, as far as the
// tests look at them.
type (
	masterList struct {
		Independent bool
		Variants    []Variant
		Audio       map[string]string // the playlists of audio, by their group
	}
	Variant struct {
		Uri, Codecs, Resolution, Audio string
		Bandwidth, Average             float64
		FrameRate                      float64
	}
	MediaList struct {
		Init     *ByteRange
		Segments []ListSegment
		Target   float64
		Ended    bool
	}
	ListSegment struct {
		ByteRange
		Seconds float64
	}
	ByteRange struct {
		Uri            string
		Length, Offset int64 // length 0 = all of it
	}
)

// Tags calls do with each tag of a playlist and the URI that follows it, if one does.
func Tags(t *testing.T, file string, do func(tag, value, uri string)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if lines[0] != "#EXTM3U" {
		t.Fatalf("%s is no playlist:\n%s", file, text)
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "#EXT") {
			uri := ""
			if i+1 < len(lines) && !strings.HasPrefix(lines[i+1], "#") {
				uri = lines[i+1]
			}
			tag, value, _ := strings.Cut(line, ":")
			do(tag, value, uri)
		}
	}
}

// Attributes splits a list of NAME=value, where a value may be in quotes.
func Attributes(list string) map[string]string {
	found := map[string]string{}
	for list != "" {
		var name, value string
		name, list, _ = strings.Cut(list, "=")
		if rest, quoted := strings.CutPrefix(list, `"`); quoted {
			value, list, _ = strings.Cut(rest, `"`)
			list = strings.TrimPrefix(list, ",")
		} else {
			value, list, _ = strings.Cut(list, ",")
		}
		found[name] = value
	}
	return found
}

// ReadMaster reads a master playlist; the URIs in it become paths in dir.
func ReadMaster(t *testing.T, dir, name string) masterList {
	t.Helper()
	m := masterList{Audio: map[string]string{}}
	Tags(t, filepath.Join(dir, name), func(tag, value, uri string) {
		a := Attributes(value)
		switch tag {
		case "#EXT-X-INDEPENDENT-SEGMENTS":
			m.Independent = true
		case "#EXT-X-MEDIA":
			if a["TYPE"] == "AUDIO" && a["URI"] != "" {
				m.Audio[a["GROUP-ID"]] = path.Join(path.Dir(name), a["URI"])
			}
		case "#EXT-X-STREAM-INF":
			m.Variants = append(m.Variants, Variant{
				path.Join(path.Dir(name), uri), a["CODECS"], a["RESOLUTION"], a["AUDIO"],
				Number(a["BANDWIDTH"]), Number(a["AVERAGE-BANDWIDTH"]), Number(a["FRAME-RATE"]),
			})
		}
	})
	if len(m.Variants) == 0 {
		t.Fatalf("%s names no variants", name)
	}
	return m
}
