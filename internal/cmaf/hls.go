package cmaf

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// PlaylistType says how a media playlist may change.
type PlaylistType string

// The types of media playlists.
const (
	Sliding PlaylistType = ""      // segments come and go: live
	Event   PlaylistType = "EVENT" // segments come
	VOD     PlaylistType = "VOD"   // nothing changes
)

// PlaylistOptions says how a media playlist is written. Names are paths relative
// to the playlist, not escaped.
type PlaylistOptions struct {
	Type  PlaylistType
	Ended bool // nothing comes after the last segment

	// FromStart asks players to begin with the first segment. Where a list has not
	// ended, they begin near its last one otherwise.
	FromStart bool

	First                 int64 // the number of the first segment in the list
	DiscontinuitySequence int64 // how many discontinuities there were before it

	Gaps bool // some of the segments are gaps

	// Target is the least target duration. A list that grows must know the length of
	// its longest segment beforehand, because players are told once.
	Target time.Duration

	// Extra are the lengths of segments that go on where the track ends: audio that
	// lasts longer than the picture, in segments that have both.
	Extra []time.Duration

	Name func(number int64) string // of a segment
	Init func(number int64) string // of the init segment that a segment needs; nil for MPEG-TS

	// TrackOf returns the track as the init segment of a segment describes it; nil = all
	// segments are of the one track.
	TrackOf func(number int64) Track
}

// MediaPlaylist writes the HLS playlist of segments of one track.
func MediaPlaylist(w io.Writer, o PlaylistOptions, segments []Segment, t Track) error {
	p := playlist{track: t}
	durations := p.durations(o, segments)
	p.head(o, durations)
	for i := range len(segments) + len(o.Extra) {
		number := o.First + int64(i)
		e := playlistEntry{name: o.Name(number), first: number == 0}
		if o.Init != nil {
			e.init = o.Init(number)
		}
		if i < len(segments) {
			if o.TrackOf != nil {
				p.track = o.TrackOf(number)
			}
			e.Segment, e.duration = segments[i], durations[i]
		} else {
			e.duration = o.Extra[i-len(segments)].Microseconds()
		}
		p.segment(e)
	}
	return p.end(w, o.Ended)
}

// SingleFilePlaylist writes the HLS playlist of a track that is one file.
func SingleFilePlaylist(w io.Writer, f TrackFile) error {
	p := playlist{track: f.Index.Track}
	o := PlaylistOptions{Type: VOD, Init: func(int64) string { return f.File() }}
	p.head(o, p.durations(o, f.Index.Segments))
	for i, e := range f.Layout.Extents {
		s := f.Index.Segments[e.Segment]
		p.segment(playlistEntry{
			Segment: s, duration: p.duration(s),
			name: f.File(), first: i == 0, init: f.File(), initSize: int64(f.Layout.Init),
			size: e.Length, offset: e.At,
		})
	}
	return p.end(w, true)
}

// playlist is a media playlist that is being written.
type playlist struct {
	track Track
	text  []byte
	init  string // the init segment in force
}

// playlistEntry is a segment, and where it is.
type playlistEntry struct {
	Segment
	duration int64 // microseconds
	name     string
	first    bool // of all segments that there ever were
	init     string
	initSize int64 // 0 = the init segment is a file of its own

	size, offset int64 // size 0 = the segment is a file of its own
}

// durations returns the lengths of segments in microseconds.
func (p *playlist) durations(o PlaylistOptions, segments []Segment) []int64 {
	all := make([]int64, len(segments))
	for i, s := range segments {
		if o.TrackOf != nil {
			p.track = o.TrackOf(o.First + int64(i))
		}
		all[i] = p.duration(s)
	}
	return all
}

