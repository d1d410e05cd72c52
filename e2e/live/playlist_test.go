package live

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// livePlaylist is a media playlist of a live stream.
type livePlaylist struct {
	version, target         int64
	partTarget              float64
	control                 map[string]string
	sequence, discontinuity int64
	independent             bool
	skipped                 int64
	segments                []liveSegment // the last one may be open
	hint                    string
	reports                 []map[string]string
	ended                   bool
}

// liveSegment is a segment in it.
type liveSegment struct {
	number        int64
	init          string
	wall          time.Time
	discontinuity bool
	gap           bool       // nobody has it
	parts         []livePart // only while it is new
	seconds       float64
	uri           string // "" = it is open
}

// livePart is a part of a segment.
type livePart struct {
	uri         string
	seconds     float64
	independent bool
}

// parseLive reads a playlist. A line that it does not know is an error.
func parseLive(text []byte) (*livePlaylist, error) {
	p := &livePlaylist{}
	var next liveSegment
	var init string
	lines := strings.Split(string(text), "\n")
	if lines[0] != "#EXTM3U" {
		return nil, errors.New("it does not begin with #EXTM3U")
	}
	for _, line := range lines[1:] {
		if line == "" {
			continue
		}
		if !strings.HasPrefix(line, "#") {
			next.number, next.init, next.uri = p.sequence+p.skipped+int64(len(p.segments)), init, line
			if next.seconds == 0 {
				return nil, fmt.Errorf("segment %s has no length", line)
			}
			p.segments = append(p.segments, next)
			next = liveSegment{}
			continue
		}
		tag, value, _ := strings.Cut(line, ":")
		var err error
		switch a := harness.Attributes(value); tag {
		case "#EXT-X-DISCONTINUITY":
			next.discontinuity = true
		case "#EXT-X-GAP":
			next.gap = true
		case "#EXT-X-MAP":
			init = a["URI"]
		case "#EXT-X-PROGRAM-DATE-TIME":
			next.wall, err = time.Parse(time.RFC3339, value)
		case "#EXT-X-PART":
			next.parts = append(next.parts, livePart{a["URI"], harness.Number(a["DURATION"]), a["INDEPENDENT"] == "YES"})
		case "#EXTINF":
			next.seconds = harness.Number(strings.TrimSuffix(value, ","))
		default:
			err = p.tag(tag, value, a)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	if len(next.parts) > 0 {
		next.number, next.init = p.sequence+p.skipped+int64(len(p.segments)), init
		p.segments = append(p.segments, next)
	}
	return p, nil
}

// tag reads one that holds for all of the playlist.
func (p *livePlaylist) tag(tag, value string, a map[string]string) (err error) {
	whole := func(to *int64, text string) { *to, err = strconv.ParseInt(text, 10, 64) }
	switch tag {
	case "#EXT-X-VERSION":
		whole(&p.version, value)
	case "#EXT-X-TARGETDURATION":
		whole(&p.target, value)
	case "#EXT-X-SERVER-CONTROL":
		p.control = a
	case "#EXT-X-PART-INF":
		p.partTarget = harness.Number(a["PART-TARGET"])
	case "#EXT-X-MEDIA-SEQUENCE":
		whole(&p.sequence, value)
	case "#EXT-X-DISCONTINUITY-SEQUENCE":
		whole(&p.discontinuity, value)
	case "#EXT-X-INDEPENDENT-SEGMENTS":
		p.independent = true
	case "#EXT-X-SKIP":
		whole(&p.skipped, a["SKIPPED-SEGMENTS"])
	case "#EXT-X-PRELOAD-HINT":
		p.hint = a["URI"]
		if a["TYPE"] != "PART" {
			err = errors.New("it is not of a part")
		}
	case "#EXT-X-RENDITION-REPORT":
		p.reports = append(p.reports, a)
	case "#EXT-X-ENDLIST":
		p.ended = true
	default:
		err = errors.New("what is that?")
	}
	return err
}

// next returns what comes after everything in the playlist: a part of a segment.
func (p *livePlaylist) next() (segment int64, part int) {
	if len(p.segments) == 0 {
		return p.sequence + p.skipped, 0
	}
	last := p.segments[len(p.segments)-1]
	if last.uri != "" {
		return last.number + 1, 0
	}
	return last.number, len(last.parts)
}

// has reports whether the playlist goes at least as far as a part of a segment. One
// behind the last part of a whole segment means the first part of the next one.
func (p *livePlaylist) has(segment int64, part int) bool {
	for _, s := range p.segments {
		if s.number != segment {
			continue
		}
		if s.uri == "" || part < len(s.parts) {
			return part < len(s.parts)
		}
		if s.parts == nil {
			return true // it is older than parts are listed
		}
		segment, part = segment+1, 0
	}
	return p.sequence > segment
}

// onTheNose says what would differ by less than a player can see.
func onTheNose(a, b float64) bool { return math.Abs(a-b) < 1e-5 }

// check looks whether the playlist by itself keeps the rules of low latency.
func (p *livePlaylist) check(video bool) error {
	var wrong []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	need(p.version >= 9, "version %d, EXT-X-SKIP needs 9", p.version)
	need(p.independent, "segments need not be independent")
	need(p.control["CAN-BLOCK-RELOAD"] == "YES", "it can't be waited for")
	need(p.partTarget > 0, "no PART-TARGET")
	need(harness.Number(p.control["PART-HOLD-BACK"]) >= 3*p.partTarget-1e-9, "PART-HOLD-BACK of %s for parts of %f", p.control["PART-HOLD-BACK"], p.partTarget)
	need(harness.Number(p.control["CAN-SKIP-UNTIL"]) >= 6*float64(p.target), "CAN-SKIP-UNTIL of %s for segments of %d", p.control["CAN-SKIP-UNTIL"], p.target)
	number, part := p.next()
	if p.ended {
		need(p.hint == "", "it has ended, and promises %s", p.hint)
	} else {
		need(p.hint == fmt.Sprintf("%d.%d.m4s", number, part), "it promises %s, next is part %d of %d", p.hint, part, number)
	}
	for i, s := range p.segments {
		open := s.uri == ""
		need(!open || i == len(p.segments)-1, "segment %d is open in the middle", s.number)
		need(!open || !p.ended, "segment %d is open, and nothing will come", s.number)
		need(s.init != "", "segment %d has no init segment", s.number)
		need(!s.wall.IsZero(), "segment %d has no date", s.number)
		need(math.Round(s.seconds) <= float64(p.target), "segment %d lasts %f, the target is %d", s.number, s.seconds, p.target)
		var sum float64
		for j, part := range s.parts {
			sum += part.seconds
			last := j == len(s.parts)-1 // or is the newest one, of which that is not known
			need(part.seconds > 0 && part.seconds <= p.partTarget+1e-9, "part %s lasts %f, the target is %f", part.uri, part.seconds, p.partTarget)
			// The encoder may have been stopped before a B-frame: then the last frame lasts for two, and
			// may need a part of its own.
			stopped := p.ended && i == len(p.segments)-1 && j == len(s.parts)-2 && part.seconds+s.parts[j+1].seconds > p.partTarget
			need(last || stopped || part.independent || part.seconds >= 0.85*p.partTarget, "part %s lasts only %f, the target is %f", part.uri, part.seconds, p.partTarget)
			need(part.uri == fmt.Sprintf("%d.%d.m4s", s.number, j), "part %d of segment %d is %s", j, s.number, part.uri)
			need(!video || part.independent == (j == 0), "part %s: independent is %t", part.uri, part.independent)
		}
		need(open || s.parts == nil || onTheNose(sum, s.seconds), "segment %d lasts %f, its parts %f", s.number, s.seconds, sum)
	}
	return errors.Join(wrong...)
}

// follows looks whether the playlist can come after another one: whatever a player
// knows already must still be true.
func (p *livePlaylist) follows(before *livePlaylist) error {
	var wrong []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	need(p.target == before.target, "the target went from %d to %d", before.target, p.target)
	need(p.partTarget == before.partTarget, "PART-TARGET went from %f to %f", before.partTarget, p.partTarget)
	need(p.sequence >= before.sequence, "the sequence went back from %d to %d", before.sequence, p.sequence)
	need(!before.ended || p.ended, "it went on after its end")
	number, part := before.next()
	newNumber, newPart := p.next()
	need(newNumber > number || newNumber == number && newPart >= part, "it went back from part %d of %d to part %d of %d", part, number, newPart, newNumber)
	breaks := before.discontinuity
	for _, old := range before.segments {
		i := old.number - p.sequence
		if i < 0 {
			if old.discontinuity {
				breaks++
			}
			continue
		}
		if i >= int64(len(p.segments)) {
			need(false, "segment %d is gone", old.number)
			continue
		}
		s := p.segments[i]
		need(s.init == old.init && s.wall.Equal(old.wall) && s.discontinuity == old.discontinuity, "segment %d was %+v and is %+v", s.number, old, s)
		need(old.uri == "" || s.uri == old.uri && onTheNose(s.seconds, old.seconds), "segment %d was %+v and is %+v", s.number, old, s)
		if s.parts == nil && s.uri != "" {
			continue // it is too old
		}
		need(len(s.parts) >= len(old.parts), "segment %d had %d parts and has %d", s.number, len(old.parts), len(s.parts))
		need(old.uri == "" || len(s.parts) == len(old.parts), "segment %d was whole with %d parts and has %d", s.number, len(old.parts), len(s.parts))
		for j := range min(len(s.parts), len(old.parts)) {
			need(s.parts[j] == old.parts[j], "part %d of segment %d was %+v and is %+v", j, s.number, old.parts[j], s.parts[j])
		}
	}
	need(p.discontinuity == breaks, "there were %d discontinuities before the first segment, it says %d", breaks, p.discontinuity)
	return errors.Join(wrong...)
}

// merge puts the segments that a playlist left out in front of it, from the one before.
func (p *livePlaylist) merge(before *livePlaylist) error {
	if p.skipped == 0 {
		return nil
	}
	if before == nil {
		return errors.New("it leaves segments out that were never seen")
	}
	from := p.sequence - before.sequence
	if from < 0 || from+p.skipped > int64(len(before.segments)) {
		return fmt.Errorf("it leaves %d segments out from %d on, there were %d from %d on", p.skipped, p.sequence, len(before.segments), before.sequence)
	}
	var all []liveSegment
	for _, s := range before.segments[from : from+p.skipped] {
		if s.uri == "" {
			return fmt.Errorf("it leaves segment %d out, which was open", s.number)
		}
		s.parts = nil // those that it leaves out are old
		all = append(all, s)
	}
	p.segments, p.skipped = append(all, p.segments...), 0
	return nil
}

// TestLiveRules looks whether the rules find what breaks them.
func TestLiveRules(t *testing.T) {
	const head = "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:2\n" +
		"#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.63,CAN-SKIP-UNTIL=12\n#EXT-X-PART-INF:PART-TARGET=0.21\n" +
		"#EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"init-0.mp4\"\n"
	const whole = "#EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:00:00.000Z\n" +
		"#EXT-X-PART:DURATION=0.2,URI=\"7.0.m4s\",INDEPENDENT=YES\n#EXT-X-PART:DURATION=0.1,URI=\"7.1.m4s\"\n#EXTINF:0.3,\n7.m4s\n"
	const open = "#EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:00:00.300Z\n#EXT-X-PART:DURATION=0.2,URI=\"8.0.m4s\",INDEPENDENT=YES\n"
	const hint = "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"8.1.m4s\"\n"
	good := head + whole + open + hint
	parse := func(text string) *livePlaylist {
		p, err := parseLive([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := errors.Join(parse(good).check(true), parse(good).follows(parse(good))); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"YES,PART-HOLD", "NO,PART-HOLD"},
		{"HOLD-BACK=0.63", "HOLD-BACK=0.4"},
		{"PART-TARGET=0.21", "PART-TARGET=0.19"},
		{"UNTIL=12", "UNTIL=11"},
		{"#EXT-X-INDEPENDENT-SEGMENTS\n", ""},
		{"#EXT-X-MAP:URI=\"init-0.mp4\"\n", ""},
		{"8.1.m4s", "9.0.m4s"},
		{"#EXTINF:0.3", "#EXTINF:0.4"},
		{"#EXTINF:0.3", "#EXTINF:2.6"},
		{"7.1.m4s", "7.2.m4s"},
		{",INDEPENDENT=YES", ""},
		{"#EXT-X-PROGRAM-DATE-TIME:2026-01-01T00:00:00.300Z\n", ""},
		{hint, hint + "#EXT-X-ENDLIST\n"},
	} {
		if parse(strings.Replace(good, change[0], change[1], 1)).check(true) == nil {
			t.Errorf("nobody minds %q instead of %q", change[1], change[0])
		}
	}
	for _, change := range [][2]string{
		{"DURATION:2", "DURATION:3"},
		{"SEQUENCE:7", "SEQUENCE:6"},
		{"SEQUENCE:7", "SEQUENCE:8"},
		{open, ""},
		{"00.300Z", "00.400Z"},
		{"init-0", "init-1"},
		{whole, "#EXT-X-DISCONTINUITY\n" + whole},
		{"#EXT-X-PART:DURATION=0.1,URI=\"7.1.m4s\"\n", ""},
		{"SEQUENCE:7\n", "SEQUENCE:7\n#EXT-X-DISCONTINUITY-SEQUENCE:1\n"},
	} {
		if parse(strings.Replace(good, change[0], change[1], 1)).follows(parse(good)) == nil {
			t.Errorf("nobody minds that %q became %q", change[0], change[1])
		}
	}
}
