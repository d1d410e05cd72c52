package cmaf

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// LiveWindow is what a media playlist shows of a track that grows.
type LiveWindow struct {
	Track  Track
	Tracks []Track // for each segment, as it may change; nothing = all are of Track

	First                 int64 // the number of the first segment
	DiscontinuitySequence int64 // how many discontinuities there were before it

	// Segments are whole. If Open is set, the last of them is not: it has the parts that
	// there are so far.
	Segments []Segment
	Inits    []int // for each segment, the number of the init segment that it needs
	Open     bool
	Ended    bool // nothing comes after the last segment

	PartsFrom int64 // segments before this number are listed without parts, however new they are

	// Target is the least target duration, PartTarget that of parts. Players are told
	// once, so both should be what no segment and no part will exceed. What exceeds them
	// is told while it is in the window, because nothing in a list may be longer.
	Target, PartTarget time.Duration
}

// LiveOptions says how a live playlist is written.
type LiveOptions struct {
	Low     bool     // for low latency: with parts and what goes with them
	Skip    bool     // without the older segments; only a player that asks has use for it
	Reports []Report // how far the other renditions are; for low latency
}

// Report is how far another rendition is.
type Report struct {
	URI     string // path of its media playlist, relative to this one, not escaped
	Segment int64  // number of its newest segment, whole or not
	Part    int    // number of the newest part of that; -1 = it has no parts
}

// What low latency promises, in target durations: how far from the end segments have
// their parts in the list, and from where on a list may leave segments out.
const (
	partsWithin = 3
	skipBeyond  = 6
)

// LivePlaylist writes the HLS playlist of a track that grows. Segments are "<n>.m4s",
// their parts "<n>.<p>.m4s" and init segments "init-<k>.mp4" beside it.
func LivePlaylist(w io.Writer, win LiveWindow, o LiveOptions) error {
	if len(win.Inits) != len(win.Segments) || len(win.Tracks) > 0 && len(win.Tracks) != len(win.Segments) {
		return fmt.Errorf("a live playlist of %d segments has the init segments of %d and the tracks of %d", len(win.Segments), len(win.Inits), len(win.Tracks))
	}
	p := livePlaylist{playlist: playlist{track: win.Track}, LiveWindow: win, low: o.Low}
	p.measure(o.Skip)
	p.head()
	for i := p.skipped; i < len(win.Segments); i++ {
		p.segment(i)
	}
	if o.Low && !win.Ended {
		p.next()
		for _, r := range o.Reports {
			p.report(r)
		}
	}
	return p.end(w, win.Ended)
}

// livePlaylist is a live playlist that is being written.
type livePlaylist struct {
	playlist
	LiveWindow
	low bool

	target     int64 // seconds
	partTarget int64 // microseconds
	skipped    int   // segments that are left out
	parts      int   // the first segment whose parts are listed
}

// whole reports whether a segment is finished.
func (p *livePlaylist) whole(i int) bool { return !p.Open || i < len(p.Segments)-1 }

// measure finds out what the head of the list says.
func (p *livePlaylist) measure(skip bool) {
	p.target = max(1, roundSeconds(p.Target.Microseconds()))
	for i, s := range p.Segments {
		p.look(i)
		if p.whole(i) {
			p.target = max(p.target, roundSeconds(p.duration(s)))
		}
	}
	// Distances are sums of durations: at a discontinuity the timeline may leap.
	var distance int64 // from the end of the list
	p.parts = len(p.Segments)
	for i, s := range slices.Backward(p.Segments) {
		p.look(i)
		if skip && p.low && distance >= skipBeyond*p.target*1e6 {
			p.skipped = i + 1
			break
		}
		distance += p.duration(s)
		if i == p.parts-1 && (i == len(p.Segments)-1 || distance <= partsWithin*p.target*1e6) {
			p.parts = i
		}
	}
	p.parts = max(p.parts, int(min(p.PartsFrom-p.First, int64(len(p.Segments)))))
	p.partTarget = p.PartTarget.Microseconds()
	for i, s := range p.Segments[p.parts:] {
		p.look(p.parts + i)
		if s.Gap() {
			continue
		}
		for _, part := range s.Parts {
			p.partTarget = max(p.partTarget, p.partDuration(part))
		}
	}
}

