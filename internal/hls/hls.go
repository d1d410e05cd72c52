// Package hls has HLS playlists as data: RFC 8216 and its second edition, with low latency.
//
// A playlist is a [Master], which names the renditions of a presentation, or a [Media] playlist,
// which lists the segments of one rendition. [Parse] reads either. Text writes either: what Parse
// makes of a text that this package wrote, Text writes again byte for byte.
//
// A [Media] playlist is written as a whole, or, while it only grows, entry by entry: see [Entries].
// An update without the segments that a player already has is [Media.Delta].
//
// The package knows nothing of tracks and files. Package cmaf makes entries from them.
package hls

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// File is a file that a playlist names, or a range of its bytes.
type File struct {
	URI            string // relative to the playlist, escaped
	Offset, Length int64  // Length 0 = the whole file
}

// EscapePath writes a path as a relative URI. It escapes everything but the unreserved characters:
// some stores take a plus sign for a space, and a quote would end an attribute.
func EscapePath(path string) string {
	names := strings.Split(path, "/")
	for i, name := range names {
		names[i] = strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
	}
	return strings.Join(names, "/")
}

// wrapURIs puts a prefix before and a suffix behind every URI of a playlist. It works on the text,
// because it runs for each viewer whose URIs carry a token.
func wrapURIs(playlist []byte, prefix, suffix string) []byte {
	if prefix == "" && suffix == "" {
		return playlist
	}
	before, behind, mark, quote := []byte(prefix), []byte(suffix), []byte(`URI="`), []byte(`"`)
	out := make([]byte, 0, 2*len(playlist))
	add := func(texts ...[]byte) {
		for _, text := range texts {
			out = append(out, text...)
		}
	}
	for line := range bytes.Lines(playlist) {
		content := bytes.TrimRight(line, "\r\n")
		head, rest, found := bytes.Cut(content, mark)
		uri, tail, closed := bytes.Cut(rest, quote)
		switch {
		case len(content) > 0 && content[0] != '#':
			add(before, content, behind, []byte("\n"))
		case found && closed:
			add(head, mark, before, uri, behind, quote, tail, []byte("\n"))
		default:
			add(line)
		}
	}
	return out
}

// writer appends to the text of a playlist.
type writer struct {
	text []byte
	init File // the init section in force
}

func (w *writer) put(text string) *writer {
	w.text = append(w.text, text...)
	return w
}

func (w *writer) number(n int64) *writer {
	w.text = strconv.AppendInt(w.text, n, 10)
	return w
}

// seconds writes a duration in seconds with six decimals.
func (w *writer) seconds(d time.Duration) *writer {
	micros := max(0, d.Microseconds())
	w.number(micros / 1e6)
	decimals := len(w.text)
	w.number(1e6 + micros%1e6) // the leading 1 keeps the zeros and becomes the point
	w.text[decimals] = '.'
	return w
}

// quoted writes a quoted string, which can hold neither quotes nor line breaks.
func (w *writer) quoted(text string) *writer {
	return w.put(`"`).put(strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r < ' ' || r == 0x7f:
			return ' '
		}
		return r
	}, text)).put(`"`)
}
