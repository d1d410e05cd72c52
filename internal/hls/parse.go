package hls

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxEntries is the maximum number of segments, or of variants, that Parse takes: a day of segments
// of one second.
const MaxEntries = 86_400

// The errors of Parse complete a sentence that begins with "the playlist".
var (
	ErrHeader    = errors.New("does not begin with #EXTM3U")
	ErrTooLong   = fmt.Errorf("has more than %d entries", MaxEntries)
	ErrVariables = errors.New("has variables") // Parse does not replace them

	errMixed    = errors.New("has variants and segments; it can only have one of them")
	errNoEXTINF = errors.New("has a file without #EXTINF")
	errNoMap    = errors.New("has an #EXT-X-MAP without a URI")
)

// RangeError is a byte range that can't be read.
type RangeError struct{ Text string }

func (*RangeError) Error() string { return "has a range of bytes that can't be read" }

// Parse reads a playlist and returns either a master or a media playlist. It leaves out tags that
// it does not know. Durations and numbers that it can't read are less than 0.
func Parse(data []byte) (*Master, *Media, error) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	if !utf8.ValidString(text) || !strings.HasPrefix(text, "#EXTM3U") {
		return nil, nil, ErrHeader
	}
	var p parser
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, nil, err
		}
		entries := len(p.media.Segments) + len(p.master.Variants) + len(p.master.Audio)
		if entries > MaxEntries || p.details > MaxEntries {
			return nil, nil, ErrTooLong
		}
	}
	switch {
	case len(p.master.Variants) == 0:
		p.finish()
		return nil, &p.media, nil
	case len(p.media.Segments) > 0:
		return nil, nil, errMixed
	}
	return &p.master, nil, nil
}

// parser is the state after some lines.
type parser struct {
	master Master
	media  Media

	variant   map[string]string // attributes of the variant whose URI comes next; nil = none does
	next      Segment
	timed     bool   // the duration of the next segment was read
	byteRange string // of the next segment
	previous  File   // the last segment, which a byte range may continue
	init      *File
	key       *Key
	details   int // parts, keys and reports so far
}

func (p *parser) line(line string) error {
	if !strings.HasPrefix(line, "#") {
		return p.uri(line)
	}
	tag, value, _ := strings.Cut(line, ":")
	m := &p.media
	switch tag {
	case "#EXTINF":
		duration, _, _ := strings.Cut(value, ",")
		p.next.Duration, p.timed = parseSeconds(duration), true
	case "#EXT-X-BYTERANGE":
		p.byteRange = value
	case "#EXT-X-DISCONTINUITY":
		p.next.Discontinuity = true
	case "#EXT-X-GAP":
		p.next.Gap = true
	case "#EXT-X-PROGRAM-DATE-TIME":
		p.next.Date, _ = time.Parse(time.RFC3339Nano, value)
	case "#EXT-X-VERSION":
		m.Version = int(parseNumber(value))
	case "#EXT-X-TARGETDURATION":
		m.Target = parseSeconds(value)
	case "#EXT-X-MEDIA-SEQUENCE":
		m.Sequence = parseNumber(value)
	case "#EXT-X-DISCONTINUITY-SEQUENCE":
		m.DiscontinuitySequence = parseNumber(value)
	case "#EXT-X-PLAYLIST-TYPE":
		m.Type = Type(value)
	case "#EXT-X-ENDLIST":
		m.Ended = true
	case "#EXT-X-I-FRAMES-ONLY":
		m.IFramesOnly = true
	case "#EXT-X-DEFINE":
		return ErrVariables
	default:
		return p.attributes(tag, value)
	}
	return nil
}

// attributes reads a tag that has an attribute list.
func (p *parser) attributes(tag, value string) (err error) {
	m, a := &p.media, parseAttributes(value)
	key := Key{Method: a["METHOD"], URI: a["URI"], IV: a["IV"], Format: a["KEYFORMAT"]}
	switch tag {
	case "#EXT-X-MAP":
		p.init, err = parseMap(a["URI"], a["BYTERANGE"])
	case "#EXT-X-KEY":
		if p.key = nil; key.Method != "NONE" {
			p.key, m.Keys, p.details = new(key), append(m.Keys, key), p.details+1
		}
	case "#EXT-X-SESSION-KEY":
		p.master.SessionKeys, p.details = append(p.master.SessionKeys, key), p.details+1
	case "#EXT-X-START":
		m.FromStart = parseSeconds(a["TIME-OFFSET"]) == 0
	case "#EXT-X-SKIP":
		m.Skipped = max(0, int(parseNumber(a["SKIPPED-SEGMENTS"])))
	case "#EXT-X-PART-INF":
		m.PartTarget = max(0, parseSeconds(a["PART-TARGET"]))
	case "#EXT-X-PART":
		part := Part{a["URI"], parseSeconds(a["DURATION"]), a["INDEPENDENT"] == "YES"}
		p.next.Parts, p.details = append(p.next.Parts, part), p.details+1
	case "#EXT-X-PRELOAD-HINT":
		if a["TYPE"] == "PART" {
			m.Hint = a["URI"]
		}
	case "#EXT-X-RENDITION-REPORT":
		report := Report{a["URI"], parseNumber(a["LAST-MSN"]), int(parseNumber(a["LAST-PART"]))}
		m.Reports, p.details = append(m.Reports, report), p.details+1
	case "#EXT-X-STREAM-INF":
		p.variant = a
	case "#EXT-X-MEDIA":
		if a["TYPE"] == "AUDIO" {
			p.master.Audio = append(p.master.Audio, Audio{
				URI: a["URI"], Group: a["GROUP-ID"], Name: a["NAME"], Language: a["LANGUAGE"],
				Channels: max(0, int(parseNumber(a["CHANNELS"]))),
				Default:  a["DEFAULT"] == "YES", AutoSelect: a["AUTOSELECT"] == "YES",
			})
		}
	}
	return err
}

