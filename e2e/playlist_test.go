package e2e

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// masterList is a master playlist, mediaList one of a rendition, as far as the
// tests look at them.
type (
	masterList struct {
		independent bool
		variants    []variant
		audio       map[string]string // the playlists of audio, by their group
	}
	variant struct {
		uri, codecs, resolution, audio string
		bandwidth, average             float64
		frameRate                      float64
	}
	mediaList struct {
		init     *byteRange
		segments []listSegment
		target   float64
		ended    bool
	}
	listSegment struct {
		byteRange
		seconds float64
	}
	byteRange struct {
		uri            string
		length, offset int64 // length 0 = all of it
	}
)

// tags calls do with each tag of a playlist and the URI that follows it, if one does.
func tags(t *testing.T, file string, do func(tag, value, uri string)) {
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

// attributes splits a list of NAME=value, where a value may be in quotes.
func attributes(list string) map[string]string {
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

// readMaster reads a master playlist; the URIs in it become paths in dir.
func readMaster(t *testing.T, dir, name string) masterList {
	t.Helper()
	m := masterList{audio: map[string]string{}}
	tags(t, filepath.Join(dir, name), func(tag, value, uri string) {
		a := attributes(value)
		switch tag {
		case "#EXT-X-INDEPENDENT-SEGMENTS":
			m.independent = true
		case "#EXT-X-MEDIA":
			if a["TYPE"] == "AUDIO" && a["URI"] != "" {
				m.audio[a["GROUP-ID"]] = path.Join(path.Dir(name), a["URI"])
			}
		case "#EXT-X-STREAM-INF":
			m.variants = append(m.variants, variant{
				path.Join(path.Dir(name), uri), a["CODECS"], a["RESOLUTION"], a["AUDIO"],
				number(a["BANDWIDTH"]), number(a["AVERAGE-BANDWIDTH"]), number(a["FRAME-RATE"]),
			})
		}
	})
	if len(m.variants) == 0 {
		t.Fatalf("%s names no variants", name)
	}
	return m
}

// readMedia reads a media playlist; the URIs in it become paths in dir.
func readMedia(t *testing.T, dir, name string) mediaList {
	t.Helper()
	var m mediaList
	var next listSegment
	tags(t, filepath.Join(dir, name), func(tag, value, uri string) {
		switch tag {
		case "#EXT-X-TARGETDURATION":
			m.target = number(value)
		case "#EXT-X-MAP":
			a := attributes(value)
			m.init = new(newRange(path.Join(path.Dir(name), a["URI"]), a["BYTERANGE"]))
		case "#EXTINF":
			next.seconds = number(strings.TrimSuffix(value, ","))
		case "#EXT-X-BYTERANGE":
			next.byteRange = newRange("", value)
		case "#EXT-X-ENDLIST":
			m.ended = true
		}
		if uri != "" {
			next.uri = path.Join(path.Dir(name), uri)
			m.segments = append(m.segments, next)
			next = listSegment{}
		}
	})
	if len(m.segments) == 0 || m.target <= 0 {
		t.Fatalf("%s names no segments, or has no target duration", name)
	}
	return m
}

func newRange(uri, text string) byteRange {
	length, offset, _ := strings.Cut(text, "@")
	r := byteRange{uri: uri}
	r.length, _ = strconv.ParseInt(length, 10, 64)
	r.offset, _ = strconv.ParseInt(offset, 10, 64)
	return r
}
