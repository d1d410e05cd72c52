package cmaf

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// LiveDelta leaves out of a playlist that LivePlaylist wrote what LiveOptions.Skip would, for
// who has only the text. A player that asks for it has the segments before a number; if
// more would be left out than these, the playlist stays whole. So it does if it does not
// say from where on something may be left out.
func LiveDelta(list []byte, has int64) []byte {
	head, rest, found := bytes.Cut(list, []byte(independentSegments))
	until, ok := attribute(head, "CAN-SKIP-UNTIL=")
	first, numbered := attribute(head, "#EXT-X-MEDIA-SEQUENCE:")
	if !found || !ok || !numbered {
		return list
	}
	segments, tail := splitSegments(rest)
	distance, skipped := tail, 0 // from the end of the list
	for i := len(segments) - 1; i >= 0; i-- {
		if distance >= until {
			skipped = i + 1
			break
		}
		distance += segments[i].duration
	}
	if skipped == 0 || first/1e6+int64(skipped) > has {
		return list
	}
	var out bytes.Buffer
	out.Grow(len(list))
	fmt.Fprintf(&out, "%s%s#EXT-X-SKIP:SKIPPED-SEGMENTS=%d\n", head, independentSegments, skipped)
	kept := rest[segments[skipped-1].end:]
	// The first segment that is left needs the init segment that was in force.
	if after, broken := bytes.CutPrefix(kept, []byte(discontinuity)); broken {
		out.WriteString(discontinuity)
		kept = after
	}
	if !bytes.HasPrefix(kept, []byte(mapTag)) {
		out.Write(segments[skipped-1].init)
	}
	out.Write(kept)
	return out.Bytes()
}

const (
	independentSegments = "#EXT-X-INDEPENDENT-SEGMENTS\n"
	discontinuity       = "#EXT-X-DISCONTINUITY\n"
	mapTag              = "#EXT-X-MAP:"
)

// segmentText is a segment in a playlist.
type segmentText struct {
	end      int    // where its lines end
	duration int64  // microseconds
	init     []byte // the line of the init segment in force
}

// splitSegments finds the segments in a playlist, and how long the parts after them are.
func splitSegments(text []byte) (all []segmentText, tail int64) {
	var at int
	var now segmentText
	for line := range bytes.Lines(text) {
		at += len(line)
		switch {
		case bytes.HasPrefix(line, []byte(mapTag)):
			now.init = line
		case bytes.HasPrefix(line, []byte("#EXTINF:")):
			now.duration, _ = attribute(line, "#EXTINF:")
		case bytes.HasPrefix(line, []byte("#EXT-X-PART:")):
			duration, _ := attribute(line, "DURATION=")
			tail += duration
		case line[0] != '#':
			now.end = at
			all, tail = append(all, now), 0
		}
	}
	return all, tail
}

// attribute returns the number that stands behind a text, in millionths.
func attribute(text []byte, name string) (int64, bool) {
	_, after, found := bytes.Cut(text, []byte(name))
	digits := len(after) - len(bytes.TrimLeft(after, "0123456789."))
	whole, fraction, _ := strings.Cut(string(after[:digits]), ".")
	n, err := strconv.ParseInt(whole+(fraction + "000000")[:6], 10, 64)
	return n, found && err == nil
}