// head writes what stands before the first segment.
func (p *playlist) head(o PlaylistOptions, durations []int64) {
	version := 3 // durations with decimals
	if o.Init != nil {
		version = 6 // EXT-X-MAP
	}
	if o.Gaps {
		version = 8 // EXT-X-GAP
	}
	target := max(1, roundSeconds(o.Target.Microseconds()))
	for _, d := range durations {
		target = max(target, roundSeconds(d))
	}
	for _, d := range o.Extra {
		target = max(target, roundSeconds(d.Microseconds()))
	}
	p.line("#EXTM3U")
	p.line("#EXT-X-VERSION:%d", version)
	p.line("#EXT-X-TARGETDURATION:%d", target)
	p.line("#EXT-X-MEDIA-SEQUENCE:%d", o.First)
	if o.DiscontinuitySequence > 0 {
		p.line("#EXT-X-DISCONTINUITY-SEQUENCE:%d", o.DiscontinuitySequence)
	}
	if o.Type != Sliding {
		p.line("#EXT-X-PLAYLIST-TYPE:%s", o.Type)
	}
	p.line("#EXT-X-INDEPENDENT-SEGMENTS")
	if o.FromStart {
		p.line("#EXT-X-START:TIME-OFFSET=0")
	}
}

// segment writes a segment.
func (p *playlist) segment(e playlistEntry) {
	if e.Discontinuity && !e.first {
		p.line("#EXT-X-DISCONTINUITY")
	}
	if e.init != p.init {
		p.init = e.init
		byteRange := ""
		if e.initSize > 0 {
			byteRange = fmt.Sprintf(`,BYTERANGE="%d@0"`, e.initSize)
		}
		p.line(`#EXT-X-MAP:URI="%s"%s`, escapePath(e.init), byteRange)
	}
	ahead := p.track.Delay
	if e.init == "" { // MPEG-TS, of which players take the time of the first frame
		ahead = 0
	}
	p.date(e.Wall, ahead)
	p.line("#EXTINF:%d.%06d,", e.duration/1e6, e.duration%1e6)
	if e.size > 0 {
		p.line("#EXT-X-BYTERANGE:%d@%d", e.size, e.offset)
	}
	p.line("%s", escapePath(e.name))
}

// date writes when a segment begins: when its first frame is decoded, which is so many
// ticks before it is shown. Shaka takes the decode time of a segment for its date, so with
// any other the audio would be ahead of a picture that has B-frames. Other players go by
// the times in segments.
func (p *playlist) date(wall time.Time, ahead int64) {
	if !wall.IsZero() {
		p.line("#EXT-X-PROGRAM-DATE-TIME:%s", wall.Add(-p.track.Time(ahead)).UTC().Format("2006-01-02T15:04:05.000Z"))
	}
}

func (p *playlist) end(w io.Writer, ended bool) error {
	if ended {
		p.line("#EXT-X-ENDLIST")
	}
	_, err := w.Write(p.text)
	return err
}

func (p *playlist) line(format string, args ...any) {
	p.text = fmt.Appendf(p.text, format, args...)
	p.text = append(p.text, '\n')
}

// duration returns the length of a segment in microseconds: the difference of its
// rounded ends, so that the durations of a list add up to its length, however many
// there are.
func (p *playlist) duration(s Segment) int64 {
	scale := max(1, int64(p.track.Timescale))
	return rescale(s.End(), scale, 1e6) - rescale(s.Start(), scale, 1e6)
}

func roundSeconds(microseconds int64) int64 { return (microseconds + 5e5) / 1e6 }

// escapePath writes a path as a relative URI. Everything but the unreserved
// characters is escaped: some stores take a plus sign for a space, and what stands
// between quotes must not end them.
func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(url.QueryEscape(part), "+", "%20")
	}
	return strings.Join(parts, "/")
}

// quote writes a quoted string of a playlist, which can hold neither quotes nor
// line breaks.
func quote(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		switch {
		case r == '"':
			return '\''
		case r < ' ' || r == 0x7f:
			return ' '
		}
		return r
	}, s) + `"`
}

// attributes is an attribute list of a playlist.
type attributes []string

func (a *attributes) add(name, value string) { *a = append(*a, name+"="+value) }

func (a *attributes) number(name string, value int64) { a.add(name, strconv.FormatInt(value, 10)) }

func (a *attributes) quoted(name, value string) { a.add(name, quote(value)) }

func (a attributes) String() string { return strings.Join(a, ",") }