// uri takes the URI of a variant or of a segment.
func (p *parser) uri(uri string) (err error) {
	if a := p.variant; a != nil {
		p.variant = nil
		p.master.Variants = append(p.master.Variants, parseVariant(uri, a))
		return nil
	}
	if !p.timed {
		return errNoEXTINF
	}
	s := p.next
	s.File = File{URI: uri}
	if p.byteRange != "" {
		if s.File, err = parseRange(uri, p.byteRange, p.previous); err != nil {
			return err
		}
	}
	s.Map, s.Key = p.init, p.key
	p.media.Segments = append(p.media.Segments, s)
	p.previous, p.next, p.byteRange, p.timed = s.File, Segment{}, "", false
	return nil
}

// finish appends the segment that has only parts, and numbers the segments.
func (p *parser) finish() {
	m, s := &p.media, p.next
	if len(s.Parts) > 0 {
		s.Open, s.Map, s.Key, s.Duration = true, p.init, p.key, 0
		for _, part := range s.Parts {
			s.Duration += max(0, part.Duration)
		}
		m.Segments = append(m.Segments, s)
	}
	number, breaks := m.Sequence+int64(m.Skipped), m.DiscontinuitySequence
	for i := range m.Segments {
		if m.Segments[i].Discontinuity {
			breaks++
		}
		m.Segments[i].Number, m.Segments[i].Breaks = number+int64(i), breaks
	}
}

func parseVariant(uri string, a map[string]string) Variant {
	v := Variant{
		URI: uri, Name: a["NAME"], Audio: a["AUDIO"],
		Bandwidth: max(0, parseNumber(a["BANDWIDTH"])), Average: max(0, parseNumber(a["AVERAGE-BANDWIDTH"])),
	}
	if codecs := a["CODECS"]; codecs != "" {
		v.Codecs = strings.Split(codecs, ",")
	}
	width, height, _ := strings.Cut(a["RESOLUTION"], "x")
	v.Width, v.Height = max(0, int(parseNumber(width))), max(0, int(parseNumber(height)))
	if rate, err := strconv.ParseFloat(a["FRAME-RATE"], 64); err == nil && rate > 0 && rate < 1e6 {
		v.FrameRate = rate
	}
	return v
}

func parseMap(uri, byteRange string) (f *File, err error) {
	f = &File{URI: uri}
	if uri == "" {
		return nil, errNoMap
	}
	if byteRange != "" {
		if !strings.Contains(byteRange, "@") {
			byteRange += "@0"
		}
		*f, err = parseRange(uri, byteRange, File{})
	}
	return f, err
}

// parseRange reads a byte range like 100@200. Without its start it begins where the range before it
// in the same file ended.
func parseRange(uri, text string, previous File) (File, error) {
	size, start, placed := strings.Cut(text, "@")
	f := File{uri, previous.Offset + previous.Length, parseNumber(size)}
	if placed {
		f.Offset = parseNumber(start)
	}
	if f.Length <= 0 || f.Offset < 0 || !placed && (previous.URI != uri || previous.Length == 0) {
		return File{}, &RangeError{text}
	}
	return f, nil
}

// parseSeconds reads a duration of up to an hour.
func parseSeconds(text string) time.Duration {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(seconds) || seconds < 0 || seconds > 3600 {
		return -1
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// parseNumber reads a number that a float64 can hold, as JSON and other programs want.
func parseNumber(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		return -1
	}
	return n
}

// parseAttributes reads an attribute list like NAME=VALUE,OTHER="with, comma". It leaves out
// attributes that it can't read.
func parseAttributes(text string) map[string]string {
	found := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, "=")
		if !ok {
			break
		}
		var value string
		if quoted, isQuoted := strings.CutPrefix(rest, `"`); isQuoted {
			value, rest, _ = strings.Cut(quoted, `"`)
			_, text, _ = strings.Cut(rest, ",")
		} else {
			value, text, _ = strings.Cut(rest, ",")
		}
		found[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return found
}
