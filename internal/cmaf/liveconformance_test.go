package cmaf

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A reader of live playlists, and the rules of RFC 8216 and its second edition
// (draft-pantos-hls-rfc8216bis) that they must hold. It is strict: what it does not know
// is an error.

// liveList is a media playlist as a player sees it. Times are microseconds.
type liveList struct {
	version, target         int64
	sequence, breaks        int64
	control                 map[string]string
	partTarget              int64
	independent, low, ended bool
	skipped                 int64
	segments                []listedSegment
	hint                    string
	reports                 []map[string]string
}

// listedSegment is a segment of a playlist; without a URI it is open.
type listedSegment struct {
	number   int64
	uri      string
	duration int64
	init     string
	broken   bool
	date     string
	parts    []listedPart
}

type listedPart struct {
	uri         string
	duration    int64
	independent bool
}

// length returns how long a segment is, as far as it is listed.
func (s listedSegment) length() int64 {
	if s.uri != "" {
		return s.duration
	}
	var sum int64
	for _, p := range s.parts {
		sum += p.duration
	}
	return sum
}

// parseLive reads a media playlist.
func parseLive(text string) (*liveList, error) {
	l := &liveList{target: -1}
	lines := strings.Split(text, "\n")
	if lines[0] != "#EXTM3U" || lines[len(lines)-1] != "" {
		return nil, errors.New("it does not start with EXTM3U or does not end with a line break")
	}
	p := liveParser{liveList: l, seen: map[string]bool{}}
	for n, line := range lines[1 : len(lines)-1] {
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d, %q: %w", n+2, line, err)
		}
	}
	if p.open.duration != 0 {
		return nil, errors.New("an EXTINF without a URI")
	}
	if len(p.open.parts) > 0 {
		l.segments = append(l.segments, p.open)
	} else if p.tagged {
		return nil, errors.New("tags of a segment that has no parts")
	}
	return l, nil
}

type liveParser struct {
	*liveList
	seen   map[string]bool
	open   listedSegment
	tagged bool // the current segment has tags
	init   string
}

func (p *liveParser) line(line string) (err error) {
	tag, value, _ := strings.Cut(line, ":")
	if !strings.HasPrefix(line, "#") {
		return p.uri(line)
	}
	number := func(to *int64) {
		*to, err = strconv.ParseInt(value, 10, 64)
	}
	switch tag {
	case "#EXT-X-VERSION", "#EXT-X-TARGETDURATION", "#EXT-X-MEDIA-SEQUENCE", "#EXT-X-DISCONTINUITY-SEQUENCE",
		"#EXT-X-SERVER-CONTROL", "#EXT-X-PART-INF", "#EXT-X-INDEPENDENT-SEGMENTS", "#EXT-X-SKIP", "#EXT-X-ENDLIST", "#EXT-X-PRELOAD-HINT":
		if p.seen[tag] {
			return errors.New("a second time")
		}
		p.seen[tag] = true
		if last := tag == "#EXT-X-ENDLIST" || tag == "#EXT-X-PRELOAD-HINT"; !last && (p.tagged || len(p.segments) > 0) {
			return errors.New("behind a segment")
		}
	}
	switch tag {
	case "#EXT-X-VERSION":
		number(&p.version)
	case "#EXT-X-TARGETDURATION":
		number(&p.target)
	case "#EXT-X-MEDIA-SEQUENCE":
		number(&p.sequence)
	case "#EXT-X-DISCONTINUITY-SEQUENCE":
		number(&p.breaks)
	case "#EXT-X-INDEPENDENT-SEGMENTS":
		p.independent = true
	case "#EXT-X-ENDLIST":
		p.ended = true
	default:
		err = p.other(tag, value)
	}
	return err
}

// other reads the tags of low latency and of segments.
func (p *liveParser) other(tag, value string) (err error) {
	switch tag {
	case "#EXT-X-SERVER-CONTROL":
		p.low = true
		p.control, err = attributeList(value)
	case "#EXT-X-PART-INF":
		var a map[string]string
		if a, err = attributeList(value); err == nil {
			p.partTarget, err = micros(a["PART-TARGET"])
		}
	case "#EXT-X-SKIP":
		var a map[string]string
		if a, err = attributeList(value); err == nil {
			p.skipped, err = strconv.ParseInt(a["SKIPPED-SEGMENTS"], 10, 64)
		}
	case "#EXT-X-PRELOAD-HINT":
		var a map[string]string
		if a, err = attributeList(value); err == nil && a["TYPE"] != "PART" {
			err = errors.New("a hint of no part")
		}
		p.hint = a["URI"]
	case "#EXT-X-RENDITION-REPORT":
		var a map[string]string
		a, err = attributeList(value)
		p.reports = append(p.reports, a)
	case "#EXT-X-DISCONTINUITY":
		err = p.ofSegment(!p.open.broken)
		p.open.broken = true
	case "#EXT-X-PROGRAM-DATE-TIME":
		err = p.ofSegment(p.open.date == "")
		p.open.date = value
	case "#EXT-X-MAP":
		var a map[string]string
		if a, err = attributeList(value); err == nil {
			err = p.ofSegment(a["URI"] != "")
		}
		p.init = a["URI"]
	case "#EXT-X-PART":
		p.tagged = true
		err = p.part(value)
	case "#EXTINF":
		if text, ok := strings.CutSuffix(value, ","); ok {
			p.open.duration, err = micros(text)
		} else {
			err = errors.New("no comma")
		}
	default:
		err = errors.New("an unknown tag")
	}
	return err
}