// look makes the times of a segment be what they are in its track.
func (p *livePlaylist) look(i int) {
	if len(p.Tracks) > 0 {
		p.track = p.Tracks[i]
	}
}

func (p *livePlaylist) partDuration(part Part) int64 { return p.duration(Segment{Parts: []Part{part}}) }

func (p *livePlaylist) head() {
	p.line("#EXTM3U")
	switch {
	case p.low:
		p.line("#EXT-X-VERSION:9") // EXT-X-SKIP
	case slices.ContainsFunc(p.Segments, Segment.Gap):
		p.line("#EXT-X-VERSION:8") // EXT-X-GAP
	default:
		p.line("#EXT-X-VERSION:6") // EXT-X-MAP
	}
	p.line("#EXT-X-TARGETDURATION:%d", p.target)
	if p.low {
		p.line("#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=%s,CAN-SKIP-UNTIL=%s",
			inSeconds(3*p.partTarget), inSeconds(skipBeyond*p.target*1e6))
		p.line("#EXT-X-PART-INF:PART-TARGET=%s", inSeconds(p.partTarget))
	}
	p.line("#EXT-X-MEDIA-SEQUENCE:%d", p.First)
	if p.DiscontinuitySequence > 0 {
		p.line("#EXT-X-DISCONTINUITY-SEQUENCE:%d", p.DiscontinuitySequence)
	}
	p.line("#EXT-X-INDEPENDENT-SEGMENTS")
	if p.skipped > 0 {
		p.line("#EXT-X-SKIP:SKIPPED-SEGMENTS=%d", p.skipped)
	}
}

// segment writes a segment: what holds for all of it first, because that holds for its
// first part too.
func (p *livePlaylist) segment(i int) {
	if !p.whole(i) && !p.low {
		return
	}
	p.look(i)
	s, number := p.Segments[i], p.First+int64(i)
	if s.Discontinuity {
		p.line("#EXT-X-DISCONTINUITY")
	}
	if i == p.skipped || p.Inits[i] != p.Inits[i-1] {
		p.line(`#EXT-X-MAP:URI="init-%d.mp4"`, p.Inits[i])
	}
	p.date(s.Wall, p.track.Delay)
	if p.low && i >= p.parts && !s.Gap() {
		for j, part := range s.Parts {
			independent := ""
			if len(part.Samples) > 0 && part.Samples[0].Sync {
				independent = ",INDEPENDENT=YES"
			}
			p.line(`#EXT-X-PART:DURATION=%s,URI="%d.%d.m4s"%s`, inSeconds(p.partDuration(part)), number, j, independent)
		}
	}
	if p.whole(i) {
		if s.Gap() {
			p.line("#EXT-X-GAP")
		}
		p.line("#EXTINF:%s,", inSeconds(p.duration(s)))
		p.line("%d.m4s", number)
	}
}

// next tells which part comes next. It must come under that name: players ask for it at
// once, and a segment that is open goes on.
func (p *livePlaylist) next() {
	number, part := p.First+int64(len(p.Segments)), 0
	if p.Open && len(p.Segments) > 0 {
		number, part = number-1, len(p.Segments[len(p.Segments)-1].Parts)
	}
	p.line(`#EXT-X-PRELOAD-HINT:TYPE=PART,URI="%d.%d.m4s"`, number, part)
}

func (p *livePlaylist) report(r Report) {
	a := attributes{}
	a.add("URI", `"`+escapePath(r.URI)+`"`)
	a.number("LAST-MSN", r.Segment)
	if r.Part >= 0 {
		a.number("LAST-PART", int64(r.Part))
	}
	p.line("#EXT-X-RENDITION-REPORT:%s", a)
}

// inSeconds writes a duration as playlists do.
func inSeconds(microseconds int64) string {
	return fmt.Sprintf("%d.%06d", microseconds/1e6, microseconds%1e6)
}
