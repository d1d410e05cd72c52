package hls

import "time"

// Type says how a media playlist may change. Without a type, segments come and go.
type Type string

// The types of media playlists.
const (
	Event Type = "EVENT" // segments come
	VOD   Type = "VOD"   // nothing changes
)

// Media is a media playlist.
type Media struct {
	Type  Type
	Ended bool // nothing comes after the last segment

	// FromStart asks players to begin with the first segment. Without it they begin near the
	// last segment of a playlist that has not ended.
	FromStart bool

	// Version is the minimum protocol version. Text raises it to what the segments need.
	Version int

	// Target and PartTarget are the minimum target durations of segments and parts. Text raises
	// them to the maximum that is listed. A playlist that grows sets them to an upper bound,
	// because players read them once. A playlist with a part target, or with parts, is one for low
	// latency.
	Target, PartTarget time.Duration
	TargetFixed        bool // players have seen Target: a longer segment does not raise it

	Sequence              int64 // the number of the first segment, with the skipped ones
	DiscontinuitySequence int64 // how many discontinuities there were before that segment
	Skipped               int   // how many segments before Segments an update leaves out

	Segments []Segment
	Hint     string // URI of the part that comes next; "" = unknown
	Reports  []Report

	// Keys are all keys that the playlist names, and IFramesOnly says that it has only key frames.
	// Parse reads them, Text does not write them.
	Keys        []Key
	IFramesOnly bool
}

// Segment is an entry of a media playlist.
type Segment struct {
	File
	Duration      time.Duration // less than 0 = unreadable
	Date          time.Time     // when it begins; zero = unknown
	Map           *File         // its init section; nil = none
	Key           *Key          // the last of the keys that it is encrypted with; nil = it is not
	Parts         []Part
	Discontinuity bool // it does not continue the segment before it
	Gap           bool // it has a number and a duration, but no media
	Open          bool // more parts come; it has no URI yet. Only the last segment can be open

	// Number is its media sequence number, and Breaks how many discontinuities there were up to it.
	// Parse counts them for its callers, Text does not need them.
	Number, Breaks int64
}

// Part is a part of a segment, for low latency.
type Part struct {
	URI         string
	Duration    time.Duration
	Independent bool // decoding can start with it
}

// Report names the last segment and part of another rendition.
type Report struct {
	URI     string // of its media playlist
	Segment int64  // the number of its last segment, open or not
	Part    int    // the number of the last part of that segment; -1 = it has none
}

// Key says how segments are encrypted.
type Key struct{ Method, URI, IV, Format string }

// Distances from the end of a playlist for low latency, in target durations: within which segments
// have their parts listed, and beyond which an update may leave segments out.
const (
	partsWithin = 3
	skipBeyond  = 6
)

// facts are the facts about the segments that the head of a playlist states.
type facts struct {
	maxDuration, maxPart time.Duration
	version              int
}

func (f *facts) add(s *Segment) {
	if !s.Open {
		f.maxDuration = max(f.maxDuration, s.Duration)
	}
	for i := range s.Parts {
		f.maxPart = max(f.maxPart, s.Parts[i].Duration)
	}
	switch {
	case s.Gap:
		f.version = max(f.version, 8)
	case s.Map != nil:
		f.version = max(f.version, 6)
	}
}

// settle raises the values of the head to those that the segments need.
func (m *Media) settle(f facts) {
	if !m.TargetFixed {
		m.Target = max(m.Target, f.maxDuration)
	}
	m.Target = m.Target.Truncate(time.Microsecond)
	m.Target = max(time.Second, m.Target.Round(time.Second))
	m.PartTarget = max(m.PartTarget, f.maxPart).Truncate(time.Microsecond)
	m.Version = max(m.Version, f.version, 3) // durations with decimals
	if m.PartTarget > 0 {
		m.Version = max(m.Version, 9) // EXT-X-SKIP
	}
}

func (m *Media) facts() (f facts) {
	for i := range m.Segments {
		f.add(&m.Segments[i])
	}
	return f
}

// PartsFrom returns the position of the first segment whose parts players may still need: they are
// listed near the end of the playlist only.
func (m Media) PartsFrom() int {
	m.settle(m.facts())
	first := len(m.Segments)
	for left := partsWithin * m.Target; first > 0; first-- {
		if left -= m.Segments[first-1].Duration; left < 0 {
			break
		}
	}
	return min(first, max(0, len(m.Segments)-1))
}

// Delta returns the playlist without its older segments, for a player that has them. It returns the
// whole playlist if there are none, or if the playlist is not one for low latency, which alone
// offers such updates. Distances are sums of durations: at a discontinuity the timeline may jump.
func (m Media) Delta() Media {
	m.settle(m.facts())
	if m.PartTarget == 0 {
		return m
	}
	left := skipBeyond * m.Target
	for i := len(m.Segments) - 1; i >= 0; i-- {
		if left <= 0 {
			m.Skipped, m.Segments = m.Skipped+i+1, m.Segments[i+1:]
			break
		}
		left -= m.Segments[i].Duration
	}
	return m
}