// ofSegment checks that a tag of a segment stands before its parts.
func (p *liveParser) ofSegment(good bool) error {
	p.tagged = true
	if !good || len(p.open.parts) > 0 || p.open.duration != 0 {
		return errors.New("twice, empty, or behind the first part")
	}
	return nil
}

func (p *liveParser) part(value string) error {
	a, err := attributeList(value)
	if err != nil {
		return err
	}
	part := listedPart{uri: a["URI"], independent: a["INDEPENDENT"] == "YES"}
	if part.duration, err = micros(a["DURATION"]); err != nil {
		return err
	}
	p.open.number = p.sequence + p.skipped + int64(len(p.segments))
	p.open.init = p.init
	p.open.parts = append(p.open.parts, part)
	return nil
}

func (p *liveParser) uri(line string) error {
	if p.open.duration == 0 {
		return errors.New("a URI without EXTINF")
	}
	s := p.open
	s.uri, s.init, s.number = line, p.init, p.sequence+p.skipped+int64(len(p.segments))
	p.segments = append(p.segments, s)
	p.open, p.tagged = listedSegment{}, false
	return nil
}

// attributeList reads NAME=value,NAME="value".
func attributeList(text string) (map[string]string, error) {
	found := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(text, "=")
		if !ok || name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return nil, fmt.Errorf("%q is no attribute", text)
		}
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if value, rest, ok = strings.Cut(quoted, `"`); !ok {
				return nil, fmt.Errorf("%q has no end", text)
			}
		} else {
			n := strings.IndexByte(rest, ',')
			if n < 0 {
				n = len(rest)
			}
			value, rest = rest[:n], rest[n:]
		}
		if _, twice := found[name]; twice {
			return nil, fmt.Errorf("%s twice", name)
		}
		found[name] = value
		if text, ok = strings.CutPrefix(rest, ","); !ok && rest != "" {
			return nil, fmt.Errorf("%q is behind a value", rest)
		}
	}
	return found, nil
}

// micros reads seconds with six decimals.
func micros(text string) (int64, error) {
	whole, part, _ := strings.Cut(text, ".")
	if len(part) != 6 {
		return 0, fmt.Errorf("%q does not have six decimals", text)
	}
	return strconv.ParseInt(whole+part, 10, 64)
}

// conform returns the rules that a playlist breaks. Its segments are dated if dated is
// set, and a player was promised parts of at least 85 % of their target if even is.
func (l *liveList) conform(dated, even bool) error {
	var broken []error
	must := func(holds bool, format string, args ...any) {
		if !holds {
			broken = append(broken, fmt.Errorf(format, args...))
		}
	}
	must(l.version >= 6 && (l.skipped == 0 || l.version >= 9), "version %d", l.version)
	must(l.independent, "segments are not said to be independent")
	must(l.target > 0, "no target duration")
	must(l.skipped == 0 || l.low, "segments are left out although that was not offered")
	must(!l.ended || l.hint == "", "a hint behind the end")
	must(l.low || l.hint == "" && len(l.reports) == 0 && l.partTarget == 0, "tags of low latency")
	if l.low {
		hold, err1 := micros(l.control["PART-HOLD-BACK"])
		skip, err2 := micros(l.control["CAN-SKIP-UNTIL"])
		must(err1 == nil && err2 == nil && l.control["CAN-BLOCK-RELOAD"] == "YES", "server control %v", l.control)
		must(l.partTarget > 0 && hold >= 3*l.partTarget, "holds back %d µs with parts of %d µs", hold, l.partTarget)
		must(skip >= 6*l.target*1e6, "skips from %d µs on with a target of %d s", skip, l.target)
		must(l.ended || l.hint == l.expected(), "the hint is %q, want %q", l.hint, l.expected())
		for _, r := range l.reports {
			must(r["URI"] != "" && r["LAST-MSN"] != "", "report %v", r)
		}
	}
	var distance int64
	for i, s := range slices.Backward(l.segments) {
		must(s.init != "", "segment %d has no init segment", s.number)
		must(s.uri == "" || s.uri == fmt.Sprintf("%d.m4s", s.number), "segment %d is %q", s.number, s.uri)
		must(s.uri != "" || l.low && i == len(l.segments)-1, "segment %d is open", s.number)
		must(!dated || s.date != "", "segment %d has no date", s.number)
		must(s.uri == "" || (s.duration+5e5)/1e6 <= l.target, "segment %d lasts %d µs, more than %d s", s.number, s.duration, l.target)
		distance += s.length()
		near := distance <= 3*l.target*1e6 || i == len(l.segments)-1
		must(near && l.low == (len(s.parts) > 0) || !near && len(s.parts) == 0, "segment %d, which starts %d µs from the end, has %d parts", s.number, distance, len(s.parts))
		broken = append(broken, l.conformParts(s, even)...)
	}
	return errors.Join(broken...)
}

