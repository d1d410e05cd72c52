package vod

import (
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/e2e/harness"
)

// readMedia reads a media playlist; the URIs in it become paths in dir.
func readMedia(t *testing.T, dir, name string) harness.MediaList {
	t.Helper()
	var m harness.MediaList
	var next harness.ListSegment
	harness.Tags(t, filepath.Join(dir, name), func(tag, value, uri string) {
		switch tag {
		case "#EXT-X-TARGETDURATION":
			m.Target = harness.Number(value)
		case "#EXT-X-MAP":
			a := harness.Attributes(value)
			m.Init = new(newRange(path.Join(path.Dir(name), a["URI"]), a["BYTERANGE"]))
		case "#EXTINF":
			next.Seconds = harness.Number(strings.TrimSuffix(value, ","))
		case "#EXT-X-BYTERANGE":
			next.ByteRange = newRange("", value)
		case "#EXT-X-ENDLIST":
			m.Ended = true
		}
		if uri != "" {
			next.Uri = path.Join(path.Dir(name), uri)
			m.Segments = append(m.Segments, next)
			next = harness.ListSegment{}
		}
	})
	if len(m.Segments) == 0 || m.Target <= 0 {
		t.Fatalf("%s names no segments, or has no target duration", name)
	}
	return m
}

func newRange(uri, text string) harness.ByteRange {
	length, offset, _ := strings.Cut(text, "@")
	r := harness.ByteRange{Uri: uri}
	r.Length, _ = strconv.ParseInt(length, 10, 64)
	r.Offset, _ = strconv.ParseInt(offset, 10, 64)
	return r
}