// Text writes the playlist.
func (m Media) Text() []byte {
	var w writer
	size := 0
	for i := range m.Segments {
		size += m.Segments[i].textSize()
	}
	m.head(&w, m.facts(), size)
	for i := range m.Segments {
		w.segment(&m.Segments[i])
	}
	return m.tail(&w)
}

// Entries are the segments of a playlist that only grows, as text: adding one to a long playlist
// costs no more than adding one to a short playlist. The zero value has none.
type Entries struct {
	writer
	facts
}

// Add appends a segment. The first segment of such a playlist continues nothing, so no
// discontinuity is written before it.
func (e *Entries) Add(s Segment) {
	s.Discontinuity = s.Discontinuity && len(e.text) > 0
	e.add(&s)
	e.segment(&s)
}

// TextWith writes the playlist with these entries in the place of Segments.
func (m Media) TextWith(e *Entries) []byte {
	var w writer
	m.head(&w, e.facts, len(e.text))
	w.text = append(w.text, e.text...)
	return m.tail(&w)
}

// head writes the tags before the first segment. The segments take about size bytes.
func (m *Media) head(w *writer, f facts, size int) {
	m.settle(f)
	for _, r := range m.Reports {
		size += len(r.URI) + 70
	}
	w.text = make([]byte, 0, size+450) // head and tail
	w.put("#EXTM3U\n#EXT-X-VERSION:").number(int64(m.Version))
	w.put("\n#EXT-X-TARGETDURATION:").number(int64(m.Target / time.Second))
	if m.PartTarget > 0 {
		w.put("\n#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES")
		w.put(",PART-HOLD-BACK=").seconds(3 * m.PartTarget)
		w.put(",CAN-SKIP-UNTIL=").seconds(skipBeyond * m.Target)
		w.put("\n#EXT-X-PART-INF:PART-TARGET=").seconds(m.PartTarget)
	}
	w.put("\n#EXT-X-MEDIA-SEQUENCE:").number(m.Sequence)
	if m.DiscontinuitySequence > 0 {
		w.put("\n#EXT-X-DISCONTINUITY-SEQUENCE:").number(m.DiscontinuitySequence)
	}
	if m.Type != "" {
		w.put("\n#EXT-X-PLAYLIST-TYPE:").put(string(m.Type))
	}
	w.put("\n#EXT-X-INDEPENDENT-SEGMENTS\n")
	if m.FromStart {
		w.put("#EXT-X-START:TIME-OFFSET=0\n")
	}
	if m.Skipped > 0 {
		w.put("#EXT-X-SKIP:SKIPPED-SEGMENTS=").number(int64(m.Skipped)).put("\n")
	}
}

// textSize returns the approximate size of the text of a segment.
func (s *Segment) textSize() int {
	size := 20 + len(s.URI)
	if !s.Date.IsZero() {
		size += 50
	}
	if s.Length > 0 || s.Discontinuity || s.Gap {
		size += 40
	}
	for i := range s.Parts {
		size += 38 + len(s.Parts[i].URI)
	}
	return size
}

// segment writes a segment. Tags that apply to the whole segment come first, because they apply to
// the first part too.
func (w *writer) segment(s *Segment) {
	if s.Discontinuity {
		w.put("#EXT-X-DISCONTINUITY\n")
	}
	if s.Map != nil && *s.Map != w.init {
		w.init = *s.Map
		w.put("#EXT-X-MAP:URI=").quoted(s.Map.URI)
		if s.Map.Length > 0 {
			w.put(`,BYTERANGE="`).byteRange(*s.Map).put(`"`)
		}
		w.put("\n")
	}
	if !s.Date.IsZero() {
		w.put("#EXT-X-PROGRAM-DATE-TIME:")
		w.text = s.Date.UTC().AppendFormat(w.text, "2006-01-02T15:04:05.000Z")
		w.put("\n")
	}
	for i := range s.Parts {
		p := &s.Parts[i]
		w.put("#EXT-X-PART:DURATION=").seconds(p.Duration).put(",URI=").quoted(p.URI)
		if p.Independent {
			w.put(",INDEPENDENT=YES")
		}
		w.put("\n")
	}
	if s.Open {
		return
	}
	if s.Gap {
		w.put("#EXT-X-GAP\n")
	}
	w.put("#EXTINF:").seconds(s.Duration).put(",\n")
	if s.Length > 0 {
		w.put("#EXT-X-BYTERANGE:").byteRange(s.File).put("\n")
	}
	w.put(s.URI).put("\n")
}

func (w *writer) byteRange(f File) *writer { return w.number(f.Length).put("@").number(f.Offset) }

// tail writes the tags after the last segment.
func (m *Media) tail(w *writer) []byte {
	if m.Hint != "" {
		w.put("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=").quoted(m.Hint).put("\n")
	}
	for _, r := range m.Reports {
		w.put("#EXT-X-RENDITION-REPORT:URI=").quoted(r.URI).put(",LAST-MSN=").number(r.Segment)
		if r.Part >= 0 {
			w.put(",LAST-PART=").number(int64(r.Part))
		}
		w.put("\n")
	}
	if m.Ended {
		w.put("#EXT-X-ENDLIST\n")
	}
	return w.text
}