// expected returns the URI of the part that must come next, if the segment does not end.
func (l *liveList) expected() string {
	number, part := l.sequence+l.skipped+int64(len(l.segments)), 0
	if n := len(l.segments); n > 0 && l.segments[n-1].uri == "" {
		number, part = number-1, len(l.segments[n-1].parts)
	}
	return fmt.Sprintf("%d.%d.m4s", number, part)
}

func (l *liveList) conformParts(s listedSegment, even bool) (broken []error) {
	var sum int64
	for j, part := range s.parts {
		sum += part.duration
		last := j == len(s.parts)-1
		switch {
		case part.uri != fmt.Sprintf("%d.%d.m4s", s.number, j):
			broken = append(broken, fmt.Errorf("part %d of segment %d is %q", j, s.number, part.uri))
		case part.duration > l.partTarget || part.duration <= 0:
			broken = append(broken, fmt.Errorf("part %s lasts %d µs, the target is %d", part.uri, part.duration, l.partTarget))
		case even && !last && !part.independent && 100*part.duration < 85*l.partTarget:
			broken = append(broken, fmt.Errorf("part %s lasts only %d µs, the target is %d", part.uri, part.duration, l.partTarget))
		case j == 0 && !part.independent:
			broken = append(broken, fmt.Errorf("segment %d does not start with an independent part", s.number))
		}
	}
	if s.uri != "" && len(s.parts) > 0 && sum != s.duration {
		broken = append(broken, fmt.Errorf("segment %d lasts %d µs, its parts %d", s.number, s.duration, sum))
	}
	return broken
}

// follow returns how a playlist contradicts the one that a player had before it.
func (l *liveList) follow(before *liveList) error {
	if l.sequence < before.sequence || l.sequence > before.sequence+int64(len(before.segments)) {
		return fmt.Errorf("the media sequence went from %d, %d segments, to %d", before.sequence, len(before.segments), l.sequence)
	}
	if l.target != before.target || l.partTarget != before.partTarget {
		return fmt.Errorf("target durations went from %d and %d to %d and %d", before.target, before.partTarget, l.target, l.partTarget)
	}
	removed := int64(0)
	for _, s := range before.segments[:l.sequence-before.sequence] {
		if s.broken {
			removed++
		}
	}
	if l.breaks != before.breaks+removed {
		return fmt.Errorf("the discontinuity sequence went from %d to %d with %d discontinuities", before.breaks, l.breaks, removed)
	}
	var left int64
	for _, s := range l.segments {
		left += s.length()
	}
	if l.sequence > before.sequence && left < 3*l.target*1e6 {
		return fmt.Errorf("segments were taken out although only %d µs are left", left)
	}
	kept := before.segments[l.sequence-before.sequence:]
	if len(l.segments) < len(kept) {
		return fmt.Errorf("there are %d segments of %d", len(l.segments), len(kept))
	}
	for i, was := range kept {
		is := l.segments[i]
		if was.number != is.number || was.init != is.init || was.broken != is.broken || was.date != is.date ||
			was.uri != "" && (was.uri != is.uri || was.duration != is.duration) {
			return fmt.Errorf("segment %+v became %+v", was, is)
		}
		n := min(len(was.parts), len(is.parts))
		if !slices.Equal(was.parts[:n], is.parts[:n]) || n < len(was.parts) && n > 0 {
			return fmt.Errorf("parts %v became %v", was.parts, is.parts)
		}
		if was.uri == "" && n < len(was.parts) {
			return fmt.Errorf("segment %d lost parts", is.number)
		}
	}
	return nil
}

// update makes the whole playlist of an update without the older segments, from the
// playlist that a player had.
func (l *liveList) update(before *liveList) (*liveList, error) {
	from := l.sequence - before.sequence
	if from < 0 || from+l.skipped > int64(len(before.segments)) {
		return nil, fmt.Errorf("segments %d to %d are left out, which a player with %d to %d does not have",
			l.sequence, l.sequence+l.skipped, before.sequence, before.sequence+int64(len(before.segments)))
	}
	full := *l
	full.skipped = 0
	full.segments = slices.Concat(before.segments[from:from+l.skipped], l.segments)
	return &full, nil
}

// same reports whether two playlists say the same. Of the first old segments, a player
// may know parts that are not listed any more.
func (l *liveList) same(other *liveList, old int) bool {
	a, b := *l, *other
	a.segments, b.segments = nil, nil
	return reflect.DeepEqual(a, b) && slices.EqualFunc(l.segments, other.segments, func(x, y listedSegment) bool {
		if x.number < l.sequence+int64(old) {
			x.parts, y.parts = nil, nil
		}
		return reflect.DeepEqual(x, y)
	})
}
